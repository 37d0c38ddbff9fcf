"""qdebug help: the questions that users ask most, answered in plain words."""

from __future__ import annotations

import argparse
import math
import textwrap
from collections.abc import Mapping
from importlib import resources
from itertools import groupby
from types import MappingProxyType
from typing import TYPE_CHECKING

from qdebug.cli.output import emit
from qdebug.cli.parser import Parser, add_debug

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs

__all__ = ["TOPICS", "add_parser", "topic_text"]

TOPICS: Mapping[str, str] = MappingProxyType(
    {
        "tolerance": "which tolerance should I use?",
        "off-by-one": "why is my backend off by one?",
        "recording": "why does recording change the result?",
        "backend": "how do I record my own backend?",
        "table": "how do I read the table?",
        "limits": "which numbers decide the result?",
    }
)
"""Every topic and the question it answers."""

_WIDTH = 80

_DESCRIPTION = "Answer one of the questions that are asked most, in plain words."


def topic_text(topic: str) -> str:
    """Return the text of a topic, one of `TOPICS`."""
    text = resources.files("qdebug.cli").joinpath("texts", f"{topic}.txt").read_text(encoding="utf-8")
    return text + _table_of_thresholds() if topic == "limits" else text


def _table_of_thresholds() -> str:
    """Return all thresholds in lines of at most 80 characters."""
    from qdebug.model.thresholds import TABLE

    lines: list[str] = []
    for group, rows in groupby(TABLE, lambda row: row.group):
        lines += ["", *textwrap.wrap(group, _WIDTH), ""]
        for row in rows:
            said = f"{row.name} = {_number(row.value)} {row.unit} ({row.decides})"
            lines += textwrap.wrap(said, _WIDTH, initial_indent="  ", subsequent_indent="    ")
            lines += textwrap.wrap(row.why, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    return "\n".join([*lines, ""])


def _number(value: float | tuple[int, ...]) -> str:
    """Return a number as people write it; very large and very small powers of two as such."""
    if isinstance(value, tuple):
        return ", ".join(map(_number, value))
    fraction, exponent = math.frexp(value)
    return f"2^{exponent - 1}" if fraction == 0.5 and not -6 < exponent < 14 else f"{value:g}"


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    listed = "\n".join(f"  {name:12}{question}" for name, question in TOPICS.items())
    parser: Parser = verbs.add_parser(
        "help", help="answers to common questions", description=_DESCRIPTION, epilog=f"topics:\n{listed}"
    )
    parser.add_argument("topic", nargs="?", choices=list(TOPICS), metavar="TOPIC", help="one of those below")
    add_debug(parser)
    parser.set_defaults(run=lambda arguments: _run(arguments, parser))


def _run(arguments: argparse.Namespace, parser: Parser) -> int:
    emit(topic_text(arguments.topic) if arguments.topic else parser.format_help())
    return 0
