"""qdebug export: write a part of a recording, or a comparison, in another format."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.comparison import compare, open_session
from qdebug.cli.failures import COULD_NOT_RUN, say
from qdebug.cli.limits import add_limits_file, limits_of
from qdebug.cli.output import check_target, progress, write_result
from qdebug.cli.parser import Parser, TakesArguments, add_common, add_untrusted, natural, options_from
from qdebug.cli.sources import command, open_source
from qdebug.errors import OutputExistsError, UsageError
from qdebug.present.numbers import plain_digits
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs
    from qdebug.model import Recording

__all__ = [
    "CsvOptions",
    "ModelExplorerOptions",
    "NetronOptions",
    "NpzOptions",
    "ReproOptions",
    "add_forms",
    "fill_parser",
    "run_csv",
    "run_model_explorer",
    "run_netron",
    "run_npz",
    "run_repro",
]

_NETRON_DESCRIPTION = """\
Write the result of a comparison as an attachment for Netron, the model viewer. Start
Netron without a file, open the model, then open the attachment: every node and value
shows its status, SQNR and introduced error. The model is the backend's, or the
reference's with --on reference; nodes are matched by name."""

_MODEL_EXPLORER_DESCRIPTION = """\
Write a comparison for Model Explorer into a folder: both graphs, an overlay for each
metric, for the status, the placement and the path of the error, and the pairs of
nodes. The script open.py in the folder opens both graphs side by side; a click on a
node selects its partner. It needs: pip install ai-edge-model-explorer."""

_CSV_DESCRIPTION = """\
Write the result of a comparison as CSV, one line per tensor. With --node, write the
elements of that tensor in both runs, for one sample and step."""

_NPZ_DESCRIPTION = """\
Write recorded values of one sample and step as an .npz file for numpy: codes as
stored, or real values with --real. Arrays are named after their tensors as far as
file names allow; the array tensor_names has the exact names."""


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
class ModelExplorerOptions:
    """Arguments of `qdebug export model-explorer`."""

    reference: Path
    backend: Path
    limits: Path | None
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
    """Add the formats to the verb."""
    netron: Parser = forms.add_parser("netron", help="an attachment for Netron", description=_NETRON_DESCRIPTION)
    _add_pair(netron)
    netron.add_argument(
        "--on", choices=("backend", "reference"), default="backend", help="the model that the attachment is for"
    )
    _add_target(netron, "FILE.json", required=True)
    netron.set_defaults(run=run_netron)
    explorer: Parser = forms.add_parser(
        "model-explorer", help="both graphs with overlays for Model Explorer", description=_MODEL_EXPLORER_DESCRIPTION
    )
    _add_pair(explorer)
    explorer.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="the folder to write")
    explorer.add_argument("--force", action="store_true", help="overwrite files in it")
    explorer.set_defaults(run=run_model_explorer)
    csv: Parser = forms.add_parser("csv", help="one line per tensor, or per element", description=_CSV_DESCRIPTION)
    _add_pair(csv)
    csv.add_argument("--node", metavar="NAME", help="the elements of this node (or tensor)")
    _add_place(csv)
    _add_target(csv, "FILE.csv", required=False)
    csv.set_defaults(run=run_csv)
    npz: Parser = forms.add_parser("npz", help="recorded values for numpy", description=_NPZ_DESCRIPTION)
    npz.add_argument("recording", type=Path, metavar="RECORDING", help="recording with the values")
    npz.add_argument(
        "--tensor", action="append", default=[], metavar="GLOB", help="a name pattern (repeatable; default: all)"
    )
    npz.add_argument("--real", action="store_true", help="real values instead of codes")
    add_untrusted(npz, "recording")
    _add_place(npz)
    _add_target(npz, "FILE.npz", required=True)
    npz.set_defaults(run=run_npz)
    for parser in (netron, explorer, csv, npz):
        add_common(parser)


def _add_pair(parser: Parser) -> None:
    parser.add_argument("reference", type=Path, metavar="REF", help="recording of the reference run")
    parser.add_argument("backend", type=Path, metavar="BACKEND", help="recording of the backend run")
    add_limits_file(parser)
    add_untrusted(parser, "reference", "backend")


def _add_place(parser: TakesArguments) -> None:
    parser.add_argument("--sample", type=natural, default=0, metavar="N", help="sample, counted from 0 (default: 0)")
    parser.add_argument("--step", type=natural, default=0, metavar="N", help="step of a stateful net (default: 0)")


def _add_target(parser: TakesArguments, metavar: str, *, required: bool) -> None:
    help_text = "the file to write" if required else "the file to write (default: stdout)"
    parser.add_argument("-o", "--output", type=Path, required=required, metavar=metavar, help=help_text)
    parser.add_argument("--force", action="store_true", help="overwrite it if it exists")


