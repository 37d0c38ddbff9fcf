"""The comparison as one HTML file that needs no network, cannot run recorded text, and is readable without scripts."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib import resources

from qdebug.compare.align.pairs import Match
from qdebug.compare.result.node_result import breaks_limit, is_beyond, is_excused
from qdebug.compare.result.result import NodeResult, RunComparison, Status
from qdebug.numerics.agreement import Agreement
from qdebug.present import numbers, sentences
from qdebug.present.detail import NodeDetail
from qdebug.present.error_bars import error_bars, profile_facts, value_bars
from qdebug.present.matrix import matrix_of
from qdebug.present.reports.comparison import comparison_facts, coverage, remarks, title
from qdebug.present.reports.definitions import definitions_document
from qdebug.present.reports.document import Document, FactList, Grid, Item, Items, Paragraph, Section
from qdebug.present.reports.html_graph import graph_plot
from qdebug.present.reports.html_plots import (
    Element,
    channel_map,
    count_nodes_per_column,
    element,
    error_profile,
    facts,
    histogram,
    parts_plot,
    sample_map,
    table,
    to_html,
)
from qdebug.present.reports.node import node_facts, node_numbers, worst_blocks
from qdebug.present.reports.short import MOST_ROWS, answer_blocks, deciding_positions, key_facts
from qdebug.present.rows import Cell, Gap, badness, columns, node_row, row_cell, select_rows

__all__ = ["DETAILS_SHOWN", "detail_section", "diff_fragment", "diff_html", "worth_detail"]

_MAX_BARS = 48


def detail_section(detail: NodeDetail, *, prefix: str, shown: frozenset[int], opened: bool = False) -> Element:
    """Make the section of the page that shows one node in full.

    Args:
        detail: The node to show.
        prefix: Prefix of the ids in this backend's part of the page.
        shown: Numbers of the nodes that have a row.
        opened: Whether it is open initially. Only one section is open at a time.
    """
    result = detail.result
    status = element("span", str(result.status), class_=str(result.status))
    summary = element("summary", f"#{result.index} {result.node} ({result.op}): ", status)
    # The inner element has the id, since a link to it opens the enclosing `details`, even without scripts.
    inside = element("div", id=f"{prefix}d{result.index}")
    if result.reason:
        inside.append(element("p", result.reason))
    if result.index in shown:
        inside.append(element("p", element("a", "Row of this node in the table", href=f"#{prefix}{result.index}")))
    inside.extend(document_elements([FactList(node_facts(detail))]))
    if detail.around is not None and detail.around.edges:
        caption = (
            "The graph around it, from top to bottom. An edge is as wide as its error (rel L2): thin up to 1e-4, "
            "widest from 1; dashed if not compared."
        )
        inside.append(_figure(graph_plot(detail.around, prefix=prefix, shown=shown), caption))
    if detail.profile is not None:
        inside.append(_profile_plots(detail))
    inside.extend(document_elements([*map(_without_definitions, node_numbers(detail)), *worst_blocks(detail)]))
    return element("details", summary, inside, name=f"{prefix}node", open_="" if opened else None)


def _without_definitions(grid: Grid) -> Grid:
    """Return a table without its column of definitions, because the page shows all definitions once."""
    kept_columns = [at for at in range(len(grid.titles)) if at not in grid.dim]
    return Grid(
        titles=[grid.titles[at] for at in kept_columns], rows=[[row[at] for at in kept_columns] for row in grid.rows]
    )


def document_elements(document: Document) -> list[Element]:
    """Return the elements of a document, without its title, since the page has its own."""
    page_elements: list[Element] = []
    for block in document:
        if isinstance(block, Section):
            page_elements.append(element("h3", block.text[:1].upper() + block.text[1:]))
        elif isinstance(block, Paragraph):
            page_elements.append(element("p", block.text))
        elif isinstance(block, FactList) and block.facts:
            page_elements.append(facts([(fact.label, fact.text) for fact in block.facts]))
        elif isinstance(block, Grid) and block.rows:
            page_elements.append(table(block.titles, block.rows, class_="sentences" if block.below else None))
        elif isinstance(block, Items) and block.items:
            page_elements.append(element("ul", *(_list_item(item) for item in block.items)))
    return page_elements


def _list_item(item: Item) -> Element:
    kind: list[Element | str] = [element("b", item.kind), " "] if item.kind else []
    return element("li", *kind, item.text, *(element("p", line) for line in item.more))


def _profile_plots(detail: NodeDetail) -> Element:
    profile = detail.profile
    container = element("div", class_="plots")
    if profile is None:
        return container
    values = value_bars(profile, bars=_MAX_BARS)
    if values:
        caption = "Values: the reference as bars, the backend as outline; they share bins and scale."
        container.append(
            _figure(
                histogram([reference for reference, _ in values], [backend for _, backend in values], title=caption),
                caption,
            )
        )
    errors = error_bars(profile)
    if errors:
        caption = "Absolute differences by power of two: how many elements are off by how much."
        container.append(_figure(histogram(errors, title=caption), caption))
    if profile.channels is not None and profile.channels.sqnr_db.size > 1:
        caption = (
            f"SQNR of each channel along axis {profile.channels.axis}; a strong colour is bad (0 dB), a "
            "faint colour is good."
        )
        container.append(_figure(channel_map(profile.channels), caption))
    profile_details = profile_facts(profile)
    if profile_details:
        container.append(facts(profile_details))
    return container


def _figure(plot: Element, caption: str) -> Element:
    return element("figure", plot, element("figcaption", caption))


DETAILS_SHOWN = 12
"""Maximum number of nodes shown in full."""

_KEYS = (
    *("index", "status", "node", "sqnr_db", "op", "why", "arithmetic", "clipping", "constants", "introduced", "gain"),
    *("max_lsb", "rel_l2", "max_abs", "mismatches", "cosine", "clipped", "quant", "match", "tensor"),
)
"""Columns of the table. A column without any values is left out."""
_ALWAYS = ("index", "status", "node", "sqnr_db", "op")
"""Columns that are always shown."""
_MAX_ROWS = 10_000
"""Maximum number of table rows, so that a browser stays fast. The worst nodes are kept."""
_ROWS_PRINTED = 200
"""Number of table rows that are printed. `report.css` hides the others."""
_MAP_ROWS, _MAP_COLUMNS = 24, 64
_PAIRS_SHOWN = 2000
_NODES_MARKED = 3
"""Maximum number of diagnosed nodes that are marked along the network."""


def worth_detail(result: RunComparison) -> list[NodeResult]:
    """Choose the nodes to show in full: those that the verdict concerns, with the origin second, then the worst.

    Nodes that are identical or were not compared are left out.

    Args:
        result: The comparison.
    """
    deciding_nodes = [result.nodes[at] for at in deciding_positions(result)]
    origin = [node for node in result.nodes if node.node == result.origin]
    nodes_by_badness = sorted(result.nodes, key=badness)
    nodes_by_tensor = {node.tensor: node for node in (*deciding_nodes[:1], *origin, *deciding_nodes, *nodes_by_badness)}
    wrong_nodes = [
        node for node in nodes_by_tensor.values() if node.status not in (Status.IDENTICAL, Status.INCOMPARABLE)
    ]
    return wrong_nodes[:DETAILS_SHOWN]


def diff_html(
    results: Mapping[str, RunComparison],
    details: Mapping[str, Sequence[NodeDetail]] | None = None,
    agreement: Mapping[str, Agreement] | None = None,
    budgets: Mapping[str, Document] | None = None,
) -> str:
    """Return comparisons as a page.

    Args:
        results: One comparison for each backend, by displayed name.
        details: Nodes to show in full, by the same names, usually those from `worth_detail`.
        agreement: Whether several backends have the same errors, by reference tensor, or None if not requested.
        budgets: The effect of each node's own error on the outputs, by the same names, or None if not requested.
    """
    details_by_backend = details or {}
    outcomes = " and ".join(f"{name}: {result.status}" for name, result in results.items())
    main = element("main")
    if len(results) > 1:
        main.append(element("h1", f"qdebug: {len(results)} backends"))
        main.append(_verdict_list(results))
        main.append(_backends_section(results, agreement))
    for number, (name, result) in enumerate(results.items()):
        heading = "h2" if len(results) > 1 else "h1"
        main.append(
            _backend_section(name, result, details_by_backend.get(name, ()), prefix=f"b{number}-", heading=heading)
        )
        if budgets is not None and name in budgets:
            budget = element("section", element("h3", "What each node's own error does to the outputs"))
            budget.extend(document_elements(budgets[name]))
            main.append(budget)
    definitions = element("details", element("summary", "What the numbers mean"))
    definitions.extend(document_elements(definitions_document()))
    main.append(definitions)
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
        element("title", f"qdebug: {outcomes}"),
        _raw_markup("style", style),
    )
    page = element("html", head, element("body", main, _raw_markup("script", script)), lang="en")
    return f"<!DOCTYPE html>\n{to_html(page)}\n"


def _raw_markup(tag: str, text: str) -> Element:
    """Make an element from trusted text, without escaping."""
    raw_element = element(tag)
    raw_element.text = text
    return raw_element


def _digest(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _backends_section(results: Mapping[str, RunComparison], agreement: Mapping[str, Agreement] | None) -> Element:
    """Make the table of several backends: one row per reference tensor, one column per backend."""
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
        rows.append([element("td", row.tensor, class_="name"), *cells, element("td", row.agreement_cell)])
    return element(
        "section",
        element("h2", "SQNR in dB, backend beside backend"),
        table(("reference tensor", *matrix.backends, "wrong alike"), rows, class_="sortable"),
    )


def _verdict_list(results: Mapping[str, RunComparison]) -> Element:
    """Make the list of all verdicts, each linking to its backend's part of the page."""
    verdict_list = element("ul", class_="verdicts")
    for number, (name, result) in enumerate(results.items()):
        status = element("b", str(result.status), class_=str(result.status))
        verdict_list.append(
            element("li", element("a", name, href=f"#b{number}-"), ": ", status, " ", _first_divergence_text(result))
        )
    return verdict_list


