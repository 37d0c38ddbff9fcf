"""The comparison as one HTML file: no network, no frame, nothing that a name could set off; readable without script."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import resources

from qdebug.compare.result.node_result import breaks_limit, is_beyond, is_excused
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.errors import LimitsError
from qdebug.numerics.agreement import Agreement
from qdebug.present import numbers, sentences
from qdebug.present.detail import NodeDetail
from qdebug.present.matrix import matrix_of
from qdebug.present.profile import error_bars, profile_facts, value_bars
from qdebug.present.reports.comparison import comparison_facts, coverage, remarks
from qdebug.present.reports.document import Document, FactList, Grid, Item, Items, Paragraph, Section
from qdebug.present.reports.html_plots import (
    Element,
    channel_map,
    element,
    error_profile,
    facts,
    histogram,
    parts_plot,
    rendered,
    sample_map,
    table,
)
from qdebug.present.reports.node import node_facts, node_numbers, worst_blocks
from qdebug.present.rows import Gap, badness, columns, node_row, select
from qdebug.workflow.map_file import map_text

__all__ = ["DETAILS_SHOWN", "detail_section", "diff_fragment", "diff_html", "worth_detail"]

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
    made.extend(elements([FactList(node_facts(detail))]))
    if detail.profile is not None:
        made.append(_pictures(detail))
    made.extend(elements([*node_numbers(detail), *worst_blocks(detail)]))
    return made


def elements(document: Document) -> list[Element]:
    """Return the elements of a document; a title is the page's own."""
    made: list[Element] = []
    for block in document:
        if isinstance(block, Section):
            made.append(element("h3", block.text[:1].upper() + block.text[1:]))
        elif isinstance(block, Paragraph):
            made.append(element("p", block.text))
        elif isinstance(block, FactList) and block.facts:
            made.append(facts([(fact.label, fact.text) for fact in block.facts]))
        elif isinstance(block, Grid) and block.rows:
            made.append(table(block.titles, block.rows))
        elif isinstance(block, Items) and block.items:
            made.append(element("ul", *(_item(item) for item in block.items)))
    return made


def _item(item: Item) -> Element:
    kind: list[Element | str] = [element("b", item.kind), " "] if item.kind else []
    return element("li", *kind, item.text, *(element("p", line) for line in item.more))


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


DETAILS_SHOWN = 12
"""Nodes that are shown in full: the worst ones."""

_KEYS = (
    *("index", "status", "node", "tensor", "op", "sqnr_db"),
    *("arithmetic", "clipping", "constants", "introduced", "gain", "max_lsb", "rel_l2", "max_abs"),
    *("mismatches", "cosine", "saturated", "quant", "match", "reason"),
)
_MAP_ROWS, _MAP_COLUMNS = 24, 64
_PAIRS_SHOWN = 2000


def worth_detail(result: RunComparison) -> list[NodeResult]:
    """Choose the nodes that are shown in full: the first divergence, then the worst, none that is identical.

    Args:
        result: The comparison.
    """
    wrong = [node for node in result.nodes if node.status not in (Status.IDENTICAL, Status.INCOMPARABLE)]
    first = [node for node in wrong if is_beyond(node)][:1]
    chosen = [*first, *(node for node in sorted(wrong, key=badness) if node not in first)]
    return chosen[:DETAILS_SHOWN]


def diff_html(
    results: Mapping[str, RunComparison],
    details: Mapping[str, Sequence[NodeDetail]] | None = None,
    agreement: Mapping[str, Agreement] | None = None,
) -> str:
    """Return comparisons as a page.

    Args:
        results: One comparison for each backend, by the name shown for it.
        details: Nodes to show in full, by the same names; those of `worth_detail` are worth it.
        agreement: Whether several backends are wrong alike, by reference tensor; None if nobody asked.
    """
    known = details or {}
    title = " and ".join(f"{name}: {result.status}" for name, result in results.items())
    several = len(results) > 1
    main = element("main", element("h1", f"qdebug: {len(results)} backends" if several else "qdebug"))
    if several:
        main.append(_verdicts(results))
        main.append(_beside(results, agreement))
    for number, (name, result) in enumerate(results.items()):
        main.append(_section(name, result, known.get(name, ()), prefix=f"b{number}-"))
    files = resources.files("qdebug.present.reports").joinpath("page")
    style = files.joinpath("report.css").read_text(encoding="utf-8")
    script = files.joinpath("report.js").read_text(encoding="utf-8")
    policy = f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'"
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"{policy}; base-uri 'none'; form-action 'none'",
        ),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="referrer", content="no-referrer"),
        element("title", f"qdebug: {title}"),
        _raw("style", style),
    )
    page = element("html", head, element("body", main, _raw("script", script)), lang="en")
    return f"<!DOCTYPE html>\n{rendered(page)}\n"


