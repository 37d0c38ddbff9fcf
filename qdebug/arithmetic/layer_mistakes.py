"""Known mistakes of recurrent layers, normalizations, movements, choices and casts, and flags that are confused.

They follow public reports, as those of `qdebug.arithmetic.mistakes` do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.errors import KernelError
from qdebug.model import AttrValue, Node, operators
from qdebug.model.operators import Move
from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.replay.precision import onnx_dtype
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["Mistake", "layer_mistakes"]


def _as_it_is(values: np.ndarray) -> np.ndarray:
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake that a kernel may make with a node.

    Args:
        likely: The mistake in words.
        node: The node with the mistake.
        values: Inputs that differ from the recorded ones.
        after: Applied to the node's result.
        told: Index of the part of the result that the mistake determines; the rest may hold anything.
        opset: Version of the operator set that it is computed by; None for that of the graph.
        about: What it is about, where another mistake about the same may hardly be told from it; "" elsewhere.
    """

    likely: str
    node: Node
    values: Mapping[str, np.ndarray]
    after: Callable[[np.ndarray], np.ndarray] = _as_it_is
    told: tuple[Any, ...] = ()
    opset: Mapping[str, int] | None = None
    about: str = ""


def layer_mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make with a node.

    Args:
        node: The node on real numbers.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    yield from _of_flags(node, values, opset)
    yield from _of_left_out(node, values)
    yield from _of_gates(node, values)
    yield from _of_statistics(node, values)
    yield from _of_indices(node, values)
    yield from _of_arrangements(node, values)
    yield from _of_lists(node, values)
    yield from _of_bounds(node, values)
    yield from _of_short_floats(node, values)
    yield from _of_functions(node)
    yield from _of_whole_numbers(node, values)
    yield from _of_filling(node, values)
    yield from _of_infinities(node, values)