def _first_divergence_text(result: RunComparison) -> str:
    first = result.first_divergence
    return "" if first is None else f"first at {first}"


def _backend_section(
    name: str, result: RunComparison, details: Sequence[NodeDetail], *, prefix: str, heading: str
) -> Element:
    """Return the section of a backend: verdict, error along the network, diagnosis, nodes, and facts about the runs."""
    section = element("section", element(heading, f"{name} against its reference"), id=prefix)
    verdict = title(result)
    first = next((node for node in result.nodes if is_beyond(node)), None)
    shown_nodes = _choose_rows(result, first)
    link = None if first is None else element("a", "Show its row.", href=f"#{prefix}{first.index}")
    badge = element("span", verdict.word, class_=f"badge {result.status}")
    section.append(element("p", badge, " ", verdict.text, " ", link, class_="verdict"))
    numbers_shown = frozenset(node.index for node in shown_nodes)
    if result.nodes:
        section.append(_network_plots(result, prefix, numbers_shown))
    if result.diagnosis:
        section.extend(
            document_elements(answer_blocks(result, max_faults=MOST_ROWS, max_reasons=MOST_ROWS, rest="further down"))
        )
        summary = element("summary", "The verdict in sentences")
        section.append(element("details", summary, element("p", sentences.verdict_sentence(result))))
    else:
        section.extend(document_elements([key_facts(result, rest="further down")]))
        section.append(element("p", sentences.verdict_sentence(result)))
    if not result.nodes:
        section.append(element("p", "No node was compared."))
        return section
    anchors = {detail.result.tensor: f"{prefix}d{detail.result.index}" for detail in details}
    columns_container = element(
        "div", _nodes_section(result, shown_nodes, anchors, prefix), class_="beside" if details else None
    )
    if details:
        pane = element("section", element("h3", "In full"), class_="pane", aria_label="nodes in full")
        for at, detail in enumerate(details):
            pane.append(detail_section(detail, prefix=prefix, shown=numbers_shown, opened=at == 0))
        columns_container.append(pane)
    section.append(columns_container)
    section.extend(_samples_part(result))
    section.append(element("h3", "What ran"))
    section.extend(document_elements([comparison_facts(result), remarks(result.nodes)]))
    section.append(_coverage_part(result))
    section.append(_pairs_part(result))
    return section