def _raw(tag: str, text: str) -> Element:
    """Make an element of a text of ours, in which nothing is escaped."""
    made = element(tag)
    made.text = text
    return made


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _beside(results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement] | None) -> Element:
    """Make the table of several backends: a row a reference tensor, a column a backend."""
    matrix = matrix_of(results, agreement)
    rows = []
    for row in matrix.rows:
        cells = [
            element(
                "td",
                element("span", cell.text, class_="" if result is None else str(result.status)),
                class_="number",
                data_sort=_sort_value(cell.value),
            )
            for cell, result in zip(row.cells, row.results, strict=True)
        ]
        rows.append([element("td", row.tensor, class_="name"), *cells, element("td", row.alike)])
    return element(
        "section",
        element("h2", "SQNR in dB, backend beside backend"),
        table(("reference tensor", *matrix.backends, "wrong alike"), rows, class_="sortable"),
    )


def _verdicts(results: Mapping[str, RunComparison]) -> Element:
    """Make the list of all verdicts, each leading to its backend's part of the page."""
    made = element("ul", class_="verdicts")
    for number, (name, result) in enumerate(results.items()):
        status = element("b", str(result.status), class_=str(result.status))
        made.append(element("li", element("a", name, href=f"#b{number}-"), ": ", status, " ", _said(result)))
    return made


def _said(result: RunComparison) -> str:
    first = result.first_divergence
    return "" if first is None else f"first at {first}"


def _section(name: str, result: RunComparison, details: Sequence[NodeDetail], *, prefix: str) -> Element:
    made = element("section", element("h2", f"{name} against its reference"), id=prefix)
    verdict = element("span", str(result.status).upper(), class_=f"badge {result.status}")
    first = next((node for node in result.nodes if is_beyond(node)), None)
    link = None if first is None else element("a", "Show its row.", href=f"#{prefix}{first.index}")
    made.append(element("p", verdict, " ", sentences.verdict_sentence(result), " ", link))
    made.extend(elements([comparison_facts(result), remarks(result.nodes)]))
    if not result.nodes:
        made.append(element("p", "No node was compared."))
        return made
    made.append(_plots(result, prefix))
    shown = {detail.result.tensor: f"{prefix}d{detail.result.index}" for detail in details}
    made.append(element("h3", "Every node"))
    made.append(_node_table(result, shown, prefix))
    if details:
        made.append(element("h3", f"The worst {len(details)} nodes in full" if len(details) > 1 else "The worst node"))
        for detail in details:
            made.append(detail_section(detail, anchor=shown[detail.result.tensor]))
    made.append(_coverage(result))
    made.append(_pairs(result))
    return made


def _plots(result: RunComparison, prefix: str) -> Element:
    floor = result.limits.get("min_sqnr")
    made = element("div", class_="plots")
    caption = "SQNR in dB of each tensor along the net; higher is better. A click on a dot leads to its row."
    made.append(_figure(error_profile(result.nodes, prefix=prefix, floor=floor), caption))
    parts = parts_plot(result.nodes)
    if parts is not None:
        caption = (
            "Error relative to the signal (rel L2): what the node adds itself, and what reaches it; lower is better."
        )
        made.append(_figure(parts, caption))
    samples = sorted({entry.sample for node in result.nodes for entry in node.samples})
    if len(samples) > 1:
        made.append(_samples(result, samples))
    return made


def _samples(result: RunComparison, samples: Sequence[int]) -> Element:
    wrong = [node for node in result.nodes if node.samples and node.status is not Status.IDENTICAL]
    rows = sorted(sorted(wrong, key=badness)[:_MAP_ROWS], key=lambda node: node.index)
    if not rows:
        return element("p", "Every tensor is identical in every sample.", class_="faint")
    chosen = list(samples)
    if len(samples) > _MAP_COLUMNS:
        worst = dict.fromkeys(samples, math.inf)
        for entry in (entry for node in rows for entry in node.samples):
            value = -math.inf if entry.sqnr_db is None or math.isnan(entry.sqnr_db) else entry.sqnr_db
            worst[entry.sample] = min(worst[entry.sample], value)
        chosen = sorted(sorted(samples, key=lambda sample: worst[sample])[:_MAP_COLUMNS])
    some = f"{len(chosen)} of {len(samples)} samples{' (the worst)' if len(chosen) < len(samples) else ''}"
    caption = (
        f"SQNR of the {len(rows)} worst of {len(result.nodes)} tensors, in topological order, for {some}; "
        "a strong colour is bad (0 dB), a faint one good."
    )
    return _figure(sample_map(rows, chosen), caption)


