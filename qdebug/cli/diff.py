"""qdebug diff: compare a backend with a reference, node by node."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qdebug.cli.comparison import compare, node_detail, open_session
from qdebug.cli.failures import INCOMPLETE, say
from qdebug.cli.limits import (
    add_allowances,
    add_limits,
    add_limits_file,
    add_map,
    add_tokens,
    limits_of_options,
    load_map_option,
    load_tokens_option,
    say_unused,
)
from qdebug.cli.models import add_models, record_models
from qdebug.cli.output import check_target, emit, emit_verdict, page, progress, terminal_width, write_result
from qdebug.cli.parser import (
    REPORTS,
    Parser,
    add_common,
    add_format,
    add_output,
    add_track,
    add_untrusted,
    add_workers,
    natural,
    options_from,
    positive,
    suffix_format,
)
from qdebug.cli.reports import (
    ReportExtent,
    definitions_text,
    diff_text,
    document_text,
    exchange_text,
    matrix_text,
    node_text,
)
from qdebug.cli.sources import command, open_source
from qdebug.errors import AlignmentError, MissingExtraError, UsageError
from qdebug.present.text import safe_text
from qdebug.recording.remote_url import format_path

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from qdebug.cli.record import BackendChoice
    from qdebug.compare.result.limits import Limits
    from qdebug.compare.result.result import RunComparison
    from qdebug.compare.timing import Timing
    from qdebug.numerics.agreement import Agreement
    from qdebug.present.detail import NodeDetail
    from qdebug.present.reports.document import Document
    from qdebug.present.rows import RowChoice
    from qdebug.session import DiffSession

__all__ = ["DiffOptions", "fill_parser", "run"]

_DESCRIPTION = """\
Compare a backend with a reference; each is a recording or a model file. qdebug pairs
their tensors, measures every pair in real values, and names the first node beyond its
limit. Tensors that were not compared are listed with the reason and never count as
good.

Default limits: a quantized node may add at most 1.5 LSB of its own output, unless a
known arithmetic reproduces its codes exactly. A float node may add the rounding error
of its sums. A node that cannot be replayed must reach an SQNR of 20 dB. The report
says which limits were in force."""

_EPILOG = """\
examples:
  qdebug diff net.onnx net.int8.onnx             records both with random inputs, then compares
  qdebug diff net.onnx net.int8.onnx --inputs x.npz --samples 8
  qdebug diff net.onnx net.onnx --backend onnxruntime --backend openvino
  qdebug diff ref.h5 int8.h5
  qdebug diff ref.h5 int8.h5 --node conv1        one node in full, worst elements included
  qdebug diff ref.h5 int8.h5 --min-sqnr 30 --max-lsb 4
  qdebug diff ref.h5 int8.h5 --limits limits.toml
  qdebug diff ref.h5 good1.h5 good2.h5 --suggest-limits limits.toml
  qdebug diff ref.h5 other.h5 --write-map map.toml     then edit it by hand, and:
  qdebug diff ref.h5 other.h5 --map map.toml           your pairs take precedence
  qdebug diff ref.h5 int8.h5 --json -o diff.json
  qdebug diff ref.h5 int8.h5 -o diff.html        a page with plots; also .csv, .xml (JUnit)
  qdebug diff ref.h5 int8.h5 -f markdown >> "$GITHUB_STEP_SUMMARY"
  qdebug diff ref.h5 int8.h5 --jobs 4            share the work among 4 processes
  qdebug diff ref.h5 int8.h5 --track runs.db     keep the result: qdebug help accuracy
  qdebug diff --explain-metrics                  what the columns mean

