"""The content of a report: blocks of text, facts and tables that terminal, Markdown and HTML lay out.

All texts are safe to print already; each renderer adds what its own form needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Block", "Document", "Fact", "FactList", "Grid", "Item", "Items", "Paragraph", "Section", "Title"]


@dataclass(frozen=True, slots=True)
class Title:
    """The first line: one word for the answer, and the answer.

    Args:
        word: The answer in a word.
        text: The answer in a sentence.
        style: Of the word, for a terminal.
    """

    word: str
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """The heading of a part."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """A sentence or more.

    Args:
        text: The sentences.
        style: For a terminal.
    """

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """One labelled fact.

    Args:
        label: What it is about; "" if it belongs to the fact before.
        text: The fact.
        style: Of the text, for a terminal.
    """

    label: str
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class FactList:
    """Labelled facts, one a line."""

    facts: Sequence[Fact]

    @classmethod
    def of(cls, facts: Iterable[tuple[str, str]]) -> FactList:
        """Make facts of pairs of label and text."""
        return cls([Fact(label, text) for label, text in facts])


@dataclass(frozen=True, slots=True)
class Item:
    """One of a list.

    Args:
        text: What there is to say.
        kind: Of what kind it is; "" for none.
        style: Of the kind, or of the text if there is none, for a terminal.
        more: Further lines of it.
    """

    text: str
    kind: str = ""
    style: str = ""
    more: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    items: Sequence[Item]

    @classmethod
    def of(cls, texts: Iterable[str], *, style: str = "") -> Items:
        """Make a list of texts."""
        return cls([Item(text, style=style) for text in texts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table.

    Args:
        titles: Headings.
        rows: One text a column.
        right: Columns aligned to the right.
        dim: Columns shown faintly.
        names: Columns of names from a recording.
        below: Columns that a terminal, which is narrow, shows below the line of their row, each with what it puts
            before the text; a text that is missing is not shown there.
        wide: Width in characters from which on a terminal shows the last column; 0 for any.
        instead: What it says where the last column is not shown.
        styles: Of each row's first line, for a terminal; empty for none.
    """

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: frozenset[int] = frozenset()
    dim: frozenset[int] = frozenset()
    names: frozenset[int] = frozenset()
    below: Mapping[int, str] = field(default_factory=dict)
    wide: int = 0
    instead: str = ""
    styles: Sequence[str] = ()


Block = Title | Section | Paragraph | FactList | Items | Grid
"""Any part of a document."""

Document = Sequence[Block]
"""A report, from top to bottom. A block with nothing in it is not shown."""
