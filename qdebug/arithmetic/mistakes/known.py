"""Known kernel mistakes in nodes on real numbers or integer sums. Begin at `mistakes`.

They are based on public bug reports. `qdebug.arithmetic.suspects` contains the mistakes on codes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np

from qdebug.arithmetic.mistakes.accumulation import short_sums
from qdebug.arithmetic.mistakes.attention import attention_mistakes
from qdebug.arithmetic.mistakes.casts import cast_mistakes
from qdebug.arithmetic.mistakes.elements import power_mistakes
from qdebug.arithmetic.mistakes.integers import integer_mistakes
from qdebug.arithmetic.mistakes.layers import layer_mistakes
from qdebug.arithmetic.mistakes.mistake import Mistake, always, applicable, without_inputs
from qdebug.arithmetic.mistakes.normalization import normalization_mistakes, other_windows
from qdebug.arithmetic.mistakes.packed import packed_mistakes
from qdebug.arithmetic.mistakes.repeats import read_in_other_order
from qdebug.arithmetic.mistakes.scales import late_zero_points, scales_by_flat_index
from qdebug.arithmetic.mistakes.softmax import softmax_mistakes
from qdebug.arithmetic.mistakes.statistics import short_statistics
from qdebug.arithmetic.mistakes.tails import tail_mistakes
from qdebug.arithmetic.mistakes.tiles import tile_mistakes
from qdebug.arithmetic.mistakes.windows import with_explicit_pads
from qdebug.model import AttrValue, Node, operators
from qdebug.model.operators import Sums
from qdebug.numerics.short_formats import SHORT_FORMATS

__all__ = ["mistakes", "other_dilations"]


def mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in computing a node.

    Args:
        node: The node's real form, or a node on codes that outputs sums.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    families = (
        _ignored_zero_points(node, values),
        _exchanged_operands(node, values),
        _misapplied_factors(node, values),
        _wrong_broadcasts(node, values),
        _repeated_matrices(node, values),
        read_in_other_order(node, values),
        _wrong_attributes(node, values),
        _other_operator_sets(node),
        _shifted_padding(node, values),
        _missing_activations(node, values),
        packed_mistakes(node, values),
        late_zero_points(node, values),
        scales_by_flat_index(node, values),
        _vectors_for_elements(node, values),
        _biases_of_other_axes(node, values),
        _incomplete_sums(node, values),
        _default_gate_parameters(node, values),
        _wrong_dilations(node, values),
        _column_major_operands(node, values),
        _rounded_inputs(node, values),
        _factors_in_blocks(node, values),
        _late_writes(node, values),
        attention_mistakes(node, values),
        normalization_mistakes(node, values),
        other_windows(node, values),
        layer_mistakes(node, values, opset),
        short_sums(node, values),
        tail_mistakes(node, values),
        softmax_mistakes(node, values, opset),
        short_statistics(node, values, opset),
        tile_mistakes(node, values),
        cast_mistakes(node, values),
        integer_mistakes(node, values),
        power_mistakes(node, values),
    )
    for family in families:
        yield from applicable(family)
    explicit = with_explicit_pads(node, values)
    if explicit is not None:
        yield from mistakes(explicit, values, opset)


def _ignored_zero_points(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    if not operators.of(node.op).sums_codes:
        return
    present = [slot for slot in (2, 3) if slot < len(node.inputs) and node.inputs[slot]]
    nonzero = [slot for slot in present if np.any(values[node.inputs[slot]])]
    names = {2: "the first operand", 3: "the second operand"}
    for slot in nonzero:
        codes, zero_point = values[node.inputs[slot - 2]], values[node.inputs[slot]]
        for signedness in "iu" if zero_point.size == 1 and codes.dtype.itemsize == 1 else "":
            wrapped = (codes.astype(np.int16) - zero_point.astype(np.int16)).astype(f"{signedness}1")
            likely = f"{names[slot]} minus its zero point wraps around in {wrapped.dtype.name}"
            centred = without_inputs(node, slot)
            yield Mistake(likely=likely, node=centred, values={node.inputs[slot - 2]: wrapped})
    for slot in nonzero:
        likely = f"the zero point of {names[slot]} is not subtracted"
        yield Mistake(likely=likely, node=without_inputs(node, slot), values={})
    if len(nonzero) > 1:
        yield Mistake(
            likely="the zero points of both operands are not subtracted",
            node=without_inputs(node, *nonzero),
            values={},
        )


def _exchanged_operands(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    row = operators.of(node.op)
    shapes = [values[name].shape for name in node.inputs[:2] if name]
    if len(shapes) == 2 and not row.commutes and shapes[0] == shapes[1] and (row.rounds_by_element or row.product):
        swapped = replace(node, inputs=(node.inputs[1], node.inputs[0], *node.inputs[2:]))
        yield Mistake(likely="its operands are swapped", node=swapped, values={})
    if row.product and row.bias is not None and row.bias < len(node.inputs) and node.inputs[row.bias]:
        bias = values[node.inputs[row.bias]]
        if np.any(bias):
            yield Mistake(likely="the bias is dropped", node=without_inputs(node, row.bias), values={})
            name = node.inputs[row.bias]
            yield Mistake(likely="the bias is added twice", node=node, values={name: bias + bias})
            yield Mistake(likely="the bias is shifted by one channel", node=node, values={name: np.roll(bias, 1, -1)})


def _biases_of_other_axes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the bias of a product is added along another axis than the channel axis."""
    slot = operators.of(node.op).bias
    name = node.inputs[slot] if slot is not None and slot < len(node.inputs) else ""
    if slot is None or not name or values[name].ndim != 1 or not np.any(values[name]):
        return
    for axis, title in ((-1, "column"), (-2, "row"), (0, "sample")):
        likely = f"the bias is indexed by {title}, not by channel"
        added = partial(_add_along_axis, bias=values[name], axis=axis)
        yield Mistake(likely=likely, node=without_inputs(node, slot), values={}, after=added)


