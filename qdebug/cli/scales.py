"""qdebug scales: profile values, choose scales for them, or try a scale. Each action has its own parser."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.cli.failures import say
from qdebug.cli.output import check_target, progress, write_result
from qdebug.cli.parser import (
    Parser,
    add_common,
    add_format,
    add_output,
    add_untrusted,
    options_from,
    positive,
    suffix_format,
)
from qdebug.cli.record import BackendChoice, backend_choice
from qdebug.cli.sources import command, open_source
from qdebug.errors import UsageError
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from qdebug.cli.parser import Verbs
    from qdebug.model import Recording
    from qdebug.recording.scale_profile import ScaleProfile
    from qdebug.scales.choose import ChosenScales
    from qdebug.scales.trial import ScaleTrial

__all__ = ["ChooseOptions", "ProfileOptions", "TryOptions", "fill_parser"]

_DESCRIPTION = """\
Choose scales and zero points. Count the values that tensors have, compare what each
calibrator would choose and lose, and try a scale on the whole network before you
quantize it again."""

_EPILOG = """\
examples:
  qdebug scales choose float.h5 int8.h5            recorded scales beside better ones
  qdebug scales choose float.h5 int8.h5 --node conv1
  qdebug scales try float.h5 int8.h5 --node conv1 --scale 0.02 --zero-point -3
  qdebug scales profile a.h5 b.h5 -o calib.h5      values of many runs, a few kB per tensor
  qdebug scales choose calib.h5

qdebug scales ACTION --help explains an action; qdebug help scales has the details."""

_PROFILE = """\
Count the values of every tensor of one or several recordings in histograms that can
be merged. Bins are a power of two wide and begin at 0, so the counts are exact and do
not depend on the order. Profiles may be given together with recordings.

With --backend, FILE is a model file. It is run, and its tensors are counted without
being stored, so thousands of samples need no more space than one."""

_PROFILE_EPILOG = """\
examples:
  qdebug scales profile float.h5 -o calib.h5
  qdebug scales profile float.h5 -o calib.json     readable, with scale and offset
  qdebug scales profile calib.h5 more.h5 -o both.h5
  qdebug scales profile net.onnx --backend onnxruntime:opt=none \\
      --inputs x.npz --samples 100 -o calib.h5"""

_CHOOSE = """\
For each tensor, show the recorded scale and zero point and the choice of each
calibrator, with the resulting SQNR and clipped values on the recorded values. The
values come from REF, preferably a float run; the scales in use come from BACKEND. If
REF is a profile, errors are estimates, marked with ~.

Recorded scales are also checked against the graph and the weights. The report flags
degenerate and unsuitable scales, zero points outside the code range, scales that
change although values are only moved, bias scales that differ from input x weight
scale or are too coarse, sums that can overflow int32, sums of two products that the
run's processor may saturate, and branches of different range with one scale. Float
weights of REF have their own rows, with a scale per tensor, per channel or per block
of N.

Choices depend only on the values of the tensor. Use qdebug scales try to see whether
the network improves. --json also has the scales as settings for ONNX Runtime, AIMET
and ai-edge-quantizer."""

_CHOOSE_EPILOG = """\
examples:
  qdebug scales choose float.h5 int8.h5
  qdebug scales choose float.h5 int8.h5 --node conv1      every choice in full
  qdebug scales choose float.h5 --calibrator mse --calibrator percentile:99.9
  qdebug scales choose float.h5 --scheme symmetric --narrow --dtype int8
  qdebug scales choose float.h5 --rule glow --scheme symmetric_uint8
  qdebug scales choose float.h5 --scheme symmetric --scheme 'op:Sigmoid=asymmetric'
  qdebug scales choose float.h5 --weights block:32 --dtype int4
  qdebug scales choose float.h5 int8.h5 --json -o scales.json

calibrators: minmax, moving-average[:RATE], percentile[:PERCENT], mse, entropy,
entropy:mxnet, entropy:ort
exit codes: 0 no recorded scale is wrong, 1 a scale is wrong (degenerate, zero_point,
mismatched, bias_scale, accumulator), 2 could not run"""

_TRY = """\
Show the effect of another scale and zero point on the tensor of one node and on the
outputs of the network. The error of the tensor is exact: the values of REF are
quantized with the new scale. The outputs are replayed by the interpreter on the
recorded inputs, once with the recorded scales and once with the new scale; a bias is
requantized to the new scale of its accumulator. The recordings need their weights.