exit codes: 0 within the limits, 1 a node is beyond its limit, 2 could not run,
3 a recording is incomplete, the inputs of the runs differ, recording changed a
result, tensors were lost to the comparison, or a tenth of the replays failed
(unless allowed). The highest code applies; the report is always printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """Arguments of `qdebug diff`."""

    reference: Path
    backends: Sequence[Path]
    limits: Path | None
    suggest_limits: Path | None
    map: Path | None
    write_map: Path | None
    retake: Path | None
    tokens: list[str] | None
    min_sqnr: float | None
    min_output_sqnr: float | None
    max_lsb: float | None
    atol: float | None
    rtol: float | None
    allow_partial: bool
    allow_unfaithful: bool
    allow_different_inputs: bool
    allow_uncompared: Sequence[str]
    quick: bool
    thorough: bool
    explain: bool
    node: str | None
    sample: int | None
    verbose: bool
    top: int | None
    only_failing: bool
    quiet: bool
    everything: bool
    track: Path | None
    jobs: int
    scheduler: str | None
    format: str | None
    output: Path | None
    force: bool
    inputs: Path | None
    samples: int | None
    seed: int | None
    shape: Sequence[tuple[str, tuple[int, ...]]]
    runs_limit: int | None
    ref_backend: BackendChoice | None
    run_on: Sequence[BackendChoice]
    budget: bool
    untrusted: bool
    words: Sequence[str]

    @property
    def form(self) -> str:
        """Format of the result."""
        return suffix_format(self.format, self.output, forms=REPORTS)

    @property
    def choice(self) -> RowChoice | None:
        """The requested rows; None for the default ones."""
        from qdebug.present.rows import RowChoice

        is_requested = self.top is not None or self.only_failing
        return RowChoice(top=self.top, only_failing=self.only_failing) if is_requested else None

    @property
    def extent(self) -> ReportExtent:
        """How much the report shows. With several backends, the default is only their verdicts."""
        is_quiet = self.quiet or (len(self.backends) > 1 and not (self.verbose or self.everything or self.choice))
        return ReportExtent(verbose=self.verbose, everything=self.everything, quiet=is_quiet, choice=self.choice)


_EXCHANGE_FORMATS = ("html", "junit", "csv")
"""Formats for other programs. They put all backends into one document."""


