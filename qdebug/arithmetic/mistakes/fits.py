"""Mistakes in a number whose wrong value is solved for. Begin at `dials` and `miscounted_blocks`.

The value of an attribute, or the factor of an operand, that a kernel uses by mistake is found by the Gauss-Newton
method on all elements of the result (Nocedal and Wright, "Numerical Optimization", 2nd edition, section 10.3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import itemgetter

import numpy as np

from qdebug.arithmetic.mistakes.mistake import Mistake
from qdebug.arithmetic.mistakes.windows import with_explicit_pads
from qdebug.model import AttrValue, Node, QuantParams, operators
from qdebug.model.operators import Sums
from qdebug.model.thresholds.explanation import BLOCK_WEIGHTS_MAX_REMAINING_ERROR
from qdebug.replay.registry import run_node

__all__ = ["Dial", "Partition", "dials", "miscounted_blocks", "miscounted_windows", "partitions", "solve"]

Compute = Callable[[Mistake], np.ndarray | None]
"""Returns the result of a node with a mistake, or None if it cannot be computed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dial:
    """A number of a node that a kernel may replace by another value.

    Args:
        title: Its name in messages.
        start: Its right value.
        text: The mistake in words, with `{}` for the wrong value.
        set_to: Returns the mistake for a wrong value, without words.
        is_whole: Whether it is an integer.
    """

    title: str
    start: float
    text: str
    set_to: Callable[[float], Mistake]
    is_whole: bool = False

    def mistake(self, value: float) -> Mistake:
        """Return the mistake of using another value, with its words.

        Args:
            value: The wrong value.
        """
        return replace(self.set_to(value), likely=self.text.format(f"{value:.4g}"), about=self.title)


def dials(
    node: Node,
    values: Mapping[str, np.ndarray],
    defaults: Mapping[str, AttrValue | None],
    opset: Mapping[str, int],
    quants: Mapping[str, QuantParams],
) -> Iterator[Dial]:
    """Yield the numbers of a node: its real attributes, its scalar inputs, and a factor and an addend of each operand.

    Args:
        node: The node's real form.
        values: Its inputs.
        defaults: Attributes that its kernel reads and the node omits.
        opset: Version of each operator set of its graph.
        quants: Scale and zero point of the inputs that are codes with a single scale.
    """
    yield from _zero_point_dials(node, values, opset)
    yield from _padding_dials(node, values, quants)
    is_sum = operators.of(node.op).adds  # its kernel reads `alpha`, a factor that only some frameworks give a term
    for name, value in {**({} if is_sum else defaults), **node.attrs}.items():
        if isinstance(value, float) and np.isfinite(value):
            yield _attribute_dial(node, name, value)
    yield from _gate_dials(node, values)
    for name in dict.fromkeys(filter(None, node.inputs)):
        array = values[name]
        if array.dtype.kind != "f" or not array.size:
            continue
        if array.size == 1:
            text = f"{name!r} acts as {{}}, not {float(array.reshape(-1)[0]):.4g}"
            yield _operand_dial(node, name, text, float(array.reshape(-1)[0]), partial(np.full_like, array))
        else:
            factor = f"{name!r} is multiplied by {{}} first"
            yield _operand_dial(node, name, factor, 1.0, partial(_combine_with_number, np.multiply, array))
            if name in quants:
                yield _real_zero_point_dial(node, name, array, quants[name])
                continue
            addend = f"{{}} is added to {name!r} first"
            yield _operand_dial(node, name, addend, 0.0, partial(_combine_with_number, np.add, array))


def _real_zero_point_dial(node: Node, name: str, array: np.ndarray, quant: QuantParams) -> Dial:
    """Return the zero point of an operand that a node on codes reads, as a number that shifts its real values."""
    scale, zero_point = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])

    def with_zero_point(number: float) -> np.ndarray:
        return _combine_with_number(np.add, array, (zero_point - number) * scale)

    text = f"the zero point of {name!r} acts as {{}}, not {zero_point}"
    return replace(_operand_dial(node, name, text, float(zero_point), with_zero_point), is_whole=True)


