"""Entry point: build the parser, run a verb, and turn errors into a message and an exit code."""

from __future__ import annotations

import argparse
import faulthandler
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from qdebug import __version__
from qdebug.cli.failures import CANCELLED, COULD_NOT_RUN, INCOMPLETE, report_failure
from qdebug.cli.parser import Parser
from qdebug.errors import PayloadMismatchError, UsageError

__all__ = ["VERBS", "Verb", "build_parser", "main"]

_DESCRIPTION = """\
qdebug finds the node at which a quantized network goes wrong.

Record every tensor of a reference run and of a backend run of the same network.
qdebug pairs the tensors, measures each pair (SQNR, LSB, clipping), and leads to the
first node that is wrong."""

_EPILOG = """\
in one command:
  qdebug diff net.onnx net.int8.onnx --inputs x.npz
  qdebug tui net.onnx net.int8.onnx --inputs x.npz

step by step:
  qdebug record net.onnx --example-inputs x.npz     writes a template for real values
  qdebug record net.onnx --backend onnxruntime:opt=none --inputs x.npz -o ref.h5
  qdebug record net.int8.onnx --backend onnxruntime --inputs x.npz -o int8.h5
  qdebug diff ref.h5 int8.h5                 verdict, failing nodes, outputs
  qdebug diff ref.h5 int8.h5 --node conv1    one node in full
  qdebug explain int8.h5                     which arithmetic reproduces each node
  qdebug tui ref.h5 int8.h5                  browse the comparison

No model at hand? qdebug demo shows a session on a small built-in network.

exit codes:
  0  within the limits         1  a node is beyond its limit
  2  could not run             3  incomplete, or recording changed the result
  130  interrupted

qdebug VERB --help explains a verb, qdebug help answers common questions,
qdebug help agent tells scripts and coding agents how to use it."""


class Verb(NamedTuple):
    """A verb of the command line.

    Args:
        module: Name of the verb's module in `qdebug.cli`.
        summary: One line for the list of verbs.
    """

    module: str
    summary: str


VERBS: Mapping[str, Verb] = MappingProxyType(
    {
        "demo": Verb("demo", "show a complete session on a small built-in network"),
        "record": Verb("record", "run a model and record every tensor"),
        "import": Verb("importing", "make a recording from the dump of another tool"),
        "info": Verb("info", "show what a recording contains"),
        "diff": Verb("diff", "compare a backend with a reference, node by node"),
        "explain": Verb("explain", "find the arithmetic that reproduces each node"),
        "tui": Verb("tui", "browse a comparison in the terminal"),
        "probe": Verb("probe", "find the arithmetic of a backend with test models"),
        "scales": Verb("scales", "profile values, choose scales, try a scale"),
        "budget": Verb("budget", "measure how each node's own error affects the outputs"),
        "repair": Verb("repair", "find the fewest changes that repair the outputs"),
        "lint": Verb("lint", "find rewrites that change numerics, each with a witness"),
        "accuracy": Verb("accuracy", "measure top-k accuracy and the loss by quantization"),
        "bisect": Verb("bisect", "find which version or option of a runtime changed a node"),
        "export": Verb("export", "export a part of a recording to another format"),
        "file": Verb("file", "maintain recordings: verify, recover, pack, join, prune"),
        "help": Verb("topics", "read the guide, page by page"),
        "completion": Verb("completion", "print a completion script for bash, zsh or fish"),
    }
)
"""The verbs, in the order in which they are typically used."""


def build_parser() -> Parser:
    """Create the parser of the command line. A verb's module is imported when its parser is needed."""
    parser = Parser(prog="qdebug", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"qdebug {__version__}")
    parser.set_defaults(run=None, debug=False, color="auto", untrusted=False)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", parser_class=Parser)
    for name, verb in VERBS.items():
        verbs.add_parser(name, help=verb.summary, module=f"qdebug.cli.{verb.module}")
    return parser


def main(argv: Sequence[str] | None = None, *, begin: Callable[[], None] | None = None, guarded: bool = False) -> int:
    """Run the command line and return its exit code.

    Args:
        argv: Arguments after the program's name; None for the arguments of the process.
        begin: Called once this function handles Ctrl-C, so that the caller's own handler can be removed.
        guarded: Whether this is the guarded process for a command with `--untrusted`.
    """
    _reopen_closed_streams()
    _enable_crash_tracebacks()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # print a report even if the locale cannot encode a name
    words = sys.argv[1:] if argv is None else list(argv)
    parser = build_parser()
    arguments = parser.parse_args(words)
    arguments.words = tuple(words)
    if arguments.run is None:
        parser.print_help(sys.stderr)
        return COULD_NOT_RUN
    return _run_verb(arguments, begin, words, guarded=guarded)


def _reopen_closed_streams() -> None:
    """Open the null device in place of closed standard streams.

    Otherwise, a file opened later would get the descriptor of a stream, and a library that prints could write into a
    recording. A closed standard output is still reported as an error, since results must not be lost.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the new descriptor gets the lowest free number
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115  open until the process ends
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115


def _enable_crash_tracebacks() -> None:
    """Print a Python traceback when a framework crashes, since the program would otherwise end silently."""
    if not faulthandler.is_enabled():
        with suppress(OSError, ValueError):  # stderr was replaced by an object without a file descriptor
            faulthandler.enable(all_threads=False)


def _run_verb(
    arguments: argparse.Namespace, begin: Callable[[], None] | None, words: Sequence[str], *, guarded: bool
) -> int:
    from qdebug.cli.guarded import run_guarded
    from qdebug.cli.interrupts import interrupts_resent
    from qdebug.cli.output import choose_color
    from qdebug.cli.sources import closing_sources, forget_caches, verify_sources

    try:
        if begin is not None:
            begin()
        choose_color(arguments.color)
        if guarded:
            forget_caches()
        elif arguments.untrusted:
            verify_sources(arguments)
            return run_guarded(arguments, words)
        elif hasattr(arguments, "untrusted_sources") and (arguments.memory or arguments.seconds):
            raise UsageError("--memory and --seconds need --untrusted.", hint="Add --untrusted.")
        with interrupts_resent(), closing_sources():
            return int(arguments.run(arguments))
    except KeyboardInterrupt as interrupt:
        report_failure(interrupt)
        return CANCELLED
    except Exception as failure:
        if arguments.debug:
            raise
        report_failure(failure)
        return INCOMPLETE if isinstance(failure, PayloadMismatchError) else COULD_NOT_RUN
