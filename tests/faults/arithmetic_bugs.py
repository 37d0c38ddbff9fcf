"""Say how often `explain` finds a bug of arithmetic and its cause: plant bugs into nodes on codes of recorded nets.

    python tests/faults/arithmetic_bugs.py CACHE                          all nets, each kind in each of them once
    python tests/faults/arithmetic_bugs.py CACHE --nets digits-onnxruntime mobile --kinds "bias dropped" --seed 3
    python tests/faults/arithmetic_bugs.py CACHE --json OUT.json          every case, with what was said of it

A net is recorded on its runtime and explained. Its twin, the interpreter with that arithmetic, takes the place of the
runtime. Where its codes differ from the run, as float nodes of other roundings make them, that is said. Then one node
of the twin computes wrongly, and everything below runs on that. Each bug says beforehand which words name it. The table
counts

    found         the node is left unexplained
    cause         what is said to be likely names the bug
    others        other nodes that were explained before and are not any more: there should be none
    reproducer    its exported test fails on the recorded output and passes on the right one; its known-good side passes

It ends with 1 if a bug was explained away, another node was accused, a reproducer did not work, or fewer than 90 % of
the causes are right.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1]), str(HERE.parent / "backends")]

import forms  # noqa: E402
import known_nets  # noqa: E402
import later_known_nets  # noqa: E402
import table  # noqa: E402

sys.path.remove(str(HERE.parent / "backends"))  # else its folders pass for packages of their names: torch, openvino

from qdebug.arithmetic.search import channels_first  # noqa: E402
from qdebug.arithmetic.units import Units, UnitSource  # noqa: E402
from qdebug.backends import load_backend  # noqa: E402
from qdebug.cli.main import main as qdebug_main  # noqa: E402
from qdebug.cli.record import backend_choice  # noqa: E402
from qdebug.compare.explaining.explain import explain_recording  # noqa: E402
from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation  # noqa: E402
from qdebug.compare.measure.recordings import as_compared  # noqa: E402
from qdebug.recording.recorder import Recorder  # noqa: E402
from qdebug.replay.evaluate import accumulate, compute, finish  # noqa: E402
from qdebug.replay.run import run_graph  # noqa: E402
from qdebug.replay.unit import Operand, Unit  # noqa: E402
from qdebug.replay.variant import Variant, parse_variant  # noqa: E402
from qdebug.running.feeds import ArrayFeeds  # noqa: E402
from qdebug.running.record import record_feeds  # noqa: E402
from qdebug.session import open_recording  # noqa: E402

HELD = "test_the_backend_gives_the_codes_of_the_reference"
"""The test of a reproducer that holds an output against the reference."""
GOAL = 0.9
SAMPLES = 6
LEAST_WRONG = 20
"""Elements that a bug must change: fewer tell no pattern."""
PRODUCTS = ("conv", "linear")
SUMS = ("add", "sub")
TWO = (*SUMS, "mul")

# -- bugs: each takes a unit and the arithmetic that is right for it, and returns its wrong codes, or None


@dataclass(frozen=True)
class Bug:
    """A kind of bug: how it is planted, and the words that name it."""

    plant: Callable[[Unit, Variant], np.ndarray | None]
    words: str
    kinds: tuple[str, ...] = ()

    def takes(self, unit: Unit) -> bool:
        """Tell whether a unit is of a kind that can have it."""
        return not self.kinds or unit.kind.split(".")[0] in self.kinds


def right(unit: Unit, variant: Variant) -> np.ndarray:
    """Return the right codes, channels first."""
    return channels_first(compute(unit, variant), unit)


def with_operand(unit: Unit, position: int, **changes: object) -> Unit:
    """Return a unit with another operand."""
    operands: list[Operand] = list(unit.operands)
    operands[position] = replace(operands[position], **changes)
    return replace(unit, operands=tuple(operands))


def with_bias(change: Callable[[np.ndarray], np.ndarray]) -> Callable:
    """Plant another bias."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray | None:
        if unit.bias is None or not np.any(unit.bias):
            return None
        return right(replace(unit, bias=change(unit.bias)), variant)

    return plant