def _zero_point_dials(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Dial]:
    """Yield the zero points of an integer product. Its sums are linear in them, so one replay each suffices."""
    slots = range(_FIRST_ZERO_POINT, len(node.inputs)) if operators.of(node.op).sums_codes else ()
    for slot in slots:
        name, operand = node.inputs[slot], values[node.inputs[slot - _FIRST_ZERO_POINT]]
        if not name or values[name].size != 1:
            continue
        zero_point = int(values[name].reshape(-1)[0])
        step = 1 if zero_point < np.iinfo(operand.dtype).max else -1
        one_each = {node.inputs[slot - _FIRST_ZERO_POINT]: np.full_like(operand, zero_point + step)}
        sums = run_node(node, {**values, **one_each}, opset)[node.outputs[0]] * step

        def set_to(number: float, zero_point: int = zero_point, sums: np.ndarray = sums) -> Mistake:
            def after(result: np.ndarray) -> np.ndarray:
                return np.asarray(result + (zero_point - number) * sums)

            return Mistake(likely="", node=node, values={}, after=after)

        text = f"the zero point {name!r} acts as {{}}, not {zero_point}"
        yield Dial(title=name, start=float(zero_point), text=text, set_to=set_to, is_whole=True)


_FIRST_ZERO_POINT = 2
"""Position of the first operand's zero point in a product of integers; the second operand's follows."""


def _padding_dials(node: Node, values: Mapping[str, np.ndarray], quants: Mapping[str, QuantParams]) -> Iterator[Dial]:
    """Yield the number that a convolution's padding holds: as a code if its input is codes of a single scale."""
    explicit = with_explicit_pads(node, values) or node
    name, pads = node.inputs[0] if node.inputs else "", explicit.attrs.get("pads")
    if operators.of(node.op).sums is not Sums.FILTER or name not in values or not isinstance(pads, tuple):
        return
    data, sizes = values[name], [int(str(pad)) for pad in pads]
    half = len(sizes) // 2
    if not any(sizes) or min(sizes) < 0 or half != data.ndim - 2 or data.dtype.kind != "f":
        return
    widths = [(0, 0), (0, 0), *zip(sizes[:half], sizes[half:], strict=True)]
    unpadded = replace(explicit, attrs={key: value for key, value in explicit.attrs.items() if key != "pads"})
    quant = quants.get(name)
    scale = 1.0 if quant is None else float(quant.scale.reshape(-1)[0])
    zero_point = 0 if quant is None else int(quant.zero_point.reshape(-1)[0])

    def set_to(number: float) -> Mistake:
        padded = np.pad(data, widths, constant_values=data.dtype.type((number - zero_point) * scale))
        return Mistake(likely="", node=unpadded, values={name: padded})

    text = "the padding acts as {}, not 0" if quant is None else f"the padding acts as code {{}}, not {zero_point}"
    yield Dial(title="padding", start=float(zero_point), text=text, set_to=set_to, is_whole=quant is not None)


def _combine_with_number(combine: np.ufunc, array: np.ndarray, number: float) -> np.ndarray:
    return np.asarray(combine(array, array.dtype.type(number)))


def _attribute_dial(node: Node, name: str, value: float) -> Dial:
    return Dial(
        title=name,
        start=value,
        text=f"{name} acts as {{}}, not {value:.4g}",
        set_to=lambda number: Mistake(likely="", node=replace(node, attrs={**node.attrs, name: number}), values={}),
    )


