"""qdebug demo: record, compare and explain the built-in network."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING

from qdebug.cli.output import emit, progress
from qdebug.cli.parser import Parser, add_common, options_from
from qdebug.cli.reports import diff_text
from qdebug.cli.sources import command
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.compare.result.result import RunComparison
    from qdebug.running.demo import DemoRun

__all__ = ["DemoOptions", "fill_parser", "run"]

_DESCRIPTION = """\
Show a complete session on a network that ships with qdebug, a small classifier of
handwritten digits. The demo records the float network and its int8 form with one
planted bug, compares the two, and suggests the next commands. It needs no model, no
framework and no network connection."""

_EPILOG = """\
examples:
  qdebug demo                 recordings go to ./qdebug-demo
  qdebug demo /tmp/digits     or to a directory of your choice"""


_DEFAULT_FOLDER = Path("qdebug-demo")
"""The demo's own folder, in which it may overwrite files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Arguments of `qdebug demo`."""

    directory: Path
    force: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument(
        "directory",
        nargs="?",
        type=Path,
        default=_DEFAULT_FOLDER,
        help="folder for the recordings (default: ./qdebug-demo, which may be replaced)",
    )
    parser.add_argument("--force", action="store_true", help="overwrite recordings in DIRECTORY")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Record and compare the demo network, and print the comparison with the next commands."""
    options = options_from(DemoOptions, arguments)
    from qdebug.running.demo import run_demo

    with progress("recording") as note:
        is_default = options.directory == _DEFAULT_FOLDER
        demo = run_demo(options.directory, force=options.force or is_default, on_progress=note)
    reference, backend = Path(demo.reference), Path(demo.backend)
    emit(_summary_text(demo))
    emit("")
    emit(diff_text(_with_remedies(demo), "table"))
    emit("")
    emit(_next_text(reference, backend, demo.result.first_divergence))
    return 0


def _with_remedies(demo: DemoRun) -> RunComparison:
    """Return the comparison with remedies, as `qdebug diff` shows it."""
    from qdebug.repair.remedies import with_remedies
    from qdebug.session import DiffSession, opened_recording

    with opened_recording(demo.reference) as reference, opened_recording(demo.backend) as backend:
        session = DiffSession(reference, backend, cache=True)
        return with_remedies(session, demo.result, pair=command(demo.reference, demo.backend))


def _summary_text(demo: DemoRun) -> str:
    """Describe the two recordings and the planted bug."""
    sentence = f"reads {{}} of {demo.digits} digits correctly"
    lines = [
        f"Recorded a float network: {safe_text(demo.reference)}, {sentence.format(demo.reference_right)}",
        f"Recorded its int8 form:   {safe_text(demo.backend)}, {sentence.format(demo.backend_right)}",
        fill(f"The int8 form has a bug, planted in node {safe_text(demo.planted)}: {safe_text(demo.bug)}.", 78),
        "",
        "This is what qdebug diff says about the two recordings:",
    ]
    return "\n".join(lines)


def _next_text(reference: Path, backend: Path, node: str | None) -> str:
    """List the next commands."""
    steps = [(command("qdebug", "info", backend), "show what a recording contains")]
    if node is not None:
        steps.append((command("qdebug", "diff", reference, backend, "--node", node), "show that node in full"))
        steps.append(
            (command("qdebug", "explain", backend, "--node", node), "show which of its codes no arithmetic explains")
        )
    steps.append((command("qdebug", "tui", reference, backend), "browse the comparison"))
    steps.append(("qdebug record --help", "record your own model"))
    return "\n".join(["Type next:", *(f"  {command_text}\n      {purpose}" for command_text, purpose in steps)])