def run_netron(arguments: argparse.Namespace) -> int:
    """Write an attachment for Netron."""
    options = options_from(NetronOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    session = open_session(options.reference, options.backend, limits=limits_of(options.limits))
    with progress("comparing") as note:
        result = compare(session, on_progress=note)
    from qdebug.present.reports.exports import netron_attachment

    graph = session.reference.graph if options.on == "reference" else None
    write_result(netron_attachment(result, graph), options.output)
    return 0


def run_model_explorer(arguments: argparse.Namespace) -> int:
    """Write the files for Model Explorer into a folder."""
    options = options_from(ModelExplorerOptions, arguments)
    _check_folder(options.output, force=options.force)
    session = open_session(options.reference, options.backend, limits=limits_of(options.limits))
    with progress("comparing") as note:
        result = compare(session, on_progress=note)
    from qdebug.present.reports.model_explorer import OPENER, model_explorer_files
    from qdebug.recording.target import replacing_file

    files = model_explorer_files(result, session.reference.graph, session.backend.graph)
    options.output.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with replacing_file(options.output / name) as temporary_file:
            temporary_file.write_text(plain_digits(text), encoding="utf-8")
    say(f"wrote {len(files)} files to {safe_text(options.output)}")
    say(f"open them: {command('python', options.output / OPENER)}   (needs: pip install ai-edge-model-explorer)")
    return 0


def _check_folder(folder: Path, *, force: bool) -> None:
    """Reject an unusable output folder before any work is done.

    Raises:
        UsageError: The path is not a folder.
        OutputExistsError: The folder is not empty, and its files may not be overwritten.
    """
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"{str(folder)!r} is not a folder.", hint="Give the name of a folder: -o DIR.")
    if folder.is_dir() and any(folder.iterdir()) and not force:
        raise OutputExistsError(
            f"The folder {str(folder)!r} is not empty.",
            hint="Choose another name, or overwrite its files with --force.",
        )


def run_csv(arguments: argparse.Namespace) -> int:
    """Write tensors or elements as CSV."""
    options = options_from(CsvOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    session = open_session(options.reference, options.backend, limits=limits_of(options.limits))
    from qdebug.present.reports.exports import diff_csv, element_csv

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
    options = options_from(NpzOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.recording], regular=True)
    recording = open_source(options.recording)
    from qdebug.present.reports.exports import write_npz
    from qdebug.recording.target import replacing_file

    with replacing_file(options.output) as temporary_file:
        count = write_npz(
            recording,
            temporary_file,
            tensors=options.tensor or ("*",),
            sample=options.sample,
            step=options.step,
            real=options.real,
        )
    omitted_texts = [
        f"{noun} {index} of {total} alone (--{noun} N)"
        for noun, index, total in (
            ("sample", options.sample, recording.samples),
            ("step", options.step, recording.steps),
        )
        if total > 1
    ]
    extent_text = f", {', '.join(omitted_texts)}" if omitted_texts else ""
    say(f"wrote {count} arrays to {safe_text(options.output)}{extent_text}")
    return 0


_DESCRIPTION = """\
Write a part of a recording, or of a comparison, in a format for other programs."""

_EPILOG = """\
examples:
  qdebug export repro ref.h5 int8.h5 --node conv1 -o test_conv1.py
  qdebug export netron ref.h5 int8.h5 -o diff.json
  qdebug export npz int8.h5 --tensor 'conv*' -o values.npz"""

_REPRO_DESCRIPTION = """\
Write a pytest file for one node, in plain numpy: its inputs, weights and parameters,
the output of the backend, and the arithmetic that the node should follow. The file
runs anywhere without qdebug. It tests the real backend if it is installed (ONNX
Runtime), otherwise the recorded output. It fails as long as the node is wrong, so it
serves as a bug report and as a test of the fix.

The arithmetic is the one that reproduces the node. If none does, it is the one that
reproduces other nodes of the same kind in the run. A large node is reduced to what
its wrong elements need, unless --whole is given. A float node is compared with a
replay, within the rounding bound of its sums; the file states this bound."""

