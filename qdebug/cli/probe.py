"""qdebug probe: find the arithmetic that a backend uses."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.output import check_target, progress, write_result
from qdebug.cli.parser import Parser, add_common, add_format, add_output, options_from, suffix_format
from qdebug.cli.record import BackendChoice, backend_choice
from qdebug.cli.reports import document_text

if TYPE_CHECKING:
    from qdebug.arithmetic.fingerprints import FingerprintComparison
    from qdebug.probe.run import ProbeResult

__all__ = ["ProbeOptions", "fill_parser", "run"]

_DESCRIPTION = """\
Find the arithmetic of a backend. qdebug builds small models that distinguish
arithmetics, runs them, and names the arithmetic of each kind of node and its types:
how it rounds, in which order it multiplies, and whether the zero point is added
before or after rounding.

Random data hardly distinguishes arithmetics: on a random convolution, all ways of
rounding to nearest agree in 99.98 % of the elements. The probes place every sum next
to a tie, with scales that are powers of two and scales that are not, odd zero points,
and every pair of codes for sums and products. Arithmetics that still agree form a
class.

Float operators run in float16 and in bfloat16 on random numbers (--kind float16,
--kind bfloat16). qdebug names where each one rounds: how it rounds its result, and
which intermediate results inside it are rounded too. An answer is given only if it
reproduces every bit of two runs on different numbers.

The answer holds for this version on this processor; the same package computes
differently on other processors. With -o FILE.json the answer is a fingerprint, and
--compare shows the differences between two versions, processors or runtimes."""

_EPILOG = """\
examples:
  qdebug probe --backend onnxruntime
  qdebug probe --backend onnxruntime:opt=all --kind conv --kind add
  qdebug probe --backend litert:kernels=builtin -o today.json
  qdebug probe --backend openvino:precision=f32 --kind bfloat16
  qdebug probe --compare litert-2.3.0-builtin-avx2 today.json
  qdebug record net.onnx --backend interpreter:arithmetic=ort-mlas --inputs x.npz -o twin.h5

exit codes: 0 every kind that ran is explained, 1 a kind or a float operator is
unexplained, 2 nothing could be run, 3 no answer: the backend computes all kinds of
quantized nodes in floating point, and no rounding of a float operator is named.
With --compare: 0 no kind differs, 1 a kind differs, 3 no kind is in both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """Arguments of `qdebug probe`."""

    backend: BackendChoice | None
    compare: list[str] | None
    kind: list[str] | None
    everything: bool
    format: str | None
    output: Path | None
    force: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--backend",
        type=backend_choice,
        metavar="NAME[:key=value,...]",
        help="the backend and its options: qdebug record --list-backends",
    )
    target.add_argument(
        "--compare",
        nargs=2,
        metavar="FINGERPRINT",
        help="compare two fingerprints: files of -o FILE.json, or names from `qdebug help arithmetics`",
    )
    parser.add_argument(
        "--kind",
        action="append",
        metavar="KIND",
        help="probe only this kind of node, or float operators in float16 or bfloat16; may be given several times",
    )
    parser.add_argument(
        "--all",
        action="store_true",
        dest="everything",
        help="also list arithmetics that do not fit; with --compare, kinds without a difference",
    )
    add_format(parser)
    add_output(parser, what="the result")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Probe a backend, print the result, and return the exit code."""
    options = options_from(ProbeOptions, arguments)
    check_target(options.output, force=options.force)
    if options.backend is None:
        return _compare_fingerprints(options)
    from qdebug.probe.run import run_probe

    with progress("probing") as note:
        result = run_probe(
            options.backend.name, options=options.backend.options, kinds=options.kind or (), on_progress=note
        )
    write_result(_result_text(result, options), options.output)
    return result.exit_code


def _compare_fingerprints(options: ProbeOptions) -> int:
    """Compare two fingerprints, print the differences, and return the exit code."""
    from qdebug.arithmetic.fingerprints import FingerprintComparison, find_fingerprint

    first_fingerprint, second_fingerprint = (find_fingerprint(text) for text in options.compare or ())
    comparison = FingerprintComparison(first=first_fingerprint, second=second_fingerprint)
    write_result(_comparison_text(comparison, options), options.output)
    return comparison.exit_code


def _comparison_text(comparison: FingerprintComparison, options: ProbeOptions) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return comparison.to_json()
    from qdebug.present.reports.probe import comparison_document

    document = comparison_document(comparison, everything=options.everything)
    return document_text(document, form, plain=options.output is not None)


def _result_text(result: ProbeResult, options: ProbeOptions) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return result.to_json()
    from qdebug.present.reports.probe import probe_document

    return document_text(probe_document(result, everything=options.everything), form, plain=options.output is not None)
