"""Build units from nodes: the form in which the executor computes a quantized operator.

A node is either a quantized operator (QLinearConv, QuantizeLinear, ...) with scales and zero points among its inputs,
or an ordinary operator (Conv, Add, Sigmoid, ...) on codes, as in recordings of accelerators and in fused QDQ groups.
The scales of the latter come from the quantization parameters of the tensors. Begin at `unit_of_call` and
`unit_of_codes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from qdebug.model import AttrValue, Node, QuantParams, TensorInfo, operators
from qdebug.model.dtypes import is_integer, logical_dtype, logical_name
from qdebug.model.operators import Sums
from qdebug.model.thresholds.explanation import BIAS_SCALE_MAX_REL_DIFFERENCE
from qdebug.model.thresholds.rounding import FLOAT32_STORED_REL_ERROR, LSB_SLACK
from qdebug.replay.precision import is_real, onnx_dtype, widen
from qdebug.replay.registry import Call
from qdebug.replay.scaling import reshape_to_broadcast
from qdebug.replay.unit import PAIRS, Operand, Target, Unit, target_of

__all__ = ["Coded", "unit_of_call", "unit_of_codes", "with_recorded_scale", "with_stated_bias"]


def unit_of_call(call: Call) -> Unit | None:
    """Return the unit of a call; None if its operator is not quantized.

    Raises:
        KernelError: A required operand or a scale is missing, or an attribute has a wrong type.
    """
    row = operators.of(call.op)
    if row.quantizes or row.dequantizes:
        return _read_quantize(call) if row.quantizes else _read_dequantize(call)
    if row.real is None:
        return None
    return _READERS.get(operators.of(row.real.op).unit, _read_simple)(call)


def with_recorded_scale(
    node: Node, values: Mapping[str, np.ndarray], tensors: Mapping[str, TensorInfo]
) -> tuple[Node, Mapping[str, np.ndarray]]:
    """Add the recorded scale and zero point to a QuantizeLinear or DequantizeLinear that lacks these inputs.

    A QuantizeLinear whose input already holds codes with the output's quantization becomes an Identity. A runtime
    leaves such a node when it folds the preceding dequantization into a neighbour.

    Args:
        node: Any node; returned unchanged if it reads a scale, or if its codes have none.
        values: Its inputs.
        tensors: The tensors of the graph.

    Returns:
        The completed node, and its input values.
    """
    row = operators.of(node.op)
    if not row.converts_codes or any(node.inputs[1:]):
        return node, values
    if not any(node.inputs[:1]) or not any(node.outputs[:1]):
        return node, values
    codes = tensors[node.outputs[0] if row.quantizes else node.inputs[0]]
    if codes.quant is None:
        return node, values
    input_info = tensors.get(node.inputs[0])
    if row.quantizes and row.real is not None and input_info is not None and input_info.quant == codes.quant:
        array = values.get(node.inputs[0])
        if array is not None and logical_name(array.dtype) == codes.quant.dtype:
            return replace(node, op=row.real.op, domain="", attrs={}), values
    quant, names = codes.quant, (f"scale of {codes.name!r}", f"zero point of {codes.name!r}")
    shape = () if quant.scale.size == 1 else quant.scale.shape
    scale = quant.scale.astype(np.float32).reshape(shape)
    zero_point = quant.zero_point.reshape(shape).astype(logical_dtype(quant.dtype))
    scale_attrs: dict[str, AttrValue] = {
        name: value for name, value in (("axis", quant.axis), ("block_size", quant.block_size)) if value is not None
    }
    completed = replace(node, inputs=(node.inputs[0], *names), attrs={**node.attrs, **scale_attrs})
    return completed, {**values, names[0]: scale, names[1]: zero_point}


def _reshape_by_filter(values: np.ndarray, axes: int) -> np.ndarray:
    """Reshape one value, or one value per filter, to broadcast along axis 0 of `axes` axes."""
    return values.reshape(()) if values.size == 1 else values.reshape(-1, *(1,) * (axes - 1))


def _reshape_by_row(values: np.ndarray) -> np.ndarray:
    """Reshape one value, or one value per row, to broadcast to (..., rows, columns)."""
    if values.size == 1:
        return values.reshape(())
    return values.reshape(-1, 1) if values.ndim == 1 else values


def _reshape_by_column(values: np.ndarray) -> np.ndarray:
    """Reshape one value, or one value per column, to broadcast to (..., rows, columns)."""
    return values.reshape(()) if values.size == 1 else values


def _make_target(scale: np.ndarray, zero_point: np.ndarray) -> Target:
    return Target(dtype=zero_point.dtype, scale=scale, zero_point=zero_point)


def _read_conv(call: Call) -> Unit:
    x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero = (call.array(i) for i in range(8))
    last = bool(call.integer("channels_last"))
    return Unit(
        kind="conv",
        operands=(
            Operand(
                codes=np.moveaxis(x, -1, 1) if last else x, scale=x_scale.reshape(()), zero_point=x_zero.reshape(())
            ),
            Operand(
                codes=weight,
                scale=_reshape_by_filter(w_scale, weight.ndim),
                zero_point=_reshape_by_filter(w_zero, weight.ndim),
            ),
        ),
        out=_make_target(y_scale.reshape(()), y_zero.reshape(())),
        bias=call.optional(8),
        attrs=call.attrs,
        channels_last=last,
        opset=call.opset,
        op=call.op,
    )


def _read_matmul(call: Call) -> Unit:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (call.array(i) for i in range(8))
    return Unit(
        kind="linear",
        operands=(
            Operand(codes=a, scale=_reshape_by_row(a_scale), zero_point=_reshape_by_row(a_zero)),
            Operand(codes=b, scale=_reshape_by_column(b_scale), zero_point=_reshape_by_column(b_zero)),
        ),
        out=_make_target(_reshape_by_row(y_scale), _reshape_by_row(y_zero)),
        op=call.op,
    )


def _read_gemm(call: Call) -> Unit | None:
    """Read QGemm; None without an output scale, since its output is then real."""
    a, a_scale, a_zero, b, b_scale, b_zero = (call.array(i) for i in range(6))
    y_scale, y_zero = call.optional(7), call.optional(8)
    if y_scale is None or y_zero is None:
        return None
    alpha = np.float32(call.real("alpha", 1.0))
    return Unit(
        kind="linear",
        operands=(
            Operand(
                codes=a.T if call.integer("transA") else a,
                scale=np.asarray(alpha * a_scale.reshape(()), dtype=np.float32),
                zero_point=a_zero.reshape(()),
            ),
            Operand(
                codes=b.T if call.integer("transB") else b,
                scale=_reshape_by_column(b_scale.reshape(-1)),
                zero_point=_reshape_by_column(b_zero.reshape(-1)),
            ),
        ),
        out=_make_target(y_scale.reshape(()), y_zero.reshape(())),
        bias=call.optional(6),
        op=call.op,
    )


def _read_linear(call: Call) -> Unit | None:
    return _read_matmul(call) if operators.of(call.op).bias is None else _read_gemm(call)


def _read_scalar(call: Call, position: int) -> np.ndarray:
    return call.array(position).reshape(())


def _read_operand(call: Call, position: int, codes: np.ndarray) -> Operand:
    """Read the scale and zero point that follow an operand's codes among the inputs. A missing zero point is 0."""
    return Operand(
        codes=codes, scale=_read_scalar(call, position + 1), zero_point=_read_zero_point(call, position + 2, codes)
    )


