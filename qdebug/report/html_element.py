"""Elements of an HTML page: every text in them is made safe and escaped, so that no name can become markup."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from qdebug.view.text import safe_text

__all__ = ["Element", "element", "facts", "rendered", "table"]

Element = ET.Element
"""An element of a page."""

_TEXT_LIMIT = 4000
_ATTRIBUTE_LIMIT = 1000
_DRAWING_LIMIT = 1 << 24
"""Characters of the line of a plot, which must not lose its middle."""


def element(tag: str, /, *children: Element | str | None, **attributes: object) -> Element:
    """Make an element.

    Args:
        tag: Its name.
        *children: Elements and texts in their order; None is left out.
        **attributes: By name, with "_" for "-" and one at the end taken off (`class_`); None is left out.
    """
    named = {
        name.rstrip("_").replace("_", "-"): safe_text(value, limit=_DRAWING_LIMIT if name == "d" else _ATTRIBUTE_LIMIT)
        for name, value in attributes.items()
        if value is not None
    }
    made = ET.Element(tag, named)
    for child in children:
        if isinstance(child, str):
            _add_text(made, safe_text(child, limit=_TEXT_LIMIT))
        elif child is not None:
            made.append(child)
    return made


def _add_text(made: Element, text: str) -> None:
    if len(made):
        made[-1].tail = (made[-1].tail or "") + text
    else:
        made.text = (made.text or "") + text


def table(titles: Iterable[str], rows: Iterable[Iterable[Element | str]], **attributes: object) -> Element:
    """Make a table that scrolls sideways where it is too wide.

    Args:
        titles: Headings.
        rows: Cells of each row: texts, or elements that are cells already.
        **attributes: Of the table.
    """
    head = element("thead", element("tr", *(element("th", title, scope="col") for title in titles)))
    body = element("tbody")
    for row in rows:
        body.append(element("tr", *(cell if isinstance(cell, Element) else element("td", cell) for cell in row)))
    return element("div", element("table", head, body, **attributes), class_="scroll")


def facts(known: Iterable[tuple[str, str | Element]]) -> Element:
    """Make a list of labelled facts."""
    made = element("dl")
    for label, value in known:
        made.append(element("dt", label))
        made.append(element("dd", value))
    return made


def rendered(root: Element) -> str:
    """Give an element as HTML text."""
    return ET.tostring(root, encoding="unicode", method="html")
