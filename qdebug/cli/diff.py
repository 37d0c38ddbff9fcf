"""qdebug diff: compare a backend with a reference, node by node."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qdebug.cli.comparison import compare, node_detail, opened
from qdebug.cli.failures import INCOMPLETE, say
from qdebug.cli.limits import add_allowances, add_limits, add_limits_file, add_map, given_limits, given_map, say_unused
from qdebug.cli.output import check_target, emit, progress, terminal_width, write_result
from qdebug.cli.parser import (
    REPORTS,
    Parser,
    add_debug,
    add_format,
    add_output,
    add_untrusted,
    add_workers,
    natural,
    suffix_format,
    typed,
)
from qdebug.cli.reports import definitions_text, diff_text, exchange_text, matrix_text, node_text
from qdebug.cli.sources import command
from qdebug.errors import AlignmentError, UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from qdebug.cli.parser import Verbs
    from qdebug.compare.result.limits import Limits
    from qdebug.compare.result.result import RunComparison
    from qdebug.compare.timing import Timing
    from qdebug.numerics.agreement import Agreement
    from qdebug.present.detail import NodeDetail
    from qdebug.session import DiffSession

__all__ = ["DiffOptions", "add_parser", "run"]

_DESCRIPTION = """\
Compare the recording of a backend with the recording of a reference: pair their
tensors, measure every pair on real values, and name the first node that is beyond
the limit. What was not compared is listed with its reason, and never counts as
good. Without limits of your own, a quantized node may add at most 1.5 LSB of its own
output unless an arithmetic that backends are known to use gives its very codes, a
float node the rounding error of its sums; a node that cannot be replayed must
reach an SQNR of 20 dB. The report says which limits were in force."""

_EPILOG = """\
examples:
  qdebug diff ref.h5 int8.h5
  qdebug diff ref.h5 int8.h5 --node conv1        one node in full, worst elements included
  qdebug diff ref.h5 int8.h5 --min-sqnr 30 --max-lsb 4
  qdebug diff ref.h5 int8.h5 --limits limits.toml
  qdebug diff ref.h5 good1.h5 good2.h5 --suggest-limits limits.toml
  qdebug diff ref.h5 other.h5 --write-map map.toml     then complete it by hand, and:
  qdebug diff ref.h5 other.h5 --map map.toml           your own pairs go before all
  qdebug diff ref.h5 int8.h5 --json -o diff.json
  qdebug diff ref.h5 int8.h5 -o diff.html        a page with plots; also .csv, .xml (JUnit)
  qdebug diff ref.h5 int8.h5 -f markdown >> "$GITHUB_STEP_SUMMARY"
  qdebug diff ref.h5 int8.h5 --jobs 4            share the work among 4 processes
  qdebug diff --explain-metrics                  what the columns mean

exit codes: 0 within the limits, 1 a node is beyond its limit, 2 could not run,
3 a recording is incomplete, recording changed a result, or tensors were lost to
the comparison (unless allowed). The highest holds; the report is printed anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """Arguments of `qdebug diff`."""

    reference: Path
    backends: Sequence[Path]
    limits: Path | None
    suggest_limits: Path | None
    map: Path | None
    write_map: Path | None
    min_sqnr: float | None
    min_output_sqnr: float | None
    max_lsb: float | None
    atol: float | None
    rtol: float | None
    allow_partial: bool
    allow_unfaithful: bool
    allow_uncompared: Sequence[str]
    explain: bool
    node: str | None
    sample: int | None
    everything: bool
    jobs: int
    scheduler: str | None
    format: str | None
    output: Path | None
    force: bool

    @property
    def form(self) -> str:
        """The form of the result."""
        return suffix_format(self.format, self.output, forms=REPORTS)


_EXCHANGE = ("html", "junit", "csv")
"""Forms that other programs read; all backends go into one document."""