def _read_zero_point(call: Call, position: int, codes: np.ndarray) -> np.ndarray:
    zero_point_input = call.optional(position)
    return np.zeros((), codes.dtype) if zero_point_input is None else zero_point_input.reshape(())


def _read_simple(call: Call) -> Unit:
    """Read an operator that has a scale and zero point after each operand."""
    real = operators.of(call.op).real
    if real is None or real.out is None:
        raise ValueError("the operator has no scales")
    form, last = operators.of(real.op), bool(call.integer("channels_last"))
    coded = operators.coded_inputs(call.op, len(call.inputs))
    codes = [np.moveaxis(call.array(position), -1, 1) if last else call.array(position) for position in coded]
    if not codes:
        raise ValueError("the node reads no codes")
    return Unit(
        kind=form.unit,
        operands=tuple(_read_operand(call, position, array) for position, array in zip(coded, codes, strict=True)),
        out=_make_target(_read_scalar(call, real.out), _read_zero_point(call, real.out + 1, codes[0])),
        attrs=call.attrs,
        function=real.op if form.unit == "lookup" else "",
        condition=call.optional(0) if form.unit == "where" else None,
        channels_last=last,
        opset=call.integer("opset", 13 if form.hides_small_values else 1000),
        op=call.op,
    )


def _is_narrow(dtype: np.dtype) -> bool:
    return dtype.kind in "iu" and dtype.itemsize <= 2