_REPRO_EPILOG = """\
examples:
  qdebug explain int8.h5                                    which nodes are unexplained
  qdebug export repro ref.h5 int8.h5 --node conv1 -o test_conv1.py
  pytest test_conv1.py"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproOptions:
    """Arguments of `qdebug export repro`."""

    reference: Path
    backend: Path
    node: str
    sample: int | None
    whole: bool
    output: Path
    force: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.set_defaults(run=lambda _: _print_forms(parser))
    forms = parser.add_subparsers(title="forms", metavar="FORM", parser_class=Parser)
    _add_repro(forms)
    add_forms(forms)


def _add_repro(forms: Verbs) -> None:
    parser: Parser = forms.add_parser(
        "repro", help="a pytest file for one node", description=_REPRO_DESCRIPTION, epilog=_REPRO_EPILOG
    )
    parser.add_argument("reference", type=Path, metavar="REF", help="recording of the reference run")
    parser.add_argument("backend", type=Path, metavar="BACKEND", help="recording of the backend run")
    parser.add_argument("--node", required=True, metavar="NAME", help="the backend's node, or a tensor it computes")
    parser.add_argument(
        "--sample", type=natural, metavar="N", help="sample to use (default: the sample with most errors)"
    )
    parser.add_argument("--whole", action="store_true", help="keep the whole node, however large it is")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE.py", help="the test file to write")
    parser.add_argument("--force", action="store_true", help="overwrite FILE.py if it exists")
    add_untrusted(parser, "reference", "backend")
    add_common(parser)
    parser.set_defaults(run=run_repro)


def _print_forms(parser: Parser) -> int:
    """Print the formats if none was given."""
    import sys

    parser.print_help(sys.stderr)
    return COULD_NOT_RUN


def run_repro(arguments: argparse.Namespace) -> int:
    """Write a reproducer."""
    options = options_from(ReproOptions, arguments)
    check_target(options.output, force=options.force, sources=[options.reference, options.backend])
    reference, backend = open_source(options.reference), open_source(options.backend)
    from qdebug.model.names import resolve_name
    from qdebug.reproduce.reproducer import is_float_node

    owners = {name: node.name for node in backend.graph.nodes for name in (node.name, *filter(None, node.outputs))}
    hint = f"List the nodes: {command('qdebug', 'explain', options.backend, '--all')}."
    options = replace(options, node=resolve_name(options.node, owners, what="node of the backend", hint=hint))

    reference_clause, reference_tensor = _find_counterpart(reference, backend, options.node)
    if is_float_node(backend, options.node):
        text, passing_reason = _float_reproducer(backend, options, reference_clause)
    else:
        counterpart = None if reference_tensor is None else (reference, reference_tensor)
        text, passing_reason = _quantized_reproducer(backend, options, reference_clause, counterpart)
    write_result(text, options.output)
    if passing_reason:
        say(f"{passing_reason}. {_PASSING_NOTE}")
    say(f"next: {command('pytest', options.output)}")
    return 0


_PASSING_NOTE = "This proves that the node computes correctly on these inputs; check its weights, scales and inputs"


def _quantized_reproducer(
    backend: Recording, options: ReproOptions, reference_clause: str, counterpart: tuple[Recording, str] | None
) -> tuple[str, str]:
    """Return the file for a quantized node, and why its test passes; "" if it fails."""
    from qdebug.present.reports.reproducer import reproducer_text
    from qdebug.reproduce.reproducer import make_reproducer

    reproducer = make_reproducer(
        backend,
        options.node,
        sample=options.sample,
        whole=options.whole,
        reference=reference_clause,
        counterpart=counterpart,
    )
    passing_reason = "" if reproducer.wrong else f"{reproducer.variant} reproduces every code, so the test passes"
    return reproducer_text(reproducer, options.output), passing_reason


def _float_reproducer(backend: Recording, options: ReproOptions, reference_clause: str) -> tuple[str, str]:
    """Return the file for a float node, and why its test passes; "" if it fails."""
    from qdebug.present.reports.reproducer import float_reproducer_text
    from qdebug.reproduce.reproducer import make_float_reproducer

    reproducer = make_float_reproducer(backend, options.node, sample=options.sample, reference=reference_clause)
    passing_reason = (
        f"the error is within the {reproducer.precision} rounding bound, so the test passes"
        if reproducer.within
        else ""
    )
    return float_reproducer_text(reproducer, options.output), passing_reason


def _find_counterpart(reference: Recording, backend: Recording, node: str) -> tuple[str, str | None]:
    """Return a clause with the error of a node's output, and the reference tensor it was compared with.

    They are "" and None if the output was not compared.
    """
    from qdebug.api import diff

    for entry in diff(reference, backend, quick=True).nodes:
        if node in (entry.node, entry.tensor) and entry.metrics is not None:
            clause = (
                f"Against {entry.reference_tensor!r} of the reference run ({reference.info.backend}): "
                f"SQNR {entry.metrics.sqnr_db:.4g} dB, {entry.status}"
            )
            return clause, entry.reference_tensor
    return "", None
