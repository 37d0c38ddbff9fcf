"""Groups variants that compute the same function of a node, so that an answer counts them once.

There are three proofs of equality. If the operands have few codes, all combinations are computed. If a program maps a
sum to a code and never decreases, its steps determine it: the sums at which the code changes. Programs that agree on
both sides of every step, and at the ends of the range, are equal. If neither proof applies, only variants that are
equal by construction are grouped, see `qdebug.arithmetic.canonical`. Begin at `same_functions`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from qdebug.arithmetic.canonical import number_functions
from qdebug.arithmetic.selection import is_non_decreasing
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
"""Range of 32-bit sums."""
_STEP_SLACK = 8
"""Typical distance between the steps of two programs, in sums."""
_SPARSE_STRIDE = 61
"""A first trial computes one of this many combinations of codes."""
_SUMMED = frozenset({"conv", "linear", "mul", "requantize", "global_average_pool", "reduce_mean"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shape:
    """A unit and its columns without their values: only scales, zero points, attributes and shapes.

    Args:
        unit: The unit. Its codes are zeros that take no memory.
        columns: Its columns without values, by heavy part.
    """

    unit: Unit
    columns: Mapping[HeavyPart, Columns]

    def __reduce__(self) -> tuple[object, ...]:
        # Pickle would expand the zero-stride arrays of zeros: send their shapes instead.
        bare = tuple(replace(o, codes=np.zeros((), o.codes.dtype)) for o in self.unit.operands)
        shapes = tuple(o.codes.shape for o in self.unit.operands)
        return _restore_shape, (replace(self.unit, operands=bare), shapes, dict(self.columns))


def _restore_shape(unit: Unit, shapes: Sequence[tuple[int, ...]], columns: Mapping[HeavyPart, Columns]) -> Shape:
    """Rebuild a pickled shape."""
    pairs = zip(unit.operands, shapes, strict=True)
    hollow = tuple(replace(o, codes=np.broadcast_to(o.codes, shape)) for o, shape in pairs)
    return Shape(unit=replace(unit, operands=hollow), columns=columns)


def shape_of(unit: Unit, columns: Mapping[HeavyPart, Columns]) -> Shape:
    """Return a unit and its columns without their values.

    Args:
        unit: The unit.
        columns: Its columns, by heavy part.
    """
    hollow = tuple(replace(o, codes=np.broadcast_to(np.zeros((), o.codes.dtype), o.codes.shape)) for o in unit.operands)
    bare = {
        sums: Columns(
            sums=sums, values=(), shape=part_columns.shape, count=part_columns.count, bound=part_columns.bound
        )
        for sums, part_columns in columns.items()
    }
    return Shape(unit=replace(unit, operands=hollow, condition=None), columns=bare)


def same_functions(variants: Sequence[Variant], shapes: Sequence[Shape]) -> tuple[int, ...]:
    """Group variants that compute the same function on every given node.

    Args:
        variants: Variants that fit these nodes.
        shapes: The nodes.

    Returns:
        A number for each variant. Variants with equal numbers give equal codes for all operands of these nodes.
    """
    numbers = (0,) * len(variants)
    codes_left = EQUAL_FUNCTIONS_MAX_CODES
    for shape in shapes:
        tied_positions = [position for position, number in enumerate(numbers) if numbers.count(number) > 1]
        if not tied_positions:
            break
        tied = [numbers[position] for position in tied_positions]
        node_numbers, cost = _number_for_node(
            [variants[position] for position in tied_positions], tied, shape, codes_left
        )
        codes_left -= cost
        number_at = dict(zip(tied_positions, node_numbers, strict=True))
        numbers = _numbers_by_key([(number, number_at.get(at, -1)) for at, number in enumerate(numbers)])
    return numbers


def _numbers_by_key(keys: Sequence[object]) -> tuple[int, ...]:
    number_of: dict[object, int] = {}
    return tuple(number_of.setdefault(key, len(number_of)) for key in keys)


def _number_for_node(
    variants: Sequence[Variant], tied: Sequence[int], shape: Shape, max_codes: int
) -> tuple[tuple[int, ...], int]:
    """Number variants by the function of one node that they compute, and return the number of codes computed.

    Args:
        variants: The variants.
        tied: Number of each variant's group, according to the nodes before. If the canonical forms in each group are
            equal, nothing is computed.
        shape: The node.
        max_codes: Maximum number of codes to compute.
    """
    labels = number_functions(variants, shape.unit, shape.columns)
    cost = 0
    parent = list(range(len(labels)))
    if len(set(zip(tied, labels, strict=True))) == len(set(tied)):
        return labels, cost
    for sums in dict.fromkeys(variant.sums for variant in variants):
        position_of_label = {labels[at]: at for at in reversed(range(len(variants))) if variants[at].sums == sums}
        proof_inputs = _ProofInputs.of(shape, sums)
        if proof_inputs is None or len(position_of_label) < 2:
            continue
        comparable = [at for at in position_of_label.values() if proof_inputs.every or is_non_decreasing(variants[at])]
        if cost + len(comparable) * proof_inputs.price > max_codes:
            continue
        cost += len(comparable) * proof_inputs.price
        try:
            numbers = proof_inputs.number_variants([variants[at] for at in comparable])
        except (KernelError, UsageError):  # a variant does not support these inputs
            continue
        earliest: dict[int, int] = {}
        for at, number in zip(comparable, numbers, strict=True):
            parent[labels[at]] = labels[earliest.setdefault(number, at)]
    return tuple(parent[label] for label in labels), cost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ProofInputs:
    """The inputs on which programs of one node are compared to prove that they are equal.

    Args:
        unit: The node.
        columns: All possible inputs if `every` is true, else a single zero for each set of parameters.
        every: Whether the columns hold all possible inputs.
        price: Number of codes to compute for each variant.
        ends: Smallest and largest possible input, unless `every` is true.
        steps: Cache of the steps of the last variant examined. Empty before the first.
    """

    unit: Unit
    columns: Columns
    every: bool
    price: int
    ends: tuple[int, int] = _ENDS
    steps: list[np.ndarray] = field(default_factory=list)

    @classmethod
    def of(cls, shape: Shape, sums: HeavyPart) -> _ProofInputs | None:
        """Return the inputs for a node, or None if neither proof applies."""
        unit, unit_columns = shape.unit, shape.columns.get(sums)
        if unit_columns is None or unit.out.scale.size > 1 or unit.out.dtype.kind not in "iu":
            return None
        if sums.columns == "codes" and not unit.per_channel:
            return cls._of_codes(unit, sums)
        if sums.columns != "sum" or unit.kind not in _SUMMED or (unit.kind != "conv" and _scaled_operand(unit) is None):
            return None
        return cls._of_sums(unit, unit_columns)

    @classmethod
    def _of_codes(cls, unit: Unit, sums: HeavyPart) -> _ProofInputs | None:
        code_columns = []
        for operand in unit.operands:
            if operand.codes.dtype.kind not in "iu" or operand.codes.dtype.itemsize > 1:
                return None
            ends = np.iinfo(operand.codes.dtype)
            code_columns.append(np.arange(ends.min, ends.max + 1).astype(operand.codes.dtype))
        if unit.kind in PAIRS:
            code_columns = [array.reshape(-1) for array in np.meshgrid(*code_columns, indexing="ij")]
        elif len(code_columns) != 1:
            return None
        columns = Columns(sums=sums, values=tuple(code_columns), shape=code_columns[0].shape)
        return cls(unit=unit, columns=columns, every=True, price=columns.size)

    @classmethod
    def _of_sums(cls, unit: Unit, unit_columns: Columns) -> _ProofInputs:
        """Return one sum for each channel with parameters of its own, along the channel axis."""
        channels = 1
        if unit.per_channel or unit_columns.sums.bias == "float":
            channels = unit_columns.shape[1] if unit.kind == "conv" else unit_columns.shape[-1]
        shape = (1, channels, *(1,) * (len(unit_columns.shape) - 2)) if unit.kind == "conv" else (channels,)
        columns = Columns(
            sums=unit_columns.sums, values=(np.zeros(shape, np.int64),), shape=shape, count=unit_columns.count
        )
        low, high = unit.out.limits
        ends = _sum_range(unit, unit_columns)
        return cls(unit=unit, columns=columns, every=False, price=4 * channels * (high - low), ends=ends)

    def number_variants(self, variants: Sequence[Variant]) -> tuple[int, ...]:
        """Number variants by the function that they compute on these inputs."""
        if self.every:
            return self._number_by_codes(variants)
        numbers = [0] * len(variants)
        todo, next_number = [list(range(len(variants)))], 1
        while todo:
            group = todo.pop()
            rows = self._compute_around_steps(variants[group[0]], [variants[at] for at in group])
            positions_by_codes: dict[bytes, list[int]] = {}
            for at, row in zip(group, rows, strict=True):
                positions_by_codes.setdefault(row.tobytes(), []).append(at)
            same, *differing = positions_by_codes.values()
            del same  # These agree with the first variant around every step, so they are the same function.
            for members in differing:
                for at in members:
                    numbers[at] = next_number
                next_number += 1
            todo += [members for members in differing if len(members) > 1]
        return tuple(numbers)

    def _number_by_codes(self, variants: Sequence[Variant]) -> tuple[int, ...]:
        """Number variants by their codes, computed on a sparse sample first, then in full where variants agree."""
        sparse = replace(
            self.columns, values=tuple(array[::_SPARSE_STRIDE] for array in self.columns.values), spreads={}
        )
        sparse = replace(sparse, shape=sparse.values[0].shape)
        codes_of: list[object] = [row.tobytes() for row in finish_many(self.unit, sparse, variants)]
        undecided = [at for at, row in enumerate(codes_of) if codes_of.count(row) > 1]
        if undecided:
            rows = finish_many(self.unit, self.columns, [variants[at] for at in undecided])
            for at, row in zip(undecided, rows, strict=True):
                codes_of[at] = row.tobytes()
        return _numbers_by_key(codes_of)

    def _compute_around_steps(self, base: Variant, variants: Sequence[Variant]) -> np.ndarray:
        """Compute variants on both sides of every step of the variant `base`, and at the ends of the range."""
        low, high = self.unit.out.clamp or self.unit.out.limits
        codes = np.arange(low, high) + 1
        below, above = self._bracket(base, codes)
        while bool(np.any(above - below > 1)):
            middle = (below + above) >> 1
            reached = self._compute_codes(middle, [base])[0] >= codes
            above = np.where(reached, middle, above)
            below = np.where(reached, below, middle)
        self.steps[:] = [above]
        ends = np.broadcast_to(np.array(self.ends, np.int64), (*below.shape[:-1], 2))
        return self._compute_codes(np.concatenate([below, above, ends], axis=-1), variants)

    def _bracket(self, base: Variant, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sums below and at or above each step: close to the expected step if possible, or the whole range."""
        shape = (*self.columns.values[0].shape, codes.size)
        below, above = (np.full(shape, end, np.int64) for end in self.ends)
        for guess in self.steps or self._expected_steps(shape, codes):
            low, high = (np.clip(guess + by, *self.ends) for by in (-_STEP_SLACK, _STEP_SLACK))
            guessed_codes = self._compute_codes(np.concatenate([low, high], axis=-1), [base])[0]
            is_bracketed = (guessed_codes[..., : codes.size] < codes) & (guessed_codes[..., codes.size :] >= codes)
            below, above = np.where(is_bracketed, low, below), np.where(is_bracketed, high, above)
        return below, above

    def _expected_steps(self, shape: tuple[int, ...], codes: np.ndarray) -> list[np.ndarray]:
        """Return the sums at which the scales put each step, half an LSB below each code, or [] if they do not."""
        ratio = real_multiplier(scales_of(self.unit, self.columns.count), "d:xw/y")
        with np.errstate(all="ignore"):
            sums = np.rint((codes - 0.5 - float(self.unit.out.zero_point.reshape(-1)[0])) / ratio[..., None])
        try:
            near = np.broadcast_to(sums, shape)
        except ValueError:
            return []
        return [np.clip(near, *self.ends).astype(np.int64)] if np.isfinite(near).all() else []

    def _compute_codes(self, numbers: np.ndarray, variants: Sequence[Variant]) -> np.ndarray:
        """Compute variants on numbers, (*parameters, numbers). The result is (variants, *parameters, numbers)."""
        flat = np.moveaxis(numbers, -1, 0)  # as the batch axis, along which no parameter varies
        batch = np.ascontiguousarray(flat)
        columns = replace(self.columns, values=(batch,), shape=batch.shape, spreads={})
        codes = finish_many(self.unit, columns, variants).reshape(len(variants), *flat.shape)
        return np.moveaxis(codes, 1, -1).astype(np.int64)


