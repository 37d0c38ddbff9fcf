"""The content of a report: blocks of text, facts and tables that terminal, Markdown and HTML lay out.

All texts are already safe to print. Each renderer adds what its output format needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["Block", "Code", "Document", "Fact", "FactList", "Grid", "Item", "Items", "Paragraph", "Section", "Title"]


@dataclass(frozen=True, slots=True)
class Title:
    """The first line of a report: the verdict as a word and as a sentence.

    Args:
        word: The verdict in a word or two.
        text: The verdict in one sentence.
        style: Style of the word in a terminal.
    """

    word: str
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """The heading of a section."""

    text: str


@dataclass(frozen=True, slots=True)
class Paragraph:
    """One or more sentences.

    Args:
        text: The sentences.
        style: Style in a terminal.
    """

    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class Code:
    """Lines of code.

    Args:
        language: Its language, as in a Markdown fence.
        text: The lines.
    """

    language: str
    text: str


@dataclass(frozen=True, slots=True)
class Fact:
    """One labelled fact.

    Args:
        label: The subject, or "" if the fact continues the previous one.
        text: The fact.
        style: Style of the text in a terminal.
    """

    label: str
    text: str
    style: str = ""


@dataclass(frozen=True, slots=True)
class FactList:
    """Labelled facts, one per line."""

    facts: Sequence[Fact]

    @classmethod
    def of(cls, facts: Iterable[tuple[str, str]]) -> FactList:
        """Make facts from pairs of label and text."""
        return cls([Fact(label, text) for label, text in facts])


@dataclass(frozen=True, slots=True)
class Item:
    """One entry of a list.

    Args:
        text: The text.
        kind: The kind of entry, or "".
        style: Style in a terminal, of the kind or, if there is none, of the text.
        more: Further lines of the entry.
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
        """Make a list from texts."""
        return cls([Item(text, style=style) for text in texts])


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """A table.

    Args:
        titles: Headings.
        rows: One text per column.
        right: Right-aligned columns.
        dim: Dimmed columns.
        names: Columns that contain names from a recording.
        below: Columns that a terminal shows below their row because it is narrow, with a prefix for each text. A
            missing text is not shown.
        wide: Minimum width in characters for a terminal to show the last column, or 0 for any.
        instead: Text that a terminal shows if the last column is hidden.
        styles: Style of each row's first line in a terminal, or empty for none.
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


Block = Title | Section | Paragraph | Code | FactList | Items | Grid
"""Any part of a document."""

Document = Sequence[Block]
"""A report, from top to bottom. An empty block is not shown."""
