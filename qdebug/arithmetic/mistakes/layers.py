"""Known kernel mistakes in layers of single operators: activations, reductions, movements, casts. See `layer_mistakes`.

They are based on public bug reports, like those in `qdebug.arithmetic.mistakes.known`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import combinations
from math import prod
from types import MappingProxyType
from typing import Any

import numpy as np

from qdebug.arithmetic.mistakes.attributes import wrong_choices
from qdebug.arithmetic.mistakes.indices import index_mistakes
from qdebug.arithmetic.mistakes.mistake import Mistake, always, applicable
from qdebug.arithmetic.mistakes.recurrent import recurrent_mistakes
from qdebug.arithmetic.mistakes.resizing import index_attributes, resizing_mistakes
from qdebug.arithmetic.mistakes.softmax import INFINITE_MASK
from qdebug.arithmetic.mistakes.windows import window_mistakes
from qdebug.model import AttrValue, Node, operators
from qdebug.model.operators import Move
from qdebug.model.thresholds.patterns import KERNEL_BLOCKS
from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.replay.registry import has_kernel, run_node

__all__ = ["layer_mistakes", "scale_and_bias_slots"]


def layer_mistakes(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield the mistakes that a kernel could make in computing a node.

    Args:
        node: The node's real form.
        values: Its inputs.
        opset: Version of each operator set of its graph.
    """
    families = (
        wrong_choices(node, values, opset, excluded=index_attributes(node, values, opset)),
        _ignored_inputs(node, values),
        recurrent_mistakes(node, values, opset),
        _wrong_dynamic_ranges(node, values, opset),
        index_mistakes(node, values),
        resizing_mistakes(node, values, opset),
        _wrong_arrangements(node, values),
        _reordered_lists(node, values),
        _ignored_bounds(node, values),
        _wrong_functions(node),
        _saturating_integers(node, values),
        _clipped_infinities(node, values),
        _restarting_sums(node, values, opset),
        _activations_of_wrong_sign(node, values),
        window_mistakes(node, values, opset),
        _wrong_tie_rules(node, values),
        _wrong_einsum_labels(node, values),
        _signed_shifts(node, values),
        _selections_by_unsigned_order(node, values),
        _wrong_starts(node, values),
        _wrong_constants_of_gelu(node, values),
        _linear_for_negative_numbers(node, values),
        _padding_of_flattened_axes(node, values),
    )
    for family in families:
        yield from applicable(family)