class _ExplainMetrics(argparse.Action):
    """Print the definitions and stop, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        emit(definitions_text(namespace.format or "table"))
        parser.exit(0)


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("reference", type=Path, metavar="REF", help="recording or model file of the reference")
    parser.add_argument(
        "backends", type=Path, nargs="+", metavar="BACKEND", help="recording or model file of a backend"
    )
    parser.add_argument("--explain-metrics", action=_ExplainMetrics, nargs=0, help="explain every metric")
    effort_group = parser.add_mutually_exclusive_group()
    effort_group.add_argument(
        "--quick", action="store_true", help="skip the shares of the outputs' error and the suggested edits"
    )
    effort_group.add_argument(
        "--thorough", action="store_true", help="replay all nodes and try all edits for shares and suggestions"
    )
    parser.add_argument(
        "--no-explain",
        action="store_false",
        dest="explain",
        help="skip the search for the arithmetic of each quantized node",
    )
    add_limits_file(parser)
    add_limits(
        parser.add_argument_group(
            "limits on the whole error (all given limits must hold; default: derived for each node)"
        )
    )
    parser.add_argument(
        "--suggest-limits",
        type=Path,
        metavar="FILE",
        help="write limits that these runs meet, with a margin, to FILE; give several known-good BACKENDs",
    )
    pairing_group = parser.add_argument_group("which tensors are compared")
    add_map(pairing_group)
    add_tokens(pairing_group)
    pairing_group.add_argument(
        "--write-map",
        type=Path,
        metavar="FILE",
        help="write the pairs, and unmatched tensors with their closest candidate, to FILE for editing by hand",
    )
    parser.add_argument(
        "--retake",
        type=Path,
        metavar="FILE",
        help="write rules to FILE that keep the suspected tensors of partial recordings in full in the next run: "
        "--keep sketch --keep @FILE",
    )
    add_allowances(parser.add_argument_group("what may be incomplete (otherwise the exit code is 3)"))
    add_models(parser.add_argument_group("model files instead of recordings (recorded into qdebug-runs/ first)"))
    display_group = parser.add_argument_group("what is shown")
    display_group.add_argument("--node", metavar="NAME", help="one node (or tensor) in full")
    display_group.add_argument("--sample", type=natural, metavar="N", help="compare sample N only, counted from 0")
    display_group.add_argument(
        "--top", type=positive, metavar="N", help="show only the N worst nodes, also in JSON (qdebug help agent)"
    )
    display_group.add_argument(
        "--only-failing", action="store_true", help="show all failing nodes and no others, also in JSON"
    )
    display_group.add_argument(
        "--budget", action="store_true", help="also show how each node's own error affects the outputs"
    )
    verbosity_group = parser.add_mutually_exclusive_group()
    verbosity_group.add_argument("-q", "--quiet", action="store_true", help="print only the verdict")
    verbosity_group.add_argument(
        "-v",
        "--verbose",
        action="store_true",
        help="also show runs, limits, neighbours of the first divergence and all remarks",
    )
    verbosity_group.add_argument(
        "--all", action="store_true", dest="everything", help="show every node and every unmatched tensor, in a pager"
    )
    add_format(display_group, forms=REPORTS)
    add_output(display_group, what="the result")
    add_track(parser)
    add_workers(parser.add_mutually_exclusive_group())
    add_untrusted(parser, "reference", "backends")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare, print, and return the exit code."""
    options = options_from(DiffOptions, arguments)
    _check_options(options)
    limits = replace(limits_of_options(options), explain=options.explain)
    from qdebug.running.workers import open_workers

    reference, backends = record_models(options)
    options = replace(options, reference=reference, backends=backends)
    results: dict[str, RunComparison] = {}
    texts: list[str] = []
    details: list[NodeDetail] = []
    page_details: dict[str, Sequence[NodeDetail]] = {}
    sessions: list[DiffSession] = []
    budgets: dict[str, Document] = {}
    with open_workers(jobs=options.jobs, scheduler=options.scheduler) as executor:
        for backend in options.backends:
            session, result = _compare_backend(options, backend, limits, executor)
            sessions.append(session)
            name = _make_unique(str(backend), results)
            results[name] = result
            if options.form in _EXCHANGE_FORMATS:
                page_details[name] = _collect_page_details(session, result, options)
            elif options.node is not None:
                details.append(_collect_detail(session, result, options.node, options))
                texts.append(_node_text(details[-1], options))
            elif options.form != "json":
                texts.append(_report_text(result, options))
            if options.budget:
                budgets[name] = _budget_document(session)
                if options.form not in _EXCHANGE_FORMATS:
                    texts[-1] += "\n" + document_text(budgets[name], options.form, plain=options.output is not None)
    agreement = _count_agreement(sessions) if len(sessions) > 1 and options.node is None else {}
    if options.form in _EXCHANGE_FORMATS:
        write_result(exchange_text(results, options.form, page_details, agreement, budgets), options.output)
    else:
        uses_pager = options.everything and options.output is None and options.form == "table"
        text = _join_texts(options, results, agreement, texts, details)
        page(text) if uses_pager else write_result(text, options.output)
    _write_files(options, results, sessions)
    say_unused(limits, list(results.values()))
    shown_node = details[0].result.node if details else None
    _say_next(options, list(results.values()), [session.timing for session in sessions], shown_node)
    return max(result.exit_code for result in results.values())


def _write_files(options: DiffOptions, results: Mapping[str, RunComparison], sessions: Sequence[DiffSession]) -> None:
    """Write the other files that were requested: suggested limits, a map, keep rules, the tracked history."""
    if options.suggest_limits is not None:
        from qdebug.limits.suggest import suggest_limits

        write_result(suggest_limits(results), options.suggest_limits)
    if options.write_map is not None:
        from qdebug.limits.map_file import map_text

        write_result(map_text(next(iter(results.values()))), options.write_map)
    if options.retake is not None:
        from qdebug.limits.retake import retake_text

        pairs = zip(results.values(), (session.backend.graph for session in sessions), strict=True)
        write_result(retake_text(list(pairs)), options.retake)
    if options.track is not None:
        from qdebug.accuracy.track import track, tracked_diffs

        track(options.track, tracked_diffs(results))


def _check_options(options: DiffOptions) -> None:
    """Reject invalid options before any work is done."""
    for target in (options.output, options.suggest_limits, options.write_map, options.retake):
        check_target(target, force=options.force, sources=[options.reference, *options.backends])
    if options.track is not None:
        from qdebug.accuracy.track import check_track

        check_track(options.track)
    if options.write_map is not None and len(options.backends) > 1:
        raise UsageError("--write-map needs exactly one backend.", hint="Give one BACKEND.")
    if options.node is not None and options.form in ("junit", "csv"):
        raise UsageError(f"-f {options.form} cannot show a single node.", hint="Leave out --node, or use -f json.")
    if options.budget and (options.form in ("json", "junit", "csv") or options.node is not None or options.quiet):
        raise UsageError(
            "--budget works only with text reports.", hint="For other formats, use qdebug budget REF BACKEND --json."
        )
    if options.form == "html" and options.output is None and terminal_width() is not None:
        raise UsageError("An HTML page cannot be shown in a terminal.", hint="Write it to a file: -o diff.html.")


