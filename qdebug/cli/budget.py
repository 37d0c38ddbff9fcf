"""qdebug budget: the share of each node in the error of the outputs."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qdebug.cli.failures import say
from qdebug.cli.output import check_target, emit_verdict, progress, write_result
from qdebug.cli.pair import PairOptions, add_files, add_pair_options, open_pair_session
from qdebug.cli.parser import Parser, options_from, suffix_format
from qdebug.cli.sources import command
from qdebug.errors import UsageError

if TYPE_CHECKING:
    from qdebug.compare.budget import ErrorBudget

__all__ = ["BudgetOptions", "fill_parser"]

_DESCRIPTION = """\
Measure how much each node's own error contributes to the error of each output. The
own error of a node is added to the reference, and the reference is replayed from this
node to the output. The share of the node is the error power of this replay, divided
by the real error power of the output.

The parts of a node's error are replayed separately as well:
  weights      constants that differ from the reference's, mostly by rounding
  saturation   values that the code range clips
  rounding     rounding of the result to its codes
  arithmetic   other differences in how the backend computes

Shares need not add up to 100 %, because errors can cancel or amplify each other; the
report says which. Nodes below the smallest share are replayed together."""

_EPILOG = """\
examples:
  qdebug budget net.onnx net.int8.onnx --inputs x.npz --samples 8
  qdebug budget float.h5 int8.h5
  qdebug budget float.h5 int8.h5 --least 0.1      only nodes with a tenth or more
  qdebug budget float.h5 int8.h5 --json -o budget.json

exit codes: 0 done, 2 could not run. Both recordings need their weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetOptions(PairOptions):
    """Arguments of `qdebug budget`."""

    least: float
    everything: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    add_files(parser, "reference", "backend")
    parser.add_argument(
        "--least",
        type=float,
        default=0.01,
        metavar="SHARE",
        help="smallest share of a node that gets its own row, from 0 to 1 (default: 0.01)",
    )
    parser.add_argument(
        "--all", action="store_true", dest="everything", help="list every node whose error is not known"
    )
    add_pair_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    options = options_from(BudgetOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    if not 0 <= options.least <= 1:
        raise UsageError(
            f"--least must be a fraction from 0 to 1, but is {options.least:g}.",
            hint="Give a fraction, for example --least 0.01.",
        )
    options = options.as_recordings()
    with open_pair_session(options) as session, progress("replaying") as note:
        budget = session.budget(least=options.least, progress=note)
    write_result(_result_text(budget, options), options.output)
    if options.output is not None:
        emit_verdict(_verdict(budget))
    largest_contributors = [output.nodes[0] for output in budget.outputs if output.nodes]
    if largest_contributors and options.is_table:
        words = ("diff", options.reference, options.backend, "--node", largest_contributors[0].node)
        say(f"next: {command('qdebug', *words)}")
    return 0


def _verdict(budget: ErrorBudget) -> str:
    """Return the title line of each output's error."""
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.budget import budget_document
    from qdebug.present.reports.document import Title

    return document_text([block for block in budget_document(budget) if isinstance(block, Title)], "table", plain=True)


def _result_text(budget: ErrorBudget, options: BudgetOptions) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return budget.to_json()
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.budget import budget_document

    document = budget_document(budget, everything=options.everything)
    return document_text(document, form, plain=options.output is not None)
