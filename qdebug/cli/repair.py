"""qdebug repair: find the fewest changes that restore the outputs, proven by replay."""

from __future__ import annotations

import argparse
import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.failures import say
from qdebug.cli.models import record_unoptimized
from qdebug.cli.output import check_target, emit_verdict, progress, write_result
from qdebug.cli.pair import PairOptions, add_files, add_pair_options, open_pair_session
from qdebug.cli.parser import Parser, options_from, positive, suffix_format
from qdebug.cli.sources import command
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    import numpy as np

    from qdebug.present.reports.document import Document
    from qdebug.repair.find import Repair, RepairOptions
    from qdebug.repair.search import EditCost
    from qdebug.repair.sweep import FloatSweep

__all__ = ["RepairArguments", "fill_parser"]

_DESCRIPTION = """\
Find the fewest changes of a quantized network that repair its outputs, and state what
they cost. The error budget selects the nodes. Edits of these nodes are tried by
replaying the backend's recording from the edited node on, in its own arithmetic:

  bias-unit    the codes of a bias get the scale of the accumulator
  bias         the bias corrects the mean error of each channel
  range        the result gets the code range with the smallest squared error
  equalize     channels of two successive weights are scaled to the same range
  wide-sum     the sums are exact, if narrow sums of the backend overflow
  rounding     codes are rounded to nearest, if the backend rounds differently
  split        a branch gets its own scale, and the joined result gets 16 bits
  per-channel  the weights get a scale for each output channel
  16-bit       the result is rounded to 16 bits
  float        the node is computed in float

Half of the samples are held out, and the edits are measured on them as well. Edits
that the goal does not need are removed or replaced by cheaper edits. Ctrl-C ends the
search and shows the best result so far."""

