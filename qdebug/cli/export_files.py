"""qdebug export netron, csv and npz: what was found and what was recorded, for other programs."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.comparison import compare, opened
from qdebug.cli.failures import say
from qdebug.cli.limits import add_limits_file, limits_of
from qdebug.cli.output import check_target, progress, write_result
from qdebug.cli.parser import Parser, TakesArguments, add_debug, add_untrusted, natural, typed
from qdebug.cli.sources import open_source
from qdebug.view.text import safe_text

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs

__all__ = ["CsvOptions", "NetronOptions", "NpzOptions", "add_forms", "run_csv", "run_netron", "run_npz"]

_NETRON_DESCRIPTION = """\
Write the result of a comparison as an attachment for Netron, the viewer for models:
open the model there, then this file, and every node and value shows its status, its
SQNR and what it introduces. The model is the backend's, or with --on reference the
reference's; nodes are found by their names."""

_CSV_DESCRIPTION = """\
Write the result of a comparison as CSV, a line for each tensor; with --node the
elements of that tensor, both sides beside each other, for one sample and step."""

_NPZ_DESCRIPTION = """\
Write recorded values of one sample and step as an .npz file for numpy: codes as they
are stored, or real values with --real. An array is called like its tensor where that
is a harmless file name; the array tensor_names tells which is which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetronOptions:
    """Arguments of `qdebug export netron`."""

    reference: Path
    backend: Path
    limits: Path | None
    on: str
    output: Path
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvOptions:
    """Arguments of `qdebug export csv`."""

    reference: Path
    backend: Path
    limits: Path | None
    node: str | None
    sample: int
    step: int
    output: Path | None
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzOptions:
    """Arguments of `qdebug export npz`."""

    recording: Path
    tensor: Sequence[str]
    sample: int
    step: int
    real: bool
    output: Path
    force: bool


def add_forms(forms: Verbs) -> None:
    """Add the forms to the verb."""
    netron: Parser = forms.add_parser("netron", help="an attachment for Netron", description=_NETRON_DESCRIPTION)
    _add_pair(netron)
    netron.add_argument("--on", choices=("backend", "reference"), default="backend", help="whose model it is for")
    _add_target(netron, "FILE.json", required=True)
    netron.set_defaults(run=run_netron)
    csv: Parser = forms.add_parser("csv", help="a line for each tensor, or element", description=_CSV_DESCRIPTION)
    _add_pair(csv)
    csv.add_argument("--node", metavar="NAME", help="the elements of this node (or tensor)")
    _add_place(csv)
    _add_target(csv, "FILE.csv", required=False)
    csv.set_defaults(run=run_csv)
    npz: Parser = forms.add_parser("npz", help="recorded values for numpy", description=_NPZ_DESCRIPTION)
    npz.add_argument("recording", type=Path, metavar="RECORDING", help="where the values are")
    npz.add_argument(
        "--tensor", action="append", default=[], metavar="GLOB", help="a name pattern (repeatable; default: all)"
    )
    npz.add_argument("--real", action="store_true", help="real values instead of codes")
    add_untrusted(npz, "recording")
    _add_place(npz)
    _add_target(npz, "FILE.npz", required=True)
    npz.set_defaults(run=run_npz)
    for parser in (netron, csv, npz):
        add_debug(parser)


def _add_pair(parser: Parser) -> None:
    parser.add_argument("reference", type=Path, metavar="REF", help="recording of the reference run")
    parser.add_argument("backend", type=Path, metavar="BACKEND", help="recording of the backend run")
    add_limits_file(parser)
    add_untrusted(parser, "reference", "backend")


def _add_place(parser: TakesArguments) -> None:
    parser.add_argument("--sample", type=natural, default=0, metavar="N", help="sample, counted from 0 (default: 0)")
    parser.add_argument("--step", type=natural, default=0, metavar="N", help="step of a stateful net (default: 0)")


def _add_target(parser: TakesArguments, metavar: str, *, required: bool) -> None:
    where = "the file to write" if required else "the file to write (default: stdout)"
    parser.add_argument("-o", "--output", type=Path, required=required, metavar=metavar, help=where)
    parser.add_argument("--force", action="store_true", help="overwrite it if it exists")


def run_netron(arguments: argparse.Namespace) -> int:
    """Write an attachment for Netron."""
    options = typed(NetronOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    session = opened(options.reference, options.backend, limits=limits_of(options.limits))
    with progress("comparing") as note:
        result = compare(session, on_progress=note)
    from qdebug.report.netron import netron_attachment

    graph = session.reference.graph if options.on == "reference" else None
    write_result(netron_attachment(result, graph), options.output)
    return 0


def run_csv(arguments: argparse.Namespace) -> int:
    """Write tensors or elements as CSV."""
    options = typed(CsvOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    session = opened(options.reference, options.backend, limits=limits_of(options.limits))
    from qdebug.report.csv import diff_csv, element_csv

    if options.node is not None:
        values = session.values(options.node, sample=options.sample, step=options.step)
        write_result(element_csv(values), options.output)
        return 0
    with progress("comparing") as note:
        result = compare(session, on_progress=note)
    write_result(diff_csv({str(options.backend): result}), options.output)
    return 0


def run_npz(arguments: argparse.Namespace) -> int:
    """Write recorded values."""
    options = typed(NpzOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.recording], regular=True)
    recording = open_source(options.recording)
    from qdebug.report.npz import write_npz
    from qdebug.store.whole_file import whole_file

    with whole_file(options.output) as partial:
        many = write_npz(
            recording,
            partial,
            tensors=options.tensor or ("*",),
            sample=options.sample,
            step=options.step,
            real=options.real,
        )
    say(f"wrote {many} arrays to {safe_text(options.output)}")
    return 0