def _choose_rows(result: RunComparison, first: NodeResult | None) -> list[NodeResult]:
    """Return the nodes that have a row: those that the verdict concerns, then the others in topological order."""
    deciding_nodes = [result.nodes[at] for at in deciding_positions(result)]
    if first is not None and first not in deciding_nodes[:1]:
        deciding_nodes = [first, *(node for node in deciding_nodes if node is not first)]
    deciding_indices = {node.index for node in deciding_nodes}
    other_nodes = [node for node in result.nodes if node.index not in deciding_indices]
    row_budget = max(_MAX_ROWS - len(deciding_nodes), 0)
    if len(other_nodes) > row_budget:
        other_nodes = sorted(sorted(other_nodes, key=badness)[:row_budget], key=lambda node: node.index)
    return [*deciding_nodes[:_MAX_ROWS], *other_nodes]


def _network_plots(result: RunComparison, prefix: str, shown: frozenset[int]) -> Element:
    own_floor, output_floor = result.limits.get("min_sqnr"), result.limits.get("min_output_sqnr")
    floor = output_floor if own_floor is None else own_floor
    container = element("div", class_="plots")
    diagnosed_tensors = {fault.tensor for fault in result.diagnosis[:_NODES_MARKED]}
    marked_indices = frozenset(node.index for node in result.nodes if node.tensor in diagnosed_tensors)
    plot = error_profile(result.nodes, prefix=prefix, shown=shown, floor=floor, marked=marked_indices)
    clicks = " A click on a dot leads to its row." if plot.find("a") is not None else ""
    caption = f"SQNR in dB of each tensor along the network; higher is better.{clicks}"
    if isinstance(floor, int | float):
        caption += f" The dashed line is the limit{'' if own_floor is not None else ' of the outputs'}, {floor:g} dB."
    nodes_per_column = count_nodes_per_column(result.nodes)
    if nodes_per_column > 1:
        caption += (
            f" The band spans the worst and the best of each {nodes_per_column} neighbours; the line shows the worst."
        )
    if marked_indices:
        caption += " Red dots are the first nodes of the diagnosis."
    container.append(_figure(plot, caption))
    parts = parts_plot(result.nodes)
    if parts is not None:
        caption = (
            "Error relative to the signal (rel L2): introduced by the node, and propagated to it; lower is better."
            f"{f' The largest of each {nodes_per_column} neighbours.' if nodes_per_column > 1 else ''}"
        )
        container.append(_figure(parts, caption))
    return container