def _read_quantize(call: Call) -> Unit | None:
    """Read QuantizeLinear to codes of at most 16 bits; None for other codes, or if the quotient is rounded twice."""
    x, scale, zero_point = call.array(0), call.array(1), call.optional(2)
    if zero_point is None:
        output_type = call.integer("output_dtype")
        zero_point = np.zeros((), onnx_dtype(output_type) if output_type else np.uint8)
    if not _is_narrow(zero_point.dtype) or call.integer("precision") or not (is_real(x.dtype) or x.dtype == np.int32):
        return None
    real = x.astype(np.float32) if x.dtype == np.int32 else widen(x)
    axis, block = call.integer("axis", 1), call.integer("block_size")
    return Unit(
        kind="quantize",
        operands=(Operand(codes=real, scale=np.ones((), np.float32), zero_point=np.zeros((), np.int8)),),
        out=Target(
            dtype=zero_point.dtype,
            scale=widen(reshape_to_broadcast(scale, x.shape, axis, block)),
            zero_point=reshape_to_broadcast(zero_point, x.shape, axis, block),
        ),
        op=call.op,
    )


def _read_dequantize(call: Call) -> Unit | None:
    """Read DequantizeLinear from codes of at most 16 bits to float32; None for any other DequantizeLinear."""
    x, scale, zero_point = call.array(0), call.array(1), call.optional(2)
    if not _is_narrow(x.dtype) or scale.dtype != np.float32 or call.integer("output_dtype", 1) != 1:
        return None
    axis, block = call.integer("axis", 1), call.integer("block_size")
    zero = np.zeros((), x.dtype) if zero_point is None else reshape_to_broadcast(zero_point, x.shape, axis, block)
    return Unit(
        kind="dequantize",
        operands=(Operand(codes=x, scale=reshape_to_broadcast(scale, x.shape, axis, block), zero_point=zero),),
        out=Target(dtype=np.dtype(np.float32), scale=np.ones((), np.float32), zero_point=np.zeros((), np.int8)),
        op=call.op,
    )


_READERS: Mapping[str, Callable[[Call], Unit | None]] = MappingProxyType({"conv": _read_conv, "linear": _read_linear})
"""Readers of units with scales along channels, by kind."""


Bounds = tuple[float | None, float | None]
"""Minimum and maximum real value that a fused activation passes; None where it is unbounded."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coded:
    """An input of a node: stored values and their quantization.

    Args:
        values: Codes, or plain values.
        quant: Quantization of the codes; None for plain values.
    """

    values: np.ndarray
    quant: QuantParams | None = None

    @property
    def quantized(self) -> bool:
        """Whether the values are integer codes, with a scale."""
        return self.quant is not None and self.quant.scale.size > 0 and is_integer(logical_name(self.values.dtype))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Request:
    """A node with its inputs, its output quantization and the bounds of a fused activation."""

    node: Node
    inputs: tuple[Coded | None, ...]
    quant: QuantParams
    bounds: Bounds
    opset: int

    def input_at(self, position: int) -> Coded | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def call(self) -> Call:
        return Call(inputs=(), attrs=self.node.attrs, opset=self.opset, op=self.node.op, node=self.node.name)

    @property
    def channels_last(self) -> bool:
        return bool(self.call().integer("channels_last"))

    def operand(self, position: int, *, channels_first: bool = False) -> Operand | None:
        """Return an input as an operand, optionally with channels first; None if it is not quantized."""
        coded = self.input_at(position)
        if coded is None or coded.quant is None or not coded.quantized:
            return None
        shape = coded.values.shape
        axis, block = coded.quant.axis or 0, coded.quant.block_size or 0
        arrays = [
            coded.values,
            *(reshape_to_broadcast(a, shape, axis, block) for a in (coded.quant.scale, coded.quant.zero_point)),
        ]
        if channels_first:
            arrays = [np.moveaxis(array, -1, 1) if array.ndim > 1 else array for array in arrays]
        return Operand(codes=arrays[0], scale=arrays[1], zero_point=arrays[2])

    def target(self, bounds: Bounds) -> Target | None:
        """Return the output's quantization, further clamped to bounds; None if it has several scales or is real."""
        if self.quant.scale.size != 1 or not is_integer(self.quant.dtype):
            return None
        return target_of(self.quant, clamp=_codes_of_bounds(_intersect_bounds(self.bounds, bounds), self.quant))


