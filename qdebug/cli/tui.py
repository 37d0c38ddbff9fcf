"""qdebug tui: show the comparison in the terminal interface."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.failures import say
from qdebug.cli.interrupts import signals_as_interrupts
from qdebug.cli.limits import add_allowances, add_limits, add_limits_file, add_map, limits_of_options, load_map_option
from qdebug.cli.models import add_models, record_models
from qdebug.cli.output import emit, progress
from qdebug.cli.parser import Parser, add_common, add_untrusted, natural, options_from
from qdebug.cli.reports import diff_text
from qdebug.cli.sources import open_source
from qdebug.present.text import safe_text
from qdebug.tui.screens import VIEWS

if TYPE_CHECKING:
    from qdebug.cli.record import BackendChoice
    from qdebug.compare.result.limits import Limits

__all__ = ["SCREENS", "THEMES", "TuiOptions", "fill_parser", "run"]

SCREENS = tuple(map(str, VIEWS))
"""Names of the screens."""

THEMES = ("dark", "light", "contrast")
"""Names of the colour themes."""

_DESCRIPTION = """\
Browse a comparison in the terminal, also over ssh: what is wrong and why, the error
along the network, the graph, both tensors of a node, and edits to try. The screen
opens at once and fills while qdebug computes. Enter explains why a node differs, X
tries the edits suggested for it, 1 to 9 select a screen, ? shows all keys, q quits. Without a
terminal, the report of qdebug diff is printed instead."""

_EPILOG = """\
examples:
  qdebug tui net.onnx net.int8.onnx --inputs x.npz    records both, then opens
  qdebug tui ref.h5 int8.h5
  qdebug tui ref.h5 int8.h5 --node conv1     open at a node
  qdebug tui ref.h5 int8.h5 --sample 3       compare one sample
  qdebug tui ref.h5 npu-a.h5 npu-b.h5        several backends; b selects the next backend
  qdebug tui ref.h5 int8.h5 --node conv1 --screen values
  qdebug tui ref.h5 int8.h5 --screen nodes --filter is=failing"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TuiOptions:
    """Arguments of `qdebug tui`."""

    reference: Path
    backends: Sequence[Path]
    node: str | None
    sample: int | None
    screen: str | None
    filter: str
    theme: str | None
    mouse: bool
    follow: bool
    limits: Path | None
    map: Path | None
    min_sqnr: float | None
    min_output_sqnr: float | None
    max_lsb: float | None
    atol: float | None
    rtol: float | None
    allow_partial: bool
    allow_unfaithful: bool
    allow_different_inputs: bool
    allow_uncompared: Sequence[str]
    inputs: Path | None
    samples: int | None
    seed: int | None
    shape: Sequence[tuple[str, tuple[int, ...]]]
    runs_limit: int | None
    ref_backend: BackendChoice | None
    run_on: Sequence[BackendChoice]
    untrusted: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("reference", type=Path, metavar="REF", help="recording or model file of the reference")
    parser.add_argument(
        "backends", type=Path, nargs="+", metavar="BACKEND", help="recording or model file of a backend"
    )
    add_models(parser.add_argument_group("model files instead of recordings (recorded into qdebug-runs/ first)"))
    start_group = parser.add_argument_group("where to begin")
    start_group.add_argument("--node", metavar="NAME", help="open at this node (or tensor): its name, or a part of it")
    start_group.add_argument("--sample", type=natural, metavar="N", help="compare sample N only, counted from 0")
    start_group.add_argument(
        "--screen", choices=SCREENS, metavar="NAME", help=f"open this screen: {', '.join(SCREENS)}"
    )
    start_group.add_argument("--filter", default="", metavar="EXPR", help="list only matching nodes, like the key f")
    start_group.add_argument("--follow", action="store_true", help="follow recordings that are still being written")
    terminal_group = parser.add_argument_group("the terminal")
    terminal_group.add_argument("--theme", choices=THEMES, help="colours (default: by the background of the terminal)")
    terminal_group.add_argument(
        "--no-mouse", action="store_false", dest="mouse", help="leave the mouse to the terminal"
    )
    add_limits_file(parser)
    add_map(parser)
    add_limits(parser.add_argument_group("limits on the whole error (default: derived, as in qdebug diff)"))
    add_allowances(parser.add_argument_group("what may be incomplete"))
    add_untrusted(parser, "reference", "backends", is_interactive=True)
    add_common(parser, color=False)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the interface, or print the report if there is no terminal."""
    options = options_from(TuiOptions, arguments)
    reference, backends = record_models(options)
    options = replace(options, reference=reference, backends=backends)
    problem = _terminal_problem()
    if problem:
        for path in (options.reference, *options.backends):
            open_source(path)  # if a file is unreadable, report that rather than the missing terminal
        say(f"qdebug: {problem}, so the report of qdebug diff is printed")
        return _print_reports(options, limits_of_options(options))
    from qdebug.tui.app import TuiChoices, run_tui

    choices = TuiChoices(
        node=options.node,
        sample=options.sample,
        screen=options.screen,
        filter=options.filter,
        theme=options.theme,
        mouse=options.mouse,
        follow=options.follow,
        limits=partial(limits_of_options, options),
        open_recording=open_source,
        map_file=options.map,
        load_pairs=partial(load_map_option, options.map),
        limits_file=partial(_limits_file_in_effect, options.limits),
        command=["qdebug", "tui", *_limit_arguments(options)],
    )
    with signals_as_interrupts():
        return run_tui(options.reference, options.backends, choices=choices)


def _limits_file_in_effect(given_file: Path | None) -> Path | None:
    """Return the limits file in effect; None without one."""
    from qdebug.limits.place import find_limits

    return given_file or find_limits()


def _limit_arguments(options: TuiOptions) -> list[str]:
    """Return the limits as command line arguments."""
    arguments = [] if options.limits is None else ["--limits", str(options.limits)]
    arguments += [] if options.map is None else ["--map", str(options.map)]
    for name in ("min_sqnr", "max_lsb", "atol", "rtol", "min_output_sqnr"):
        value = getattr(options, name)
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}", f"{value:g}"]
    for name in ("allow_partial", "allow_unfaithful", "allow_different_inputs"):
        arguments += [f"--{name.replace('_', '-')}"] if getattr(options, name) else []
    return arguments + [word for entry in options.allow_uncompared for word in ("--allow-uncompared", entry)]


def _terminal_problem() -> str:
    """Return why the interface cannot be shown; "" if it can."""
    if sys.stdout is None or not sys.stdout.isatty():
        return "stdout is not a terminal"
    if not sys.stdin.isatty():
        return "stdin is not a terminal"
    from rich.console import Console

    return "the terminal cannot move its cursor (TERM is dumb)" if Console().is_dumb_terminal else ""


def _print_reports(options: TuiOptions, limits: Limits) -> int:
    from qdebug.cli.comparison import compare, node_detail, open_session

    codes = []
    for backend in options.backends:
        session = open_session(
            options.reference, backend, limits=limits, sample=options.sample, user_pairs=load_map_option(options.map)
        )
        with progress("comparing") as note:
            result = compare(session, sample=options.sample, on_progress=note)
        if len(options.backends) > 1:
            emit(f"==> {safe_text(backend)}\n")
        emit(diff_text(result, "table"))
        if options.node is not None:
            from qdebug.cli.reports import node_text

            emit("")
            emit(node_text(node_detail(session, result, options.node, sample=options.sample), "table"))
        codes.append(result.exit_code)
    return max(codes)