_EPILOG = """\
examples:
  qdebug repair net.onnx net.int8.onnx --inputs x.npz --samples 8
  qdebug repair float.h5 int8.h5                      an output SQNR of 20 dB
  qdebug repair float.h5 int8.h5 --within 30 --minutes 5
  qdebug repair float.h5 int8.h5 --metric top1 --labels labels.npz
  qdebug repair float.h5 int8.h5 --metric score.py:exact_match --within 0
  qdebug repair float.h5 int8.h5 --kinds per-channel,bias -o repair.json
  qdebug repair float.h5 int8.h5 --resume repair.json --minutes 60 --jobs 4
  qdebug repair float.h5 int8.h5 --model net.int8.onnx --write-model repaired.onnx
  qdebug repair float.h5 int8.h5 --sweep first:5      1 to 5 layers left in float

metrics: output-sqnr (of the worst output), top1 (against --labels, or against the
reference without --labels), MODULE:FUNCTION or FILE.py:FUNCTION, which is called as
function(outputs, reference, labels) and returns a number; higher is better.

exit codes: 0 the goal is reached, also on the held-out samples and by the changed
model; 1 it is not reached; 2 could not run. Both recordings need their weights. --json
has the input for quantizers: nodes to exclude and overrides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairArguments(PairOptions):
    """Arguments of `qdebug repair`."""

    metric: str
    within: float | None
    labels: Path | None
    max_edits: int | None
    minutes: float
    resume: Path | None
    kinds: str | None
    cost: str | None
    arithmetic: str | None
    model: Path | None
    write_model: Path | None
    sweep: tuple[str, int] | None


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_files(parser, "float net", "quantized net")
    parser.add_argument(
        "--metric", default="output-sqnr", metavar="NAME", help="metric of the goal (default: output-sqnr)"
    )
    parser.add_argument(
        "--within",
        type=float,
        metavar="X",
        help="the goal: at least X dB (default: 20); for other metrics at most X below the reference",
    )
    parser.add_argument(
        "--labels", type=Path, metavar="FILE", help=".npy, or .npz with one array: one label per sample"
    )
    parser.add_argument("--max-edits", type=positive, metavar="N", help="maximum number of edits (default: no limit)")
    parser.add_argument(
        "--minutes", type=_parse_minutes, default=10.0, metavar="M", help="time limit in minutes (default: 10)"
    )
    parser.add_argument(
        "--resume", type=Path, metavar="FILE.json", help="start from the edits of an earlier result of -o FILE.json"
    )
    parser.add_argument("--kinds", metavar="KIND,...", help="allowed kinds of edits (default: all)")
    parser.add_argument(
        "--cost",
        metavar="macs=A,bytes=B",
        help="cost of all multiply-adds in float, and of a megabyte (default: macs=1,bytes=0.01)",
    )
    parser.add_argument(
        "--arithmetic", metavar="NAME", help="arithmetic of quantized nodes: a preset from qdebug help arithmetics"
    )
    parser.add_argument("--model", type=Path, metavar="FILE.onnx", help="the quantized model that BACKEND ran")
    parser.add_argument(
        "--write-model",
        type=Path,
        metavar="OUT.onnx",
        help="write the quantized model with the edits, and run it; with --model if BACKEND is a recording",
    )
    parser.add_argument(
        "--sweep",
        type=_parse_sweep,
        metavar="first:K|last:K",
        help="instead of a search, measure the outputs with 0 to K of the first or last layers in float",
    )
    add_pair_options(parser)
    parser.set_defaults(run=_run)


def _parse_minutes(text: str) -> float:
    """Parse a number of minutes.

    Raises:
        ValueError: The text is not a finite number of at least 0.
    """
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value


_parse_minutes.__name__ = "number of minutes"  # shown by argparse in errors


def _parse_sweep(text: str) -> tuple[str, int]:
    """Parse "first:K" or "last:K" into the end of the network and the number of layers.

    Raises:
        ValueError: The text has another form.
    """
    end, _, number = text.partition(":")
    if end not in ("first", "last") or not number.isdecimal() or int(number) < 1:
        raise ValueError(text)
    return end, int(number)


_parse_sweep.__name__ = "first:K or last:K"  # shown by argparse in errors


def _run(arguments: argparse.Namespace) -> int:
    options = options_from(RepairArguments, arguments)
    if options.write_model is not None and options.model is None and options.backend.suffix == ".onnx":
        options = replace(options, model=options.backend)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    _check_models(options)
    options = options.as_recordings()
    if options.model is not None:
        options = replace(options, backend=record_unoptimized(options.model, options.backend))
    from qdebug.repair.find import RepairOptions, find_repair
    from qdebug.running.output_metric import load_labels

    repair_options = RepairOptions(
        metric=options.metric,
        within=options.within,
        minutes=options.minutes,
        arithmetic=options.arithmetic,
        cost=_make_edit_cost(options),
        start=() if options.resume is None else _earlier_edits(options.resume),
    )
    labels = None if options.labels is None else load_labels(options.labels)
    if options.sweep is not None:
        return _run_sweep(options, repair_options, labels)
    with open_pair_session(options) as session, progress("searching") as note:
        repair = find_repair(
            session, repair_options, labels=labels, model=options.model, out=options.write_model, progress=note
        )
    write_result(_result_text(repair, options), options.output)
    if options.output is not None:
        emit_verdict(_verdict_text(repair))
    if repair.proof is not None:
        say(f"wrote {safe_text(options.write_model)}")
    if options.is_table:
        first_node = repair.edits[0].unit.node.name if repair.edits else None
        words = ["diff", options.reference, options.backend, *(["--node", first_node] if first_node else [])]
        if "replay" in repair.refuted:
            words = ["explain", options.backend]
        elif repair.proof is not None and options.write_model is not None:
            given = [] if options.inputs is None else ["--inputs", options.inputs]
            given += [] if options.samples is None else ["--samples", str(options.samples)]
            words = ["diff", options.reference, options.write_model, *given]
        say(f"next: {command('qdebug', *words)}")
    return repair.exit_code


def _run_sweep(options: RepairArguments, repair_options: RepairOptions, labels: np.ndarray | None) -> int:
    from qdebug.repair.sweep import sweep_layers

    end, most = options.sweep or ("first", 1)
    with open_pair_session(options) as session, progress("replaying") as note:
        sweep = sweep_layers(session, repair_options, end=end, most=most, labels=labels, progress=note)
    write_result(_result_text(sweep, options), options.output)
    if options.output is not None:
        emit_verdict(_verdict_text(sweep))
    if options.is_table:
        words = ["repair", options.reference] if sweep.proved else ["explain"]
        say(f"next: {command('qdebug', *words, options.backend)}")
    return sweep.exit_code


def _check_models(options: RepairArguments) -> None:
    """Reject unusable models, and options that exclude each other, before the search begins.

    Raises:
        UsageError: Only one of --model and --write-model is given, or --sweep with an option of the search.
        OutputExistsError: The model to write exists.
    """
    if options.sweep is not None:
        for name in ("model", "write_model", "resume", "kinds", "cost", "max_edits"):
            if getattr(options, name) is not None:
                raise UsageError(
                    f"--sweep only measures layers in float; --{name.replace('_', '-')} belongs to the search.",
                    hint="Leave one of the two out.",
                )
    if (options.model is None) != (options.write_model is None):
        raise UsageError(
            "--model and --write-model must be used together.",
            hint="Give both: --model FILE.onnx --write-model OUT.onnx.",
        )
    check_target(options.write_model, force=options.force, sources=[options.model] if options.model else [])
    if options.model is not None:
        from qdebug.backends import check_model_file

        check_model_file(options.model)


def _make_edit_cost(options: RepairArguments) -> EditCost:
    from qdebug.repair.edits import KINDS
    from qdebug.repair.search import EditCost

    kinds = None if options.kinds is None else options.kinds.split(",")
    for kind in kinds or ():
        if kind not in KINDS:
            raise UsageError(f"Unknown kind of edit {kind!r}.", hint=f"Choose from --kinds {','.join(KINDS)}.")
    weights = {"macs": 1.0, "bytes": 0.01}
    for pair in options.cost.split(",") if options.cost else ():
        name, _, text = pair.partition("=")
        try:
            weights = {**weights, name: float(text)} if name in weights else weights
            is_valid = name in weights and float(text) >= 0
        except ValueError:
            is_valid = False
        if not is_valid:
            raise UsageError(f"{pair!r} is not a cost.", hint="Write --cost macs=1,bytes=0.01.")
    return EditCost(macs=weights["macs"], size=weights["bytes"], kinds=kinds, max_edits=options.max_edits)


def _earlier_edits(path: Path) -> list[str]:
    """Return the names of the edits in an earlier result.

    Raises:
        UsageError: The file is not the JSON result of `qdebug repair`.
    """
    from qdebug.regular_file import open_binary

    try:
        with open_binary(path) as file:
            return [f"{edit['kind']} {edit['node']}" for edit in json.load(file)["edits"]]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"{str(path)!r} is not the result of a repair: {error}.",
            hint="Write one: qdebug repair ... -o repair.json.",
        ) from error


def _verdict_text(result: Repair | FloatSweep) -> str:
    """Return the title line of the result."""
    from qdebug.cli.reports import document_text

    return document_text(_document(result)[:1], "table", plain=True)


def _result_text(result: Repair | FloatSweep, options: RepairArguments) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return result.to_json()
    from qdebug.cli.reports import document_text

    return document_text(_document(result), form, plain=options.output is not None)


def _document(result: Repair | FloatSweep) -> Document:
    from qdebug.present.reports.repair import repair_document, sweep_document
    from qdebug.repair.sweep import FloatSweep

    return sweep_document(result) if isinstance(result, FloatSweep) else repair_document(result)