def _add_along_axis(result: np.ndarray, *, bias: np.ndarray, axis: int) -> np.ndarray:
    """Add a bias along an axis of a result, cut off or repeated to the length of the axis."""
    if result.ndim < -axis:
        return result
    shape = [1] * result.ndim
    shape[axis] = result.shape[axis]
    return np.asarray(result + np.resize(bias, result.shape[axis]).reshape(shape), result.dtype)


def _misapplied_factors(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the smaller operand of a product or sum is omitted or applied twice."""
    row = operators.of(node.op)
    names = [name for name in node.inputs if name]
    if len(names) != 2 or not row.rounds_by_element or not (row.adds or row.neutral == 1):
        return
    for small, large in (names, names[::-1]):
        if values[small].size >= values[large].size or values[small].dtype.kind != "f":
            continue
        title = "term" if row.adds else "factor"
        neutral, doubled = (0.0, values[small] * 2) if row.adds else (1.0, values[small] ** 2)
        yield Mistake(
            likely=f"the {title} {small!r} is left out",
            node=node,
            values={small: np.full_like(values[small], neutral)},
        )
        yield Mistake(likely=f"the {title} {small!r} is applied twice", node=node, values={small: doubled})


def _wrong_broadcasts(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the smaller operand is broadcast along a wrong axis, or repeated in memory order."""
    names = [name for name in node.inputs if name]
    if len(names) != 2 or not operators.of(node.op).elementwise:
        return
    for small, large in (names, names[::-1]):
        small_values, large_values = values[small], values[large]
        if not 1 < small_values.size < large_values.size or small_values.ndim > large_values.ndim:
            continue
        repeated = np.resize(small_values.reshape(-1), large_values.shape)
        if small_values.shape != large_values.shape[large_values.ndim - small_values.ndim :]:
            likely = f"{small!r} is repeated over all elements in memory order, not broadcast"
            yield Mistake(likely=likely, node=node, values={small: repeated})
        own_axis = large_values.ndim - small_values.ndim + int(np.argmax(small_values.shape))
        for axis in (
            range(large_values.ndim)
            if max(small_values.shape) == small_values.size == large_values.shape[own_axis]
            else ()
        ):
            if axis != own_axis and large_values.shape[axis] == small_values.size:
                reshaped = small_values.reshape([-1 if at == axis else 1 for at in range(large_values.ndim)])
                likely = f"{small!r} is broadcast along axis {axis}, not {own_axis}"
                yield Mistake(likely=likely, node=node, values={small: reshaped})


def _repeated_matrices(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the matrices of an operand are repeated in memory order instead of being broadcast."""
    if operators.of(node.op).sums is not Sums.MATRIX or len(node.inputs) < 2:
        return
    for small, large in (node.inputs[:2], node.inputs[1::-1]):
        small_values, batch_shape = values[small], values[large].shape[:-2]
        count, batches = math.prod(small_values.shape[:-2]), math.prod(batch_shape)
        if small_values.ndim != len(batch_shape) + 2:
            continue
        if count == batches > 1 and small_values[0].size != values[large][0].size:
            yield _with_stride_of_other(node, small, small_values, values[large])
        if not 0 < count < batches:
            continue
        ends = np.zeros((batches, *small_values.shape[-2:]), small_values.dtype)
        ends[:count] = small_values.reshape(count, *small_values.shape[-2:])
        yield Mistake(
            likely=f"the matrices of {small!r} are read one after another, not broadcast, and are 0 beyond its end",
            node=node,
            values={small: ends.reshape(*batch_shape, *small_values.shape[-2:])},
        )
        if count == 1:
            continue
        repeated = np.resize(small_values, (math.prod(batch_shape), *small_values.shape[-2:])).reshape(
            *batch_shape, *small_values.shape[-2:]
        )
        yield Mistake(
            likely=f"the matrices of {small!r} are repeated in memory order, not broadcast along their axes",
            node=node,
            values={small: repeated},
        )


def _with_stride_of_other(node: Node, name: str, array: np.ndarray, other: np.ndarray) -> Mistake:
    """Return the mistake of reading the samples of an operand as far apart as those of the other operand."""
    step, size = other[0].size, array[0].size
    memory = np.append(array.reshape(-1), np.zeros(len(array) * max(step - size, 0) + size, array.dtype))
    read = np.stack([memory[at * step : at * step + size] for at in range(len(array))]).reshape(array.shape)
    likely = f"the samples of {name!r} are read {step} elements apart, as those of the other operand, not {size}"
    return Mistake(likely=likely, node=node, values={name: read})


def _vectors_for_elements(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of multiplying a vector of the second matrix by as many elements of the first, not by one."""
    if operators.of(node.op).sums is not Sums.MATRIX or len(node.inputs) != 2 or node.inputs[0] == node.inputs[1]:
        return
    first, second = (values[name] for name in node.inputs)
    if first.ndim != 2 or second.ndim != 2 or any(node.attrs.get(name) for name in ("transA", "transB")):
        return
    for lanes in (each for each in _LANES if each <= second.shape[1]):
        whole = second.shape[1] - second.shape[1] % lanes
        memory = np.append(first.reshape(-1), np.zeros(lanes, first.dtype))
        result = first @ second
        for lane in range(lanes):
            shifted = memory[lane : lane + first.size].reshape(first.shape)
            result[:, lane:whole:lanes] = shifted @ second[:, lane:whole:lanes]
        likely = f"{lanes} elements of {node.inputs[0]!r} are loaded as a vector, where one is to be broadcast"
        yield Mistake(likely=likely, node=node, values={}, after=always(result))


_LANES = (4, 8, 16)
_IGNORABLE_ATTRIBUTES = (
    "alpha", "beta", "gamma", "epsilon", "exclude_outside", "scale", "bias", "lambd", "clip", "softcap",
    "cubic_coeff_a", "extrapolation_value", "size", "k", "offset", "p", "layout",
)  # fmt: skip
"""Attributes that kernels are known to ignore. Flags are missing here, because `layer_mistakes` inverts them."""


def _wrong_attributes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    for name in _IGNORABLE_ATTRIBUTES:
        if name in node.attrs and node.attrs[name] not in (0, 0.0):
            other_attrs = {key: value for key, value in node.attrs.items() if key != name}
            yield Mistake(likely=f"{name} is ignored", node=replace(node, attrs=other_attrs), values={}, about=name)
    if node.attrs.get("epsilon"):
        without_epsilon = replace(node, attrs={**node.attrs, "epsilon": 0.0})
        yield Mistake(likely="it uses epsilon = 0", node=without_epsilon, values={}, about="epsilon")
        for default in _EPSILONS:
            if default != node.attrs["epsilon"]:
                other_epsilon = replace(node, attrs={**node.attrs, "epsilon": default})
                yield Mistake(likely=f"it uses epsilon = {default:g}", node=other_epsilon, values={}, about="epsilon")
    for name, stated in node.attrs.items():
        if isinstance(stated, float) and stated:
            doubled = replace(node, attrs={**node.attrs, name: 2 * stated})
            yield Mistake(likely=f"{name} counts twice, as {2 * stated:g}", node=doubled, values={}, about=name)
    yield from _wrong_divisors(node, values)
    yield from _reduced_other_axes(node, values)
    axis, data = node.attrs.get("axis"), values.get(node.inputs[0]) if node.inputs else None
    if isinstance(axis, int) and data is not None:
        for other_axis in range(data.ndim):
            if other_axis != axis % data.ndim:
                likely = f"it works along axis {other_axis}, not {axis}"
                yield Mistake(likely=likely, node=replace(node, attrs={**node.attrs, "axis": other_axis}), values={})


def _reduced_other_axes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a reduction or a cumulative sum works along other axes."""
    row = operators.of(node.op)
    if not (row.reduces or row.accumulates) or not node.inputs or node.inputs[0] not in values:
        return
    data, name = values[node.inputs[0]], node.inputs[1] if len(node.inputs) > 1 else ""
    axes = _int_tuple(node.attrs.get("axes")) or (tuple(values[name].reshape(-1).tolist()) if name in values else ())
    own_axes = tuple(sorted(axis % data.ndim for axis in axes)) if data.ndim else ()
    noun = "axis" if len(axes) == 1 else "axes"
    for other_axes in combinations(range(data.ndim), len(axes)) if axes else ():
        if other_axes == own_axes:
            continue
        likely = f"it works along {noun} {_axes_text(other_axes)}, not {_axes_text(axes)}"
        if name in values:
            yield Mistake(likely=likely, node=node, values={name: np.array(other_axes, values[name].dtype)})
        else:
            yield Mistake(likely=likely, node=replace(node, attrs={**node.attrs, "axes": other_axes}), values={})


def _axes_text(axes: Sequence[int]) -> str:
    return ", ".join(map(str, axes))


_EPSILONS = (1e-3, 1e-5, 1e-6, 1e-12)
"""Default epsilons of frameworks."""
_ONE_AXIS_OPSET = 13
"""Operator set version from which Softmax and similar operators work along one axis, not along all axes from it on."""


def _other_operator_sets(node: Node) -> Iterator[Mistake]:
    """Yield the mistake of computing a Softmax or similar operator as an older or newer operator set defines it."""
    if not operators.of(node.op).hides_small_values:
        return
    axis = node.attrs.get("axis")
    single_axis_text = "its last axis" if axis is None else f"axis {axis}"
    all_axes_text = "all axes from 1 on" if axis is None else f"all axes from {axis} on"
    for version, likely in (
        (_ONE_AXIS_OPSET, f"it works along {single_axis_text} only, as defined from operator set {_ONE_AXIS_OPSET} on"),
        (_ONE_AXIS_OPSET - 2, f"it works along {all_axes_text}, as defined before operator set {_ONE_AXIS_OPSET}"),
    ):
        yield Mistake(likely=likely, node=node, values={}, opset={"": version})


def _wrong_divisors(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the divisor of an average pool counts padding, or taps beyond the padding."""
    if operators.plain(node).unit != "average_pool":
        return
    counted = {**node.attrs, "count_include_pad": 1}
    if not node.attrs.get("count_include_pad"):
        likely = "the padding is counted, though count_include_pad is 0"
        yield Mistake(likely=likely, node=replace(node, attrs=counted), values={})
    kernel, data = _int_tuple(node.attrs.get("kernel_shape")), values.get(node.inputs[0]) if node.inputs else None
    if data is None or not kernel or not node.attrs.get("ceil_mode") or data.ndim != len(kernel) + 2:
        return
    zeros, ones = (0,) * len(kernel), (1,) * len(kernel)
    pads = _int_tuple(node.attrs.get("pads")) or zeros * 2
    strides, dilations = (_int_tuple(node.attrs.get(name)) or ones for name in ("strides", "dilations"))
    begins, ends = pads[: len(kernel)], pads[len(kernel) :]
    sizes = [size + begin + end for size, begin, end in zip(data.shape[2:], begins, ends, strict=True)]
    spans = [(taps - 1) * step + 1 for taps, step in zip(kernel, dilations, strict=True)]
    overhang = [-(size - span) % stride for size, span, stride in zip(sizes, spans, strides, strict=True)]
    if any(overhang):
        extended_pads = (*begins, *(end + more for end, more in zip(ends, overhang, strict=True)))
        full_windows = replace(node, attrs={**counted, "ceil_mode": 0, "pads": extended_pads})
        yield Mistake(
            likely="the last windows are divided by all taps, although some taps lie beyond the padding",
            node=full_windows,
            values={},
        )


def _default_gate_parameters(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of computing the gate of an operator, as in HardSwish, with the gate operator's defaults."""
    gate = operators.of(node.op).gate
    data = values.get(node.inputs[0]) if node.inputs else None
    if gate is not None and gate.attrs and data is not None:
        own_parameters = ", ".join(f"{name} {value:.4g}" for name, value in gate.attrs.items())
        likely = f"its {gate.op} has the default parameters of that operator, not {own_parameters}"
        usual = replace(node, op=gate.op, attrs={})
        yield Mistake(likely=likely, node=usual, values={}, after=lambda result: np.asarray(result * data))


def _int_tuple(value: object) -> tuple[int, ...]:
    """Return the integers of an attribute, or an empty tuple if there are none."""
    return tuple(each for each in value if isinstance(each, int)) if isinstance(value, tuple) else ()


def _wrong_dilations(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which dilations are ignored or confused."""
    weight = values.get(node.inputs[1]) if len(node.inputs) > 1 else None
    kernel = _int_tuple(node.attrs.get("kernel_shape")) if weight is None else weight.shape[2:]
    if kernel and operators.plain(node).windowed:
        for likely, attrs in other_dilations(node.attrs, kernel):
            yield Mistake(likely=likely, node=replace(node, attrs=attrs), values={})


def other_dilations(
    attrs: Mapping[str, AttrValue], kernel: Sequence[int]
) -> Iterator[tuple[str, dict[str, AttrValue]]]:
    """Yield each mistake in the dilations of a window, in words, with the attributes that have its effect.

    The padding is adjusted to the changed span of a window, so that the result keeps its shape: either half of the
    difference on each side, or all of it at the end.

    Args:
        attrs: The attributes of the convolution or pool.
        kernel: Shape of its windows.
    """
    dilations, pads = _int_tuple(attrs.get("dilations")), _int_tuple(attrs.get("pads")) or (0,) * (2 * len(kernel))
    if not any(each != 1 for each in dilations) or len(dilations) != len(kernel) or len(pads) != 2 * len(kernel):
        return
    mistake_of = {  # later entries replace equal earlier ones
        tuple(each + (each > 1) for each in dilations): "the dilation is 1 too large",
        tuple(each - (each > 1) for each in dilations): "the dilation is 1 too small",
        tuple(each * each for each in dilations): "the dilation is applied twice",
        (dilations[-1],) * len(dilations): "the last dilation is used for all axes",
        (dilations[0],) * len(dilations): "the first dilation is used for all axes",
        dilations[::-1]: "the dilations of rows and columns are swapped",
        (1,) * len(dilations): "the dilation is ignored",
    }
    other_attrs = {key: value for key, value in attrs.items() if key not in ("dilations", "pads")}
    for mistaken, likely in mistake_of.items():
        spans = [(size - 1) * (new - old) for size, new, old in zip(kernel, mistaken, dilations, strict=True)]
        halves = [span // 2 for span in spans]
        ends = [span - half for span, half in zip(spans, halves, strict=True)]
        for padding in ([*halves, *ends], [*[0] * len(spans), *spans]) if mistaken != dilations else ():
            around = tuple(pad + span for pad, span in zip(pads, padding, strict=True))
            if min(around) >= 0:
                yield likely, {**other_attrs, "dilations": mistaken, "pads": around}


def _column_major_operands(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which an operand of a matrix product is read in column-major order."""
    if operators.of(node.op).sums is not Sums.MATRIX:
        return
    for name in dict.fromkeys(filter(None, node.inputs[:2])):
        array = values[name]
        if array.ndim < 2 or 1 in array.shape[-2:]:
            continue
        turned = array.reshape(*array.shape[:-2], array.shape[-1], array.shape[-2]).swapaxes(-1, -2)
        yield Mistake(likely=f"{name!r} is read in column-major order", node=node, values={name: turned}, about=name)


def _shifted_padding(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    del values
    pads = node.attrs.get("pads")
    if not isinstance(pads, tuple) or not operators.plain(node).ordered or not any(map(bool, pads)):
        return
    sizes = [int(pad) for pad in pads if isinstance(pad, int)]
    half = len(sizes) // 2
    if 2 * half != len(sizes):
        return
    sums = [begin + end for begin, end in zip(sizes[:half], sizes[half:], strict=True)]
    single = ([*sizes[:at], moved, *sizes[at + 1 : half]] for at in range(half) for moved in (0, sums[at]))
    one_off = ([*sizes[:at], sizes[at] + step, *sizes[at + 1 : half]] for at in range(half) for step in (1, -1))
    balanced = [total // 2 for total in sums], [total - total // 2 for total in sums]
    for begins in (
        [0] * half,
        sums,
        sizes[half:],
        sizes[:half][::-1],
        *balanced,
        *(single if half > 1 else ()),
        *one_off,
    ):
        if any(begin < 0 for begin in begins):
            continue
        shifted = (*begins, *(total - begin for total, begin in zip(sums, begins, strict=True)))
        if shifted != tuple(sizes):
            likely = f"the padding is {list(shifted)}, not {sizes}"
            yield Mistake(likely=likely, node=replace(node, attrs={**node.attrs, "pads": shifted}), values={})


def _missing_activations(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of leaving out an activation, or of applying a Relu that is not there."""
    row = operators.of(node.op)
    data = values.get(node.inputs[0]) if node.inputs else None
    if row.activation and data is not None and len(list(filter(None, node.inputs))) == 1:
        yield Mistake(
            likely=f"the {node.op} is missing",
            node=node,
            values={},
            after=lambda result: data if data.shape == result.shape else result,
        )
    fused = str(node.attrs.get("activation", ""))
    if fused:
        other_attrs = {key: value for key, value in node.attrs.items() if not key.startswith("activation")}
        yield Mistake(likely=f"the fused {fused} is missing", node=replace(node, attrs=other_attrs), values={})
    if not row.activation and not fused and (row.product or row.adds):
        yield Mistake(likely="a Relu is applied to its result", node=node, values={}, after=_relu)


def _relu(values: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(values, 0))


def _rounded_inputs(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which inputs, or the results of a dequantization, are rounded to a short float format.

    Products are left out, because `float_band` tries rounded factors.
    """
    row = operators.of(node.op)
    if row.product:
        return
    for short in SHORT_FORMATS if row.dequantizes else ():
        likely = f"its results are rounded to {short.name}"
        yield Mistake(likely=likely, node=node, values={}, after=short.rounded, about="results", is_rounding=True)
    float_values = {name: array for name, array in values.items() if array.dtype == np.float32}
    for short in SHORT_FORMATS:
        if short.bits < 8:
            continue
        likely = f"its inputs are rounded to {short.name} first"
        rounded = {name: short.rounded(array) for name, array in float_values.items()}
        yield Mistake(likely=likely, node=node, values=rounded, is_rounding=True)


def _factors_in_blocks(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield matrix products of factors in block floating point.

    Along each sum, blocks of 8-bit numbers share an exponent.
    """
    if operators.of(node.op).sums is not Sums.MATRIX or len(node.inputs) < 2:
        return
    first, second = node.inputs[:2]
    axes = {first: 0 if node.attrs.get("transA") else -1, second: -1 if node.attrs.get("transB") else -2}
    if first == second or any(values[name].ndim < 2 or values[name].dtype.kind != "f" for name in axes):
        return
    for block in _SHARED_EXPONENT_BLOCKS:
        for rounding, words in ((np.floor, "rounded down"), (np.rint, "rounded to nearest")):
            yield Mistake(
                likely=f"every {block} terms of a factor share an exponent and have 8 bits each, {words}",
                node=node,
                values={
                    name: _to_block_floating_point(values[name], axis, block, rounding) for name, axis in axes.items()
                },
                about="shared exponents",
            )


_SHARED_EXPONENT_BLOCKS = (8, 16, 32)
"""Sizes of blocks with a shared exponent: 8 in BFP16 of AMD's AI engines, 16 in MSFP, 32 in MX."""


def _to_block_floating_point(
    array: np.ndarray, axis: int, block: int, rounding: Callable[[np.ndarray], np.ndarray]
) -> np.ndarray:
    """Round values to signed 8-bit multiples of a power of two, one power for each block along an axis."""
    rows = np.moveaxis(array.astype(np.float64), axis, -1)
    extent = rows.shape[-1]
    padded = np.pad(rows, [(0, 0)] * (rows.ndim - 1) + [(0, -extent % block)])
    blocks = padded.reshape(*padded.shape[:-1], -1, block)
    unit = np.ldexp(1.0, np.frexp(np.abs(blocks).max(-1, keepdims=True))[1] - 7)
    rounded = (np.clip(rounding(blocks / unit), -128, 127) * unit).reshape(padded.shape)[..., :extent]
    return np.ascontiguousarray(np.moveaxis(rounded, -1, axis)).astype(array.dtype)


def _incomplete_sums(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a matrix product omits the last terms of each sum, such as the remainder of a tile."""
    if operators.of(node.op).sums is not Sums.MATRIX or len(node.inputs) < 2 or not node.inputs[1]:
        return
    name = node.inputs[1]
    weight = values[name]
    if weight.ndim < 2 or weight.dtype.kind != "f":
        return
    axis = -1 if node.attrs.get("transB") else -2
    terms = weight.shape[axis]
    ends = {terms - terms % tile for tile in _TILES} | {terms // part for part in _FRACTIONS if terms % part == 0}
    for end in sorted(ends - {0, terms}, reverse=True):
        cut = weight.copy()
        np.moveaxis(cut, axis, 0)[end:] = 0
        likely = f"the last {terms - end} of the {terms} products of each sum are left out"
        yield Mistake(likely=likely, node=node, values={name: cut})


_TILES = (4, 8, 16, 32, 64, 128)
"""Number of terms that kernels sum at a time."""
_FRACTIONS = (2, 4, 8)


def _late_writes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which the rows or columns of a product are written one late, or rows are stored padded."""
    del values
    for axis, title in ((-2, "row"), (-1, "column")) if operators.of(node.op).product else ():
        part = (Ellipsis, slice(1, None), *[slice(None)] * (-axis - 1))
        late = partial(np.roll, shift=1, axis=axis)
        yield Mistake(
            likely=f"each {title} is written one {title} late", node=node, values={}, after=late, determined=part
        )
    for tile in _TILES if operators.of(node.op).product else ():
        likely = f"the rows of the result are padded to a multiple of {tile} elements, and read without these gaps"
        yield Mistake(likely=likely, node=node, values={}, after=partial(_with_padded_rows, tile=tile))


def _with_padded_rows(result: np.ndarray, tile: int) -> np.ndarray:
    """Return the memory of a result with rows padded to a multiple of a tile, read as if there were no padding.

    The result is returned unchanged if half the tile needs the same padding, because that case is tried as well.
    """
    gap = -result.shape[-1] % tile if result.ndim > 1 else 0
    if not gap or gap == -result.shape[-1] % (tile // 2):
        return result
    padded = np.pad(result, [(0, 0)] * (result.ndim - 1) + [(0, gap)])
    return padded.reshape(-1)[: result.size].reshape(result.shape)
