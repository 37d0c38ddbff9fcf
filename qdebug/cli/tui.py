"""qdebug tui: the comparison to walk through."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.failures import say
from qdebug.cli.output import emit, progress
from qdebug.cli.parser import Parser, add_debug, natural, typed
from qdebug.cli.reports import diff_text
from qdebug.cli.sources import open_source

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs

__all__ = ["TuiOptions", "add_parser", "run"]

_DESCRIPTION = """\
Walk through a comparison in the terminal, also over ssh: the verdict, the error
along the net, every node, and both tensors of a node side by side. It opens at
once and computes while you look. ? shows the keys, ! goes to the first divergence,
q quits. Where there is no terminal, the report of qdebug diff is printed instead."""

_EPILOG = """\
examples:
  qdebug tui ref.h5 int8.h5
  qdebug tui ref.h5 int8.h5 --node conv1     open at a node
  qdebug tui ref.h5 int8.h5 --sample 3       look at one sample"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuiOptions:
    """Arguments of `qdebug tui`."""

    reference: Path
    backend: Path
    node: str | None
    sample: int | None


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser: Parser = verbs.add_parser(
        "tui", help="the same comparison, to walk through in the terminal", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument("reference", type=Path, metavar="REF", help="recording of the reference run")
    parser.add_argument("backend", type=Path, metavar="BACKEND", help="recording of the backend run")
    parser.add_argument("--node", metavar="NAME", help="open at this node (or tensor)")
    parser.add_argument("--sample", type=natural, metavar="N", help="look at sample N alone, counted from 0")
    add_debug(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the interface, or print the report where there is no terminal."""
    options = typed(TuiOptions, arguments)
    for path in (options.reference, options.backend):
        open_source(path)  # so that a wrong file is told before the screen is taken
    missing = _no_terminal()
    if missing:
        say(f"qdebug: {missing}, so this is the report of: qdebug diff")
        return _report(options)
    from qdebug.tui.app import run_tui

    return run_tui(options.reference, options.backend, node=options.node, sample=options.sample)


def _no_terminal() -> str:
    """Say why no interface can be shown; "" if it can."""
    if not sys.stdout.isatty():
        return "stdout is not a terminal"
    if not sys.stdin.isatty():
        return "stdin is not a terminal"
    from rich.console import Console

    return "the terminal cannot move its cursor (TERM is dumb)" if Console().is_dumb_terminal else ""


def _report(options: TuiOptions) -> int:
    from qdebug.cli.comparison import compare, node_detail, opened

    session = opened(options.reference, options.backend, sample=options.sample)
    with progress("comparing") as note:
        result = compare(session, on_progress=note)
    emit(diff_text(result, "table"))
    if options.node is not None:
        from qdebug.cli.reports import node_text

        emit("")
        emit(node_text(node_detail(session, result, options.node, sample=options.sample), "table"))
    return result.exit_code
