"""qdebug bisect: find the version, pass or option of a runtime that changed the results of a network."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.byte_size import byte_size
from qdebug.cli.failures import say
from qdebug.cli.interrupts import Interrupts, signals_as_interrupts
from qdebug.cli.output import check_target, emit, emit_verdict, progress, write_result
from qdebug.cli.parser import Parser, add_common, add_format, add_output, options_from, positive, size, suffix_format
from qdebug.cli.record import BackendChoice, add_shape, backend_choice
from qdebug.cli.reports import document_text
from qdebug.cli.sources import command
from qdebug.errors import UsageError

if TYPE_CHECKING:
    from qdebug.bisect.environments import EnvironmentCache
    from qdebug.bisect.report import BisectReport

__all__ = ["BisectOptions", "fill_parser", "run"]

_OVER = ("versions", "levels", "passes", "options", "kernels", "threads", "cpu")
_NEIGHBOURS = 2
"""Number of full recordings after a change is found: one of each neighbour. Candidates are recorded besides."""

_DESCRIPTION = """\
Find which version of a runtime changed the outputs of a model, and at which node.

Versions are installed beside each other in a cache, a child process records the model
with each, and the range is halved until two neighbours differ. Both are then recorded
in full, for qdebug diff and tui. --over varies a setting of one version instead."""

_EPILOG = """\
examples:
  qdebug bisect net.onnx --inputs x.npz --backend onnxruntime --good 1.20.1 --bad 1.24.4
  qdebug bisect net.onnx --inputs x.npz --backend onnxruntime --over passes
  qdebug bisect --remove-environments

exit codes: 0 no difference, 1 a difference, 2 could not run, 3 the results vary from
run to run, 130 Ctrl-C; run the same command again to continue. `qdebug help bisect` has more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BisectOptions:
    """Arguments of `qdebug bisect`."""

    model: Path | None
    backend: BackendChoice | None
    inputs: Path | None
    over: str
    good: str | None
    bad: str | None
    fixed: str | None
    values: str | None
    package: str
    metric: str
    every: bool
    samples: int | None
    steps: int | None
    shape: list[tuple[str, tuple[int, ...]]]
    environments: Path | None
    environments_limit: int | None
    timeout: int | None
    remove_environments: bool
    format: str | None
    output: Path | None
    force: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("model", type=Path, nargs="?", metavar="MODEL", help="a model file")
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="one array per model input")
    parser.add_argument("--backend", type=backend_choice, metavar="NAME[:key=value,...]", help="the backend")
    parser.add_argument("--over", choices=_OVER, default="versions", help="what varies (default: versions)")
    parser.add_argument("--good", metavar="V", help="with the right result")
    parser.add_argument("--bad", metavar="V", help="with the wrong result")
    parser.add_argument(
        "--fixed", metavar="V", help="a value beyond --bad: also search for where it became right again"
    )
    parser.add_argument("--versions", "--values", dest="values", metavar="A,B", help="try these candidates only")
    parser.add_argument("--every", action="store_true", help="try all candidates, not only those that halving needs")
    parser.add_argument(
        "--metric",
        default="output",
        metavar="M",
        help="output (default), arithmetic (first changed node) or MODULE:FN, as in accuracy",
    )
    parser.add_argument("--package", default="", metavar="NAME", help="pip's name for the runtime, if it differs")
    parser.add_argument("--samples", type=positive, metavar="N", help="run N samples")
    parser.add_argument("--steps", type=positive, metavar="N", help="run N steps")
    add_shape(parser)
    parser.add_argument("--environments", type=Path, metavar="FOLDER", help="the cache of installed versions")
    parser.add_argument(
        "--environments-limit", type=size, metavar="SIZE", help="size limit of this cache (default: 5GB)"
    )
    parser.add_argument(
        "--timeout", type=positive, metavar="SECONDS", help="time limit of a recording in seconds (default: 1800)"
    )
    parser.add_argument("--remove-environments", action="store_true", help="remove the cache, and do nothing else")
    add_format(parser)
    add_output(parser, what="the result")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Bisect, print the result, and return the exit code."""
    options = options_from(BisectOptions, arguments)
    from qdebug.bisect.environments import EnvironmentCache, default_folder

    folder = default_folder() if options.environments is None else options.environments
    if options.remove_environments:
        return _remove_environments(EnvironmentCache(folder))
    check_target(options.output, force=options.force)
    suffix_format(options.format, options.output)
    try:
        with signals_as_interrupts():  # otherwise SIGTERM would leave the child process running
            report = _bisect(options, folder)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(
            "interrupted; finished recordings and environments are kept. Run the same command again to continue."
        ) from None
    write_result(_result_text(report, options), options.output)
    if options.output is not None:
        from qdebug.present.reports.bisect import bisect_title

        emit_verdict(document_text([bisect_title(report)], "table"))
    _say_next(report)
    return report.exit_code


def _bisect(options: BisectOptions, folder: Path) -> BisectReport:
    from qdebug.backends import check_model_file
    from qdebug.bisect.axes import list_candidates
    from qdebug.bisect.environments import ENVIRONMENTS_LIMIT, TIMEOUT, EnvironmentCache
    from qdebug.bisect.run import run_bisection
    from qdebug.bisect.trial import ModelCommand
    from qdebug.running.feeds import read_inputs
    from qdebug.running.model_runs import ModelRun

    if options.model is None or options.backend is None or options.inputs is None:
        raise UsageError(
            "A bisection needs MODEL, --backend and --inputs.",
            hint="Write random inputs as a template with qdebug record MODEL --example-inputs x.npz.",
        )
    check_model_file(options.model)
    read_inputs(options.inputs)
    words = [f"--{name}={value}" for name, value in (("samples", options.samples), ("steps", options.steps)) if value]
    words += [f"--shape={name}={'x'.join(map(str, shape))}" for name, shape in options.shape]
    model_command = ModelCommand(
        run=ModelRun(model=options.model, backend=options.backend.name, options=options.backend.options),
        inputs=options.inputs,
        words=tuple(words),
    )
    candidates = list_candidates(
        options.backend.name,
        options.over,
        good=options.good,
        bad=options.bad,
        fixed=options.fixed,
        values=[text.strip() for text in (options.values or "").split(",") if text.strip()],
        package=options.package,
        options=options.backend.options,
    )
    with progress("bisecting") as note, Interrupts() as interrupts:

        def on_trial(done: int, label: str) -> None:
            interrupts.check()
            note(done, max(len(candidates.row) + _NEIGHBOURS, done), label)

        return run_bisection(
            model_command,
            candidates,
            EnvironmentCache(
                folder,
                limit=ENVIRONMENTS_LIMIT if options.environments_limit is None else options.environments_limit,
                on_wait=interrupts.check,
                timeout=options.timeout or TIMEOUT,
            ),
            metric=options.metric,
            every=options.every,
            on_trial=on_trial,
        )


def _result_text(report: BisectReport, options: BisectOptions) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return report.to_json()
    from qdebug.present.reports.bisect import bisect_document

    return document_text(bisect_document(report), form, plain=options.output is not None)


def _say_next(report: BisectReport) -> None:
    """Print the next command: the first pair of neighbours, side by side."""
    for change in report.changes:
        if len(change.recordings) == 2:
            say(f"next: {command('qdebug', 'diff', *change.recordings)}")
            say(f"      {command('qdebug', 'tui', *change.recordings)}")
            return


def _remove_environments(cache: EnvironmentCache) -> int:
    from qdebug.present import numbers

    count, freed = cache.prune(limit=0)
    emit(f"removed {numbers.counted(count, 'environment')}, {byte_size(freed)}")
    return 0