Without BACKEND, REF is replayed with this one tensor quantized and dequantized."""

_TRY_EPILOG = """\
examples:
  qdebug scales try float.h5 int8.h5 --node conv1 --scale 0.02 --zero-point -3
  qdebug scales try float.h5 --node conv1 --scale 0.02 --dtype uint8
  qdebug scales try float.h5 int8.h5 --node conv1 --scale 0.02 --arithmetic ort-mlas"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions:
    """Arguments of `qdebug scales profile`."""

    files: list[Path]
    backend: BackendChoice | None
    inputs: Path | None
    samples: int | None
    bins: int
    per_channel: bool
    format: str | None
    output: Path | None
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseOptions:
    """Arguments of `qdebug scales choose`."""

    reference: Path
    backend: Path | None
    calibrator: list[str] | None
    scheme: list[str] | None
    rule: str
    dtype: str | None
    narrow: bool
    weights: str | None
    node: str | None
    everything: bool
    format: str | None
    output: Path | None
    force: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TryOptions:
    """Arguments of `qdebug scales try`."""

    reference: Path
    backend: Path | None
    node: str
    scale: float
    zero_point: int
    qmin: int | None
    qmax: int | None
    dtype: str | None
    arithmetic: str | None
    format: str | None
    output: Path | None
    force: bool


def fill_parser(parser: Parser) -> None:
    """Add the arguments of the verb."""
    parser.description = _DESCRIPTION
    parser.epilog = _EPILOG
    parser.set_defaults(run=lambda _: parser.error("an action is missing"))
    actions = parser.add_subparsers(title="actions", metavar="ACTION", parser_class=Parser)
    _add_profile(actions)
    _add_choose(actions)
    _add_try(actions)


def _add_profile(actions: Verbs) -> None:
    parser: Parser = actions.add_parser(
        "profile", help="count the values of tensors", description=_PROFILE, epilog=_PROFILE_EPILOG
    )
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="recordings and profiles, or a model")
    parser.add_argument(
        "--backend",
        type=backend_choice,
        metavar="NAME[:key=value,...]",
        help="run the model FILE without storing tensors; see qdebug record --list-backends",
    )
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="with --backend: one array per model input")
    parser.add_argument("--samples", type=positive, metavar="N", help="with --backend: samples along the leading axis")
    parser.add_argument(
        "--bins", type=positive, default=2000, metavar="N", help="maximum number of bins per tensor (default: 2000)"
    )
    parser.add_argument("--per-channel", action="store_true", help="also count each channel")
    add_format(parser)
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the profile: JSON if it ends in .json, else HDF5"
    )
    parser.add_argument("--force", action="store_true", help="overwrite FILE if it exists")
    add_untrusted(parser, "files")
    add_common(parser)
    parser.set_defaults(run=_run_profile, takes_profiles=True)


def _add_choose(actions: Verbs) -> None:
    parser: Parser = actions.add_parser(
        "choose", help="compare recorded scales with those of calibrators", description=_CHOOSE, epilog=_CHOOSE_EPILOG
    )
    _add_sources(parser, "recording of the values, preferably of the float network, or a profile")
    parser.add_argument(
        "--calibrator",
        action="append",
        metavar="NAME",
        help="use this calibrator; may be given several times (default: minmax, percentile, mse, entropy)",
    )
    parser.add_argument(
        "--scheme",
        action="append",
        metavar="[NODE=]SCHEME",
        help="how a range becomes a scale: asymmetric, symmetric, symmetric_uint8 or power_of_two (default: that of "
        "the rule); with NODE= only for nodes of this name, or with op: of this operator; may be given several times",
    )
    parser.add_argument(
        "--rule",
        default="qdebug",
        choices=("qdebug", "onnxruntime", "glow", "tvm"),
        help="tool whose formula gives scale and zero point (default: qdebug)",
    )
    _add_dtype(parser)
    parser.add_argument(
        "--narrow", action="store_true", help="with --dtype: leave out the lowest code, as in -127..127"
    )
    parser.add_argument(
        "--weights",
        metavar="tensor|channel|block:N",
        help="granularity of weight scales (default: as recorded, otherwise per channel)",
    )
    parser.add_argument("--node", metavar="NAME", help="one node (or tensor) in full")
    parser.add_argument("--all", action="store_true", dest="everything", help="list every flag")
    add_format(parser)
    add_output(parser, what="the result")
    add_untrusted(parser, "reference", "backend")
    add_common(parser)
    parser.set_defaults(run=_run_choose, takes_profiles=True)