def _node_table(result: RunComparison, shown: Mapping[str, str], prefix: str) -> Element:
    known = columns()
    same = all(node.node == node.tensor for node in result.nodes)
    keys = [key for key in _KEYS if not (same and key == "tensor")]
    made = table([*(known[key].title for key in keys), "why"], (), class_="sortable")
    head, body = made.iter("th"), next(made.iter("tbody"))
    for cell, key in zip(head, keys, strict=False):
        if known[key].numeric:
            cell.set("class", "number")
        if known[key].definition:
            cell.set("title", known[key].definition)
    first = next((node.index for node in result.nodes if is_beyond(node)), None)
    for node in result.nodes:
        classes = "first" if node.index == first else None
        body.append(element("tr", *_cells(node, keys, shown), id=f"{prefix}{node.index}", class_=classes))
    return made


def _cells(node: NodeResult, keys: Sequence[str], shown: Mapping[str, str]) -> list[Element]:
    row, known = node_row(node), columns()
    excused = breaks_limit(node) and is_excused(node)
    cells = []
    for key in keys:
        cell = row.cells[key]
        content: Element | str = cell.text
        if key == "node" and node.tensor in shown:
            content = element("a", cell.text, href=f"#{shown[node.tensor]}")
        elif key == "status":
            content = element("span", cell.text, class_=str(node.status))
        sort = _sort_value(cell.value) if known[key].numeric else None
        named = {"node": "name key", "tensor": "name"}
        numeric = "number" if known[key].numeric else named.get(key)
        cells.append(element("td", content, class_=numeric, data_sort=sort))
    said = [node.reason or "", f"acknowledged: {node.acknowledged.reason}" if excused and node.acknowledged else ""]
    return [*cells, element("td", "; ".join(part for part in said if part), class_="why")]


def _sort_value(value: float | str | None) -> str:
    """Return a number as the page's script reads it."""
    if value is None:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return str(value)


def _pairs(result: RunComparison) -> Element:
    """Show how each pair was made, and the map that makes it again."""
    made = element("div", element("h3", "How tensors were paired"))
    shown = result.nodes[:_PAIRS_SHOWN]
    rows = [(node.tensor, node.reference_tensor, sentences.pair_words(node)) for node in shown]
    pairs = element("details", element("summary", f"{len(result.nodes)} pairs"))
    pairs.append(table(("backend tensor", "reference tensor", "how it was made, and its layout"), rows))
    if len(shown) < len(result.nodes):
        pairs.append(element("p", f"{len(result.nodes) - len(shown)} more pairs; the JSON has them all"))
    made.append(pairs)
    with suppress(LimitsError):  # of a name that no map can hold
        kept = element("details", element("summary", "A map to complete by hand, for qdebug diff --map FILE"))
        kept.append(element("pre", map_text(result)))
        made.append(kept)
    return made


def _coverage(result: RunComparison) -> Element:
    made = element("div", element("h3", "What was not compared"))
    for clause in result.shortcomings:
        made.append(element("p", clause, class_="incomplete"))
    made.extend(elements([coverage(result)]))
    return made


_FRAGMENT_KEYS = (
    "index",
    "status",
    "node",
    "op",
    "sqnr_db",
    "arithmetic",
    "clipping",
    "constants",
    "max_lsb",
    "rel_l2",
    "saturated",
    "reason",
)


def diff_fragment(result: RunComparison) -> str:
    """Return a comparison as a piece of HTML.

    Args:
        result: What to show; of a long net the first divergence, its neighbours and the worst nodes.
    """
    known = columns()
    rows = []
    first = next((node for node in result.nodes if is_beyond(node)), None)
    for position in select(result.nodes):
        if isinstance(position, Gap):
            rows.append([element("td", f"{numbers.grouped(position.hidden)} hidden", colspan=len(_FRAGMENT_KEYS))])
            continue
        cells = node_row(result.nodes[position]).cells
        texts: list[Element | str] = [cells[key].text for key in _FRAGMENT_KEYS]
        if result.nodes[position] is first:
            texts = [element("b", text) for text in texts]
        rows.append([element("td", text) for text in texts])
    limits = sentences.limits_sentence(result.limits, ways="limits=qdebug.Limits(...)")
    made = element(
        "div",
        element("p", element("b", str(result.status).upper()), f" {sentences.verdict_sentence(result)}"),
        table([known[key].title for key in _FRAGMENT_KEYS], rows),
        element("p", f"{sentences.coverage_sentence(result)}; limits {limits}"),
    )
    return rendered(made)
