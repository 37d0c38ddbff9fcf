"""Search the pages of the guide for a word or a section."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

__all__ = ["Passage", "extract_sections", "find_passages", "list_headings"]

_MARKUP = re.compile(r"\]\([^)]*\)|[`*|\[]|^#+ ")


class Passage(NamedTuple):
    """A section of the guide in which a word occurs.

    Args:
        topic: The page.
        heading: The heading of the section.
        line: The first line with the word, without markup.
        in_heading: Whether the word is in the heading itself.
    """

    topic: str
    heading: str
    line: str
    in_heading: bool


def find_passages(word: str, pages: Iterable[tuple[str, str]]) -> list[Passage]:
    """Return the sections that contain a word. Sections with the word in their heading come first.

    Args:
        word: A word or phrase, case-insensitive. Its plural matches as well.
        pages: The name and Markdown of each page.
    """
    pattern = re.compile(rf"(?<![\w-]){re.escape(' '.join(word.split()))}(?:e?s)?(?![\w-])", re.IGNORECASE)
    all_passages = [passage for topic, text in pages for passage in _passages_of_page(pattern, topic, text)]
    return sorted(all_passages, key=lambda passage: not passage.in_heading)


def list_headings(text: str) -> list[str]:
    """Return the headings of a page of Markdown, without markup."""
    return [_plain(line) for line in text.splitlines() if line.startswith("#")]


def extract_sections(text: str, name: str) -> str | None:
    """Return the sections of a page whose heading contains a name; None if no heading does.

    Args:
        text: The page, as Markdown.
        name: A part of a heading, case-insensitive.
    """
    lines: list[str] = []
    shown_level = 0
    for line in text.splitlines():
        level = len(line) - len(line.lstrip("#"))
        if level and not 0 < shown_level < level:
            shown_level = level if name.casefold() in _plain(line).casefold() else 0
        if shown_level:
            lines.append(line)
    return "\n".join(lines) or None


def _plain(line: str) -> str:
    """Return a line of Markdown without markup."""
    return " ".join(_MARKUP.sub(" " if line.startswith("|") else "", line).split())


def _passages_of_page(pattern: re.Pattern[str], topic: str, text: str) -> Iterator[Passage]:
    heading, is_done = "", False
    for line in text.splitlines():
        is_heading = line.startswith("#")
        plain_line = _plain(line)
        if is_heading:
            heading, is_done = plain_line, False
        if not is_done and pattern.search(plain_line):
            yield Passage(topic, heading, plain_line, is_heading)
            is_done = True