def _of_infinities(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield infinite operands that a format of few digits turns into its largest number."""
    real = {name: array for name, array in values.items() if array.dtype.kind == "f" and np.isinf(array).any()}
    for short in SHORT_FORMATS if real else ():
        ended = {
            name: np.clip(array, -short.largest, short.largest).astype(array.dtype) for name, array in real.items()
        }
        what = " and ".join(map(repr, real))
        said = f"what is infinite in {what} becomes {short.largest:g}, the largest {short.name}"
        yield Mistake(likely=said, node=node, values=ended)


def _of_functions(node: Node) -> Iterator[Mistake]:
    """Yield other functions that an activation is taken for."""
    others = operators.alike_functions(node.op)
    if operators.of(node.op).unit == "lookup":
        others |= operators.names_where(lambda row: row.unit == "lookup" and row.name != node.op)
    for other in sorted(others):
        yield Mistake(
            likely=f"it computes {other}, not {node.op}",
            node=replace(node, op=other, domain="" if has_kernel(other) else _ORT, attrs={}, inputs=node.inputs[:1]),
            values={},
        )
    gate = operators.of(node.op).gate
    if gate is not None and gate.attrs:
        said = f"it computes its {gate.op} alone: the factor {node.inputs[0]!r} is left out"
        yield Mistake(likely=said, node=replace(node, op=gate.op, attrs=gate.attrs), values={})


_ORT = "com.microsoft"
"""The domain of functions that ONNX does not have."""


def _of_whole_numbers(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield sums, differences and products of integers that saturate, where they wrap around."""
    row = operators.of(node.op)
    names = [name for name in node.inputs if name]
    if row.divisor == 1 and len(names) == 2:
        yield from _of_quotients(node, *(values[name] for name in names))
    if not row.elementwise or len(names) != 2 or not (row.adds or row.neutral == 1) or row.divisor is not None:
        return
    dtype = values[names[0]].dtype
    if dtype.kind not in "iu" or dtype.itemsize > 4 or values[names[1]].dtype != dtype:
        return
    wide = replace(node), {name: values[name].astype(np.int64) for name in names}
    ends = np.iinfo(dtype)
    yield Mistake(
        likely=f"results beyond {dtype.name} saturate, where they wrap around",
        node=wide[0],
        values=wide[1],
        after=lambda made: np.clip(made, ends.min, ends.max).astype(dtype),
    )


def _of_quotients(node: Node, dividend: np.ndarray, divisor: np.ndarray) -> Iterator[Mistake]:
    """Yield quotients of integers that are rounded otherwise: some languages cut them off, others round them down."""
    if dividend.dtype.kind not in "iu" or divisor.dtype.kind not in "iu":
        return
    with np.errstate(all="ignore"):
        exact = dividend / divisor
    for said, rounded in (
        ("rounded down", np.floor),
        ("cut off toward 0", np.trunc),
        ("rounded to the nearest integer", np.rint),
        ("rounded up", np.ceil),
    ):
        made = np.nan_to_num(rounded(exact)).astype(dividend.dtype)
        yield Mistake(likely=f"its quotients are {said}", node=node, values={}, after=partial(_taken, made=made))


_FILLINGS = (("edge", "its outermost values"), ("reflect", "its values mirrored"))


def _of_filling(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield windows whose padding holds other values than it should."""
    data, pads = values.get(node.inputs[0]) if node.inputs else None, node.attrs.get("pads")
    row = operators.of(node.op)
    if data is None or data.dtype.kind != "f" or not row.windowed or node.attrs.get("channels_last"):
        return
    sizes = [int(pad) for pad in pads if isinstance(pad, int)] if isinstance(pads, tuple) else []
    axes = data.ndim - 2
    if axes < 1 or len(sizes) != 2 * axes or not any(sizes) or min(sizes) < 0:
        return
    around = [(0, 0), (0, 0), *zip(sizes[:axes], sizes[axes:], strict=True)]
    bare = replace(node, attrs={name: value for name, value in node.attrs.items() if name not in ("pads", "auto_pad")})
    name = node.inputs[0]
    if row.selects:
        yield Mistake(
            likely="the padding counts as 0, where it counts for nothing",
            node=bare,
            values={name: np.pad(data, around)},
        )
    for mode, said in _FILLINGS:
        if mode == "edge" or all(max(each) < size for each, size in zip(around, data.shape, strict=True)):
            filled = np.pad(data, around, mode=mode)  # type: ignore[call-overload]  # a literal to numpy's stubs
            yield Mistake(likely=f"the padding repeats {said}, where it is empty", node=bare, values={name: filled})


_FLAGS = frozenset(
    (
        "linear_before_reset", "input_forget", "transA", "transB", "count_include_pad", "ceil_mode", "exclusive",
        "reverse", "interleaved", "is_causal", "unidirectional", "largest", "select_last_index", "fmod",
    )
)  # fmt: skip
"""Attributes that are 0 or 1."""
_TAKEN_FOR: Mapping[str, tuple[tuple[str, ...], ...]] = MappingProxyType(
    {
        "approximate": (("none", "tanh"),),
        "auto_pad": (("SAME_UPPER", "SAME_LOWER", "VALID"),),
        "coordinate_transformation_mode": (("half_pixel", "asymmetric", "align_corners"),),
        "direction": (("LEFT", "RIGHT"),),
        "keep_aspect_ratio_policy": (("stretch", "not_larger", "not_smaller"),),
        "mode": (
            ("DCR", "CRD"),
            ("nearest", "linear", "cubic"),
            ("bilinear", "nearest", "bicubic"),
            ("constant", "reflect", "edge", "wrap"),
            ("avg", "max"),
        ),
        "nearest_mode": (("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),),
        "padding_mode": (("zeros", "border", "reflection"),),
        "reduction": (("none", "add", "mul", "min", "max"),),
        "rounding_mode": (("ROUND", "CEIL", "FLOOR", "DOWN", "UP", "HALF_UP", "HALF_DOWN"),),
    }
)
"""Values of attributes that are taken for one another."""
_CHANGES_DIVISORS = ("count_include_pad", "ceil_mode")
"""Of these, those whose being taken for 1 is a mistake of its own."""


def _of_flags(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield flags and choices that are taken for others, whether the node states them or not."""
    asked: dict[str, AttrValue | None] = {}
    try:
        run_node(node, values, opset, asked=asked)
    except KernelError:
        return
    for name, value in {**asked, **node.attrs}.items():
        if name in _FLAGS and value in (0, 1) and (value or name not in _CHANGES_DIVISORS):
            other = replace(node, attrs={**node.attrs, name: 1 - int(bool(value))})
            said = f"{name} is ignored" if value else f"{name} is taken for 1, not 0"
            operand = _TURNED.get(name)
            about = "" if operand is None else node.inputs[operand]
            yield Mistake(likely=said, node=other, values={}, about=about)
        for taken in next((known for known in _TAKEN_FOR.get(name, ()) if value in known), ()):
            if taken != value:
                said = f"{name} is taken for {taken}, not {value}"
                yield Mistake(likely=said, node=replace(node, attrs={**node.attrs, name: taken}), values={})


_TURNED = MappingProxyType({"transA": 0, "transB": 1})
"""Flags that turn an operand, with its position: of a square one it cannot be told from another order in memory."""
_TITLES = MappingProxyType(
    {
        "recurrent": {
            3: "the bias",
            4: "the lengths of the sequences",
            5: "the state to begin with",
            7: "the peepholes",
        },
        "scaled": {1: "the scale", 2: "the bias"},
    }
)


def _kind(node: Node) -> str:
    row = operators.plain(node)
    return "recurrent" if row.recurrent else "scaled" if _statistics(node) else ""


def _of_left_out(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield layers with an input ignored, and scales whose offset of 1 is missing or added wrongly."""
    for place, title in _TITLES.get(_kind(node), {}).items():
        name = node.inputs[place] if place < len(node.inputs) else ""
        if not name or name not in values:
            continue
        if _kind(node) == "recurrent":
            rest = tuple("" if at == place else each for at, each in enumerate(node.inputs))
            yield Mistake(likely=f"{title} is ignored", node=replace(node, inputs=rest), values={})
            continue
        neutral = np.full_like(values[name], 1 if place == 1 else 0)
        yield Mistake(likely=f"{title} is ignored", node=node, values={name: neutral})
        if place == 1:
            one = values[name].dtype.type(1)
            yield Mistake(likely="1 is added to the scale", node=node, values={name: values[name] + one})
            yield Mistake(likely="1 is not added to the scale", node=node, values={name: values[name] - one})


_GATES = MappingProxyType({"LSTM": ("input", "output", "forget", "cell"), "GRU": ("update", "reset", "hidden")})


def _of_gates(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the gates of a recurrent layer in another order; of a layer both ways, its halves exchanged."""
    gates = _GATES.get(node.op)
    if gates is None:
        return
    names = [name for name in node.inputs[1:4] if name]
    for order in permutations(range(len(gates))):
        if order == tuple(range(len(gates))):
            continue
        moved = {}
        for name in names:
            parts = values[name].reshape(values[name].shape[0], -1, len(gates), *_cells(values[name], len(gates)))
            moved[name] = np.ascontiguousarray(parts[:, :, list(order)]).reshape(values[name].shape)
        said = ", ".join(gates[at] for at in order)
        yield Mistake(likely=f"the gates are taken to be in the order {said}", node=node, values=moved)
    directions = {"forward": "reverse", "reverse": "forward"}
    way = str(node.attrs.get("direction", "forward"))
    if way in directions:
        turned = replace(node, attrs={**node.attrs, "direction": directions[way]})
        yield Mistake(likely=f"the direction is taken for {directions[way]}, not {way}", node=turned, values={})


def _cells(array: np.ndarray, gates: int) -> tuple[int, ...]:
    """Return the extents of one gate: of a bias, which holds two rows of gates, its cells alone."""
    return (array.shape[1] // (2 * gates),) if array.ndim == 2 else (array.shape[1] // gates, *array.shape[2:])


def _statistics(node: Node) -> tuple[int, ...] | None:
    """Return a node's places of scale and bias, if it standardizes by statistics of its data."""
    ops = ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization")
    return (1, 2) if operators.plain(node).name in ops else None


def _grouped(node: Node, data: np.ndarray) -> tuple[np.ndarray, tuple[int, ...]] | None:
    """Return data in the shape that statistics are taken in, and along which axes; None of other normalizations."""
    if node.op == "LayerNormalization":
        axis = node.attrs.get("axis", -1)
        return data, tuple(range(data.ndim))[axis if isinstance(axis, int) else -1 :]
    if node.op == "InstanceNormalization":
        return data, tuple(range(2, data.ndim))
    groups = node.attrs.get("num_groups")
    if node.op == "GroupNormalization" and isinstance(groups, int) and groups and data.shape[1] % groups == 0:
        return data.reshape(len(data), groups, -1), (2,)
    return None


def _of_statistics(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield a variance over one element less, an epsilon in another place, and channels grouped otherwise."""
    data = values.get(node.inputs[0]) if node.inputs else None
    if data is None or _statistics(node) is None or len(node.inputs) < 2 or data.dtype.kind != "f":
        return
    given, epsilon = _grouped(node, data.astype(np.float64)), node.attrs.get("epsilon", 1e-5)
    if given is not None and isinstance(epsilon, int | float):
        shaped, axes = given
        count = prod(shaped.shape[axis] for axis in axes)
        mean, variance = shaped.mean(axes, keepdims=True), shaped.var(axes, keepdims=True)
        for said, divisor in (
            (
                f"the variance is divided by {count - 1}, one less than the {count} elements",
                np.sqrt(variance * count / max(count - 1, 1) + epsilon),
            ),
            ("epsilon is added to the deviation, not the variance", np.sqrt(variance) + epsilon),
            (
                "epsilon is added to the count of elements, not the variance",
                np.sqrt(variance * count / (count + epsilon)),
            ),
            ("it divides by the variance, not its root", variance + epsilon),
            (
                "the mean is not subtracted before squaring",
                np.sqrt(np.square(shaped).mean(axes, keepdims=True) + epsilon),
            ),
        ):
            with np.errstate(all="ignore"):
                made = ((shaped - mean) / divisor).reshape(data.shape)
            yield Mistake(likely=said, node=node, values={}, after=partial(_taken, made=_shifted(node, values, made)))
    groups = node.attrs.get("num_groups")
    if node.op == "GroupNormalization" and isinstance(groups, int) and 1 < groups < data.shape[1]:
        order = np.arange(data.shape[1]).reshape(-1, groups).T.reshape(-1)
        back, moved = np.argsort(order), {node.inputs[0]: data[:, order]}
        moved |= {name: values[name][order] for name in node.inputs[1:3] if name and len(values[name]) == data.shape[1]}
        yield Mistake(
            likely="channels are dealt out to the groups one by one, where neighbours make a group",
            node=node,
            values=moved,
            after=lambda made: np.asarray(made[:, back]),
        )


def _shifted(node: Node, values: Mapping[str, np.ndarray], made: np.ndarray) -> np.ndarray:
    """Return standardized data times the scale of a normalization, plus its bias, in the type of its data."""
    total = made
    for name, apply in zip(node.inputs[1:3], (np.multiply, np.add), strict=False):
        if name:
            values_of = values[name].astype(np.float64)
            own = values_of.reshape(-1, *(1,) * (made.ndim - 2)) if node.op != "LayerNormalization" else values_of
            if own.shape and own.shape[0] not in (1, made.shape[1 if node.op != "LayerNormalization" else -own.ndim]):
                return made.astype(values[node.inputs[0]].dtype)
            total = apply(total, own)
    return np.asarray(total, values[node.inputs[0]].dtype)


_PICKING = ("Gather", "GatherElements", "GatherND")


def _of_indices(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield negative indices that are not counted from the end, and indices that are one off."""
    if node.op not in _PICKING or len(node.inputs) < 2:
        return
    data, name = values[node.inputs[0]], node.inputs[1]
    indices, axis = values[name], node.attrs.get("axis", 0)
    negative = indices < 0
    if negative.any() and np.any(~negative):
        none = partial(_emptied, negative=_spread(node, data, negative))
        nothing = np.where(negative, 0, indices)
        yield Mistake(likely="negative indices give 0", node=node, values={name: nothing}, after=none)
        yield Mistake(likely="negative indices are taken for 0", node=node, values={name: nothing})
        if isinstance(axis, int) and node.op != "GatherND":
            last = np.where(negative, data.shape[axis] - 1, indices)
            said = "negative indices are taken for the last one"
            yield Mistake(likely=said, node=node, values={name: last}, about="indices")
            plain = np.where(negative, -indices, indices)
            if np.all(plain < data.shape[axis]):
                yield Mistake(likely="the sign of negative indices is dropped", node=node, values={name: plain})
    if isinstance(axis, int) and node.op == "Gather":
        for other in range(data.ndim):
            if other != axis % data.ndim and np.all((indices >= -data.shape[other]) & (indices < data.shape[other])):
                turned = replace(node, attrs={**node.attrs, "axis": other})
                yield Mistake(likely=f"it picks along axis {other}, not {axis}", node=turned, values={})
    if isinstance(axis, int) and node.op != "GatherND":
        extent = data.shape[axis]
        for step, said in ((1, "one too far"), (-1, "one too early")):
            moved = np.mod(indices + step, extent).astype(indices.dtype)
            yield Mistake(likely=f"indices are {said}", node=node, values={name: moved})


def _spread(node: Node, data: np.ndarray, negative: np.ndarray) -> np.ndarray:
    """Return which elements of a result come by a negative index, as an array that broadcasts to it."""
    axis = node.attrs.get("axis", 0)
    if node.op == "GatherElements" or not isinstance(axis, int):
        return negative
    if node.op == "GatherND":
        return np.asarray(negative.any(axis=-1))
    after = data.ndim - axis % data.ndim - 1
    return negative.reshape(*negative.shape, *(1,) * after)


def _emptied(made: np.ndarray, *, negative: np.ndarray) -> np.ndarray:
    try:
        return np.asarray(np.where(negative, made.dtype.type(0), made))
    except ValueError:
        return made


def _of_arrangements(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield dimensions that are turned the other way, and parts that are joined in another order."""
    row, perm = operators.of(node.op), node.attrs.get("perm")
    if row.moves is Move.TRANSPOSE and isinstance(perm, tuple) and all(isinstance(each, int) for each in perm):
        inverse = tuple(int(at) for at in np.argsort([int(each) for each in perm if isinstance(each, int)]))
        if inverse != perm:
            said = f"perm is taken for its inverse {inverse}"
            yield Mistake(likely=said, node=replace(node, attrs={**node.attrs, "perm": inverse}), values={})
        yield Mistake(
            likely="the elements stay in their order", node=node, values={}, after=partial(_reshaped, values, node)
        )
    if node.op == "Concat" and (len(node.inputs) > 2 or len({values[name].shape for name in node.inputs}) > 1):
        yield Mistake(
            likely="the parts are joined in reverse order", node=replace(node, inputs=node.inputs[::-1]), values={}
        )
    if node.op == "Where" and len(node.inputs) == 3:
        turned = replace(node, inputs=(node.inputs[0], node.inputs[2], node.inputs[1]))
        yield Mistake(likely="the condition is taken for its opposite", node=turned, values={})
    weight = node.inputs[1] if len(node.inputs) > 1 else ""
    if row.windowed and row.product and weight and values[weight].ndim > 2:
        filters = values[weight]
        spatial = tuple(range(2, filters.ndim))
        yield Mistake(likely="its filters are flipped", node=node, values={weight: np.flip(filters, spatial)})
        if len({*filters.shape[2:]}) == 1 and filters.ndim > 3:
            turned_filters = np.swapaxes(filters, -1, -2)
            said = "rows and columns of its filters are exchanged"
            yield Mistake(likely=said, node=node, values={weight: turned_filters})


def _reshaped(values: Mapping[str, np.ndarray], node: Node, made: np.ndarray) -> np.ndarray:
    return values[node.inputs[0]].reshape(made.shape)


def _of_lists(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield lists with an entry for each axis, or two, that are read in another order."""
    for name in ("strides", "pads"):
        given = node.attrs.get(name)
        if not isinstance(given, tuple) or not all(isinstance(each, int) for each in given):
            continue
        for said, other in _orders(name, given):
            yield Mistake(likely=said, node=replace(node, attrs={**node.attrs, name: other}), values={})
    pads = node.inputs[1] if node.op == "Pad" and len(node.inputs) > 1 else ""
    if pads and values[pads].ndim == 1:
        for said, order in _orders("pads", tuple(range(values[pads].size))):
            moved = values[pads][[int(at) for at in order if isinstance(at, int)]]
            if not np.array_equal(moved, values[pads]):
                yield Mistake(likely=said, node=node, values={pads: moved})
    filled = node.inputs[2] if node.op == "Pad" and len(node.inputs) > 2 else ""
    if filled and np.any(values[filled]):
        said = "the value to pad with is ignored"
        yield Mistake(likely=said, node=node, values={filled: np.zeros_like(values[filled])})
    steps = node.inputs[4] if node.op == "Slice" and len(node.inputs) > 4 else ""
    if steps and np.any(values[steps] != 1) and np.any(values[steps] < 0):
        yield Mistake(
            likely="it goes forward where it is to go backward",
            node=node,
            values={},
            after=partial(_forward, steps=values[steps], axes=values.get(node.inputs[3])),
        )


def _forward(made: np.ndarray, *, steps: np.ndarray, axes: np.ndarray | None) -> np.ndarray:
    along = range(steps.size) if axes is None else [int(axis) for axis in axes.reshape(-1)]
    back = tuple(axis for axis, step in zip(along, steps.reshape(-1), strict=True) if step < 0)
    return np.flip(made, back)


def _orders(name: str, given: tuple[AttrValue, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield a list of one entry an axis the other way round; of two, as if begin and end of an axis were together."""
    if name == "strides":
        ways = {given[::-1]: f"the strides are {given[::-1]}, not {given}"}
    else:
        half = len(given) // 2
        pairs = tuple(given[at // 2 + half * (at % 2)] for at in range(len(given)))
        back = tuple(given[(at % half) * 2 + at // half] for at in range(len(given))) if half else given
        ways = {
            pairs: "begin and end of each axis are taken to stand together in pads",
            back: "begin and end of each axis are taken to stand together in pads",
        }
    for order, said in ways.items():
        if order != given:
            yield said, order


def _of_bounds(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield a bound of a Clip that is ignored, and a condition or a choice that is taken the other way."""
    if node.op == "Clip":
        for place, what in ((1, "lower"), (2, "upper")):
            if place < len(node.inputs) and node.inputs[place]:
                rest = tuple("" if at == place else name for at, name in enumerate(node.inputs))
                said = f"the {what} bound is ignored"
                yield Mistake(likely=said, node=replace(node, inputs=rest), values={})
    means = {"ReduceMean": "ReduceSum", "GlobalAveragePool": "", "ReduceSum": "ReduceMean"}
    other = means.get(node.op)
    if other:
        said = "it is a sum, not a mean" if node.op == "ReduceMean" else "it is a mean, not a sum"
        data = values[node.inputs[0]] if node.inputs else np.zeros(0)
        yield Mistake(
            likely=said, node=node, values={}, after=partial(_rescaled, size=data.size, up=other == "ReduceSum")
        )


def _rescaled(made: np.ndarray, *, size: int, up: bool) -> np.ndarray:
    many = made.dtype.type(size / max(made.size, 1))
    return np.asarray(made * many if up else made / many)


def _of_short_floats(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield casts to float formats that cut digits off, lose a carry, or do other things at the ends of the range."""
    data = values.get(node.inputs[0]) if node.inputs else None
    target = node.attrs.get("to")
    if not operators.of(node.op).casts or data is None or data.dtype.kind != "f" or not isinstance(target, int):
        return
    dtype = onnx_dtype(target)
    short = next((each for each in SHORT_FORMATS if each.name == dtype.name), None)
    if short is None or data.dtype.itemsize <= dtype.itemsize:
        return
    wide = data.astype(np.float32)
    right = short.rounded(wide)
    step = np.spacing(np.abs(wide)).astype(np.float64) * 2.0 ** (24 - short.bits)
    cut = np.trunc(wide / step) * step
    carried = (np.frexp(right)[0] == np.copysign(0.5, right)) & (np.abs(right) > np.abs(wide))
    for said, made in (
        (f"digits beyond {short.name} are cut off, not rounded", cut),
        (f"what is rounded up to a power of 2 in {short.name} becomes half of it", np.where(carried, right / 2, right)),
        (
            f"numbers too small for all digits of {short.name} become 0",
            np.where(np.abs(right) < short.normal, 0, right),
        ),
    ):
        yield Mistake(likely=said, node=node, values={}, after=partial(_taken, made=made.astype(dtype)))


def _taken(_: np.ndarray, *, made: np.ndarray) -> np.ndarray:
    return made