def unit_of_codes(
    node: Node,
    inputs: Sequence[Coded | None],
    quant: QuantParams,
    *,
    opset: Mapping[str, int] | None = None,
    bounds: Bounds = (None, None),
) -> Unit | None:
    """Return the unit of a plain operator on codes.

    Args:
        node: The operator, with ONNX's attributes or `channels_last`.
        inputs: In the operator's order; None where an input is left out.
        quant: Quantization of the node's first output.
        opset: Version of each operator set by domain; the newest by default.
        bounds: Minimum and maximum real value that a fused activation passes.

    Returns:
        The unit; None if the operator is not computed on codes, or its inputs are not all codes.
    """
    row = operators.of(node.op)
    reader = _read_clamp if row.clamps else _CODED_READERS.get(row.unit)
    if reader is None:
        return None
    version = (opset or {}).get(node.domain, 1000)
    return reader(_Request(node=node, inputs=tuple(inputs), quant=quant, bounds=bounds, opset=version))


def _codes_of_bounds(bounds: Bounds, quant: QuantParams) -> tuple[int, int] | None:
    """Return the codes nearest to real bounds; None without bounds, or if the scale is not positive."""
    low, high = int(quant.qmin or 0), int(quant.qmax or 0)
    scale, zero_point = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
    if bounds == (None, None) or not scale > 0:
        return None
    ends = [
        end if bound is None or not np.isfinite(bound) else int(np.clip(np.rint(bound / scale) + zero_point, low, high))
        for bound, end in zip(bounds, (low, high), strict=True)
    ]
    return ends[0], ends[1]


def _intersect_bounds(first: Bounds, second: Bounds) -> Bounds:
    """Return the combined bounds of two consecutive activations."""
    lows = [bound for bound in (first[0], second[0]) if bound is not None]
    highs = [bound for bound in (first[1], second[1]) if bound is not None]
    return (max(lows) if lows else None), (min(highs) if highs else None)


def _unit_if_coded(
    request: _Request,
    kind: str,
    operands: Sequence[Operand | None],
    *,
    bounds: Bounds = (None, None),
    **other_fields: object,
) -> Unit | None:
    """Return a unit; None if an operand or the output is not quantized."""
    present = tuple(operand for operand in operands if operand is not None)
    out = request.target(bounds)
    if out is None or not present or len(present) < len(operands):
        return None
    node = request.node
    fields: dict[str, object] = {"attrs": node.attrs, "opset": request.opset, "op": node.op, "domain": node.domain}
    fields |= other_fields
    return Unit(kind=kind, operands=present, out=out, **fields)  # type: ignore[arg-type]


def with_stated_bias(unit: Unit, stated: QuantParams | None) -> Unit:
    """Return a unit whose bias uses its own stated scale, if that differs from the scale of the sums.

    Args:
        unit: The unit, with an integer bias.
        stated: The quantization of the bias; None if not stated.
    """
    bias = unit.bias
    if stated is None or bias is None or bias.dtype.kind not in "iu" or unit.kind not in ("conv", "linear"):
        return unit
    x, weight = (operand.scale.astype(np.float64).reshape(-1) for operand in unit.operands)
    if x.size > 1 or (weight.size > 1 and stated.scale.size not in (1, weight.size)):
        return unit
    codes, scale = _bias_in_scale(bias, stated, x[0] * weight)
    return replace(unit, bias=codes, bias_scale=scale)


