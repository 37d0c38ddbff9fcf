"""One compared node in full, as a part of the HTML page that opens on a click."""

from __future__ import annotations

from qdebug.report.html_element import Element, element, facts, table
from qdebug.report.html_plots import channel_map, histogram
from qdebug.view.detail import (
    WORST_TITLES,
    NodeDetail,
    attribution_facts,
    error_rows,
    rail_facts,
    side_facts,
    worst_rows,
)
from qdebug.view.profile import error_bars, profile_facts, value_bars

__all__ = ["detail_section"]

_BARS = 48


def detail_section(detail: NodeDetail, *, anchor: str) -> Element:
    """Make the part of the page that shows a node.

    Args:
        detail: What to show.
        anchor: Its id.
    """
    result = detail.result
    status = element("span", str(result.status), class_=str(result.status))
    made = element("details", element("summary", f"#{result.index} {result.node} ({result.op}): ", status), id=anchor)
    if result.reason:
        made.append(element("p", result.reason))
    known = [("pair", f"{result.match}: {result.match_reason}"), *attribution_facts(result)]
    if result.note:
        known.append(("note", result.note))
    made.append(facts([*known, *rail_facts(result.saturation)]))
    if detail.profile is not None:
        made.append(_pictures(detail))
    made.append(table(("", "reference", "backend"), [(f.label, f.reference, f.backend) for f in side_facts(detail)]))
    titles, rows = error_rows(result)
    if rows:
        made.append(table(titles, rows))
    if detail.worst:
        made.append(element("h3", "Worst elements"))
        made.append(table(WORST_TITLES, worst_rows(detail.worst)))
    return made


def _pictures(detail: NodeDetail) -> Element:
    profile = detail.profile
    made = element("div", class_="plots")
    if profile is None:
        return made
    values = value_bars(profile, bars=_BARS)
    if values:
        caption = "Values: the reference as bars, the backend as outline; they share bins and scale."
        made.append(
            _figure(histogram([one for one, _ in values], [other for _, other in values], title=caption), caption)
        )
    errors = error_bars(profile)
    if errors:
        caption = "Absolute differences by power of two: how many elements are off by how much."
        made.append(_figure(histogram(errors, title=caption), caption))
    if profile.channels is not None and profile.channels.sqnr_db.size > 1:
        caption = (
            f"SQNR of each channel along axis {profile.channels.axis}; a strong colour is bad (0 dB), a faint one good."
        )
        made.append(_figure(channel_map(profile.channels), caption))
    said = profile_facts(profile)
    if said:
        made.append(facts(said))
    return made


def _figure(plot: Element, caption: str) -> Element:
    return element("figure", plot, element("figcaption", caption))
