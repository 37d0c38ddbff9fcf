"""qdebug accuracy: top-k of recordings against labels, judged on paired differences, and its history."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.failures import INCOMPLETE, say
from qdebug.cli.limits import add_allowances
from qdebug.cli.output import check_target, progress, write_result
from qdebug.cli.parser import (
    Parser,
    add_common,
    add_format,
    add_output,
    add_track,
    add_untrusted,
    limit,
    options_from,
    suffix_format,
)
from qdebug.cli.sources import command, open_source
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.accuracy.report import AccuracyReport
    from qdebug.model import Recording
    from qdebug.present.reports.document import Document

__all__ = ["AccuracyArguments", "fill_parser"]

_DESCRIPTION = """\
Measure how often the right class is first (top-1) or among the first five (top-5) in
each recording, and how much accuracy quantization loses. A recording without integer
codes counts as float. Each quantized recording is compared with the float recording
of the same backend, and with the first float recording if that has another backend.

All recordings must hold the same samples. The loss is judged on paired differences,
that is, on rows that only one of the two runs classifies correctly. If the 95 %
interval of the loss lies above the margin, the run is worse. If the interval includes
the margin, the answer is "not decided, N samples needed".

--track adds the results to a file, by commit, backend and processor. --history shows
what changed in such a file since the last good run."""

_EPILOG = """\
examples:
  qdebug record net.onnx --backend onnxruntime --inputs x.npz --samples 397 \\
      --taps outputs --no-weights -o fp32.h5
  qdebug accuracy fp32.h5 int8.h5 --labels labels.npy
  qdebug accuracy fp32.h5 int8.h5 --labels labels.npy --within 0.01
  qdebug accuracy fp32.h5 int8.h5 --labels text.npz --metric bleu.py:bleu
  qdebug accuracy fp32.h5 int8.h5 --labels labels.npy --track runs.db
  qdebug accuracy --history runs.db              exit 1 if the last run got worse
  qdebug accuracy --history runs.db --json

Your own metric is called as function(outputs, reference, labels) and returns a
number; higher is better.

exit codes: 0 within the margin or not decided, 1 worse, 2 could not run, 3 a recording
is incomplete or recording changed its result (unless allowed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccuracyArguments:
    """Arguments of `qdebug accuracy`."""

    recordings: Sequence[Path]
    labels: Path | None
    within: float | None
    metric: str | None
    scores: str | None
    track: Path | None
    history: Path | None
    everything: bool
    allow_partial: bool
    allow_unfaithful: bool
    format: str | None
    output: Path | None
    force: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("recordings", type=Path, nargs="*", metavar="RECORDING", help="recordings of the same samples")
    parser.add_argument(
        "--labels",
        type=Path,
        metavar="FILE",
        help=".npy, or .npz with one array: the right class of each row of scores",
    )
    parser.add_argument(
        "--within", type=limit, metavar="X", help="the largest allowed loss (default: 0.005, which is 0.5 %%)"
    )
    parser.add_argument("--metric", metavar="FILE.py:FUNCTION", help="your own metric instead of top-1 and top-5")
    parser.add_argument("--scores", metavar="NAME", help="the output with the scores (default: the only output)")
    add_track(parser)
    parser.add_argument("--history", type=Path, metavar="DB", help="show what changed in a file that --track wrote")
    parser.add_argument(
        "--all", action="store_true", dest="everything", help="with --history: also show unchanged results"
    )
    add_allowances(parser.add_argument_group("what may be incomplete (otherwise the exit code is 3)"), uncompared=False)
    add_format(parser)
    add_output(parser, what="the result")
    add_untrusted(parser, "recordings")
    add_common(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    options = options_from(AccuracyArguments, arguments)
    input_files = [path for path in (options.labels, options.track, options.history) if path is not None]
    check_target(options.output, force=options.force, sources=[*options.recordings, *input_files])
    if options.history is not None:
        return _run_history(options, options.history)
    if not options.recordings:
        raise UsageError(
            "No recording was given.", hint="Give some: qdebug accuracy fp32.h5 int8.h5 --labels labels.npy."
        )
    if options.everything:
        raise UsageError("--all needs --history.", hint="Leave out --all.")
    from qdebug.accuracy.report import AccuracyOptions, accuracy
    from qdebug.accuracy.track import check_track, track, tracked_accuracy
    from qdebug.running.output_metric import load_labels

    if options.track is not None:
        check_track(options.track)
    labels = None if options.labels is None else load_labels(options.labels)
    digest = "" if labels is None else hashlib.sha256(labels.tobytes()).hexdigest()[:16]
    accuracy_options = AccuracyOptions(
        metric=options.metric,
        within=options.within,
        scores=options.scores,
        allow_partial=options.allow_partial,
        allow_unfaithful=options.allow_unfaithful,
    )
    recordings: dict[str, Recording] = {}
    for path in options.recordings:
        recordings[str(path) if str(path) not in recordings else f"{path} ({len(recordings) + 1})"] = open_source(path)
    with progress("measuring") as note:
        report = accuracy(recordings, labels, accuracy_options, digest=digest, progress=note)
    write_result(_result_text(report, options), options.output)
    if options.track is not None:
        track(options.track, tracked_accuracy(report))
    _say_next(report, options)
    return report.exit_code


def _run_history(options: AccuracyArguments, path: Path) -> int:
    if options.recordings or options.labels is not None or options.track is not None or options.metric is not None:
        raise UsageError(
            "--history only shows a file and does not measure recordings.",
            hint=f"Use --history by itself: {command('qdebug', 'accuracy', '--history', path)}.",
        )
    from qdebug.accuracy.track import history

    changes = history(path, within=options.within)
    form = suffix_format(options.format, options.output)
    if form == "json":
        write_result(changes.to_json(), options.output)
    else:
        from qdebug.present.reports.accuracy import history_document

        write_result(_document_text(history_document(changes, everything=options.everything), options), options.output)
    return changes.exit_code


def _result_text(report: AccuracyReport, options: AccuracyArguments) -> str:
    if suffix_format(options.format, options.output) == "json":
        return report.to_json()
    from qdebug.present.reports.accuracy import accuracy_document

    return _document_text(accuracy_document(report), options)


def _document_text(document: Document, options: AccuracyArguments) -> str:
    from qdebug.cli.reports import document_text

    form = suffix_format(options.format, options.output)
    return document_text(document, form, plain=options.output is not None)


def _say_next(report: AccuracyReport, options: AccuracyArguments) -> None:
    """Print the next command on stderr, and why the exit code is 3."""
    from qdebug.accuracy.report import Decision

    if report.shortcomings:
        say(f"qdebug: exit code {INCOMPLETE}: {safe_text('; '.join(report.shortcomings))}")
    if suffix_format(options.format, options.output) != "table" or options.output is not None:
        return
    losses = report.losses(Decision.WORSE)
    if options.track is not None:
        say(f"next: {command('qdebug', 'accuracy', '--history', options.track)}")
    elif losses:
        pair = (losses[0][0].reference.file, losses[0][0].backend.file)
        say(f"next: {command('qdebug', 'diff', *pair)}")