def _samples_part(result: RunComparison) -> list[Element]:
    """Make the heat map of the worst nodes by sample, or nothing for a single sample."""
    samples = sorted({entry.sample for node in result.nodes for entry in node.samples})
    return [element("h3", "Sample by sample"), _sample_map(result, samples)] if len(samples) > 1 else []


def _sample_map(result: RunComparison, samples: Sequence[int]) -> Element:
    unequal_nodes = [node for node in result.nodes if node.samples and node.status is not Status.IDENTICAL]
    rows = sorted(sorted(unequal_nodes, key=badness)[:_MAP_ROWS], key=lambda node: node.index)
    if not rows:
        return element("p", "Every tensor is identical in every sample.", class_="faint")
    shown_samples = list(samples)
    if len(samples) > _MAP_COLUMNS:
        worst = dict.fromkeys(samples, math.inf)
        for entry in (entry for node in rows for entry in node.samples):
            value = -math.inf if entry.sqnr_db is None or math.isnan(entry.sqnr_db) else entry.sqnr_db
            worst[entry.sample] = min(worst[entry.sample], value)
        shown_samples = sorted(sorted(samples, key=lambda sample: worst[sample])[:_MAP_COLUMNS])
    samples_text = (
        f"{len(shown_samples)} of {len(samples)} samples{' (the worst)' if len(shown_samples) < len(samples) else ''}"
    )
    caption = (
        f"SQNR of the {len(rows)} worst of {len(result.nodes)} tensors, in topological order, for {samples_text}; "
        "a strong colour is bad (0 dB), a faint colour is good."
    )
    return _figure(sample_map(rows, shown_samples), caption)