def _compare_backend(
    options: DiffOptions, backend: Path, limits: Limits, executor: Executor | None
) -> tuple[DiffSession, RunComparison]:
    """Compare one backend with the reference. With several backends, error messages name the file."""
    try:
        session = open_session(
            options.reference,
            backend,
            limits=limits,
            sample=options.sample,
            user_pairs=load_map_option(options.map),
            tokens=load_tokens_option(options.tokens),
        )
        if executor is not None:
            session.compare_in(executor, options.reference, backend, sample=options.sample)
        with progress("comparing") as note:
            pair = command(options.reference, backend)
            compare_session = partial(compare, session, pair=pair, sample=options.sample, on_progress=note)
            return session, compare_session(quick=options.quick, thorough=options.thorough)
    except AlignmentError as error:
        if len(options.backends) == 1:
            raise
        raise AlignmentError(f"{format_path(backend)!r}: {error.message}", hint=error.hint) from error


def _make_unique(name: str, results: dict[str, RunComparison]) -> str:
    return name if name not in results else f"{name} ({len(results) + 1})"


def _budget_document(session: DiffSession) -> Document:
    from qdebug.present.reports.budget import budget_document

    with progress("replaying") as note:
        return budget_document(session.budget(progress=note))


def _collect_page_details(session: DiffSession, result: RunComparison, options: DiffOptions) -> Sequence[NodeDetail]:
    """Collect the details that an HTML page shows: for the requested node, or for all nodes of interest."""
    if options.form != "html":
        return ()
    if options.node is not None:
        return [_collect_detail(session, result, options.node, options)]
    from qdebug.present.reports.html import worth_detail

    with progress("looking closer") as note:
        nodes = worth_detail(result)
        details = []
        for done_count, node in enumerate(nodes, 1):
            details.append(node_detail(session, result, node.tensor, sample=options.sample))
            note(done_count, len(nodes))
    return details


def _collect_detail(session: DiffSession, result: RunComparison, name: str, options: DiffOptions) -> NodeDetail:
    """Collect the details of the requested node. If a different node is shown in its place, say so on stderr."""
    detail = node_detail(session, result, name, sample=options.sample)
    shown_result = detail.result
    if name not in (shown_result.node, shown_result.tensor, shown_result.reference_tensor):
        graph = session.backend.graph
        is_backend_node = graph.producer(name) is not None or any(node.name == name for node in graph.nodes)
        description = (
            f"not compared itself; it is judged by tensor {shown_result.tensor!r}, which is shown"
            if is_backend_node
            else f"node {shown_result.node!r}"
        )
        say(f"{safe_text(repr(name))} is {safe_text(description, limit=400)}.")
    return detail