class _ExplainMetrics(argparse.Action):
    """Print the definitions and stop, as --help does."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        emit(definitions_text(namespace.format or "table"))
        parser.exit(0)


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    parser: Parser = verbs.add_parser(
        "diff", help="compare a backend with a reference, node by node", description=_DESCRIPTION, epilog=_EPILOG
    )
    parser.add_argument("reference", type=Path, metavar="REF", help="recording of the reference run")
    parser.add_argument("backends", type=Path, nargs="+", metavar="BACKEND", help="recording of a backend run")
    parser.add_argument("--explain-metrics", action=_ExplainMetrics, nargs=0, help="say what every metric means")
    parser.add_argument(
        "--no-explain",
        action="store_false",
        dest="explain",
        help="do not look for the arithmetic that reproduces each quantized node",
    )
    add_limits_file(parser)
    add_limits(
        parser.add_argument_group(
            "limits on the whole error (all that are given must hold; default: derived from what each node adds)"
        )
    )
    parser.add_argument(
        "--suggest-limits",
        type=Path,
        metavar="FILE",
        help="write limits that these runs keep, with a margin, to FILE; give several known-good BACKENDs",
    )
    pairing = parser.add_argument_group("which tensors are compared")
    add_map(pairing)
    pairing.add_argument(
        "--write-map",
        type=Path,
        metavar="FILE",
        help="write the pairs, and what has no partner with the nearest candidate, to FILE, to be completed by hand",
    )
    add_allowances(parser.add_argument_group("what may be incomplete (else the exit code is 3)"))
    shown = parser.add_argument_group("what is shown")
    shown.add_argument("--node", metavar="NAME", help="one node (or tensor) in full")
    shown.add_argument("--sample", type=natural, metavar="N", help="look at sample N alone, counted from 0")
    shown.add_argument("--all", action="store_true", dest="everything", help="show every node of a long net")
    add_format(shown, forms=REPORTS)
    add_output(shown, what="the result")
    add_workers(parser.add_mutually_exclusive_group())
    add_untrusted(parser, "reference", "backends")
    add_debug(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Compare, print, and give the exit code."""
    options = typed(DiffOptions, arguments)
    for target in (options.output, options.suggest_limits, options.write_map):
        check_target(target, force=options.force, sources=[options.reference, *options.backends])
    if options.write_map is not None and len(options.backends) > 1:
        raise UsageError("--write-map writes the pairs of one backend.", hint="Give one BACKEND.")
    limits = replace(given_limits(options), explain=options.explain)
    if options.node is not None and options.form in ("junit", "csv"):
        raise UsageError(f"-f {options.form} has no form for one node.", hint="Leave out --node, or use -f json.")
    if options.form == "html" and options.output is None and terminal_width() is not None:
        raise UsageError("A page is not for a terminal to show.", hint="Write it to a file: -o diff.html.")
    from qdebug.workflow.workers import open_workers

    results: dict[str, RunComparison] = {}
    texts: list[str] = []
    details: list[NodeDetail] = []
    pages: dict[str, Sequence[NodeDetail]] = {}
    sessions: list[DiffSession] = []
    with open_workers(jobs=options.jobs, scheduler=options.scheduler) as executor:
        for backend in options.backends:
            session, result = _compared(options, backend, limits, executor)
            sessions.append(session)
            name = _unique(str(backend), results)
            results[name] = result
            if options.form in _EXCHANGE:
                pages[name] = _in_full(session, result, options)
            elif options.node is not None:
                details.append(_asked(session, result, options.node, options))
                texts.append(_node_part(details[-1], options))
            elif options.form != "json":
                texts.append(
                    diff_text(result, options.form, everything=options.everything, plain=options.output is not None)
                )
    agreement = _agreement(sessions) if len(sessions) > 1 and options.node is None else {}
    if options.form in _EXCHANGE:
        write_result(exchange_text(results, options.form, pages, agreement), options.output)
    else:
        write_result(_joined(options, results, agreement, texts, details), options.output)
    if options.suggest_limits is not None:
        from qdebug.workflow.suggest_limits import suggested_limits

        write_result(suggested_limits(results), options.suggest_limits)
    if options.write_map is not None:
        from qdebug.workflow.map_file import map_text

        write_result(map_text(next(iter(results.values()))), options.write_map)
    say_unused(limits, list(results.values()))
    _after(options, list(results.values()), [session.timing for session in sessions])
    return max(result.exit_code for result in results.values())


def _compared(
    options: DiffOptions, backend: Path, limits: Limits, executor: Executor | None
) -> tuple[DiffSession, RunComparison]:
    """Compare one backend with the reference; of several, say which one it is that cannot be compared."""
    try:
        session = opened(options.reference, backend, limits=limits, sample=options.sample, given=given_map(options.map))
        if executor is not None:
            session.compare_in(executor, options.reference, backend, sample=options.sample)
        with progress("comparing") as note:
            return session, compare(session, sample=options.sample, on_progress=note)
    except AlignmentError as error:
        if len(options.backends) == 1:
            raise
        raise AlignmentError(f"{str(backend)!r}: {error.message}", hint=error.hint) from error


def _unique(name: str, taken: dict[str, RunComparison]) -> str:
    return name if name not in taken else f"{name} ({len(taken) + 1})"


def _in_full(session: DiffSession, result: RunComparison, options: DiffOptions) -> Sequence[NodeDetail]:
    """Gather what a page shows of the nodes that are worth it, or of the one asked for."""
    if options.form != "html":
        return ()
    if options.node is not None:
        return [_asked(session, result, options.node, options)]
    from qdebug.present.reports.html import worth_detail

    with progress("looking closer") as note:
        chosen = worth_detail(result)
        found = []
        for done, node in enumerate(chosen, 1):
            found.append(node_detail(session, result, node.tensor, sample=options.sample))
            note(done, len(chosen))
    return found