def _nodes_section(
    result: RunComparison, shown: Sequence[NodeResult], anchors: Mapping[str, str], prefix: str
) -> Element:
    """Make the table of nodes. A checkbox, which needs no script, hides the nodes that do not decide the verdict."""
    deciding_indices = frozenset(result.nodes[at].index for at in deciding_positions(result))
    section = element("section", element("h3", "Nodes"), aria_label="nodes")
    has_failures = any(
        breaks_limit(node) or node.status is Status.INCOMPARABLE
        for node in result.nodes
        if node.index in deciding_indices
    )
    count_text = f"{numbers.grouped(len(deciding_indices))} {'node' if len(deciding_indices) == 1 else 'nodes'}"
    nodes_text = (
        f"{count_text} that {'fail' if len(deciding_indices) > 1 else 'fails'}"
        if has_failures
        else f"{count_text} named in the verdict"
    )
    if 0 < len(deciding_indices) < len(result.nodes):
        section.append(element("input", type="checkbox", id=f"{prefix}only", class_="only"))
        section.append(element("label", f"only the {nodes_text}", for_=f"{prefix}only"))
    table = _node_table(result, shown, deciding_indices, anchors, prefix)
    table.set("tabindex", "0")
    table.set("role", "region")
    table.set("aria-label", "table of nodes, scrollable")
    section.append(table)
    stand = "stands" if len(deciding_indices) == 1 else "stand"
    order = (
        f"The {nodes_text} {stand} first, then all others"
        if 0 < len(deciding_indices) < len(result.nodes)
        else "All nodes"
    )
    order_sentence = (
        f"{order} in topological order."
        if not has_failures or len(deciding_indices) < len(result.nodes)
        else "The first divergence, then the worst."
    )
    hidden_count = len(result.nodes) - len(shown)
    if hidden_count:
        order_sentence += (
            f" {numbers.grouped(hidden_count)} more nodes with smaller errors are left out; the JSON has them all."
        )
    section.append(element("p", order_sentence, class_="faint"))
    if len(shown) > _ROWS_PRINTED:
        section.append(element("p", f"On paper the table ends after {_ROWS_PRINTED} rows.", class_="onpaper"))
    return section


def _node_table(
    result: RunComparison,
    shown: Sequence[NodeResult],
    deciding_indices: frozenset[int],
    anchors: Mapping[str, str],
    prefix: str,
) -> Element:
    all_columns = columns()
    cells = {key: [row_cell(node, key) for node in shown] for key in _KEYS}
    if all(node.node == node.tensor for node in shown):
        del cells["tensor"]
    trivial_texts = {numbers.MISSING, str(Match.EXACT)}
    keys = [key for key in cells if key in _ALWAYS or not {cell.text for cell in cells[key]} <= trivial_texts]
    node_table = table([all_columns[key].title for key in keys], (), class_="sortable")
    body = next(node_table.iter("tbody"))
    for cell, key in zip(node_table.iter("th"), keys, strict=True):
        if all_columns[key].numeric:
            cell.set("class", "number")
        if all_columns[key].definition:
            cell.set("title", all_columns[key].definition)
    first = next((node.index for node in result.nodes if is_beyond(node)), None)
    for at, node in enumerate(shown):
        classes = " ".join(["deciding"] * (node.index in deciding_indices) + ["first"] * (node.index == first)) or None
        row = [_node_cell(node, key, cells[key][at], anchors.get(node.tensor)) for key in keys]
        body.append(element("tr", *row, id=f"{prefix}{node.index}", class_=classes))
    return node_table