def _bias_in_scale(bias: np.ndarray, stated: QuantParams, sums: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the centered codes of a bias, and its scale if it differs from the scale of the sums."""
    bias_scale = stated.scale.astype(np.float64)
    centred = bias.astype(np.int64) - stated.zero_point.reshape(-1)
    if np.all(np.abs(bias_scale - sums.reshape(-1)) <= BIAS_SCALE_MAX_REL_DIFFERENCE * np.abs(bias_scale)):
        return centred.astype(np.int32), None
    return centred, stated.scale


def _read_bias(request: _Request, position: int, sums: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return a bias, and its scale if it differs from the scale of the sums."""
    coded = request.input_at(position)
    if coded is None:
        return None, None
    if coded.quant is None:
        return coded.values, None
    return _bias_in_scale(coded.values, coded.quant, sums)


def _read_coded_conv(request: _Request) -> Unit | None:
    x, weight = request.operand(0, channels_first=request.channels_last), request.operand(1)
    if x is None or weight is None or len(request.inputs) > 3 or x.scale.size > 1:
        return None
    if min(x.codes.ndim, weight.codes.ndim) < 3:
        raise ValueError(f"{x.codes.ndim} and {weight.codes.ndim} axes are too few to convolve along; expected 3")
    transposed = operators.of(request.node.op).sums is Sums.SCATTER
    axis = 1 if transposed else 0
    if weight.scale.size > 1 and weight.scale.size != weight.scale.shape[axis]:
        return None
    bias, bias_scale = _read_bias(request, 2, x.scale.astype(np.float64) * weight.scale.astype(np.float64))
    bounds = _activation_bounds(request)
    if bounds is None:
        return None
    return _unit_if_coded(
        request, "conv", (x, weight), bounds=bounds, bias=bias, bias_scale=bias_scale,
        channels_last=request.channels_last, transposed=transposed,
    )  # fmt: skip


def _activation_bounds(request: _Request) -> Bounds | None:
    """Return the bounds of a fused activation; None if the activation does more than clamp."""
    call = request.call()
    name = call.text("activation")
    row = operators.of(name)
    if not name or row.least is not None:
        return row.least, None
    params = [float(value) for value in np.asarray(request.node.attrs.get("activation_params", ())).reshape(-1)]
    return (params[0], params[1]) if row.bounded and len(params) == 2 else None


def _read_coded_linear(request: _Request) -> Unit | None:
    a, b = request.operand(0), request.operand(1)
    call = request.call()
    if a is None or b is None or (request.input_at(2) is not None and call.real("beta", 1.0) != 1):
        return None
    a = _first_operand_of_gemm(call, a, b)
    a, b = (_transpose_operand(o) if call.integer(name) else o for o, name in ((a, "transA"), (b, "transB")))
    alpha = np.float32(call.real("alpha", 1.0))
    if alpha != 1:
        a = Operand(codes=a.codes, scale=np.asarray(a.scale * alpha), zero_point=a.zero_point)
    bias, bias_scale = None, None
    if request.input_at(2) is not None:
        bias, bias_scale = _read_bias(request, 2, a.scale.astype(np.float64) * b.scale.astype(np.float64))
    has_scales_along_depth = (a.scale.ndim and a.scale.shape[-1] > 1) or (b.scale.ndim > 1 and b.scale.shape[-2] > 1)
    bounds = _activation_bounds(request)
    if a.codes.ndim < 2 or b.codes.ndim < 2 or has_scales_along_depth or bounds is None:
        return None  # products with different scales cannot be summed as integers
    return _unit_if_coded(request, "linear", (a, b), bounds=bounds, bias=bias, bias_scale=bias_scale)


def _first_operand_of_gemm(call: Call, a: Operand, b: Operand) -> Operand:
    """Return the first operand of a Gemm, as a matrix if `flatten` is set. Its scale applies to all rows."""
    if not call.integer("flatten") or a.scale.size > 1:
        return a
    width = b.codes.shape[-1 if call.integer("transB") else 0]
    return replace(a, codes=a.codes.reshape(-1, width), scale=a.scale.reshape(()), zero_point=a.zero_point.reshape(()))


def _transpose_operand(operand: Operand) -> Operand:
    """Return an operand with its last two dimensions swapped."""
    arrays = (operand.codes, operand.scale, operand.zero_point)
    codes, scale, zero_point = (array.swapaxes(-1, -2) if array.ndim > 1 else array for array in arrays)
    return Operand(codes=codes, scale=scale, zero_point=zero_point)


def _read_pair(request: _Request) -> Unit | None:
    bounds = _activation_bounds(request)
    if bounds is None:
        return None
    unit, second = operators.of(request.node.op).unit, request.operand(1)
    slope = request.input_at(1)
    if unit == "prelu" and slope is not None and not slope.quantized and slope.values.size == 1:
        alpha: dict[str, AttrValue] = {"alpha": float(slope.values.reshape(()))}
        leaky = next(iter(operators.names_where(lambda row: "leaky" in row.forms)))
        return _unit_if_coded(request, "lookup", (request.operand(0),), function=leaky, attrs=alpha)
    factor = np.float32(request.call().real("alpha", 1.0))
    if factor != 1 and second is not None:
        second = replace(second, scale=np.asarray(second.scale * factor))
    return _unit_if_coded(request, unit, (request.operand(0), second), bounds=bounds)


def _read_pool(request: _Request) -> Unit | None:
    kind = operators.of(request.node.op).unit
    operand = request.operand(0, channels_first=request.channels_last)
    function = request.node.op if kind == "max_pool" else ""
    bounds = _activation_bounds(request)
    if bounds is None:
        return None
    return _unit_if_coded(
        request, kind, (operand,), bounds=bounds, function=function, channels_last=request.channels_last
    )


def _read_mean(request: _Request) -> Unit | None:
    axes_input = request.input_at(1)
    attrs: dict[str, AttrValue] = dict(request.node.attrs)
    if axes_input is not None:
        attrs["axes"] = tuple(int(axis) for axis in axes_input.values.reshape(-1))
    if attrs.get("noop_with_empty_axes") and not attrs.get("axes"):
        return None
    return _unit_if_coded(request, "reduce_mean", (request.operand(0),), attrs=attrs)


def _read_clamp(request: _Request) -> Unit | None:
    """Read a clamp: a requantization with bounds."""
    row = operators.of(request.node.op)
    if row.least is not None:
        return _unit_if_coded(request, "requantize", (request.operand(0),), bounds=(row.least, None))
    ends: list[float | None] = []
    for position, name in ((1, "min"), (2, "max")):
        coded = request.input_at(position)
        if coded is not None and coded.quant is None:
            ends.append(float(coded.values.reshape(())))
        elif coded is not None:
            return None
        else:
            ends.append(request.call().real(name) if name in request.node.attrs else None)
    return _unit_if_coded(request, "requantize", (request.operand(0),), bounds=(ends[0], ends[1]))


def _read_function(request: _Request) -> Unit | None:
    return _unit_if_coded(request, "lookup", (request.operand(0),), function=request.node.op)


def _read_softmax(request: _Request) -> Unit | None:
    return _unit_if_coded(request, "softmax", (request.operand(0),))


def _read_concat(request: _Request) -> Unit | None:
    return _unit_if_coded(
        request, "concat", tuple(request.operand(position) for position in range(len(request.inputs)))
    )


def _read_where(request: _Request) -> Unit | None:
    condition = request.input_at(0)
    if condition is None:
        return None
    return _unit_if_coded(request, "where", (request.operand(1), request.operand(2)), condition=condition.values)


def _setting_values(request: _Request, *positions: int) -> tuple[np.ndarray | None, ...]:
    inputs = [request.input_at(position) for position in positions]
    return tuple(None if coded is None else coded.values for coded in inputs)


def _read_resize(request: _Request) -> Unit | None:
    settings = _setting_values(request, *range(1, len(request.inputs)))
    return _unit_if_coded(request, "resize", (request.operand(0),), function=request.node.op, settings=settings)


def _read_pad(request: _Request) -> Unit | None:
    """Read Pad.

    A real fill value is converted to a code of the input; an integer of the input's type is a code already.
    """
    data, value = request.operand(0), request.input_at(2)
    operands = [data]
    if value is not None and data is not None:
        operand = request.operand(2)
        if operand is None and value.values.dtype == data.codes.dtype:
            operand = Operand(codes=value.values, scale=data.scale, zero_point=data.zero_point)  # a code of the input
        if operand is None:
            operand = _fill_code(float(value.values.reshape(())), data)
        operands.append(operand)
    elif data is not None and (fill := request.call().real("value")) != 0:
        operands.append(_fill_code(fill, data))
    return _unit_if_coded(request, "pad", operands, function=request.node.op, settings=_setting_values(request, 1, 3))


def _fill_code(value: float, data: Operand) -> Operand:
    """Return a real fill value as a centered code at the data's scale."""
    code = np.asarray(np.rint(value / data.scale.reshape(-1)[0]), np.int32)
    return Operand(codes=code, scale=data.scale, zero_point=np.zeros((), np.int32))


def _read_fake_quantize(request: _Request) -> Unit | None:
    """Read a FakeQuantize whose result is stored as codes, as a quantization of real numbers by its input range.

    Its output range must be that of the codes, either in real numbers or as integers.
    """
    x, ends = request.input_at(0), [request.input_at(position) for position in range(1, 5)]
    out, levels = request.target((None, None)), request.call().integer("levels")
    if x is None or x.quant is not None or not is_real(x.values.dtype) or out is None:
        return None
    if any(end is None or end.quant is not None or end.values.size != 1 for end in ends):
        return None
    low, high, first, last = (float(end.values.reshape(())) for end in ends if end is not None)
    lowest_code, highest_code = out.limits
    offset = (np.array((first, last)) / out.scale + out.zero_point).round()
    covers_code_range = (first, last) == (lowest_code, highest_code) or tuple(offset) == (lowest_code, highest_code)
    if not covers_code_range or levels != highest_code - lowest_code + 1 or not high > low:
        return None
    scale = np.asarray((high - low) / (levels - 1), np.float32)
    zero_point = np.rint(lowest_code - low / scale)
    # Both ends were rounded to float32. An end that is farther from a code than that rounding is not on the grid.
    if not np.isclose((lowest_code - zero_point) * scale, low, rtol=FLOAT32_STORED_REL_ERROR, atol=LSB_SLACK * scale):
        return None  # real 0 is not a code, so there is no zero point
    operand = Operand(codes=widen(x.values), scale=np.ones((), np.float32), zero_point=np.zeros((), np.int8))
    target = replace(out, scale=scale, zero_point=zero_point.astype(np.int64))
    return Unit(kind="quantize", operands=(operand,), out=target, op=request.node.op)


def _read_move(request: _Request) -> Unit | None:
    settings = _setting_values(request, *range(1, len(request.inputs)))
    operand = request.operand(0)
    if operand is None or operand.scale.size > 1:
        return None
    function = "" if operators.of(request.node.op).keeps_values else request.node.op
    return _unit_if_coded(request, "requantize", (operand,), function=function, settings=settings)


_CODED_READERS: Mapping[str, Callable[[_Request], Unit | None]] = MappingProxyType(
    {
        **dict.fromkeys(PAIRS, _read_pair),
        **dict.fromkeys(("average_pool", "global_average_pool", "max_pool"), _read_pool),
        "concat": _read_concat,
        "conv": _read_coded_conv,
        "linear": _read_coded_linear,
        "lookup": _read_function,
        "pad": _read_pad,
        "quantize": _read_fake_quantize,
        "reduce_mean": _read_mean,
        "requantize": _read_move,
        "resize": _read_resize,
        "softmax": _read_softmax,
        "where": _read_where,
    }
)
"""Readers of units on codes, by `Operator.unit`."""