def _gate_dials(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Dial]:
    """Yield the parameters of a node's gate: the operator whose result multiplies its input, as in HardSwish."""
    gate = operators.of(node.op).gate
    data = values.get(node.inputs[0]) if node.inputs else None
    if gate is None or data is None:
        return
    for name, value in gate.attrs.items():
        if isinstance(value, float):

            def set_to(number: float, name: str = name) -> Mistake:
                gate_node = replace(node, op=gate.op, attrs={**gate.attrs, name: number})
                return Mistake(likely="", node=gate_node, values={}, after=lambda result: np.asarray(result * data))

            title = f"{name} of its {gate.op}"
            yield Dial(title=title, start=value, text=f"{title} acts as {{}}, not {value:.4g}", set_to=set_to)


def _operand_dial(node: Node, name: str, text: str, start: float, make: Callable[[float], np.ndarray]) -> Dial:
    return Dial(
        title=name,
        start=start,
        text=text,
        set_to=lambda number: Mistake(likely="", node=node, values={name: make(number)}),
    )


def solve(dial: Dial, recorded: np.ndarray, compute: Compute) -> float | None:
    """Return the parameter value that brings the node closest to its recorded result.

    None if the node cannot be computed with any start value.

    Args:
        dial: The parameter.
        recorded: The recorded result.
        compute: Computes the node with a mistake.
    """
    target = recorded.reshape(-1).astype(np.float64)

    def errors(value: float) -> np.ndarray | None:
        result = compute(dial.set_to(value))
        if result is None or result.shape != recorded.shape or not np.isfinite(result).all():
            return None
        return result.reshape(-1).astype(np.float64) - target

    best: tuple[float, float] | None = None  # error norm and value
    for begin in dict.fromkeys((dial.start, 0.0, 1.0, 2 * dial.start, dial.start / 2)):
        for value, norm in _gauss_newton_steps(begin, errors):
            if best is None or norm < best[0]:
                best = norm, value
    return None if best is None else best[1]


def _gauss_newton_steps(value: float, errors: Callable[[float], np.ndarray | None]) -> Iterator[tuple[float, float]]:
    """Yield the iterates of the Gauss-Newton method, from a start value on, each with its error norm.

    Args:
        value: The start value.
        errors: Returns the error of each element for a value, or None if it cannot be computed.
    """
    previous = np.inf
    for _ in range(_MAX_STEPS):
        error = errors(value)
        if error is None:
            return
        norm = float(np.linalg.norm(error))
        yield value, norm
        distance = _SLOPE_DISTANCE * max(abs(value), _SLOPE_DISTANCE)
        moved = errors(value + distance)
        if moved is None or not norm < _MAX_ERROR_RATIO_PER_STEP * previous:
            return
        slope = (moved - error) / distance
        power = float(np.vdot(slope, slope))
        if not power:
            return
        previous, value = norm, value - float(np.vdot(slope, error)) / power