def _node_cell(node: NodeResult, key: str, cell: Cell, anchor: str | None) -> Element:
    """Make a cell of a node's row. The reason is below the node's name, which stays visible on a narrow screen."""
    if key == "node":
        name = element("th", cell.text if anchor is None else element("a", cell.text, href=f"#{anchor}"), scope="row")
        is_excused_failure = breaks_limit(node) and is_excused(node)
        accepted = f"acknowledged: {node.acknowledged.reason}" if is_excused_failure and node.acknowledged else ""
        reason_text = "; ".join(part for part in (node.reason or "", accepted) if part)
        if reason_text:
            name.append(element("small", reason_text))
        return name
    if key == "status":
        return element("td", element("span", cell.text, class_=str(node.status)))
    return element("td", cell.text, data_sort=_sort_value(cell.value) if columns()[key].numeric else None)


def _sort_value(value: float | str | None) -> str:
    """Return a number in the format that the page's script reads."""
    if value is None:
        return ""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else f"{'-' if value < 0 else ''}Infinity"
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def _pairs_part(result: RunComparison) -> Element:
    """List how tensors were paired, except for pairs with the same name, which are only counted."""
    same_name_pairs = [
        node for node in result.nodes if node.match is Match.EXACT and node.tensor == node.reference_tensor
    ]
    same_name_indices = {node.index for node in same_name_pairs}
    other_pairs = [node for node in result.nodes if node.index not in same_name_indices]
    container = element("div", element("h3", "How tensors were paired"))
    if same_name_pairs:
        container.append(
            element(
                "p",
                f"{numbers.grouped(len(same_name_pairs))} of {numbers.grouped(len(result.nodes))} "
                "by their common name.",
            )
        )
    if other_pairs:
        shown_pairs = other_pairs[:_PAIRS_SHOWN]
        rows = [(node.tensor, node.reference_tensor, sentences.pair_words(node)) for node in shown_pairs]
        pairs = element(
            "details", element("summary", f"{numbers.grouped(len(other_pairs))} pairs that were made in another way")
        )
        pairs.append(table(("backend tensor", "reference tensor", "how it was paired, and its layout"), rows))
        if len(shown_pairs) < len(other_pairs):
            pairs.append(element("p", f"{len(other_pairs) - len(shown_pairs)} more pairs; the JSON has them all"))
        container.append(pairs)
    container.append(element("p", "To pair by hand: qdebug diff REF BACKEND --write-map FILE writes the pairs."))
    return container


def _coverage_part(result: RunComparison) -> Element:
    container = element("div", element("h3", "What was not compared"))
    for clause in result.shortcomings:
        container.append(element("p", clause, class_="incomplete"))
    container.extend(document_elements([coverage(result)]))
    return container


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
    "clipped",
    "reason",
)


def diff_fragment(result: RunComparison) -> str:
    """Return a comparison as an HTML fragment.

    Args:
        result: The comparison to show. For a long network, only the first divergence, its neighbours and the worst
            nodes.
    """
    all_columns = columns()
    rows = []
    first = next((node for node in result.nodes if is_beyond(node)), None)
    for position in select_rows(result.nodes):
        if isinstance(position, Gap):
            rows.append([element("td", f"{numbers.grouped(position.hidden)} hidden", colspan=len(_FRAGMENT_KEYS))])
            continue
        cells = node_row(result.nodes[position]).cells
        texts: list[Element | str] = [cells[key].text for key in _FRAGMENT_KEYS]
        if result.nodes[position] is first:
            texts = [element("b", text) for text in texts]
        rows.append([element("td", text) for text in texts])
    limits = sentences.limits_sentence(result.limits, ways="limits=qdebug.Limits(...)")
    fragment = element(
        "div",
        element("p", element("b", str(result.status).upper()), f" {sentences.verdict_sentence(result)}"),
        table([all_columns[key].title for key in _FRAGMENT_KEYS], rows),
        element("p", f"{sentences.coverage_sentence(result)}; limits {limits}"),
    )
    return to_html(fragment)
