"""qdebug explain: find the arithmetic that reproduces each node bit for bit."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.failures import INCOMPLETE, say
from qdebug.cli.limits import add_allowances, add_limits_file, limits_of, with_allowances
from qdebug.cli.output import check_target, progress, write_result
from qdebug.cli.parser import (
    Parser,
    add_common,
    add_format,
    add_output,
    add_track,
    add_untrusted,
    add_workers,
    limit,
    natural,
    options_from,
    suffix_format,
)
from qdebug.cli.reports import document_text
from qdebug.cli.sources import command, open_source
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.compare.explaining.explanation import ExplainedRun
    from qdebug.model import Recording

__all__ = ["ExplainOptions", "fill_parser", "run"]

_DESCRIPTION = """\
Find the arithmetic of each quantized node in a recording. qdebug computes the node on
its recorded inputs in every arithmetic that real backends use (rounding, multiplier,
accumulator, order of steps) and names those that reproduce the recorded output bit
for bit, in every element. A node that no arithmetic reproduces is listed with the
pattern of its wrong elements and the likely cause; look there for a bug. For float
nodes with 16-bit or 8-bit results, it names where and how they round; other float
nodes are compared with the rounding error of their sums.

Arithmetics that compute the same function on these nodes count as one. The functions
that remain form the class. Witnesses are the different sums or codes that the
runner-up, the best failing arithmetic, gets wrong; few witnesses are weak evidence.
If a multiplier and shift were recorded with a tensor, they are tried first."""

_EPILOG = """\
examples:
  qdebug explain int8.h5
  qdebug explain int8.h5 --node conv1           all arithmetics that reproduce it
  qdebug explain int8.h5 --json -o explain.json
  qdebug explain int8.h5 --jobs 4               share the work among 4 processes
  qdebug explain int8.h5 --write-arithmetic backend.toml
  qdebug record int8.h5 --backend interpreter:arithmetic=backend.toml --inputs x.npz -o twin.h5

exit codes: 0 every node that can be computed is explained, 1 a node is unexplained,
2 could not run, 3 no answer: no computed tensor could be examined, more than a tenth
of the quantized nodes could not be examined, the recording is incomplete, or
recording changed the result (unless allowed)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """Arguments of `qdebug explain`."""

    backend: Path
    node: str | None
    sample: int | None
    everything: bool
    write_arithmetic: Path | None
    limits: Path | None
    max_lsb: float | None
    allow_partial: bool
    allow_unfaithful: bool
    allow_different_inputs: bool
    allow_uncompared: Sequence[str]
    track: Path | None
    jobs: int
    scheduler: str | None
    format: str | None
    output: Path | None
    force: bool

    @property
    def form(self) -> str:
        """Format of the result."""
        return suffix_format(self.format, self.output)


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.add_argument("backend", type=Path, metavar="BACKEND", help="recording of a backend run")
    parser.add_argument("--node", metavar="NAME", help="one node (or tensor) in full")
    parser.add_argument("--sample", type=natural, metavar="N", help="examine sample N only, counted from 0")
    parser.add_argument("--all", action="store_true", dest="everything", help="list every node, explained or not")
    parser.add_argument(
        "--write-arithmetic",
        type=Path,
        metavar="FILE",
        help="write the arithmetic to a TOML file for --backend interpreter:arithmetic=FILE",
    )
    add_limits_file(parser)
    parser.add_argument(
        "--max-lsb", type=limit, metavar="N", help="accept unexplained nodes that are wrong by at most N LSB"
    )
    add_allowances(parser.add_argument_group("what may be missing (otherwise the exit code is 3)"))
    add_format(parser)
    add_output(parser, what="the result")
    add_track(parser)
    add_workers(parser.add_mutually_exclusive_group())
    add_untrusted(parser, "backend")
    add_common(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Explain, print, and return the exit code."""
    options = options_from(ExplainOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.backend])
    check_target(options.write_arithmetic, force=options.force, sources=[options.backend])
    if options.track is not None:
        from qdebug.accuracy.track import check_track

        check_track(options.track)
    limits = limits_of(options.limits)
    limits = limits if options.max_lsb is None else replace(limits, max_lsb=options.max_lsb)
    limits = with_allowances(limits, options)
    recording = _open_backend(options)
    from qdebug.running.explain_file import explain, explained_by
    from qdebug.running.workers import open_workers

    with open_workers(jobs=options.jobs, scheduler=options.scheduler) as executor, progress("explaining") as note:
        answer_in_workers = None if executor is None else explained_by(executor, options.backend, sample=options.sample)
        explanation = explain(recording, node=options.node, limits=limits, progress=note, shared=answer_in_workers)
    if options.sample is not None:
        explanation = _restore_sample_number(explanation, options.sample)
    write_result(_result_text(explanation, options), options.output)
    if options.write_arithmetic is not None:
        _write_arithmetic(explanation, options.write_arithmetic)
    if options.track is not None:
        from qdebug.accuracy.track import track, tracked_explanation

        track(options.track, [tracked_explanation(explanation, options.backend.stem)])
    _say_next(explanation, options)
    return explanation.exit_code


def _open_backend(options: ExplainOptions) -> Recording:
    recording = open_source(options.backend)
    if options.sample is None:
        return recording
    from qdebug.compare.measure.recordings import OneSample

    return OneSample(recording, options.sample)


def _restore_sample_number(explanation: ExplainedRun, sample: int) -> ExplainedRun:
    """Return the explanation of a single sample, with the number that the sample has in the recording."""
    nodes = []
    for node in explanation.nodes:
        residual = node.residual
        if residual is not None:
            residual = replace(residual, elements=tuple((sample, *index[1:]) for index in residual.elements))
        nodes.append(replace(node, residual=residual))
    return replace(explanation, nodes=tuple(nodes))


def _result_text(explanation: ExplainedRun, options: ExplainOptions) -> str:
    if options.form == "json":
        return explanation.to_json()
    from qdebug.present.reports.explain import explain_document, explained_node_document

    documents = [explain_document(explanation, everything=options.everything)]
    if options.node is not None:
        documents = [explained_node_document(node) for node in explanation.nodes]
    return "\n".join(document_text(document, options.form, plain=options.output is not None) for document in documents)


def _write_arithmetic(explanation: ExplainedRun, target: Path) -> None:
    """Write the explained arithmetic as a file for the interpreter.

    Raises:
        UsageError: Nothing was explained.
    """
    if not explanation.arithmetic and not explanation.roundings:
        raise UsageError(
            "No node is explained by an arithmetic or by roundings that can be written to a file.",
            hint="Run it without --write-arithmetic to see why.",
        )
    from qdebug.running.explain_file import arithmetic_text

    write_result(arithmetic_text(explanation), target)


def _say_next(explanation: ExplainedRun, options: ExplainOptions) -> None:
    """Print the next command on stderr, and why the exit code is 3."""
    if explanation.shortcomings:
        say(f"qdebug: exit code {INCOMPLETE}: {safe_text('; '.join(explanation.shortcomings))}")
    if options.form != "table" or options.output is not None or options.node is not None:
        return
    unexplained_nodes = [
        node for node in explanation.nodes if str(node.status) == "unexplained" and node.accepted is None
    ]
    if unexplained_nodes:
        say(f"next: {command('qdebug', 'explain', options.backend, '--node', unexplained_nodes[0].node)}")