def _report_text(result: RunComparison, options: DiffOptions) -> str:
    width = terminal_width() or max(map(len, _next_lines(options, result, None)))
    lines = 1 + sum(-(-len(line) // width) for line in _next_lines(options, result, None))
    is_plain = options.output is not None
    repeat_command = command("qdebug", *options.words)
    return diff_text(
        result, options.form, extent=options.extent, plain=is_plain, lines_below=lines, repeat_command=repeat_command
    )


def _node_text(detail: NodeDetail, options: DiffOptions) -> str:
    return "" if options.form == "json" else node_text(detail, options.form, plain=options.output is not None)


def _count_agreement(sessions: Sequence[DiffSession]) -> Mapping[str, Agreement]:
    """Count the elements that all backends get wrong equally, by reference tensor."""
    from qdebug.compare.measure.agreement import agreements

    return agreements(sessions[0].reference, [(session.backend, session.alignment) for session in sessions])


def _join_texts(
    options: DiffOptions,
    results: dict[str, RunComparison],
    agreement: Mapping[str, Agreement],
    texts: Sequence[str],
    details: Sequence[NodeDetail],
) -> str:
    """Join the reports of all backends, starting with their common part."""
    if options.form == "json":
        return _json_text(options, results, agreement, details)
    if len(results) == 1:
        return texts[0]
    matrix = [] if details else [matrix_text(results, agreement, options.form, plain=options.output is not None)]
    heading = "# {}" if options.form == "markdown" else "==> {}"
    parts = [f"{heading.format(safe_text(name))}\n\n{text}" for name, text in zip(results, texts, strict=True)]
    return "\n".join([*matrix, *parts])


def _json_text(
    options: DiffOptions,
    results: dict[str, RunComparison],
    agreement: Mapping[str, Agreement],
    details: Sequence[NodeDetail],
) -> str:
    from qdebug.present.reports.brief import brief_dict
    from qdebug.present.reports.matrix import diffs_dict
    from qdebug.present.reports.node import with_detail

    choice = options.choice
    documents: list[dict[str, Any]]
    if details:
        documents = [with_detail(result, detail) for result, detail in zip(results.values(), details, strict=True)]
    elif choice is not None:
        documents = [brief_dict(result, choice) for result in results.values()]
    else:
        documents = [result.to_dict() for result in results.values()]
    for document, backend in zip(documents, options.backends, strict=True):
        document["files"] = {"reference": str(options.reference), "backend": str(backend)}
    content = documents[0] if len(documents) == 1 else {**diffs_dict(results, agreement), "diffs": documents}
    return json.dumps(content, indent=2 if choice is None else None, allow_nan=False)


def _say_next(
    options: DiffOptions, results: Sequence[RunComparison], timings: Sequence[Timing], shown_node: str | None
) -> None:
    """Print why the exit code is 3, the time spent, and the next commands. `shown_node` was shown in detail, if any."""
    for result in results:
        if result.exit_code == INCOMPLETE:
            say(f"qdebug: exit code {INCOMPLETE}: {_incomplete_text(result)}")
    if options.output is not None:
        from qdebug.present.answer import headline, verdict_word

        emit_verdict("\n".join(f"{verdict_word(result)}  {headline(result)}" for result in results))
    if options.form != "table" or options.output is not None or len(results) != 1 or options.quiet:
        return
    if timings[0].tensors and options.verbose:
        from qdebug.present.sentences import timing_sentence

        say(f"time: {timing_sentence(timings[0])}")
    for line in _next_lines(options, results[0], shown_node):
        say(line)


def _next_lines(options: DiffOptions, result: RunComparison, shown_node: str | None) -> list[str]:
    """Return the next commands, one per line. `shown_node` is the node that was shown in detail, if any."""
    pair = (options.reference, options.backends[0])
    commands: list[list[str | Path]] = []
    if shown_node is None:
        commands = [*_incomplete_commands(pair, result), *_fault_commands(pair, result)]
    if result.exit_code == 0 and options.suggest_limits is None:
        commands.append(["qdebug", "diff", *pair, "--suggest-limits", "limits.toml"])
    commands.append(["qdebug", "tui", *pair, *(["--node", shown_node] if shown_node else [])])
    if options.verbose and commands[0][1] == "explain":
        commands.append(["qdebug", "export", "repro", *pair, "--node", commands[0][-1], "-o", "test_node.py"])
    if _may_depend_on_processor(result):
        run = result.backend
        words = ["bisect", run.model, "--inputs", "FILE.npz", "--backend", run.backend, "--over", "cpu"]
        commands.append(["qdebug", *words])
    return [f"{'      ' if index else 'next: '}{command(*words)}" for index, words in enumerate(commands)]


def _may_depend_on_processor(result: RunComparison) -> bool:
    """Return whether one runtime differed between two processors, and `qdebug bisect --over cpu` can find out why."""
    from qdebug.backends import BACKENDS, load_backend

    reference, backend = result.reference, result.backend
    is_same_run = (reference.backend, reference.model) == (backend.backend, backend.model) and bool(backend.model)
    has_other_flags = bool(reference.cpu_flags and backend.cpu_flags) and reference.cpu_flags != backend.cpu_flags
    if not is_same_run or not has_other_flags or result.status == "identical" or backend.backend not in BACKENDS:
        return False
    try:
        return bool(getattr(load_backend(backend.backend), "cpu_limits", ()))
    except MissingExtraError:
        return False


def _fault_commands(pair: tuple[Path, Path], result: RunComparison) -> list[list[str | Path]]:
    """Return the commands that continue from the first fault, by its class."""
    from qdebug.compare.result.diagnosis import FaultClass

    unexplained_node = next((entry.node for entry in result.nodes if entry.reproduced is False), None)
    explain_commands: list[list[str | Path]] = []
    has_graph = not result.backend.borrowed_order
    if unexplained_node is not None and has_graph:
        explain_commands = [["qdebug", "explain", pair[1], "--node", unexplained_node]]
    if not result.diagnosis:
        return explain_commands
    first_fault = result.diagnosis[0]
    is_stateful = open_source(pair[1]).steps > 1
    detail_command: list[str | Path] = ["qdebug", "diff", *pair, "--node", first_fault.node]
    # If only one side is quantized, it is not a rewrite of the other, and lint would reject the pair.
    can_lint = _is_quantized(pair[0]) == _is_quantized(pair[1])
    lint_command: list[list[str | Path]] = [["qdebug", "lint", *pair]]
    explain_fault: list[list[str | Path]] = [["qdebug", "explain", pair[1], "--node", first_fault.node]]
    by_class: dict[FaultClass, list[list[str | Path]]] = {
        FaultClass.KERNEL: [*(explain_fault if has_graph else []), detail_command],
        FaultClass.QUANTIZATION: [["qdebug", "budget" if is_stateful else "repair", *pair], detail_command],
        FaultClass.MODEL: [detail_command, *(lint_command if can_lint else [])],
        FaultClass.RECORDING: [["qdebug", "info", pair[1]]],
        FaultClass.REFERENCE: [["qdebug", "file", "verify", pair[0]], ["qdebug", "explain", pair[0]]],
    }
    commands = by_class.get(first_fault.fault, [detail_command])
    return [*commands, *(explain_commands if first_fault.fault is not FaultClass.KERNEL else [])]


def _is_quantized(path: Path) -> bool:
    from qdebug.lint.replay import is_coded

    return any(is_coded(info.quant) for info in open_source(path).graph.tensors.values())


def _accepting_options(result: RunComparison) -> list[str]:
    """Return the `--allow-*` options that accept the shortcomings of an incomplete comparison."""
    from qdebug.compare.align.pairs import UnmatchedKind
    from qdebug.model import Fidelity

    if not result.shortcomings:
        return []
    sides = (result.reference, result.backend)
    is_cause_by_option = {
        "--allow-partial": any(not info.complete for info in sides) or any(node.note for node in result.nodes),
        "--allow-unfaithful": any(info.fidelity is Fidelity.DIFFERS for info in sides),
        "--allow-different-inputs": bool(result.different_inputs),
        "--allow-uncompared": any(entry.kind is UnmatchedKind.LOST for entry in result.coverage.unmatched)
        or result.coverage.judged.failed_replays > 0,
    }
    return [option for option, is_cause in is_cause_by_option.items() if is_cause]


def _incomplete_commands(pair: tuple[Path, Path], result: RunComparison) -> list[list[str | Path]]:
    """Return the commands that show what an incomplete comparison lacks."""
    options = _accepting_options(result)
    if "--allow-uncompared" in options:
        return [["qdebug", "diff", *pair, "--verbose"]]
    lacking = [path for path, info in zip(pair, (result.reference, result.backend), strict=True) if not info.complete]
    return [["qdebug", "info", path, "--tensors"] for path in lacking or pair[1:]] if options else []


def _incomplete_text(result: RunComparison) -> str:
    """Return why a comparison is incomplete, and the options that accept it."""
    from qdebug.compare.result.result import Status
    from qdebug.plural import plural

    reasons = list(result.shortcomings)
    incomparable_count = sum(node.status is Status.INCOMPARABLE for node in result.nodes)
    if incomparable_count:
        reasons.append(f"{plural(incomparable_count, 'pair')} could not be compared")
    options = [f"{option} GLOB" if option == "--allow-uncompared" else option for option in _accepting_options(result)]
    accept_text = f"; accept with {' '.join(options)}" if options else ""
    return safe_text("; ".join(reasons) + accept_text)