_MAX_STEPS = 12
_MAX_ERROR_RATIO_PER_STEP = 0.9
"""Iteration goes on while the error norm falls below this share of the previous one."""
_SLOPE_DISTANCE = 2.0**-6
"""Relative distance over which a slope is measured: large compared with the rounding of float32."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Partition:
    """A way of numbering the elements of an operand, by which it is split into blocks.

    Args:
        name: The operand.
        text: The numbering in words, after "elements 3 to 5 of 'w'".
        numbers: The number of each element. Broadcasts to the operand.
    """

    name: str
    text: str
    numbers: np.ndarray

    @property
    def extent(self) -> int:
        """How many numbers there are."""
        return int(self.numbers.max(initial=-1)) + 1


def partitions(node: Node, name: str, array: np.ndarray) -> Iterator[Partition]:
    """Yield the ways of splitting an operand: along each axis, and for filters also along all but the first axis.

    Args:
        node: The node's real form.
        name: The operand.
        array: Its values.
    """
    for axis, extent in enumerate(array.shape):
        numbers = np.arange(extent).reshape([-1 if at == axis else 1 for at in range(array.ndim)])
        yield Partition(name=name, text=f"along axis {axis}", numbers=numbers)
    is_filter = operators.of(node.op).sums is Sums.FILTER and name == operators.titled_input(node, 1)
    taps = array.shape[2:]
    if is_filter and array.ndim > len(("filter", "channel")) and array.shape[1] > 1 and np.prod(taps) > 1:
        count = int(np.prod(array.shape[1:]))
        yield Partition(name=name, text="in each filter", numbers=np.arange(count).reshape(1, *array.shape[1:]))
        last = np.moveaxis(np.arange(count).reshape(*taps, array.shape[1]), -1, 0)
        yield Partition(name=name, text="in each filter, channels last", numbers=last[None])


def miscounted_blocks(
    node: Node,
    partition: Partition,
    values: Mapping[str, np.ndarray],
    recorded: np.ndarray,
    compute: Compute,
    *,
    decisive: np.ndarray,
) -> Iterator[Mistake]:
    """Yield mistakes in which blocks of an operand have a wrong weight or hold one number, simple ones first.

    The result must be linear in the operand. If weights of 16 blocks explain a part of the error, the blocks with the
    most unusual weights are split further.

    Args:
        node: The node's real form.
        partition: How the operand is split.
        values: The node's inputs.
        recorded: The recorded result.
        compute: Computes the node with a mistake.
        decisive: Mask of the elements of the result that determine the weights.
    """
    table = _EffectsOfBlocks(node, partition, values, recorded, compute, decisive=decisive)
    parts = _split_axis(partition.extent)
    for _ in range(_MAX_SPLITS + 1):
        counts = table.solve(parts)
        if counts is None:
            return
        yield from _with_weights(node, partition, values, parts, counts)
        filled = table.solve(parts, with_constants=True)
        if filled is not None:
            yield from _with_one_number(node, partition, values, parts, filled)
        best = counts if filled is None else filled
        if not table.is_partly_explained(parts, best):
            return
        finer = _split_unusual_parts(parts, best)
        if len(finer) == len(parts):
            return
        parts = finer


class _EffectsOfBlocks:
    """The effects of blocks of an operand on a result that is linear in it, computed once for each block."""

    def __init__(
        self,
        node: Node,
        partition: Partition,
        values: Mapping[str, np.ndarray],
        recorded: np.ndarray,
        compute: Compute,
        *,
        decisive: np.ndarray,
    ) -> None:
        self._node, self._partition, self._compute = node, partition, compute
        self._array, self._recorded, self._decisive = values[partition.name], recorded, decisive
        self._effects: dict[tuple[int, int, bool], np.ndarray | None] = {}
        self._base = self._result(np.zeros_like(self._array))

    def solve(self, parts: Sequence[slice], *, with_constants: bool = False) -> np.ndarray | None:
        """Return the weight of each block, and in a second row the number added to it if that is asked for.

        None if the result does not determine them.
        """
        if self._base is None or len(parts) < _MIN_BLOCKS:
            return None
        columns = [self._effect(part, is_constant=False) for part in parts]
        columns += [self._effect(part, is_constant=True) for part in parts] if with_constants else []
        present = [column for column in columns if column is not None]
        target = self._recorded.astype(np.float64)[self._decisive] - self._base
        if len(present) < len(columns) or target.size < _MIN_EQUATIONS * len(columns) or not np.isfinite(target).all():
            return None
        table = np.stack(present, axis=1)
        if np.linalg.matrix_rank(table) < len(columns):
            return None
        return np.asarray(np.linalg.lstsq(table, target, rcond=None)[0]).reshape(-1, len(parts))

    def is_partly_explained(self, parts: Sequence[slice], counts: np.ndarray) -> bool:
        """Return whether weights of blocks reduce the error well beyond what they would for an unrelated error."""
        target = self._recorded.astype(np.float64)[self._decisive] - self._base
        norms = []
        for weights in (counts, np.array([np.ones(len(parts))])):
            error = target.copy()
            for row, is_constant in zip(weights, (False, True), strict=False):
                for weight, part in zip(row, parts, strict=True):
                    effect = self._effect(part, is_constant=is_constant)
                    error -= 0.0 if effect is None else weight * effect
            norms.append(float(np.linalg.norm(error)))
        return norms[0] < BLOCK_WEIGHTS_MAX_REMAINING_ERROR * norms[1]

    def _effect(self, part: slice, *, is_constant: bool) -> np.ndarray | None:
        key = part.start, part.stop, is_constant
        if key not in self._effects:
            is_inside = (self._partition.numbers >= part.start) & (self._partition.numbers < part.stop)
            only = np.where(is_inside, 1 if is_constant else self._array, 0).astype(self._array.dtype)
            result = self._result(np.broadcast_to(only, self._array.shape))
            self._effects[key] = None if result is None or self._base is None else result - self._base
        return self._effects[key]

    def _result(self, operand: np.ndarray) -> np.ndarray | None:
        mistake = Mistake(likely="", node=self._node, values={self._partition.name: np.ascontiguousarray(operand)})
        result = self._compute(mistake)
        if result is None or result.shape != self._recorded.shape or not np.isfinite(result).all():
            return None
        return np.asarray(result.astype(np.float64)[self._decisive])


def _with_weights(
    node: Node, partition: Partition, values: Mapping[str, np.ndarray], parts: Sequence[slice], counts: np.ndarray
) -> Iterator[Mistake]:
    """Yield the mistakes in which blocks have given weights, rounded to few digits first."""
    for digits in _DIGITS:
        clauses, factors = [], np.ones(partition.extent)
        for part, count in _merge_equal_neighbors(parts, (np.round(counts[0], digits) + 0.0).tolist()):
            factors[part] = count
            if count != 1:
                verb = "counts" if part.stop - part.start == 1 else "count"
                clauses.append(f"{_block_text(partition, part)} {verb} {count:g} times")
        if 0 < len(clauses) <= _MAX_CLAUSES:
            array = values[partition.name]
            changed = (array * factors[partition.numbers]).astype(array.dtype)
            yield Mistake(
                likely=", and ".join(clauses), node=node, values={partition.name: changed}, about=partition.name
            )


def _with_one_number(
    node: Node, partition: Partition, values: Mapping[str, np.ndarray], parts: Sequence[slice], filled: np.ndarray
) -> Iterator[Mistake]:
    """Yield the mistake in which adjacent blocks hold one number in place of their elements."""
    for digits in _DIGITS:
        counts, numbers = np.round(filled, digits) + 0.0
        pairs = np.stack([counts, numbers], axis=1)
        others = np.flatnonzero((pairs != (1, 0)).any(axis=1)).tolist()
        if not others or (pairs[others] != pairs[others[0]]).any() or counts[others[0]] or not numbers[others[0]]:
            continue
        first, last = parts[others[0]], parts[others[-1]]
        if last.stop - first.start != sum(parts[at].stop - parts[at].start for at in others):
            continue
        array, number = values[partition.name], float(numbers[others[0]])
        is_inside = (partition.numbers >= first.start) & (partition.numbers < last.stop)
        verb = "counts" if last.stop - first.start == 1 else "count"
        yield Mistake(
            likely=f"{_block_text(partition, slice(first.start, last.stop))} {verb} as {number:g}",
            node=node,
            values={partition.name: np.where(is_inside, number, array).astype(array.dtype)},
            about=partition.name,
        )


def _block_text(partition: Partition, part: slice) -> str:
    is_one = part.stop - part.start == 1
    slot = f"element {part.start}" if is_one else f"elements {part.start} to {part.stop - 1}"
    return f"{slot} of {partition.name!r} {partition.text}"


def _split_unusual_parts(parts: Sequence[slice], counts: np.ndarray) -> list[slice]:
    """Split the few blocks with the most unusual weights, if they have several elements, into up to 8 blocks each."""
    is_large = np.array([part.stop - part.start > 1 for part in parts])
    order = np.argsort(np.where(is_large, -np.abs(counts[0] - 1), np.inf), kind="stable")
    chosen = {int(at) for at in order[:_MAX_SPLIT_PARTS] if is_large[at]}
    finer = []
    for at, part in enumerate(parts):
        size = max(1, -(-(part.stop - part.start) // _PIECES)) if at in chosen else part.stop - part.start
        finer += [slice(begin, min(begin + size, part.stop)) for begin in range(part.start, part.stop, size)]
    return finer


_MAX_SPLITS = 3
_MAX_SPLIT_PARTS = 4
_PIECES = 8
_MIN_EQUATIONS = 2
"""Minimum number of elements of the result for each weight that is solved for."""


def miscounted_windows(
    node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int], recorded: np.ndarray, compute: Compute
) -> Iterator[Mistake]:
    """Yield the mistake of dividing windows of an average pool by wrong numbers, which are solved for.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
        recorded: The recorded result.
        compute: Computes the node with a mistake.
    """
    kernel = node.attrs.get("kernel_shape")
    result = compute(Mistake(likely="", node=node, values={}))
    if not isinstance(kernel, tuple) or result is None or result.shape != recorded.shape:
        return
    rows = result.astype(np.float64).reshape(-1, *result.shape[2:])
    power = np.square(rows).sum(0)
    if len(rows) < _MIN_ROWS or not power.all() or not np.isfinite(recorded).all():
        return
    taps = np.prod([extent for extent in kernel if isinstance(extent, int)])
    data = values[node.inputs[0]]
    counted = replace(node, attrs={**node.attrs, "count_include_pad": 1})
    ones = {node.inputs[0]: np.ones_like(data)}
    own = taps * np.ones_like(power)
    if not node.attrs.get("count_include_pad"):
        own = taps * run_node(counted, ones, opset)[node.outputs[0]][0, 0].astype(np.float64)
    with np.errstate(all="ignore"):
        divisors = np.rint(own * power / (rows * recorded.reshape(rows.shape)).sum(0))
    is_other = divisors != np.rint(own)
    if not is_other.any() or not (divisors > 0).all():
        return
    others, owns = (_listed_numbers(numbers[is_other]) for numbers in (divisors, own))
    yield Mistake(
        likely=f"{np.count_nonzero(is_other)} of {is_other.size} windows are divided by {others}, not {owns}",
        node=node,
        values={},
        after=lambda result: np.asarray(result * (own / divisors), result.dtype),
        about="divisor",
    )


_MIN_ROWS = 4
"""Minimum number of channels, over all samples, that a fitted divisor has to explain."""


def _listed_numbers(numbers: np.ndarray) -> str:
    """List the distinct values of an array, rounded to integers, in words."""
    *most, last = (f"{number:g}" for number in np.unique(np.rint(numbers)))
    return f"{', '.join(most)} or {last}" if most else last


def _split_axis(extent: int) -> list[slice]:
    """Split an axis into at most 16 blocks of equal size, of which the last may be shorter."""
    size = 1
    while -(-extent // size) > _MAX_BLOCKS:
        size *= 2
    return [slice(begin, min(begin + size, extent)) for begin in range(0, extent, size)]


def _merge_equal_neighbors(parts: Sequence[slice], counts: Sequence[float]) -> Iterator[tuple[slice, float]]:
    """Yield blocks and their weights, with adjacent blocks of equal weight joined."""
    for count, group in groupby(zip(parts, counts, strict=True), key=itemgetter(1)):
        members = [part for part, _ in group]
        yield slice(members[0].start, members[-1].stop), count


_MAX_BLOCKS = 16
_MIN_BLOCKS = 2
_MAX_CLAUSES = 2
"""Maximum number of joined blocks with a wrong weight that are reported as one mistake."""
_DIGITS = (0, 1, 3)
"""Numbers of decimal places that weights are rounded to, in order of trial."""