def without_zero_point(position: int) -> Callable:
    """Plant an operand whose zero point is dropped."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray | None:
        if len(unit.operands) <= position or not np.any(unit.operands[position].zero_point):
            return None
        zero = np.zeros_like(unit.operands[position].zero_point)
        return right(with_operand(unit, position, zero_point=zero), variant)

    return plant


def without_output_zero_point(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Leave out the zero point that is added at the end."""
    if not np.any(unit.out.zero_point):
        return None
    return right(replace(unit, out=replace(unit.out, zero_point=np.zeros_like(unit.out.zero_point))), variant)


def moved_zero_point(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Take the next code as the zero point of the first operand."""
    zero = unit.operands[0].zero_point
    if unit.operands[0].codes.dtype.kind not in "iu" or int(np.max(zero)) == np.iinfo(zero.dtype).max:
        return None
    return right(with_operand(unit, 0, zero_point=zero + zero.dtype.type(1)), variant)


def with_scales(change: Callable[[np.ndarray], np.ndarray]) -> Callable:
    """Plant other scales of the weight's channels."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray | None:
        scale = unit.operands[1].scale
        if scale.size < 2:
            return None
        return right(with_operand(unit, 1, scale=change(scale.reshape(-1)).reshape(scale.shape)), variant)

    return plant


def with_output_scale(unit: Unit, variant: Variant) -> np.ndarray:
    """Take an output scale that is a sixteenth larger."""
    return right(replace(unit, out=replace(unit.out, scale=(unit.out.scale * 1.0625).astype(np.float32))), variant)


def with_operand_scale(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Take the first operand's scale for the second."""
    if len(unit.operands) < 2 or unit.operands[0].scale.size > 1 or unit.operands[1].scale.size > 1:
        return None
    return right(with_operand(unit, 1, scale=unit.operands[0].scale), variant)


def of_sums(change: Callable[[np.ndarray], np.ndarray]) -> Callable:
    """Plant other sums of products."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray:
        variant = replace(variant, accumulate="wrap32")  # no pairs that saturate besides
        columns = accumulate(unit, variant.sums)
        sums = change(columns.values[0].astype(np.int64)).astype(np.float64)
        return finish(unit, replace(columns, values=(sums,)), variant).reshape(columns.shape)

    return plant


def wrapped_output(unit: Unit, variant: Variant) -> np.ndarray:
    """Let codes beyond the range wrap around."""
    ends = tuple(replace(step, op="wrap") if step.op == "sat" else step for step in variant.requantize)
    return right(unit, replace(variant, requantize=ends))


def without_clamp(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Leave out the range of the activation."""
    if unit.out.clamp is None:
        return None
    return right(replace(unit, out=replace(unit.out, clamp=None)), variant)


def early_clamp(unit: Unit, variant: Variant) -> np.ndarray:
    """Clamp at 70 % of the range."""
    low, high = unit.out.limits
    return np.minimum(right(unit, variant), low + int((high - low) * 0.7))


def rounding(other: str) -> Callable:
    """Plant another last rounding."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray | None:
        steps = variant.requantize
        last = [at for at, step in enumerate(steps) if step.op in ("round", "shr", "avg")]
        if not last:
            return None
        step = replace(steps[last[-1]], rounding=other)
        return right(unit, replace(variant, requantize=(*steps[: last[-1]], step, *steps[last[-1] + 1 :])))

    return plant


def wide_codes(unit: Unit, variant: Variant) -> np.ndarray:
    """Return the right codes as they are before anything holds them to their range."""
    zero = np.asarray(unit.out.zero_point, np.int32)
    out = replace(unit.out, dtype=np.dtype(np.int32), zero_point=zero, clamp=None, low=None, high=None)
    return right(replace(unit, out=out), variant).astype(np.int64)


def cast_early(hold: Callable[[np.ndarray, np.dtype], np.ndarray], bits: int = 8) -> Callable:
    """Hold results to their type before the zero point is added."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray | None:
        zero = int(unit.out.zero_point.reshape(-1)[0])
        if not zero or variant.requantize[-1].op != "sat" or unit.out.dtype.itemsize != 1:
            return None
        held = hold(wide_codes(unit, variant) - zero, np.dtype(f"{unit.out.dtype.kind}{bits // 8}"))
        low, high = unit.out.clamp or unit.out.limits
        return np.clip(held.astype(np.int64) + zero, low, high)

    return plant


def saturated(values: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Saturate to a type."""
    return np.clip(values, np.iinfo(dtype).min, np.iinfo(dtype).max)


def zero_point_before_scaling(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Add the output's zero point to the sums, before they are scaled."""
    zero = int(unit.out.zero_point.reshape(-1)[0])
    if not zero or (unit.bias is not None and (unit.bias.dtype.kind not in "iu" or unit.bias_scale is not None)):
        return None
    count = unit.operands[1].codes.shape[0 if unit.kind == "conv" else -1]
    bias = (np.zeros(count, np.int32) if unit.bias is None else unit.bias) + np.int32(zero)
    out = replace(unit.out, zero_point=np.zeros_like(unit.out.zero_point))
    return right(replace(unit, bias=bias.astype(np.int32), out=out), variant)


def with_zero_point(position: int, change: Callable[[int], int]) -> Callable:
    """Plant another zero point of an operand."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray | None:
        if len(unit.operands) <= position or unit.operands[position].codes.dtype.kind not in "iu":
            return None
        zero = unit.operands[position].zero_point
        other = change(int(zero.reshape(-1)[0]))
        if zero.size > 1 or other == int(zero.reshape(-1)[0]):
            return None
        return right(with_operand(unit, position, zero_point=np.full_like(zero, other)), variant)

    return plant


def with_own_scale(position: int, factor: float) -> Callable:
    """Plant another scale of one operand."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray | None:
        if len(unit.operands) <= position:
            return None
        scale = (unit.operands[position].scale * factor).astype(np.float32)
        return right(with_operand(unit, position, scale=scale), variant)

    return plant


def short_multiplier(unit: Unit, variant: Variant) -> np.ndarray:
    """Hold the multiplier in 7 bits."""
    factor = np.asarray(unit.operands[0].scale, np.float64)
    mantissa, exponent = np.frexp(factor)
    kept = np.ldexp(np.floor(mantissa * 128) / 128, exponent).astype(np.float32)
    return right(with_operand(unit, 0, scale=kept), variant)


def channels_skipped(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Never write the last channels."""
    codes = right(unit, variant).copy()
    if codes.ndim < 2 or codes.shape[1] < 12:
        return None
    codes[:, codes.shape[1] // 8 * 8 - 8 :] = 0
    return codes


def rows_skipped(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Never write the last row."""
    codes = right(unit, variant).copy()
    if codes.ndim != 4 or codes.shape[2] < 4 or codes.shape[3] < 3:
        return None
    codes[:, :, -1] = 0
    return codes


def neighbours(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Read the last four channels from the four before."""
    codes = right(unit, variant).copy()
    if codes.ndim not in (2, 4) or codes.shape[1] < 12:  # of 3 dimensions the second may be a position
        return None
    codes[:, -4:] = codes[:, -8:-4]
    return codes


def tile_tail(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Fill the last channels at the last positions of each tile with anything."""
    codes = right(unit, variant).copy()
    if codes.ndim != 4 or codes.shape[1] < 8 or codes.shape[3] < 6:
        return None
    part = codes[:, -(codes.shape[1] % 8 or 4) :, :, codes.shape[3] // 4 * 4 - 1 :: 4]
    codes[:, -(codes.shape[1] % 8 or 4) :, :, codes.shape[3] // 4 * 4 - 1 :: 4] = np.random.default_rng(1).integers(
        *unit.out.limits, part.shape
    )
    return codes


def padded_with_code_0(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Pad with the code 0."""
    return _padded(unit, variant, np.pad, np.any(unit.operands[0].zero_point))


def padded_with_edges(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Pad with the outermost values."""
    return _padded(unit, variant, lambda codes, around: np.pad(codes, around, mode="edge"), True)


def _padded(unit: Unit, variant: Variant, pad: Callable, differs: bool) -> np.ndarray | None:
    pads = unit.attrs.get("pads")
    if unit.transposed or not pads or not any(pads) or not differs:
        return None
    half = len(pads) // 2
    around = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
    bare = with_operand(unit, 0, codes=pad(unit.operands[0].codes, around))
    return right(replace(bare, attrs={**unit.attrs, "pads": (0,) * len(pads)}), variant)


def moved_padding(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Pad at the end what belongs to the start."""
    pads = unit.attrs.get("pads")
    if unit.transposed or not pads or not any(pads):
        return None
    half = len(pads) // 2
    sums = [begin + end for begin, end in zip(pads[:half], pads[half:], strict=True)]
    if list(pads[half:]) == sums:
        return None
    return right(replace(unit, attrs={**unit.attrs, "pads": (*[0] * half, *sums)}), variant)


def of_weight(change: Callable[[np.ndarray], np.ndarray]) -> Callable:
    """Plant filters that are laid out in another way."""

    def plant(unit: Unit, variant: Variant) -> np.ndarray | None:
        codes = unit.operands[1].codes
        if codes.ndim != 4 or change(codes).shape != codes.shape or np.array_equal(change(codes), codes):
            return None
        return right(with_operand(unit, 1, codes=change(codes)), variant)

    return plant


def misread_input(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Read codes as the other signedness."""
    codes = unit.operands[0].codes
    if codes.dtype.kind not in "iu":
        return None
    other = np.dtype(f"{'i' if codes.dtype.kind == 'u' else 'u'}{codes.dtype.itemsize}")
    zero = unit.operands[0].zero_point.astype(np.int32)
    return right(with_operand(unit, 0, codes=codes.view(other), zero_point=zero), variant)


BUGS: Mapping[str, Bug] = {
    "bias dropped": Bug(with_bias(np.zeros_like), r"bias", PRODUCTS),
    "bias one channel off": Bug(with_bias(lambda bias: np.roll(bias, 1)), r"bias", PRODUCTS),
    "bias not scaled": Bug(with_bias(lambda bias: bias // 2), r"bias", PRODUCTS),
    "zero point of the input dropped": Bug(without_zero_point(0), r"zero point"),
    "zero point of the second operand dropped": Bug(without_zero_point(1), r"zero point", ("add", "mul", "sub")),
    "zero point of the output dropped": Bug(without_output_zero_point, r"zero point"),
    "zero point off by one": Bug(moved_zero_point, r"zero point"),
    "first channel's scale for all": Bug(with_scales(lambda s: np.full_like(s, s[0])), r"scale", PRODUCTS),
    "scales one channel off": Bug(with_scales(lambda s: np.roll(s, 1)), r"scale", PRODUCTS),
    "output scale too large": Bug(with_output_scale, r"scale"),
    "one scale for both operands": Bug(with_operand_scale, r"scale", ("add", "sub")),
    "sums wrap in 16 bits": Bug(of_sums(lambda s: s.astype(np.int16)), r"16 bits", PRODUCTS),
    "sums saturate in 16 bits": Bug(of_sums(lambda s: np.clip(s, -(2**15), 2**15 - 1)), r"16 bits", PRODUCTS),
    "output wraps": Bug(wrapped_output, r"wrap"),
    "wraps in 8 bits before the zero point": Bug(cast_early(lambda v, dtype: v.astype(dtype)), r"wrap"),
    "saturates before the zero point": Bug(cast_early(saturated), r"saturat.* before the (output's )?zero point"),
    "zero point added before scaling": Bug(zero_point_before_scaling, r"zero point", PRODUCTS),
    "zero point of an operand halved": Bug(with_zero_point(1, lambda z: z // 2), r"second operand's zero point", TWO),
    "zero point of an operand too large": Bug(with_zero_point(0, lambda z: z + 5), r"first operand's zero point", TWO),
    "scale of an operand doubled": Bug(with_own_scale(1, 2.0), r"second operand's scale", SUMS),
    "scale of an operand 3 % too large": Bug(with_own_scale(0, 1.03), r"first operand's scale", SUMS),
    "range of the activation left out": Bug(without_clamp, r"range|clamp|activation"),
    "clamped too early": Bug(early_clamp, r"range|clamp|activation"),
    "cut off instead of rounded": Bug(rounding("trunc"), r"cut off|truncat|rounding"),
    "multiplier of 7 bits": Bug(short_multiplier, r"multiplier|scale", PRODUCTS),
    "last channels never written": Bug(channels_skipped, r"channels|filters|written|skip"),
    "last row never written": Bug(rows_skipped, r"skip|written|padding|border"),
    "channels read from their neighbours": Bug(neighbours, r"channels|filters|address|elsewhere"),
    "tail of a tile": Bug(tile_tail, r"tile|overwritten|left over"),
    "padding with the code 0": Bug(padded_with_code_0, r"padding", ("conv",)),
    "padding with the outermost values": Bug(padded_with_edges, r"padding", ("conv",)),
    "padding at the wrong end": Bug(moved_padding, r"padding", ("conv",)),
    "filters mirrored": Bug(of_weight(lambda w: w[:, :, ::-1, ::-1]), r"mirror|filters", ("conv",)),
    "filters transposed": Bug(of_weight(lambda w: np.swapaxes(w, 2, 3)), r"rows and columns|filters", ("conv",)),
    "input of the other signedness": Bug(misread_input, r"sign|read as|taken for"),
}

# -- nets


def recorded(title: str, cache: Path, out: Path) -> Path:
    """Record a net by its title on its runtime."""
    name, _, runtime = title.rpartition("@")
    choice = backend_choice(runtime)
    arrays = {}
    if name in (nets := {**known_nets.NETS, **later_known_nets.NETS}):
        build, inputs = nets[name]
        arrays = inputs(SAMPLES)
        path = forms.made(name, build(cache), "qdq.channel", arrays, cache)
    else:
        net = next(net for net in table.nets(cache) if net.title == name)
        path = net.path(cache)
    with closing(load_backend(choice.name).open(path, options=choice.options)) as run:
        for info in run.inputs:
            shape = tuple(extent or 1 for extent in info.shape)
            if info.name not in arrays:
                arrays[info.name] = net.inputs(path, info.name, SAMPLES, shape, np.dtype(info.dtype))
        record_feeds(run, ArrayFeeds(arrays, run.inputs, samples=SAMPLES), out)
    return out


NETS = (
    "digits int8 onnx@onnxruntime",
    "digits int8 tflite@litert:kernels=builtin",
    "digits int8 tflite@litert",
    "digits int8 tflite@tflm",
    "mobile@onnxruntime",
    "unet@onnxruntime",
    "encoder@onnxruntime",
)


class Twin:
    """The interpreter in the place of a runtime, with the arithmetic that explains a run, and in its name.

    Args:
        path: The recording.
        scratch: A folder.
    """

    def __init__(self, path: Path, scratch: Path) -> None:
        self._real = open_recording(path)
        self._file = scratch / "arithmetic.toml"
        with Quiet():
            code = qdebug_main(["explain", str(path), "--write-arithmetic", str(self._file), "--force"])
        if not self._file.exists():
            raise ValueError(f"explain wrote no arithmetic (exit {code})")
        self.clean = self.recorded(scratch / "twin.h5")
        self.recording = open_recording(self.clean)
        self.explained = {node.tensor: node for node in explain_recording(self.recording).nodes}

    def differing(self) -> list[str]:
        """Return the tensors on codes that the twin does not give as they were recorded."""
        return [
            name
            for name in self.recording.names
            if not self.recording.graph.is_constant(name)
            and self.recording.graph.tensors[name].quant is not None
            and any(
                not np.array_equal(self.recording.load(name, sample), self._real.load(name, sample))
                for sample in range(self.recording.samples)
            )
        ]

    def _run(self, faults: Mapping[str, object], sample: int) -> dict[str, np.ndarray]:
        options = {"arithmetic": str(self._file)}
        run = load_backend("interpreter").open(self._real, options=options, faults=faults)
        self.graph = run.graph
        found = {name: self._real.load(name, sample) for name in run.graph.inputs}
        how = {"arithmetic": run._arithmetic, "faults": faults, "on_tensor": found.__setitem__}
        run_graph(run.graph, dict(found), dict(run.constants()), **how)
        return found

    def recorded(self, out: Path, tensor: str = "", wrong: Sequence[np.ndarray] = ()) -> Path:
        """Record the twin's run; one tensor may have other values, by sample."""
        graph, info = self._real.graph, self._real.info
        how = {"versions": info.versions, "options": info.options}
        with Recorder(out, backend=info.backend, graph=graph, force=True, **how) as recorder:
            for name in graph.tensors:
                if graph.is_constant(name) and self._real.has(name):
                    recorder.constant(name, self._real.load(name))
            for sample in range(self._real.samples):
                recorder.at(sample)
                faults = {}
                if tensor:
                    at = self.graph.producer(tensor).name
                    faults[at] = lambda outputs, sample=sample: (wrong[sample], *outputs[1:])
                values = self._run(faults, sample)
                for name in self._real.names:
                    if name in values and not graph.is_constant(name) and self._real.has(name, sample):
                        recorder.put(name, values[name])
        return out


class Quiet:
    """Say nothing on stdout and stderr."""

    def __enter__(self) -> None:
        import contextlib
        import io

        self._stack = contextlib.ExitStack()
        self._stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        self._stack.enter_context(contextlib.redirect_stderr(io.StringIO()))

    def __exit__(self, *raised: object) -> None:
        self._stack.close()


def places(twin: Twin, bug: Bug, rng: np.random.Generator) -> Iterator[tuple[UnitSource, list[np.ndarray], int]]:
    """Yield nodes that can have a bug, in random order, with their wrong codes and how many are wrong."""
    recording = as_compared(twin.recording)
    units = Units(recording)
    nodes = [node for node in recording.graph.nodes if node.outputs]
    for at in rng.permutation(len(nodes)).tolist():
        node, tensor = nodes[at], nodes[at].outputs[0]
        known = twin.explained.get(tensor)
        if known is None or known.status is not ExplainStatus.EXPLAINED or not known.variants:
            continue
        if twin.graph.producer(tensor) is None:
            continue
        source = units.missing(node, tensor) or units.find(node, tensor)
        if not isinstance(source, UnitSource):
            continue
        found, wrong = [], 0
        for place in source.places:
            unit = source.unit(place)
            codes = None
            if unit.out.dtype.kind in "iu" and bug.takes(unit):
                codes = bug.plant(unit, parse_variant(known.variants[0]))
            if codes is None:
                break
            own = source.codes(place)
            first = np.moveaxis(codes, 1, -1) if unit.channels_last and codes.ndim > 1 else codes
            found.append(first.reshape(own.shape).astype(own.dtype))
            wrong += int(np.count_nonzero(found[-1] != own))
        if len(found) == len(source.places) and wrong >= LEAST_WRONG:
            yield source, found, wrong


def tried(twin: Twin, source: UnitSource, wrong: Sequence[np.ndarray], bug: Bug, scratch: Path) -> dict:
    """Plant a bug, and say what came of it."""
    faulty = twin.recorded(scratch / "faulty.h5", source.tensor, wrong)
    said = {node.tensor: node for node in explain_recording(open_recording(faulty)).nodes}
    node: NodeExplanation = said[source.tensor]
    others = [
        other.node
        for tensor, other in said.items()
        if tensor != source.tensor
        and other.status is ExplainStatus.UNEXPLAINED
        and twin.explained[tensor].status is ExplainStatus.EXPLAINED
    ]
    left = node.residual
    text = "" if left is None else f"{left.pattern}: {left.likely}"
    return {
        "found": node.status is ExplainStatus.UNEXPLAINED,
        "cause": bool(left and re.search(bug.words, left.likely)),
        "said": text or "; ".join(node.variants[:1]),
        "others": others,
        "reproducer": reproduced(faulty, twin.clean, source, scratch),
    }


def reproduced(faulty: Path, clean: Path, source: UnitSource, scratch: Path) -> str:
    """Export a reproducer and try it; "" if it does what it should."""
    target = scratch / "test_reproducer.py"
    with Quiet():
        code = qdebug_main(
            ["export", "repro", str(clean), str(faulty), "--node", source.node.name, "-o", str(target), "--force",
             "--whole"]
        )  # fmt: skip
    if code:
        return f"export ended with {code}"
    spec = importlib.util.spec_from_file_location("reproducer", target)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.run_backend = lambda inputs: None  # the recorded output, also where the node can be run
    recorded = module.RECORDED
    problems = ["fails: " + name for name in _failing(module) if name != HELD]
    if not any(name == HELD for name in _failing(module)):
        problems.append("passes on the recorded output")
    faulty_run = open_recording(faulty)
    same = [
        place
        for place in source.places
        if np.array_equal(faulty_run.load(source.tensor, *place).reshape(recorded.shape), recorded)
    ]
    failing = []
    for place in same:  # the file does not say of which sample it is, and faulty ones may be equal
        right_output = source.codes(place).reshape(recorded.shape)
        module.run_backend = lambda inputs, right_output=right_output: right_output
        failing.append(_failing(module))
    problems += ["fails on the right output: " + name for name in min(failing, key=len)]
    return "; ".join(problems)


def _failing(module: object) -> list[str]:
    """Run the tests of a module, and return the names of those that fail."""
    failing = []
    for name in [name for name in vars(module) if name.startswith("test_")]:
        try:
            getattr(module, name)()
        except AssertionError:
            failing.append(name)
        except BaseException as error:  # noqa: BLE001  pytest's Skipped is none of Exception
            if type(error).__name__ != "Skipped":
                failing.append(f"{name} ({type(error).__name__}: {error})")
    return failing


def main(words: Sequence[str] | None = None) -> int:
    """Print a line for each case, and the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path)
    parser.add_argument("--nets", nargs="+", default=NETS, metavar="NET@RUNTIME")
    parser.add_argument("--kinds", nargs="+", default=tuple(BUGS), choices=tuple(BUGS), metavar="KIND")
    parser.add_argument("--each", type=int, default=1, help="bugs of each kind in each net")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(words)
    cases = []
    for title in options.nets:
        with TemporaryDirectory() as folder:
            scratch = Path(folder)
            twin = Twin(recorded(title, options.cache, scratch / "real.h5"), scratch)
            explained = sum(node.status is ExplainStatus.EXPLAINED for node in twin.explained.values())
            print(f"{title}: {explained} of {len(twin.explained)} nodes explained; the twin has other codes than the "
                  f"run in {len(twin.differing())} tensors", flush=True)  # fmt: skip
            for name in options.kinds:
                bug = BUGS[name]
                rng = np.random.default_rng([options.seed, *map(ord, title + name)])
                for number, (source, wrong, count) in enumerate(places(twin, bug, rng)):
                    if number == options.each:
                        break
                    case = {"net": title, "kind": name, "op": source.node.op, "node": source.node.name, "wrong": count}
                    case |= tried(twin, source, wrong, bug, scratch)
                    cases.append(case)
                    fine = case["found"] and case["cause"] and not case["others"] and not case["reproducer"]
                    print("ok  " if fine else "MISS", *(f"{k}={v}" for k, v in case.items()), sep=" | ", flush=True)
    if options.json is not None:
        options.json.write_text(json.dumps(cases, indent=1))
    return summary(cases)


def summary(cases: Sequence[Mapping]) -> int:
    """Print the table by kind; return 1 if a goal is missed."""
    print("| kind | bugs | found | cause | others | reproducers |\n|---|---|---|---|---|---|")
    total: Counter[str] = Counter()
    for kind in dict.fromkeys(case["kind"] for case in cases):
        mine = [case for case in cases if case["kind"] == kind]
        row = {
            "bugs": len(mine),
            "found": sum(case["found"] for case in mine),
            "cause": sum(case["cause"] for case in mine),
            "others": sum(bool(case["others"]) for case in mine),
            "reproducers": sum(not case["reproducer"] for case in mine),
        }
        total.update(row)
        print(f"| {kind} | {' | '.join(map(str, row.values()))} |")
    print(f"| all | {' | '.join(str(total[key]) for key in ('bugs', 'found', 'cause', 'others', 'reproducers'))} |")
    bugs = total["bugs"]
    missed = total["found"] < bugs or total["others"] or total["reproducers"] < bugs or total["cause"] < GOAL * bugs
    return int(bool(missed))


if __name__ == "__main__":
    raise SystemExit(main())
