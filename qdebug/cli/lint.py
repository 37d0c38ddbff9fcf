"""qdebug lint: find rewrites of a network that change its numerics, each with an input that demonstrates it."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.failures import INCOMPLETE, say
from qdebug.cli.output import check_target, progress, write_result
from qdebug.cli.parser import Parser, add_common, add_format, add_output, add_untrusted, options_from, suffix_format
from qdebug.cli.sources import command, open_source
from qdebug.errors import UsageError
from qdebug.present.text import safe_text
from qdebug.running.model_files import is_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from qdebug.lint.replay import LintModel
    from qdebug.lint.rewrites import LintReport

__all__ = ["LintArguments", "fill_parser"]

_DESCRIPTION = """\
Find rewrites that change what a network computes. With MODEL_AFTER, the two models are
forms of one network, before and after an optimizer. qdebug pairs the tensors that
both have, and compares the parts between the pairs. Without MODEL_AFTER, MODEL is
checked by itself.

Findings:
  rescales merged, or folded into a dequantize, with wrong limits
  a dequantize and a quantize removed although their scales differ
  a Relu or Clip folded into a code range that does not end at its bounds
  a quantize or dequantize moved across a pool, concat, add or reshape with other scales
  one tensor quantized twice with unequal scales, and both results used together
  a bias shifted, or not rounded at the scale of the accumulator
  a BatchNormalization folded wrongly, or an activation dropped
  a zero point outside the code range, or not the one that the backend assumes (--for)
  types, ranges, scales and operators that a chip does not support (--for)

Every finding has a witness: an input for which the interpreter gets different results
from the two forms. Parts that cannot be decided are counted."""

_EPILOG = """\
examples:
  qdebug lint net.int8.onnx                       errors in the graph itself
  qdebug lint net.int8.onnx optimized.onnx
  qdebug lint before.h5 after.h5                  recordings with their weights
  qdebug lint net.int8.onnx optimized.onnx --inputs x.npz
  qdebug lint net.int8.onnx --for my-npu.toml     the rules of a chip
  qdebug lint net.int8.onnx optimized.onnx --allow-param-changes
  qdebug lint net.int8.onnx optimized.onnx --write-witness w.npz
  qdebug lint net.int8.onnx optimized.onnx --fix fixed.onnx

exit codes: 0 no finding, or only allowed and fixed ones, 1 at least one finding, 2 could
not run, 3 nothing could be decided."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LintArguments:
    """Arguments of `qdebug lint`."""

    model: Path
    after: Path | None
    needs: str | None
    allow_param_changes: bool
    inputs: Path | None
    write_witness: Path | None
    fix: Path | None
    everything: bool
    format: str | None
    output: Path | None
    force: bool
    untrusted: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("model", type=Path, metavar="MODEL", help="ONNX or TFLite model, or a recording with weights")
    parser.add_argument("after", type=Path, nargs="?", metavar="MODEL_AFTER", help="the same network, rewritten")
    parser.add_argument(
        "--for",
        dest="needs",
        metavar="NAME|RULES.toml",
        help="also check the rules of a chip: those of litert, tflm or tensorrt, or your own file (default: litert"
        " for .tflite)",
    )
    parser.add_argument(
        "--allow-param-changes",
        action="store_true",
        help="allow changed scales that change rounding by at most one LSB; ranges must not change",
    )
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="one array per model input (default: random)")
    parser.add_argument(
        "--write-witness", type=Path, metavar="FILE.npz", help="write the inputs that show each finding, for a replay"
    )
    parser.add_argument(
        "--fix",
        type=Path,
        metavar="OUT.onnx",
        help="write a copy of the last model that restores what a rewrite lost",
    )
    parser.add_argument("--all", action="store_true", dest="everything", help="list every undecided part")
    add_format(parser)
    add_output(parser, what="the result")
    add_untrusted(parser, "model", "after")
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    options = options_from(LintArguments, arguments)
    sources = [path for path in (options.model, options.after, options.inputs) if path is not None]
    for target in (options.output, options.write_witness, options.fix):
        check_target(target, force=options.force, sources=sources)
    from qdebug.lint.chip_rules import find_rules
    from qdebug.lint.rewrites import lint
    from qdebug.running.feeds import read_inputs

    chip = None if options.needs is None else find_rules(options.needs)
    model_before = _open_model(options.model, options)
    model_after = None if options.after is None else _open_model(options.after, options)
    inputs = None if options.inputs is None else read_inputs(options.inputs)
    with progress("looking") as note:
        report = lint(
            model_before,
            model_after,
            chip=chip,
            allow=options.allow_param_changes,
            inputs=inputs,
            progress=note,
        )
    if options.fix is not None:
        report = _fix_findings(report, options, model_before, inputs)
    write_result(_result_text(report, options), options.output)
    if report.fixes:
        say(f"wrote {safe_text(options.fix)}")
    if options.write_witness is not None:
        _write_witness(report, options.write_witness)
    _say_next(report, options)
    return report.exit_code


def _fix_findings(
    report: LintReport, options: LintArguments, before: LintModel, inputs: Mapping[str, np.ndarray] | None
) -> LintReport:
    from qdebug.lint.fix import fix_findings

    if options.fix is None:
        return report
    model = options.after or options.model
    with progress("fixing"):
        return fix_findings(
            report, model, options.fix, before=before if options.after is not None else None, inputs=inputs
        )


def _open_model(path: Path, options: LintArguments) -> LintModel:
    from qdebug.lint.rewrites import open_model

    if not is_model(path):
        return open_model(path, open_source(path))
    if options.untrusted:
        raise UsageError(
            f"{str(path)!r} is a model file; --untrusted supports only recordings.", hint="Record it first."
        )
    return open_model(path)


def _result_text(report: LintReport, options: LintArguments) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return report.to_json()
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.lint import lint_document

    document = lint_document(report, everything=options.everything)
    return document_text(document, form, plain=options.output is not None)


def _write_witness(report: LintReport, path: Path) -> None:
    """Write the inputs that show each finding, as arrays named NUMBER_OF_FINDING/TENSOR."""
    from qdebug.recording.npz import write_arrays
    from qdebug.recording.target import replacing_file

    arrays = {
        f"{number}/{name}": array
        for number, finding in enumerate(report.findings)
        for name, array in zip(finding.witness.leaves, finding.witness.values, strict=True)
    }
    with replacing_file(path) as temporary_file:
        write_arrays(temporary_file, arrays.items())
    say(f"wrote {safe_text(path)}")


def _say_next(report: LintReport, options: LintArguments) -> None:
    """Print the next command on stderr, and why the exit code is 3."""
    if report.exit_code == INCOMPLETE:
        say(f"qdebug: exit code {INCOMPLETE}: nothing could be decided")
    if suffix_format(options.format, options.output) != "table" or options.output is not None:
        return
    if report.fixes:
        checked = [options.model, options.fix] if options.after is not None else [options.fix]
        say(f"next: {command('qdebug', 'lint', *checked)}")
    elif report.bad and options.after is not None:
        say(f"next: {command('qdebug', 'diff', options.model, options.after)}")
    elif report.bad and options.write_witness is None:
        say(f"next: {command('qdebug', 'lint', options.model, '--write-witness', 'w.npz')}")