def _add_try(actions: Verbs) -> None:
    parser: Parser = actions.add_parser("try", help="try a scale on one node", description=_TRY, epilog=_TRY_EPILOG)
    _add_sources(parser, "recording of the values, preferably of the float network")
    parser.add_argument("--node", required=True, metavar="NAME", help="the node (or tensor)")
    parser.add_argument("--scale", required=True, type=float, metavar="S", help="real units per code")
    parser.add_argument("--zero-point", type=int, default=0, metavar="Z", help="the code of 0 (default: 0)")
    parser.add_argument("--qmin", type=int, metavar="N", help="lowest code (default: as recorded)")
    parser.add_argument("--qmax", type=int, metavar="N", help="highest code (default: as recorded)")
    _add_dtype(parser)
    parser.add_argument(
        "--arithmetic", metavar="NAME", help="arithmetic of quantized nodes: a preset from qdebug help arithmetics"
    )
    add_format(parser)
    add_output(parser, what="the result")
    add_untrusted(parser, "reference", "backend")
    add_common(parser)
    parser.set_defaults(run=_run_try)


def _add_sources(parser: Parser, reference: str) -> None:
    parser.add_argument("reference", type=Path, metavar="REF", help=reference)
    parser.add_argument(
        "backend",
        type=Path,
        nargs="?",
        metavar="BACKEND",
        help="recording of the quantized network with the scales in use",
    )


def _add_dtype(parser: Parser) -> None:
    parser.add_argument(
        "--dtype",
        choices=("int4", "uint4", "int8", "uint8", "int16", "uint16"),
        help="dtype of the codes (default: as recorded, else int8)",
    )


# -- profile -----------------------------------------------------------------------------------------------------------


def _run_profile(arguments: argparse.Namespace) -> int:
    options = options_from(ProfileOptions, arguments)
    check_target(options.output, force=options.force, sources=options.files, regular=True)
    with progress("counting") as note:
        if options.backend is None:
            _refuse_run_options(options)
            from qdebug.scales.make_profile import profile_files

            profile = profile_files(options.files, bins=options.bins, per_channel=options.per_channel, progress=note)
        else:
            profile = _profile_of_run(options, options.backend, note)
    if options.output is not None:
        from qdebug.scales.make_profile import write_profile

        write_profile(profile, options.output)
        say(f"wrote {safe_text(options.output)}")
    write_result(_profile_text(profile, options), None)
    if options.output is not None and options.format is None:
        say(f"next: {command('qdebug', 'scales', 'choose', options.output)}")
    return 0


def _refuse_run_options(options: ProfileOptions) -> None:
    if options.inputs is not None or options.samples is not None:
        raise UsageError("--inputs needs a model file; recordings are not run.", hint="Name a runtime with --backend.")


def _profile_of_run(options: ProfileOptions, backend: BackendChoice, note: object) -> ScaleProfile:
    from qdebug.scales.make_profile import profile_model

    if len(options.files) != 1:
        raise UsageError(
            "Only one model can be run at a time.",
            hint="Profile each model, then merge: qdebug scales profile A B -o C.",
        )
    if options.inputs is None:
        raise UsageError("A model needs inputs to run.", hint="Give inputs: --inputs FILE.npz.")
    return profile_model(
        options.files[0],
        backend=backend.name,
        options=backend.options,
        inputs=options.inputs,
        samples=options.samples,
        bins=options.bins,
        per_channel=options.per_channel,
        progress=note,  # type: ignore[arg-type]  # a label is optional
    )


def _profile_text(profile: ScaleProfile, options: ProfileOptions) -> str:
    form = options.format or "table"
    if form == "json":
        from qdebug.recording.scale_profile import profile_json

        return profile_json(profile)
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.scales import profile_document

    return document_text(profile_document(profile), form)


# -- choose ------------------------------------------------------------------------------------------------------------