def _selections_by_unsigned_order(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of comparing signed integers as unsigned ones in a selection such as a maximum."""
    name = node.inputs[0] if node.inputs else ""
    if operators.of(node.op).selects and name in values and values[name].dtype.kind == "i":
        signed = values[name].dtype
        unsigned = values[name].view(f"u{signed.itemsize}")
        likely = f"{name!r} is compared as {unsigned.dtype.name}"
        yield Mistake(likely=likely, node=node, values={name: unsigned}, after=partial(_as_signed, dtype=signed))


def _as_signed(result: np.ndarray, *, dtype: np.dtype) -> np.ndarray:
    return result.view(dtype) if result.dtype.kind == "u" and result.dtype.itemsize == dtype.itemsize else result


def _signed_shifts(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of an arithmetic right shift, which repeats the highest bit, instead of a logical one."""
    if node.op != "BitShift" or node.attrs.get("direction") != "RIGHT" or not all(node.inputs[:2]):
        return
    data, shift_counts = (values[name] for name in node.inputs[:2])
    signed = data.view(f"i{data.dtype.itemsize}")
    result = np.right_shift(signed, shift_counts.astype(signed.dtype)).view(data.dtype)
    likely = "the highest bit is repeated, as in a shift of signed integers"
    yield Mistake(likely=likely, node=node, values={}, after=always(result))


def _wrong_einsum_labels(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield an Einsum with one label of its result replaced, or two labels of an operand swapped.

    Only labels of equal extent are exchanged.
    """
    equation = str(node.attrs.get("equation", "")).replace(" ", "")
    operands, arrow, result = equation.partition("->")
    if not arrow or "." in equation or not node.inputs:
        return
    terms = operands.split(",")
    extents = {
        label: extent
        for term, name in zip(terms, node.inputs, strict=False)
        for label, extent in zip(term, values[name].shape, strict=False)
    }
    others: dict[str, None] = {}
    for at, label in enumerate(result):
        for other in (each for each in extents if each not in result and extents[each] == extents[label]):
            others[f"{operands}->{result[:at]}{other}{result[at + 1 :]}"] = None
    for number, term in enumerate(terms):
        for first, second in combinations(range(len(term)), 2):
            if term[first] != term[second] and extents[term[first]] == extents[term[second]]:
                labels = list(term)
                labels[first], labels[second] = labels[second], labels[first]
                others[f"{','.join([*terms[:number], ''.join(labels), *terms[number + 1 :]])}->{result}"] = None
    for other in others:
        if other != equation:
            likely = f"it computes {other!r}, not {equation!r}, so a different axis is summed or kept"
            yield Mistake(likely=likely, node=replace(node, attrs={**node.attrs, "equation": other}), values={})


def _wrong_tie_rules(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which Round resolves ties in another direction than to even."""
    if node.op != "Round" or not node.inputs:
        return
    data = values[node.inputs[0]]
    for direction, rounded in (
        ("up", np.floor(data + data.dtype.type(0.5))),
        ("down", np.ceil(data - data.dtype.type(0.5))),
        ("away from 0", np.copysign(np.floor(np.abs(data) + data.dtype.type(0.5)), data)),
        ("toward 0", np.copysign(np.ceil(np.abs(data) - data.dtype.type(0.5)), data)),
    ):
        likely = f"halves are rounded {direction}, not to even"
        yield Mistake(likely=likely, node=node, values={}, after=always(rounded), about=_WHOLE_NUMBERS)


_WHOLE_NUMBERS = "whole numbers"


def _restarting_sums(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield mistakes in which a cumulative sum restarts at each block of a kernel, or carries only one block on."""
    if not operators.of(node.op).accumulates or len(node.inputs) < 2 or values[node.inputs[1]].size != 1:
        return
    name, data = node.inputs[0], values[node.inputs[0]]
    axis = int(values[node.inputs[1]].reshape(-1)[0])
    if not -data.ndim <= axis < data.ndim:
        return
    for block in (each for each in KERNEL_BLOCKS if each < data.shape[axis]):
        parts = np.split(data, range(block, data.shape[axis], block), axis)
        sums = [run_node(node, {**values, name: part}, opset)[node.outputs[0]] for part in parts]
        likely = f"its sums restart every {block} elements"
        yield Mistake(likely=likely, node=node, values={}, after=always(np.concatenate(sums, axis)))
        order = slice(None, None, -1) if node.attrs.get("reverse") else slice(None)
        totals = [part.sum(axis, keepdims=True, dtype=data.dtype) for part in parts][order]
        carried = [sums[order][0], *(each + total for each, total in zip(sums[order][1:], totals, strict=False))]
        likely = f"its sums carry only the total of the previous {block} elements, not that of all before"
        yield Mistake(likely=likely, node=node, values={}, after=always(np.concatenate(carried[order], axis)))


def _activations_of_wrong_sign(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield the mistake of exchanging positive and negative numbers in an activation."""
    name = node.inputs[0] if node.inputs else ""
    if operators.of(node.op).activation and name in values and values[name].dtype.kind == "f":
        likely = "positive and negative numbers are swapped"
        yield Mistake(likely=likely, node=node, values={name: -values[name]}, after=np.negative)


def _clipped_infinities(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which infinite inputs are converted to the largest number of a short format."""
    infinite = {name: array for name, array in values.items() if array.dtype.kind == "f" and np.isinf(array).any()}
    for short_format in SHORT_FORMATS[:-1] if infinite else ():  # TF32 has the range of bfloat16
        clipped = {
            name: np.clip(array, -short_format.largest, short_format.largest).astype(array.dtype)
            for name, array in infinite.items()
        }
        names_text = " and ".join(map(repr, infinite))
        likely = (
            f"infinite values in {names_text} become {short_format.largest:g}, the largest {short_format.name} value"
        )
        yield Mistake(likely=likely, node=node, values=clipped, about=INFINITE_MASK, kind=INFINITE_MASK)


def _wrong_functions(node: Node) -> Iterator[Mistake]:
    """Yield mistakes in which another function is computed in place of an activation."""
    functions = operators.confusable_functions(node.op)
    if operators.of(node.op).unit == "lookup":
        functions |= operators.names_where(lambda row: row.unit == "lookup" and row.name != node.op)
    for function in sorted(functions):
        domain = "" if has_kernel(function) else _MICROSOFT_DOMAIN
        yield Mistake(
            likely=f"it computes {function}, not {node.op}",
            node=replace(node, op=function, domain=domain, attrs={}, inputs=node.inputs[:1]),
            values={},
            about=_WHOLE_NUMBERS if node.op == "Round" else "",
        )
    gate = operators.of(node.op).gate
    is_function = len(node.inputs) == 1 and (functions or gate is not None or node.op == "Gelu")
    for title, op, domain, attrs in _FUNCTIONS_WITH_ATTRIBUTES if is_function else ():
        if node.op != op:  # `wrong_choices` tries other attributes of the same operator
            function_node = replace(node, op=op, domain=domain, attrs=attrs)
            yield Mistake(likely=f"it computes {title}, not {node.op}", node=function_node, values={})
    if gate is not None and gate.attrs:
        likely = f"it computes only its {gate.op}, without the factor {node.inputs[0]!r}"
        yield Mistake(likely=likely, node=replace(node, op=gate.op, attrs=gate.attrs), values={})


def _linear_for_negative_numbers(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield an Elu or Selu whose exponential is missing, so that it is a LeakyRelu with the same factors."""
    data = values.get(node.inputs[0]) if node.op in ("Elu", "Selu") and node.inputs else None
    if data is None or data.dtype.kind != "f":
        return
    defaults = {"alpha": 1.0, "gamma": 1.0} if node.op == "Elu" else {"alpha": 1.67326319, "gamma": 1.05070102}
    alpha, gamma = (float(str(node.attrs.get(name, default))) for name, default in defaults.items())
    result = gamma * np.where(data > 0, data, alpha * data)
    likely = "negative numbers are multiplied by alpha, without the exponential, as in LeakyRelu"
    yield Mistake(likely=likely, node=node, values={}, after=always(result.astype(data.dtype)))


def _wrong_constants_of_gelu(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield a Gelu with wrong constants: exchanged, left out, or without the root of 2."""
    data = values.get(node.inputs[0]) if node.op == "Gelu" and node.inputs else None
    if data is None or data.dtype.kind != "f":
        return
    x = data.astype(np.float64)
    root, cubic = np.sqrt(2 / np.pi), 0.044715  # Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016
    inner = {
        "the two constants of its tanh form are swapped": cubic * (x + root * x**3),
        "the cubic term of its tanh form is left out": root * x,
        "the factor sqrt(2 / pi) of its tanh form is left out": x + cubic * x**3,
        "the cubic term of its tanh form is not scaled by sqrt(2 / pi)": root * x + cubic * x**3,
    }
    results = {likely: 0.5 * x * (1 + np.tanh(values)) for likely, values in inner.items()}
    erf = run_node(replace(node, op="Erf", attrs={}), {node.inputs[0]: x})[node.outputs[0]]
    results["its input is not divided by sqrt(2) before the error function"] = 0.5 * x * (1 + erf)
    for likely, result in results.items():
        yield Mistake(likely=likely, node=node, values={}, after=always(result.astype(data.dtype)))


_MICROSOFT_DOMAIN = "com.microsoft"
"""Operator domain of the functions that ONNX does not define."""
_FUNCTIONS_WITH_ATTRIBUTES: tuple[tuple[str, str, str, Mapping[str, AttrValue]], ...] = (
    ("the tanh form of Gelu", "Gelu", "", MappingProxyType({"approximate": "tanh"})),
    ("Gelu", "Gelu", "", MappingProxyType({"approximate": "none"})),
    ("Silu", "QuickGelu", _MICROSOFT_DOMAIN, MappingProxyType({"alpha": 1.0})),
    ("QuickGelu", "QuickGelu", _MICROSOFT_DOMAIN, MappingProxyType({"alpha": 1.702})),
)
"""Functions of language models: title, operator, domain and attributes."""


def _saturating_integers(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes of integer arithmetic: sums and products that saturate, and quotients with another rounding."""
    row = operators.of(node.op)
    names = [name for name in node.inputs if name]
    if row.divisor == 1 and len(names) == 2:
        yield from _mistaken_quotients(node, *(values[name] for name in names))
    if not row.elementwise or len(names) != 2 or not (row.adds or row.neutral == 1) or row.divisor is not None:
        return
    dtype = values[names[0]].dtype
    if dtype.kind not in "iu" or dtype.itemsize > 4 or values[names[1]].dtype != dtype:
        return
    widened = replace(node), {name: values[name].astype(np.int64) for name in names}
    ends = np.iinfo(dtype)
    yield Mistake(
        likely=f"results beyond {dtype.name} saturate instead of wrapping around",
        node=widened[0],
        values=widened[1],
        after=lambda result: np.clip(result, ends.min, ends.max).astype(dtype),
    )


def _mistaken_quotients(node: Node, dividend: np.ndarray, divisor: np.ndarray) -> Iterator[Mistake]:
    """Yield integer quotients with another rounding: some languages truncate quotients, others round them down."""
    if dividend.dtype.kind not in "iu" or divisor.dtype.kind not in "iu":
        return
    with np.errstate(all="ignore"):
        exact = dividend / divisor
    for rounding_text, rounded in (
        ("rounded down", np.floor),
        ("truncated toward 0", np.trunc),
        ("rounded to the nearest integer", np.rint),
        ("rounded up", np.ceil),
    ):
        quotients = np.nan_to_num(rounded(exact)).astype(dividend.dtype)
        yield Mistake(
            likely=f"its quotients are {rounding_text}",
            node=node,
            values={},
            after=always(quotients),
        )


_INPUT_TITLES = MappingProxyType(
    {
        "recurrent": {
            3: "the bias",
            4: "the list of sequence lengths",
            5: "the initial state",
            6: "the initial cell state",
            7: "the peepholes",
        },
        "scaled": {1: "the scale", 2: "the bias"},
    }
)


def _kind_of_layer(node: Node) -> str:
    row = operators.plain(node)
    return "recurrent" if row.recurrent else "scaled" if scale_and_bias_slots(node) else ""


def _ignored_inputs(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which an optional input is ignored, or a scale lacks or wrongly gets an offset of 1."""
    for slot, title in _INPUT_TITLES.get(_kind_of_layer(node), {}).items():
        name = node.inputs[slot] if slot < len(node.inputs) else ""
        if not name or name not in values:
            continue
        if _kind_of_layer(node) == "recurrent":
            remaining_inputs = tuple("" if at == slot else each for at, each in enumerate(node.inputs))
            yield Mistake(likely=f"{title} is ignored", node=replace(node, inputs=remaining_inputs), values={})
            continue
        neutral = np.full_like(values[name], 1 if slot == 1 else 0)
        yield Mistake(likely=f"{title} is ignored", node=node, values={name: neutral})
        if slot == 1:
            unit_offset = values[name].dtype.type(1)
            yield Mistake(likely="1 is added to the scale", node=node, values={name: values[name] + unit_offset})
            yield Mistake(likely="1 is not added to the scale", node=node, values={name: values[name] - unit_offset})


def scale_and_bias_slots(node: Node) -> tuple[int, ...] | None:
    """Return the input slots of scale and bias in a node that normalizes by its data's statistics, or None."""
    ops = ("LayerNormalization", "InstanceNormalization", "GroupNormalization", "RMSNormalization")
    return (1, 2) if operators.plain(node).name in ops else None


def _wrong_dynamic_ranges(node: Node, values: Mapping[str, np.ndarray], opset: Mapping[str, int]) -> Iterator[Mistake]:
    """Yield dynamic quantizations with a wrong range: symmetric, without 0, or that of only a part of the data.

    The last happens if one of several thread groups determines the range.
    """
    if node.op != "DynamicQuantizeLinear" or not values[node.inputs[0]].size:
        return
    name, data = node.inputs[0], values[node.inputs[0]]
    scaled = replace(node, op="QuantizeLinear", inputs=(name, *node.outputs[1:3]), outputs=node.outputs[:1])

    def with_range(
        likely: str, step: float, zero: int, moved: Mapping[str, np.ndarray] = MappingProxyType({})
    ) -> Mistake:
        numbers: dict[str, np.ndarray] = {node.outputs[1]: np.array(step, np.float32)}
        numbers[node.outputs[2]] = np.array(zero, np.uint8)
        return Mistake(likely=likely, node=scaled, values={**numbers, **moved})

    low, high = float(data.min()), float(data.max())
    largest = max(-low, high)
    if largest:
        half = np.iinfo(np.uint8).max // 2 + 1
        for steps in (half - 1, half - 0.5):
            yield with_range("its range is symmetric around 0", largest / steps, half)
    if low > 0 or high < 0:
        step = (high - low) / np.iinfo(np.uint8).max
        for zero_text, shift in ((", which is sent to the lowest code", low), ("", 0.0)):
            zero = int(np.clip(np.rint((shift - low) / step), 0, np.iinfo(np.uint8).max))
            likely = f"its range begins at the smallest number{zero_text}, not at 0"
            yield with_range(likely, step, zero, {name: data - data.dtype.type(shift)})
    for axis, extent in enumerate(data.shape):
        ends = {extent // 2, extent // 4, extent - extent // 4, *KERNEL_BLOCKS}
        for end in sorted(end for end in ends if 0 < end < extent):
            for span, place_text in ((slice(end), f"before index {end}"), (slice(end, None), f"from index {end} on")):
                part_results = run_node(node, {name: np.moveaxis(data, axis, 0)[span]}, opset)
                yield Mistake(
                    likely=f"its scale is chosen only for the data {place_text} along axis {axis}",
                    node=scaled,
                    values={output: part_results[output] for output in node.outputs[1:3]},
                )


def _wrong_arrangements(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in the order of elements: inverse permutations, reversed concatenations, flipped filters."""
    row, perm = operators.of(node.op), node.attrs.get("perm")
    if row.moves is Move.TRANSPOSE and isinstance(perm, tuple) and all(isinstance(each, int) for each in perm):
        inverse = tuple(int(at) for at in np.argsort([int(each) for each in perm if isinstance(each, int)]))
        if inverse != perm:
            likely = f"it uses the inverse permutation {inverse}"
            yield Mistake(likely=likely, node=replace(node, attrs={**node.attrs, "perm": inverse}), values={})
        yield Mistake(
            likely="the elements are not reordered", node=node, values={}, after=partial(_reshaped_input, values, node)
        )
    if node.op == "Concat" and (len(node.inputs) > 2 or len({values[name].shape for name in node.inputs}) > 1):
        yield Mistake(
            likely="the parts are joined in reverse order", node=replace(node, inputs=node.inputs[::-1]), values={}
        )
    if node.op == "Where" and len(node.inputs) == 3:
        turned = replace(node, inputs=(node.inputs[0], node.inputs[2], node.inputs[1]))
        yield Mistake(likely="the condition is inverted", node=turned, values={})
    weight = node.inputs[1] if len(node.inputs) > 1 else ""
    if row.windowed and row.product and weight and values[weight].ndim > 2:
        filters = values[weight]
        spatial = tuple(range(2, filters.ndim))
        yield Mistake(likely="its filters are flipped", node=node, values={weight: np.flip(filters, spatial)})
        if len({*filters.shape[2:]}) == 1 and filters.ndim > 3:
            turned_filters = np.swapaxes(filters, -1, -2)
            likely = "rows and columns of its filters are swapped"
            yield Mistake(likely=likely, node=node, values={weight: turned_filters})


def _reshaped_input(values: Mapping[str, np.ndarray], node: Node, result: np.ndarray) -> np.ndarray:
    return values[node.inputs[0]].reshape(result.shape)


def _reordered_lists(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which strides or pads are read in another order, and other mistakes of Pad and Slice."""
    for name in ("strides", "pads"):
        entries = node.attrs.get(name)
        if not isinstance(entries, tuple) or not all(isinstance(each, int) for each in entries):
            continue
        for likely, reordered in _wrong_list_orders(name, entries):
            yield Mistake(likely=likely, node=replace(node, attrs={**node.attrs, name: reordered}), values={})
    pads = node.inputs[1] if node.op == "Pad" and len(node.inputs) > 1 else ""
    if pads and values[pads].ndim == 1:
        for likely, order in _wrong_list_orders("pads", tuple(range(values[pads].size))):
            reordered_pads = values[pads][[int(at) for at in order if isinstance(at, int)]]
            if not np.array_equal(reordered_pads, values[pads]):
                yield Mistake(likely=likely, node=node, values={pads: reordered_pads})
    if (
        pads
        and node.attrs.get("mode") == "reflect"
        and len(node.inputs) == _INPUTS_OF_PLAIN_PAD
        and values[pads].min() >= 0
    ):
        data, half = values[node.inputs[0]], values[pads].size // 2
        widths = list(zip(values[pads][:half].tolist(), values[pads][half:].tolist(), strict=True))
        symmetric = np.pad(data, widths, mode="symmetric") if half == data.ndim else data
        likely = "the mirrored padding repeats the outermost values as well"
        yield Mistake(likely=likely, node=node, values={}, after=always(symmetric))
    filled = node.inputs[2] if node.op == "Pad" and len(node.inputs) > 2 else ""
    if filled and np.any(values[filled]):
        likely = "the padding value is ignored"
        yield Mistake(likely=likely, node=node, values={filled: np.zeros_like(values[filled])})
    steps = node.inputs[4] if node.op == "Slice" and len(node.inputs) > 4 else ""
    if steps and np.any(values[steps] != 1) and np.any(values[steps] < 0):
        yield Mistake(
            likely="it runs forward instead of backward",
            node=node,
            values={},
            after=partial(_flipped, steps=values[steps], axes=values.get(node.inputs[3])),
        )


def _wrong_starts(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield a running maximum or minimum that starts from 0 or the smallest positive number, not the type's end."""
    op = operators.plain(node).name
    if op not in (*_MAXIMA, *_MINIMA) or not node.inputs or node.inputs[0] not in values:
        return
    dtype = values[node.inputs[0]].dtype
    starts = {"0": 0.0}
    if dtype.kind == "f" and op in _MAXIMA:
        starts[f"the smallest positive {dtype.name}"] = float(np.finfo(dtype).tiny)
    combine, title, end = (np.maximum, "maximum", "lowest") if op in _MAXIMA else (np.minimum, "minimum", "highest")
    for text, start in starts.items():
        yield Mistake(
            likely=f"its running {title} starts from {text}, not from the {end} number",
            node=node,
            values={},
            after=partial(_combine_with_start, combine=combine, start=start),
        )


def _combine_with_start(result: np.ndarray, *, combine: np.ufunc, start: float) -> np.ndarray:
    return np.asarray(combine(result, result.dtype.type(start)))


_MAXIMA = ("MaxPool", "GlobalMaxPool", "ReduceMax", "Max", "MaxRoiPool")
_MINIMA = ("ReduceMin", "Min")


def _padding_of_flattened_axes(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield padding of an outer axis that mirrors or repeats single elements of the flattened inner axes, not rows."""
    mode: Any = node.attrs.get("mode")
    if node.op != "Pad" or mode not in ("reflect", "edge") or len(node.inputs) != _INPUTS_OF_PLAIN_PAD:
        return
    data, pads = values[node.inputs[0]], values[node.inputs[1]].reshape(2, -1)
    if pads.shape[1] != data.ndim or pads.min() < 0:
        return
    result = data
    for axis in reversed(range(data.ndim)):
        inner = prod(result.shape[axis + 1 :])
        flat = result.reshape(*result.shape[:axis], -1)
        widths = [(0, 0)] * axis + [(int(pads[0, axis]) * inner, int(pads[1, axis]) * inner)]
        result = np.pad(flat, widths, mode=mode).reshape(*result.shape[:axis], -1, *result.shape[axis + 1 :])
    likely = f"outer axes are padded by single elements of the flattened inner axes ({mode}), not by whole rows"
    yield Mistake(likely=likely, node=node, values={}, after=always(result))


_INPUTS_OF_PLAIN_PAD = 2
"""Number of inputs of a Pad without a padding value and without axes."""


def _flipped(result: np.ndarray, *, steps: np.ndarray, axes: np.ndarray | None) -> np.ndarray:
    sliced_axes = range(steps.size) if axes is None else [int(axis) for axis in axes.reshape(-1)]
    backward_axes = tuple(axis for axis, step in zip(sliced_axes, steps.reshape(-1), strict=True) if step < 0)
    return np.flip(result, backward_axes)


def _wrong_list_orders(name: str, entries: tuple[AttrValue, ...]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Yield each wrong order of a list, with the mistake in words.

    Strides are reversed. Pads are read as begin and end of each axis in turn, or are given so and read in blocks.
    """
    if name == "strides":
        orders = {entries[::-1]: f"the strides are {entries[::-1]}, not {entries}"}
    else:
        half = len(entries) // 2
        pairs = tuple(entries[at // 2 + half * (at % 2)] for at in range(len(entries)))
        interleaved = tuple(entries[(at % half) * 2 + at // half] for at in range(len(entries))) if half else entries
        orders = {
            pairs: "pads is read as pairs of begin and end, axis by axis",
            interleaved: "pads is read as pairs of begin and end, axis by axis",
        }
    for order, likely in orders.items():
        if order != entries:
            yield likely, order


def _ignored_bounds(node: Node, values: Mapping[str, np.ndarray]) -> Iterator[Mistake]:
    """Yield mistakes in which a Clip lacks one of its bounds, or a sum and a mean are confused."""
    if node.op == "Clip":
        for slot, bound in ((1, "lower"), (2, "upper")):
            if slot < len(node.inputs) and node.inputs[slot]:
                remaining_inputs = tuple("" if at == slot else name for at, name in enumerate(node.inputs))
                likely = f"the {bound} bound is ignored"
                yield Mistake(likely=likely, node=replace(node, inputs=remaining_inputs), values={})
    confused_ops = {"ReduceMean": "ReduceSum", "GlobalAveragePool": "", "ReduceSum": "ReduceMean"}
    confused_op = confused_ops.get(node.op)
    if confused_op:
        likely = "it is a sum, not a mean" if node.op == "ReduceMean" else "it is a mean, not a sum"
        data = values[node.inputs[0]] if node.inputs else np.zeros(0)
        yield Mistake(
            likely=likely,
            node=node,
            values={},
            after=partial(_confuse_sum_and_mean, size=data.size, up=confused_op == "ReduceSum"),
        )


def _confuse_sum_and_mean(result: np.ndarray, *, size: int, up: bool) -> np.ndarray:
    factor = result.dtype.type(size / max(result.size, 1))
    return np.asarray(result * factor if up else result / factor)
