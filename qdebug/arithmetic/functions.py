"""Which variants are the same function of a node, proven: those count as one in the answer.

Three proofs. Of a node whose operands have few codes, all combinations are computed. Of one that turns a sum into a
code by a program that never decreases, the sums at which a program goes from one code to the next are searched for; a
program that gives the same codes on both sides of each gives the same for all sums that codes can add up to. Of all
others, forms that are equal by construction are found (see `qdebug.arithmetic.canonical`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qdebug.arithmetic.canonical import functions
from qdebug.arithmetic.selection import never_decreases
from qdebug.errors import KernelError, UsageError
from qdebug.model.dtypes import code_limits, logical_name
from qdebug.model.thresholds.explanation import EQUAL_FUNCTIONS_MAX_CODES
from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import finish_many
from qdebug.replay.scaling import real_multiplier, scales_of
from qdebug.replay.unit import PAIRS, Operand, Unit
from qdebug.replay.variant import Variant

__all__ = ["Shape", "same_functions", "shape_of"]

_ENDS = -(2**31), 2**31 - 1
"""Sums of 32 bits."""
_NEAR = 8
"""How far apart the sums are, mostly, at which two programs go from one code to the next."""
_SPARSE = 61
"""Of so many combinations of codes one is computed first."""
_SUMMED = frozenset({"conv", "linear", "mul", "requantize", "global_average_pool", "reduce_mean"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """A unit and its columns without their values: scales, zero points, attributes and shapes.

    Args:
        unit: The unit; its codes are all 0 and take no memory.
        columns: Its columns, which hold nothing, by what variants start from.
    """

    unit: Unit
    columns: Mapping[HeavyPart, Columns]

    def __reduce__(self) -> tuple[object, ...]:
        # Pickling writes zeros that take no memory out in full, so that only their shapes travel.
        bare = tuple(replace(o, codes=np.zeros((), o.codes.dtype)) for o in self.unit.operands)
        shapes = tuple(o.codes.shape for o in self.unit.operands)
        return _spread_out, (replace(self.unit, operands=bare), shapes, dict(self.columns))


def _spread_out(unit: Unit, shapes: Sequence[tuple[int, ...]], columns: Mapping[HeavyPart, Columns]) -> Shape:
    """Make a shape again of what travelled."""
    pairs = zip(unit.operands, shapes, strict=True)
    hollow = tuple(replace(o, codes=np.broadcast_to(o.codes, shape)) for o, shape in pairs)
    return Shape(unit=replace(unit, operands=hollow), columns=columns)


def shape_of(unit: Unit, columns: Mapping[HeavyPart, Columns]) -> Shape:
    """Take the values out of a unit and its columns.

    Args:
        unit: The unit.
        columns: Its columns.
    """
    hollow = tuple(replace(o, codes=np.broadcast_to(np.zeros((), o.codes.dtype), o.codes.shape)) for o in unit.operands)
    bare = {
        sums: Columns(sums=sums, values=(), shape=own.shape, count=own.count, bound=own.bound)
        for sums, own in columns.items()
    }
    return Shape(unit=replace(unit, operands=hollow, condition=None), columns=bare)


def same_functions(variants: Sequence[Variant], shapes: Sequence[Shape]) -> tuple[int, ...]:
    """Number variants by the function that they are of all of some nodes.

    Args:
        variants: Variants that fit these nodes.
        shapes: The nodes.

    Returns:
        A number for each variant, the same for those that give the same codes whatever the nodes' operands are.
    """
    numbers = (0,) * len(variants)
    left = EQUAL_FUNCTIONS_MAX_CODES
    for shape in shapes:
        again = [position for position, number in enumerate(numbers) if numbers.count(number) > 1]
        if not again:
            break
        tied = [numbers[position] for position in again]
        own, cost = _of_one([variants[position] for position in again], tied, shape, left)
        left -= cost
        found = dict(zip(again, own, strict=True))
        numbers = _renumbered([(number, found.get(at, -1)) for at, number in enumerate(numbers)])
    return numbers


def _renumbered(keys: Sequence[object]) -> tuple[int, ...]:
    known: dict[object, int] = {}
    return tuple(known.setdefault(key, len(known)) for key in keys)


def _of_one(variants: Sequence[Variant], tied: Sequence[int], shape: Shape, most: int) -> tuple[tuple[int, ...], int]:
    """Number variants by their function of one node; also give how many codes were computed.

    Args:
        variants: The variants.
        tied: Equal for those that no other node tells apart; where all of these have one form, nothing is computed.
        shape: The node.
        most: Codes that may be computed.
    """
    labels = functions(variants, shape.unit, shape.columns)
    cost = 0
    parent = list(range(len(labels)))
    if len(set(zip(tied, labels, strict=True))) == len(set(tied)):
        return labels, cost
    for sums in dict.fromkeys(variant.sums for variant in variants):
        first = {labels[at]: at for at in reversed(range(len(variants))) if variants[at].sums == sums}
        domain = _Domain.of(shape, sums)
        if domain is None or len(first) < 2:
            continue
        able = [at for at in first.values() if domain.every or never_decreases(variants[at])]
        if cost + len(able) * domain.price > most:
            continue
        cost += len(able) * domain.price
        try:
            numbers = domain.number([variants[at] for at in able])
        except (KernelError, UsageError):  # a program that does not fit what is put in for the values
            continue
        earliest: dict[int, int] = {}
        for at, number in zip(able, numbers, strict=True):
            parent[labels[at]] = labels[earliest.setdefault(number, at)]
    return tuple(parent[label] for label in labels), cost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Domain:
    """What a program of one node can start from.

    Args:
        unit: The node.
        columns: All that it can start from, if `every`; else one number for each set of parameters.
        every: Whether the columns hold everything.
        price: Codes that are computed for each variant.
        ends: The least and the largest number that it can start from, unless `every`.
        steps: Sums at which the last variant looked at goes from one code to the next; empty before the first.
    """

    unit: Unit
    columns: Columns
    every: bool
    price: int
    ends: tuple[int, int] = _ENDS
    steps: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, shape: Shape, sums: HeavyPart) -> _Domain | None:
        """Return what can be put in; None if that is too much, or not known."""
        unit, own = shape.unit, shape.columns.get(sums)
        if own is None or unit.out.scale.size > 1 or unit.out.dtype.kind not in "iu":
            return None
        if sums.columns == "codes" and not unit.per_channel:
            return cls._of_codes(unit, sums)
        if sums.columns != "sum" or unit.kind not in _SUMMED or (unit.kind != "conv" and _along(unit) is None):
            return None
        return cls._of_sums(unit, own)

    @classmethod
    def _of_codes(cls, unit: Unit, sums: HeavyPart) -> _Domain | None:
        every = []
        for operand in unit.operands:
            if operand.codes.dtype.kind not in "iu" or operand.codes.dtype.itemsize > 1:
                return None
            ends = np.iinfo(operand.codes.dtype)
            every.append(np.arange(ends.min, ends.max + 1).astype(operand.codes.dtype))
        if unit.kind in PAIRS:
            every = [array.reshape(-1) for array in np.meshgrid(*every, indexing="ij")]
        elif len(every) != 1:
            return None
        columns = Columns(sums=sums, values=tuple(every), shape=every[0].shape)
        return cls(unit=unit, columns=columns, every=True, price=columns.size)

    @classmethod
    def _of_sums(cls, unit: Unit, own: Columns) -> _Domain:
        """Return one sum for each channel that has parameters of its own; they lie along the last axis but one."""
        channels = 1
        if unit.per_channel or own.sums.bias == "float":
            channels = own.shape[1] if unit.kind == "conv" else own.shape[-1]
        shape = (1, channels, *(1,) * (len(own.shape) - 2)) if unit.kind == "conv" else (channels,)
        columns = Columns(sums=own.sums, values=(np.zeros(shape, np.int64),), shape=shape, count=own.count)
        low, high = unit.out.limits
        ends = _reach(unit, own)
        return cls(unit=unit, columns=columns, every=False, price=4 * channels * (high - low), ends=ends)

    def number(self, variants: Sequence[Variant]) -> tuple[int, ...]:
        """Number variants by the codes that they give."""
        if self.every:
            return self._number_codes(variants)
        numbers = [0] * len(variants)
        todo, used = [list(range(len(variants)))], 1
        while todo:
            group = todo.pop()
            rows = self._on_both_sides(variants[group[0]], [variants[at] for at in group])
            alike: dict[bytes, list[int]] = {}
            for at, row in zip(group, rows, strict=True):
                alike.setdefault(row.tobytes(), []).append(at)
            same, *others = alike.values()
            del same  # what agrees with the first on both sides of all its steps is the first
            for members in others:
                for at in members:
                    numbers[at] = used
                used += 1
            todo += [members for members in others if len(members) > 1]
        return tuple(numbers)

    def _number_codes(self, variants: Sequence[Variant]) -> tuple[int, ...]:
        """Compute all codes of those variants alone that give the same on some of them."""
        few = replace(self.columns, values=tuple(array[::_SPARSE] for array in self.columns.values), spreads={})
        few = replace(few, shape=few.values[0].shape)
        known: list[object] = [row.tobytes() for row in finish_many(self.unit, few, variants)]
        left = [at for at, row in enumerate(known) if known.count(row) > 1]
        if left:
            rows = finish_many(self.unit, self.columns, [variants[at] for at in left])
            for at, row in zip(left, rows, strict=True):
                known[at] = row.tobytes()
        return _renumbered(known)

    def _on_both_sides(self, base: Variant, variants: Sequence[Variant]) -> np.ndarray:
        """Compute variants on both sides of every step of one of them, and at the ends of the range."""
        low, high = self.unit.out.clamp or self.unit.out.limits
        codes = np.arange(low, high) + 1
        below, above = self._bracket(base, codes)
        while bool(np.any(above - below > 1)):
            middle = (below + above) >> 1
            reached = self._codes(middle, [base])[0] >= codes
            above = np.where(reached, middle, above)
            below = np.where(reached, below, middle)
        self.steps[:] = [above]
        ends = np.broadcast_to(np.array(self.ends, np.int64), (*below.shape[:-1], 2))
        return self._codes(np.concatenate([below, above, ends], axis=-1), variants)

    def _bracket(self, base: Variant, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sums just below and at each code's threshold: near where the scales put it, or all."""
        shape = (*self.columns.values[0].shape, codes.size)
        below, above = (np.full(shape, end, np.int64) for end in self.ends)
        for known in self.steps or self._foreseen(shape, codes):
            low, high = (np.clip(known + by, *self.ends) for by in (-_NEAR, _NEAR))
            given = self._codes(np.concatenate([low, high], axis=-1), [base])[0]
            inside = (given[..., : codes.size] < codes) & (given[..., codes.size :] >= codes)
            below, above = np.where(inside, low, below), np.where(inside, high, above)
        return below, above

    def _foreseen(self, shape: tuple[int, ...], codes: np.ndarray) -> list[np.ndarray]:
        """Return the sums that the scales put half a code below each code; none where they do not tell."""
        ratio = real_multiplier(scales_of(self.unit, self.columns.count), "d:xw/y")
        with np.errstate(all="ignore"):
            sums = np.rint((codes - 0.5 - float(self.unit.out.zero_point.reshape(-1)[0])) / ratio[..., None])
        try:
            near = np.broadcast_to(sums, shape)
        except ValueError:
            return []
        return [np.clip(near, *self.ends).astype(np.int64)] if np.isfinite(near).all() else []

    def _codes(self, numbers: np.ndarray, variants: Sequence[Variant]) -> np.ndarray:
        """Compute variants on numbers that have one more axis than the parameters: (variants, ..., numbers)."""
        flat = np.moveaxis(numbers, -1, 0)  # along the batch, which no parameter goes along
        whole = np.ascontiguousarray(flat)
        columns = replace(self.columns, values=(whole,), shape=whole.shape, spreads={})
        codes = finish_many(self.unit, columns, variants).reshape(len(variants), *flat.shape)
        return np.moveaxis(codes, 1, -1).astype(np.int64)


