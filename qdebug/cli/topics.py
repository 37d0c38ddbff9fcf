"""qdebug help: the questions that users ask most, answered in plain words."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from importlib import resources
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
    }
)
"""Every topic and the question it answers."""

_DESCRIPTION = "Answer one of the questions that are asked most, in plain words."


def topic_text(topic: str) -> str:
    """Give the text of a topic, one of `TOPICS`."""
    return resources.files("qdebug.cli").joinpath("texts", f"{topic}.txt").read_text(encoding="utf-8")


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
