"""Bugs that kernels have had, planted into single nodes of a recording: each alters the codes as the bug would.

The classes are those of public reports: onnxruntime #26324 (tail of an AMX tile), glow PR #1013 and #1322 (groups of
channels skipped, a neighbouring filter read), glow #5729 (merged rescales clamp to the last range), tvm #4807 (padding
with 0), espressif/esp-nn #31 (padding lost on one side), NVIDIA/TensorRT #1694 (scales along the wrong axis),
onnxruntime #6004 and #31573 (sums of pairs in 16 bits), onnxruntime #29853 and executorch #20655 (zero points dropped
or wrapped), torch-mlir #4645 (bias not scaled), CMSIS_5 #664 (output offset unused), tensorflow #36098 (range of the
activation unused).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from qdebug.arithmetic.units import Units, UnitSource
from qdebug.model import Node, Recording
from qdebug.model.view import View
from qdebug.replay.evaluate import accumulate, compute, finish
from qdebug.replay.unit import Unit
from qdebug.replay.variant import Variant

__all__ = ["BUGS", "Altered", "Bug", "find_unit", "plant", "sources"]


class Altered(View):
    """A recording in which one tensor holds other codes."""

    def __init__(self, recording: Recording, tensor: str, codes: dict[tuple[int, int], np.ndarray]) -> None:
        super().__init__(recording)
        self._tensor, self._codes = tensor, codes

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        if tensor == self._tensor:
            return self._codes[sample, step]
        return self._recording.load(tensor, sample, step)


@dataclass(frozen=True)
class Bug:
    """A class of bugs.

    Args:
        name: What is wrong.
        plant: Gives the wrong codes of a unit that is computed by a variant, channels first; None if it would not show.
        patterns: What the pattern may be called.
    """

    name: str
    plant: Callable[[Unit, Variant], np.ndarray | None]
    patterns: tuple[str, ...]


def find_unit(recording: Recording, node: Node, tensor: str, units: Units | None = None) -> UnitSource | str:
    """Return the unit of a node, or why there is none."""
    units = units or Units(recording)
    return units.missing(node, tensor) or units.find(node, tensor)


def sources(recording: Recording, kind: str) -> list[UnitSource]:
    """Return the units of one kind."""
    units = Units(recording)
    found = [find_unit(recording, node, node.outputs[0], units) for node in recording.graph.nodes if node.outputs]
    return [s for s in found if isinstance(s, UnitSource) and s.unit(s.places[0]).kind == kind]


def plant(source: UnitSource, bug: Bug, variant: Variant) -> Altered | None:
    """Plant a bug into a node for all samples; None if the bug changes nothing there."""
    codes, changed = {}, 0
    for place in source.places:
        unit = source.unit(place)
        wrong = bug.plant(unit, variant)
        if wrong is None:
            return None
        wrong = np.moveaxis(wrong, 1, -1) if unit.channels_last else wrong
        right = source.codes(place)
        changed += int(np.count_nonzero(wrong != right))
        codes[place] = wrong.reshape(right.shape).astype(right.dtype)
    return Altered(source.recording, source.tensor, codes) if changed >= 20 else None


def _right(unit: Unit, variant: Variant) -> np.ndarray:
    codes = compute(unit, variant)
    return np.moveaxis(codes, -1, 1) if unit.channels_last else codes


def _tile_tail(unit: Unit, variant: Variant) -> np.ndarray | None:
    codes = _right(unit, variant)
    tail = codes.shape[1] % 16
    positions = codes.shape[2] * codes.shape[3]
    if not tail or positions < 64 or codes.shape[3] % 32 == 0:
        return None
    flat = codes.reshape(*codes.shape[:2], positions)
    rng = np.random.default_rng(1)
    part = flat[:, -tail:, 31::32]
    flat[:, -tail:, 31::32] = rng.integers(*unit.out.limits, part.shape)
    return codes


def _skipped_group(unit: Unit, variant: Variant) -> np.ndarray | None:
    codes = _right(unit, variant)
    if codes.shape[1] < 16:
        return None
    codes[:, -8:] = 0
    return codes


def _skipped_rows(unit: Unit, variant: Variant) -> np.ndarray | None:
    codes = _right(unit, variant)
    if codes.shape[2] < 6:
        return None
    codes[:, :, 0] = 0
    return codes


def _neighbours_filter(unit: Unit, variant: Variant) -> np.ndarray | None:
    codes = _right(unit, variant)
    if codes.shape[1] < 16:
        return None
    codes[:, -4:] = codes[:, -8:-4]
    return codes


def _last_clamp(unit: Unit, variant: Variant) -> np.ndarray | None:
    low, high = unit.out.limits
    return np.clip(_right(unit, variant), low, low + int((high - low) * 0.6))


def _pad_with_zero(unit: Unit, variant: Variant) -> np.ndarray | None:
    if not unit.attrs.get("pads") or not any(unit.attrs["pads"]) or not np.any(unit.operands[0].zero_point):
        return None
    x = unit.operands[0]
    pads = unit.attrs["pads"]
    around = [(0, 0), (0, 0), *zip(pads[: len(pads) // 2], pads[len(pads) // 2 :], strict=True)]
    padded = replace(x, codes=np.pad(x.codes, around))
    attrs = {**unit.attrs, "pads": (0,) * len(pads)}
    return _right(replace(unit, operands=(padded, *unit.operands[1:]), attrs=attrs), variant)


def _lost_padding(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Leave the padding at the bottom and on the right out of the sums: the border's own pixels are repeated there."""
    pads = unit.attrs.get("pads")
    if not pads or not any(pads):
        return None
    x = unit.operands[0]
    around = [(0, 0), (0, 0), *((0, end) for end in pads[len(pads) // 2 :])]
    padded = replace(x, codes=np.pad(x.codes, around, mode="edge"))
    attrs = {**unit.attrs, "pads": (*pads[: len(pads) // 2], *(0,) * (len(pads) // 2))}
    return _right(replace(unit, operands=(padded, *unit.operands[1:]), attrs=attrs), variant)


def _one_scale(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Return every channel the first channel's scale."""
    weight = unit.operands[1]
    if weight.scale.size == 1:
        return None
    same = np.broadcast_to(weight.scale.reshape(-1)[:1].reshape((1,) * weight.scale.ndim), weight.scale.shape)
    return _right(replace(unit, operands=(unit.operands[0], replace(weight, scale=same.copy()))), variant)


def _of_sums(unit: Unit, variant: Variant, change: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    columns = accumulate(unit, variant.sums)
    changed = replace(columns, values=(change(columns.values[0].astype(np.int64)).astype(np.float64),))
    return finish(unit, changed, variant).reshape(columns.shape)


def _saturated_parts(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Sum each half of the depth in 14 bits that saturate."""
    x, weight = unit.operands
    if weight.codes.shape[1] < 4:
        return None
    half = weight.codes.shape[1] // 2
    total: np.ndarray | None = None
    end = 1 << 13
    for part in (slice(None, half), slice(half, None)):
        kept = np.zeros(weight.codes.shape, bool)
        kept[:, part] = True
        zero = np.broadcast_to(weight.zero_point, weight.codes.shape)
        codes = np.where(kept, weight.codes, zero).astype(weight.codes.dtype)
        own = replace(unit, operands=(x, replace(weight, codes=codes)), bias=None)
        sums = np.clip(accumulate(own, variant.sums).values[0].astype(np.int64), -end, end - 1)
        total = sums if total is None else total + sums
    bias = 0 if unit.bias is None else unit.bias.astype(np.int64).reshape(-1, 1, 1)
    return _of_sums(unit, variant, lambda _: total + bias)


def _wrapped(unit: Unit, variant: Variant) -> np.ndarray | None:
    return _of_sums(unit, variant, lambda sums: ((sums + (1 << 14)) & ((1 << 15) - 1)) - (1 << 14))


def _no_zero_point(unit: Unit, variant: Variant) -> np.ndarray | None:
    x = unit.operands[0]
    if not np.any(x.zero_point):
        return None
    return _right(
        replace(unit, operands=(replace(x, zero_point=np.zeros_like(x.zero_point)), unit.operands[1])), variant
    )


def _no_bias(unit: Unit, variant: Variant) -> np.ndarray | None:
    return None if unit.bias is None else _right(replace(unit, bias=None), variant)


def _unscaled_bias(unit: Unit, variant: Variant) -> np.ndarray | None:
    return None if unit.bias is None else _right(replace(unit, bias=unit.bias // 2), variant)


def _no_offset(unit: Unit, variant: Variant) -> np.ndarray | None:
    if int(unit.out.zero_point.reshape(-1)[0]) in (0, *unit.out.limits):
        return None
    return _right(replace(unit, out=replace(unit.out, zero_point=np.zeros_like(unit.out.zero_point))), variant)


def _no_activation(unit: Unit, variant: Variant) -> np.ndarray | None:
    """Let through what an activation at the output's zero should have held back: a clamp that nobody recorded."""
    low, high = unit.out.limits
    return np.maximum(_right(unit, variant), low + int((high - low) * 0.4))


BUGS: Sequence[Bug] = (
    Bug("tail of a tile", _tile_tail, ("block_tail",)),
    Bug("skipped group of channels", _skipped_group, ("tail", "unwritten", "channels")),
    Bug("skipped first row", _skipped_rows, ("rows", "unwritten", "borders")),
    Bug("neighbour's filter", _neighbours_filter, ("tail", "stale", "channels")),
    Bug("clamp of the last range", _last_clamp, ("clamp",)),
    Bug("padding with 0", _pad_with_zero, ("borders",)),
    Bug("padding lost on one side", _lost_padding, ("borders", "tail")),
    Bug("one scale for all channels", _one_scale, ("factor_per_channel",)),
    Bug("parts of sums saturate", _saturated_parts, ("growing",)),
    Bug("sums wrap", _wrapped, ("growing",)),
    Bug("zero point of the input dropped", _no_zero_point, ("constant_per_channel",)),
    Bug("bias dropped", _no_bias, ("constant_per_channel",)),
    Bug("bias not scaled", _unscaled_bias, ("constant_per_channel",)),
    Bug("output offset dropped", _no_offset, ("constant",)),
    Bug("activation's range", _no_activation, ("clamp",)),
)