def _along(unit: Unit) -> Operand | None:
    """Return the operand whose scales go along the last axis, or any if none has several; None for other scales."""
    for operand in unit.operands:
        if operand.scale.size > 1 and operand.scale.size != operand.scale.shape[-1]:
            return None
    bias = unit.bias
    if bias is not None and bias.ndim and bias.size != bias.shape[-1]:
        return None
    return unit.operands[0]


def _reach(unit: Unit, own: Columns) -> tuple[int, int]:
    """Return the least and the largest sum that codes can add up to, in 32 bits."""
    most = 1
    for operand in unit.operands:
        low, high = code_limits(logical_name(operand.codes.dtype))
        most *= int(high or 0) - int(low or 0)
    if unit.kind in ("conv", "linear"):
        weight = unit.operands[1].codes.shape
        most *= int(np.prod(weight[1:] if unit.kind == "conv" else weight[-2:-1], dtype=np.int64))
        if unit.transposed:
            most *= weight[0]
    elif own.count is not None:
        most *= int(np.max(own.count))
    if unit.bias is not None and own.sums.bias != "float":
        most += int(np.abs(unit.bias).max(initial=0)) if unit.bias.dtype.kind in "iu" else _ENDS[1]
    return max(-most, _ENDS[0]), min(most, _ENDS[1])