def _asked(session: DiffSession, result: RunComparison, name: str, options: DiffOptions) -> NodeDetail:
    """Gather what is known of the node that was asked for; say so where it is shown with the part that it lies in."""
    detail = node_detail(session, result, name, sample=options.sample)
    shown = detail.result
    if name not in (shown.node, shown.tensor, shown.reference_tensor):
        say(f"{name!r} is not compared itself: it is judged with tensor {shown.tensor!r}, which is shown.")
    return detail


def _node_part(detail: NodeDetail, options: DiffOptions) -> str:
    return "" if options.form == "json" else node_text(detail, options.form, plain=options.output is not None)


def _agreement(sessions: Sequence[DiffSession]) -> Mapping[str, Agreement]:
    """Find out where all backends are wrong alike."""
    from qdebug.compare.measure.agreement import agreements

    return agreements(sessions[0].reference, [(session.backend, session.alignment) for session in sessions])


def _joined(
    options: DiffOptions,
    results: dict[str, RunComparison],
    agreement: Mapping[str, Agreement],
    texts: Sequence[str],
    details: Sequence[NodeDetail],
) -> str:
    """Put the reports of all backends together, what they share first."""
    if options.form == "json":
        return _json(results, agreement, details)
    if len(results) == 1:
        return texts[0]
    head = [] if details else [matrix_text(results, agreement, options.form, plain=options.output is not None)]
    mark = "# {}" if options.form == "markdown" else "==> {}"
    parts = [f"{mark.format(safe_text(name))}\n\n{text}" for name, text in zip(results, texts, strict=True)]
    return "\n".join([*head, *parts])


def _json(results: dict[str, RunComparison], agreement: Mapping[str, Agreement], details: Sequence[NodeDetail]) -> str:
    if not details:
        if len(results) > 1:
            from qdebug.present.reports.matrix import diffs_json

            return diffs_json(results, agreement)
        return json.dumps(next(iter(results.values())).to_dict(), indent=2, allow_nan=False)
    from qdebug.present.reports.matrix import diffs_dict
    from qdebug.present.reports.node import with_detail

    documents = [with_detail(result, detail) for result, detail in zip(results.values(), details, strict=True)]
    plain: dict[str, Any] = documents[0] if len(documents) == 1 else {**diffs_dict(results), "diffs": documents}
    return json.dumps(plain, indent=2, allow_nan=False)


def _after(options: DiffOptions, results: Sequence[RunComparison], timings: Sequence[Timing]) -> None:
    """Say on stderr why the exit code is 3, where the time went, and what to type next."""
    for result in results:
        if result.exit_code == INCOMPLETE:
            say(f"qdebug: exit code {INCOMPLETE}: {_incomplete(result)}")
    if options.form != "table" or options.output is not None or len(results) != 1:
        return
    if timings[0].tensors:
        from qdebug.present.sentences import timing_sentence

        say(f"time: {timing_sentence(timings[0])}")
    backend = options.backends[0]
    node = results[0].first_divergence
    if node is not None and options.node is None:
        say(f"next: {command('qdebug', 'diff', options.reference, backend, '--node', node)}")
        say(f"      {command('qdebug', 'tui', options.reference, backend)}")
    else:
        words = ["qdebug", "tui", options.reference, backend]
        say(f"next: {command(*words, *(['--node', options.node] if options.node else []))}")
    unexplained = [entry for entry in results[0].nodes if entry.reproduced is False]
    if unexplained and options.node is None:
        name = unexplained[0].node
        say(f"      {command('qdebug', 'explain', backend, '--node', name)}")
        repro = ["qdebug", "export", "repro", options.reference, backend, "--node", name, "-o", "test_node.py"]
        say(f"      {command(*repro)}")


def _incomplete(result: RunComparison) -> str:
    """Say what makes a comparison incomplete and what would accept it."""
    from qdebug.compare.align.pairs import UnmatchedKind
    from qdebug.compare.result.result import Status
    from qdebug.model import Fidelity

    sides = (result.reference, result.backend)
    causes = {
        "--allow-partial": any(not info.complete for info in sides) or any(node.note for node in result.nodes),
        "--allow-unfaithful": any(info.fidelity is Fidelity.DIFFERS for info in sides),
        "--allow-uncompared GLOB": any(entry.kind is UnmatchedKind.LOST for entry in result.coverage.unmatched),
    }
    said = list(result.shortcomings)
    incomparable = sum(node.status is Status.INCOMPARABLE for node in result.nodes)
    if incomparable:
        said.append(f"{incomparable} pair{'s' if incomparable > 1 else ''} could not be compared")
    ways = [way for way, applies in causes.items() if applies] if result.shortcomings else []
    accept = f"; accept it with {' '.join(ways)}" if ways else ""
    return safe_text("; ".join(said) + accept)
