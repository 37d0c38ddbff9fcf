"""qdebug export: a part of a recording in another form."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.export_files import add_forms
from qdebug.cli.failures import COULD_NOT_RUN, say
from qdebug.cli.output import check_target, write_result
from qdebug.cli.parser import Parser, add_debug, add_untrusted, natural, typed
from qdebug.cli.sources import command, open_source

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs
    from qdebug.model import Recording

__all__ = ["ReproOptions", "add_parser", "run_repro"]

_DESCRIPTION = """\
Write a part of a recording, or of a comparison, in a form that other programs read."""

_REPRO_DESCRIPTION = """\
Write a pytest file for one node: its inputs, weights and parameters, the output
that the backend gave, and the arithmetic it should have followed, in plain numpy.
The file runs anywhere without qdebug: on the real backend where it is
installed (ONNX Runtime), else on the recorded output. It fails as long as the node
is wrong, so it is a bug report and the test of the fix at once.

The arithmetic is the one that reproduces the node; if none does, the one that
reproduces other nodes of its kind in the same run. A large node is cut to what its
wrong elements need, unless --whole is given. A float node is held against a replay,
within what the order and the precision of its sums account for; the file says how
much that is."""

_REPRO_EPILOG = """\
examples:
  qdebug explain int8.h5                                    which nodes nothing explains
  qdebug export repro ref.h5 int8.h5 --node conv1 -o test_conv1.py
  pytest test_conv1.py"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproOptions:
    """Arguments of `qdebug export repro`."""

    reference: Path
    backend: Path
    node: str
    sample: int | None
    whole: bool
    output: Path
    force: bool


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser: Parser = verbs.add_parser("export", help="a part of a recording in another form", description=_DESCRIPTION)
    parser.set_defaults(run=lambda _: _nothing(parser))
    forms = parser.add_subparsers(title="forms", metavar="FORM", parser_class=Parser)
    _add_repro(forms)
    add_forms(forms)


def _add_repro(forms: Verbs) -> None:
    parser: Parser = forms.add_parser(
        "repro", help="a pytest file for one node", description=_REPRO_DESCRIPTION, epilog=_REPRO_EPILOG
    )
    parser.add_argument("reference", type=Path, metavar="REF", help="recording of the reference run")
    parser.add_argument("backend", type=Path, metavar="BACKEND", help="recording of the backend run")
    parser.add_argument("--node", required=True, metavar="NAME", help="the backend's node, or a tensor it computes")
    parser.add_argument(
        "--sample", type=natural, metavar="N", help="sample to take (default: the one with most errors)"
    )
    parser.add_argument("--whole", action="store_true", help="cut nothing, however large the node is")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.py", help="the test file to write")
    parser.add_argument("--force", action="store_true", help="overwrite FILE.py if it exists")
    add_untrusted(parser, "reference", "backend")
    add_debug(parser)
    parser.set_defaults(run=run_repro)


def _nothing(parser: Parser) -> int:
    """Say which forms there are."""
    import sys

    parser.print_help(sys.stderr)
    return COULD_NOT_RUN


def run_repro(arguments: argparse.Namespace) -> int:
    """Write a reproducer."""
    options = typed(ReproOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    reference, backend = open_source(options.reference), open_source(options.backend)
    from qdebug.workflow.repro_float import is_float_node

    compared = _compared(reference, backend, options.node)
    made = _float if is_float_node(backend, options.node) else _quantized
    text, passes = made(backend, options, compared)
    write_result(text, options.output)
    if passes:
        say(passes)
    say(f"next: {command('pytest', options.output)}")
    return 0


def _quantized(backend: Recording, options: ReproOptions, compared: str) -> tuple[str, str]:
    """Give the text of a quantized node's file, and why its test passes; "" if it does not."""
    from qdebug.report.repro_file import reproducer_text
    from qdebug.workflow.repro import make_reproducer

    found = make_reproducer(backend, options.node, sample=options.sample, whole=options.whole, reference=compared)
    said = "" if found.wrong else f"every code is what {found.variant} gives: the test passes"
    return reproducer_text(found, options.output), said


def _float(backend: Recording, options: ReproOptions, compared: str) -> tuple[str, str]:
    """Give the text of a float node's file, and why its test passes; "" if it does not."""
    from qdebug.report.repro_float import float_reproducer_text
    from qdebug.workflow.repro_float import make_float_reproducer

    found = make_float_reproducer(backend, options.node, sample=options.sample, reference=compared)
    said = f"the error is within what {found.precision} accounts for: the test passes" if found.within else ""
    return float_reproducer_text(found, options.output), said


def _compared(reference: Recording, backend: Recording, node: str) -> str:
    """Say how far the node's output is from the reference's, in a clause; "" if it has no partner."""
    from qdebug.session import diff

    for entry in diff(reference, backend).nodes:
        if node in (entry.node, entry.tensor) and entry.metrics is not None:
            return (
                f"Against {entry.reference_tensor!r} of the reference run ({reference.info.backend}): "
                f"SQNR {entry.metrics.sqnr_db:.4g} dB, {entry.status}"
            )
    return ""
