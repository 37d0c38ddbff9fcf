"""The comparison as a notebook shows it: the verdict and the rows worth a look, without script or style of its own."""

from __future__ import annotations

from qdebug.compare.result.node_result import is_beyond
from qdebug.compare.result.result import DiffResult
from qdebug.report.html_element import Element, element, rendered, table
from qdebug.view import numbers, sentences
from qdebug.view.rows import columns, node_row
from qdebug.view.selection import Gap, select

__all__ = ["diff_fragment"]

_KEYS = ("index", "status", "node", "op", "sqnr_db", "introduced", "max_lsb", "rel_l2", "saturated")


def diff_fragment(result: DiffResult) -> str:
    """Give a comparison as a piece of HTML.

    Args:
        result: What to show; of a long net the first divergence, its neighbours and the worst nodes.
    """
    known = columns()
    rows = []
    first = next((node for node in result.nodes if is_beyond(node)), None)
    for position in select(result.nodes):
        if isinstance(position, Gap):
            rows.append([element("td", f"{numbers.grouped(position.hidden)} hidden", colspan=len(_KEYS))])
            continue
        cells = node_row(result.nodes[position]).cells
        texts: list[Element | str] = [cells[key].text for key in _KEYS]
        if result.nodes[position] is first:
            texts = [element("b", text) for text in texts]
        rows.append([element("td", text) for text in texts])
    limits = sentences.limits_sentence(result.limits, ways="limits=qdebug.Limits(...)")
    made = element(
        "div",
        element("p", element("b", str(result.status).upper()), f" {sentences.verdict_sentence(result)}"),
        table([known[key].title for key in _KEYS], rows),
        element("p", f"{sentences.coverage_sentence(result)}; limits {limits}"),
    )
    return rendered(made)
