"""qdebug budget: the share of each node in the error of the outputs."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from qdebug.cli.failures import say
from qdebug.cli.output import check_target, emit_verdict, progress, write_result
from qdebug.cli.pair import PairOptions, add_files, add_pair_options, open_compared
from qdebug.cli.parser import Parser, suffix_format, typed
from qdebug.cli.sources import command
from qdebug.errors import UsageError

if TYPE_CHECKING:
    from qdebug.compare.budget import ErrorBudget

__all__ = ["BudgetOptions", "fill_parser"]

_DESCRIPTION = """\
Say how much of each output's error every node makes by itself. A node's own error is
put into the reference, and the reference is replayed with it down to the output: what
that makes, in power, over the output's real error is the node's share.

The parts of a node's error are replayed apart too:
  weights      other constants than the reference's, rounded ones above all
  saturation   values that its codes cut off at their ends
  rounding     rounding the result to its codes
  arithmetic   what the backend computed otherwise

Shares need not add up to 100 %: errors can cancel or amplify each other, and the
report says which. Nodes below the least share are replayed together and summed."""

_EPILOG = """\
examples:
  qdebug budget net.onnx net.int8.onnx --inputs x.npz --samples 8
  qdebug budget float.h5 int8.h5
  qdebug budget float.h5 int8.h5 --least 0.1      only nodes that make a tenth or more
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
        help="share from which on a node has a row of its own, from 0 to 1 (default: 0.01)",
    )
    parser.add_argument("--all", action="store_true", dest="everything", help="list every node that is not known")
    add_pair_options(parser)
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    options = typed(BudgetOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    if not 0 <= options.least <= 1:
        raise UsageError(f"--least {options.least:g} is not a share.", hint="Give one from 0 to 1: --least 0.01.")
    options = options.as_recordings()
    with open_compared(options) as session, progress("replaying") as note:
        budget = session.budget(least=options.least, progress=note)
    write_result(_text(budget, options), options.output)
    if options.output is not None:
        emit_verdict(_verdict(budget))
    shown = [output.nodes[0] for output in budget.outputs if output.nodes]
    if shown and options.is_table:
        words = ("diff", options.reference, options.backend, "--node", shown[0].node)
        say(f"next: {command('qdebug', *words)}")
    return 0


def _verdict(budget: ErrorBudget) -> str:
    """Return the title line of each output's error."""
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.budget import budget_document
    from qdebug.present.reports.document import Title

    return document_text([block for block in budget_document(budget) if isinstance(block, Title)], "table", plain=True)


def _text(budget: ErrorBudget, options: BudgetOptions) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return budget.to_json()
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.budget import budget_document

    document = budget_document(budget, everything=options.everything)
    return document_text(document, form, plain=options.output is not None)