def _run_choose(arguments: argparse.Namespace) -> int:
    options = options_from(ChooseOptions, arguments)
    check_target(options.output, force=options.force, sources=_input_files(options))
    if options.narrow and options.dtype is None:
        raise UsageError("--narrow needs --dtype, because recorded codes keep their range.", hint="Add --dtype int8.")
    from qdebug.numerics.scheme import RULES, QuantScheme
    from qdebug.scales.choose import DEFAULT_CALIBRATORS, choose_scales
    from qdebug.scales.weights import Granularity

    dtype = options.dtype or "int8"
    node_schemes = {pattern: kind for pattern, _, kind in (text.rpartition("=") for text in options.scheme or ())}
    scheme = QuantScheme(
        kind=node_schemes.pop("", RULES[options.rule].schemes[0]),
        rule=options.rule,
        bits=int(dtype.removeprefix("u").removeprefix("int")),
        signed=not dtype.startswith("u"),
        narrow=options.narrow,
    )
    reference = _open_values(options.reference)
    backend = None if options.backend is None else open_source(options.backend)
    with progress("choosing") as note:
        chosen_scales = choose_scales(
            reference,
            backend,
            calibrators=options.calibrator or DEFAULT_CALIBRATORS,
            scheme=scheme,
            node_schemes=node_schemes,
            recorded_codes=options.dtype is None,
            node=options.node,
            weights=None if options.weights is None else Granularity.parse(options.weights),
            progress=note,
        )
    write_result(_choose_text(chosen_scales, options), options.output)
    _say_next(chosen_scales, options)
    return chosen_scales.exit_code


def _input_files(options: ChooseOptions | TryOptions) -> list[Path]:
    return [path for path in (options.reference, options.backend) if path is not None]


def _open_values(path: Path) -> Recording | ScaleProfile:
    from qdebug.recording.scale_profile import is_profile, read_profile

    return read_profile(path) if path.is_file() and is_profile(path) else open_source(path)


def _choose_text(chosen_scales: ChosenScales, options: ChooseOptions) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return chosen_scales.to_json()
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.scales import choose_document, row_document

    is_plain = options.output is not None
    if options.node is not None:
        return "\n".join(document_text(row_document(row), form, plain=is_plain) for row in chosen_scales.rows)
    return document_text(choose_document(chosen_scales, everything=options.everything), form, plain=is_plain)


def _say_next(chosen_scales: ChosenScales, options: ChooseOptions) -> None:
    """Print the next command: to show the worst tensor in full, or to try its best choice."""
    if suffix_format(options.format, options.output) != "table" or options.output is not None:
        return
    activations = [row for row in chosen_scales.rows if not row.weight]
    with_error = [row for row in activations if row.recorded is not None and row.recorded.error is not None]
    if options.node is None:
        worst_row = min(with_error, key=lambda row: row.recorded.error.sqnr_db, default=chosen_scales.rows[0])  # type: ignore[union-attr]
        files = [options.reference, *([options.backend] if options.backend else [])]
        name = worst_row.node or worst_row.backend_tensor or worst_row.tensor
        say(f"next: {command('qdebug', 'scales', 'choose', *files, '--node', name)}")
        return
    row = chosen_scales.rows[0]
    if row.weight:
        return
    best_choice = next((choice for choice in row.choices if choice.calibrator == row.best), None)
    if best_choice is None or best_choice.quant is None or best_choice.quant.scale.size != 1:
        return
    from qdebug.recording.scale_profile import is_profile

    if is_profile(options.reference):
        return
    files = [options.reference, *([options.backend] if options.backend else [])]
    scale, zero_point = float(best_choice.quant.scale[0]), int(best_choice.quant.zero_point[0])
    arguments = ("--node", options.node, "--scale", f"{scale:.9g}", f"--zero-point={zero_point}", "--dtype", row.dtype)
    say(f"next: {command('qdebug', 'scales', 'try', *files, *arguments)}")


# -- try ---------------------------------------------------------------------------------------------------------------


def _run_try(arguments: argparse.Namespace) -> int:
    options = options_from(TryOptions, arguments)
    check_target(options.output, force=options.force, sources=_input_files(options))
    reference = open_source(options.reference)
    backend = None if options.backend is None else open_source(options.backend)
    from qdebug.scales.trial import try_scale

    with progress("replaying") as note:
        trial = try_scale(
            reference,
            backend,
            node=options.node,
            scale=options.scale,
            zero_point=options.zero_point,
            qmin=options.qmin,
            qmax=options.qmax,
            dtype=options.dtype,
            arithmetic=options.arithmetic,
            progress=note,
        )
    write_result(_trial_text(trial, options), options.output)
    return 0


def _trial_text(trial: ScaleTrial, options: TryOptions) -> str:
    form = suffix_format(options.format, options.output)
    if form == "json":
        return trial.to_json()
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.scales import trial_document

    return document_text(trial_document(trial), form, plain=options.output is not None)