def _scaled_operand(unit: Unit) -> Operand | None:
    """Return the first operand if all scales and biases are scalar or along the last axis, or None."""
    for operand in unit.operands:
        if operand.scale.size > 1 and operand.scale.size != operand.scale.shape[-1]:
            return None
    bias = unit.bias
    if bias is not None and bias.ndim and bias.size != bias.shape[-1]:
        return None
    return unit.operands[0]


def _sum_range(unit: Unit, columns: Columns) -> tuple[int, int]:
    """Return bounds of the sums that codes of the operands' dtypes can have, within 32 bits."""
    largest = 1
    for operand in unit.operands:
        low, high = code_limits(logical_name(operand.codes.dtype))
        largest *= int(high or 0) - int(low or 0)
    if unit.kind in ("conv", "linear"):
        weight = unit.operands[1].codes.shape
        largest *= int(np.prod(weight[1:] if unit.kind == "conv" else weight[-2:-1], dtype=np.int64))
        if unit.transposed:
            largest *= weight[0]
    elif columns.count is not None:
        largest *= int(np.max(columns.count))
    if unit.bias is not None and columns.sums.bias != "float":
        largest += int(np.abs(unit.bias).max(initial=0)) if unit.bias.dtype.kind in "iu" else _ENDS[1]
    return max(-largest, _ENDS[0]), min(largest, _ENDS[1])
