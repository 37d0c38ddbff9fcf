"""Units of plain operators whose data are codes: what a runtime records of an accelerator, and fused Q/DQ groups.

The operator is an ordinary one (Conv, Add, Sigmoid, ...) with ONNX's attributes, and every tensor that it computes with
comes as codes with their quantization parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from qdebug.model import AttrValue, Node, QuantParams, operators
from qdebug.model.dtypes import is_integer, logical_name
from qdebug.model.operators import Sums
from qdebug.model.thresholds.explanation import BIAS_SCALE_MAX_REL_DIFFERENCE
from qdebug.replay.registry import Call
from qdebug.replay.spreading import spread
from qdebug.replay.unit import Operand, Target, Unit, target_of

__all__ = ["Coded", "unit_of_codes"]

Bounds = tuple[float | None, float | None]
"""Least and largest real value that a fused activation lets through; None where it has no bound."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Coded:
    """An input of a node: stored values and what they stand for.

    Args:
        values: Codes, or plain values.
        quant: How the codes stand for real numbers; None if the values are the numbers.
    """

    values: np.ndarray
    quant: QuantParams | None = None

    @property
    def quantized(self) -> bool:
        """Whether the values are integer codes."""
        return self.quant is not None and is_integer(logical_name(self.values.dtype))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Request:
    """A node with its inputs, its output's quantization and the bounds of what was fused after it."""

    node: Node
    inputs: tuple[Coded | None, ...]
    quant: QuantParams
    bounds: Bounds
    opset: int

    def given(self, position: int) -> Coded | None:
        return self.inputs[position] if position < len(self.inputs) else None

    def call(self) -> Call:
        return Call(inputs=(), attrs=self.node.attrs, opset=self.opset, op=self.node.op, node=self.node.name)

    @property
    def last(self) -> bool:
        return bool(self.call().integer("channels_last"))

    def operand(self, position: int, *, turn: bool = False) -> Operand | None:
        """Give an input as operand, its channels first if asked; None if it is not quantized."""
        coded = self.given(position)
        if coded is None or coded.quant is None or not coded.quantized:
            return None
        shape = coded.values.shape
        axis, block = coded.quant.axis or 0, coded.quant.block_size or 0
        arrays = [coded.values, *(spread(a, shape, axis, block) for a in (coded.quant.scale, coded.quant.zero_point))]
        if turn:
            arrays = [np.moveaxis(array, -1, 1) if array.ndim > 1 else array for array in arrays]
        return Operand(codes=arrays[0], scale=arrays[1], zero_point=arrays[2])

    def target(self) -> Target | None:
        """Give the output's quantization; None if it has several scales, or bounds that are no codes."""
        if self.quant.per_channel or not is_integer(self.quant.dtype):
            return None
        return target_of(self.quant, clamp=_codes_of(self.bounds, self.quant))


def unit_of_codes(
    node: Node,
    inputs: Sequence[Coded | None],
    quant: QuantParams,
    *,
    opset: Mapping[str, int] | None = None,
    bounds: Bounds = (None, None),
) -> Unit | None:
    """Give the unit of a plain operator on codes.

    Args:
        node: The operator, with ONNX's attributes; `channels_last` is understood beside them.
        inputs: In the operator's order; None where an input is left out.
        quant: Quantization of the node's first output.
        opset: Version of each operator set by domain; the newest is assumed of one not named.
        bounds: Least and largest real value that an activation fused after it lets through.

    Returns:
        The unit; None if the operator is not one that is computed on codes, or its inputs are not all codes.
    """
    row = operators.of(node.op)
    reader = _clamp if row.clamps else _READERS.get(row.unit)
    if reader is None:
        return None
    version = (opset or {}).get(node.domain, 1000)
    return reader(_Request(node=node, inputs=tuple(inputs), quant=quant, bounds=bounds, opset=version))


def _codes_of(bounds: Bounds, quant: QuantParams) -> tuple[int, int] | None:
    """Give the codes of real bounds, rounded to the nearest; None without bounds."""
    if bounds == (None, None):
        return None
    low, high = int(quant.qmin or 0), int(quant.qmax or 0)
    scale, zero_point = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
    ends = [
        end if bound is None or not np.isfinite(bound) else int(np.clip(np.rint(bound / scale) + zero_point, low, high))
        for bound, end in zip(bounds, (low, high), strict=True)
    ]
    return ends[0], ends[1]


def _narrowed(first: Bounds, second: Bounds) -> Bounds:
    """Give the bounds of two activations in a row."""
    lows = [bound for bound in (first[0], second[0]) if bound is not None]
    highs = [bound for bound in (first[1], second[1]) if bound is not None]
    return (max(lows) if lows else None), (min(highs) if highs else None)


def _made(
    request: _Request, kind: str, operands: Sequence[Operand | None], *, bounds: Bounds | None = None, **more: object
) -> Unit | None:
    """Make a unit unless an operand or the output is not in codes."""
    found = tuple(operand for operand in operands if operand is not None)
    own = _Request(
        node=request.node,
        inputs=request.inputs,
        quant=request.quant,
        bounds=request.bounds if bounds is None else _narrowed(request.bounds, bounds),
        opset=request.opset,
    )
    out = own.target()
    if out is None or len(found) < len(operands):
        return None
    node = request.node
    fields: dict[str, object] = {"attrs": node.attrs, "opset": request.opset, "op": node.op, "domain": node.domain}
    fields |= more
    return Unit(kind=kind, operands=found, out=out, **fields)  # type: ignore[arg-type]


def _bias(request: _Request, position: int, sums: np.ndarray) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Give a bias, and its scale where that is not the scale of the sums."""
    coded = request.given(position)
    if coded is None:
        return None, None
    if coded.quant is None:
        return coded.values, None
    own = coded.quant.scale.astype(np.float64)
    centred = coded.values.astype(np.int64) - coded.quant.zero_point.reshape(-1)
    if np.all(np.abs(own - sums.reshape(-1)) <= BIAS_SCALE_MAX_REL_DIFFERENCE * np.abs(own)):
        return centred.astype(np.int32), None
    return centred, coded.quant.scale


def _conv(request: _Request) -> Unit | None:
    x, weight = request.operand(0, turn=request.last), request.operand(1)
    if x is None or weight is None or len(request.inputs) > 3 or x.scale.size > 1:
        return None
    transposed = operators.of(request.node.op).sums is Sums.SCATTER
    axis = 1 if transposed else 0
    if weight.scale.size > 1 and weight.scale.size != weight.scale.shape[axis]:
        return None
    bias, bias_scale = _bias(request, 2, x.scale.astype(np.float64) * weight.scale.astype(np.float64))
    bounds = _activation(request)
    if bounds is None:
        return None
    return _made(
        request, "conv", (x, weight), bounds=bounds, bias=bias, bias_scale=bias_scale,
        channels_last=request.last, transposed=transposed,
    )  # fmt: skip


def _activation(request: _Request) -> Bounds | None:
    """Give the bounds of an activation that the node itself names; None if it is more than bounds."""
    call = request.call()
    name = call.text("activation")
    row = operators.of(name)
    if not name or row.least is not None:
        return row.least, None
    params = [float(value) for value in np.asarray(request.node.attrs.get("activation_params", ())).reshape(-1)]
    return (params[0], params[1]) if row.bounded and len(params) == 2 else None


def _linear(request: _Request) -> Unit | None:
    a, b = request.operand(0), request.operand(1)
    call = request.call()
    if a is None or b is None or (request.given(2) is not None and call.real("beta", 1.0) != 1):
        return None
    a, b = (
        Operand(codes=o.codes.T, scale=o.scale.T, zero_point=o.zero_point.T) if call.integer(name) else o
        for o, name in ((a, "transA"), (b, "transB"))
    )
    alpha = np.float32(call.real("alpha", 1.0))
    if alpha != 1:
        a = Operand(codes=a.codes, scale=np.asarray(a.scale * alpha), zero_point=a.zero_point)
    bias, bias_scale = None, None
    if request.given(2) is not None:
        bias, bias_scale = _bias(request, 2, a.scale.astype(np.float64) * b.scale.astype(np.float64))
    along = (a.scale.ndim and a.scale.shape[-1] > 1) or (b.scale.ndim > 1 and b.scale.shape[-2] > 1)
    bounds = _activation(request)
    if a.codes.ndim < 2 or b.codes.ndim < 2 or along or bounds is None:
        return None  # scales along what is summed over leave no integer sum
    return _made(request, "linear", (a, b), bounds=bounds, bias=bias, bias_scale=bias_scale)


def _pair(request: _Request) -> Unit | None:
    bounds = _activation(request)
    if bounds is None:
        return None
    unit = operators.of(request.node.op).unit
    return _made(request, unit, (request.operand(0), request.operand(1)), bounds=bounds)


def _pool(request: _Request) -> Unit | None:
    kind = operators.of(request.node.op).unit
    operand = request.operand(0, turn=request.last)
    function = request.node.op if kind == "max_pool" else ""
    bounds = _activation(request)
    if bounds is None:
        return None
    return _made(request, kind, (operand,), bounds=bounds, function=function, channels_last=request.last)


def _mean(request: _Request) -> Unit | None:
    named = request.given(1)
    attrs: dict[str, AttrValue] = dict(request.node.attrs)
    if named is not None:
        attrs["axes"] = tuple(int(axis) for axis in named.values.reshape(-1))
    if attrs.get("noop_with_empty_axes") and not attrs.get("axes"):
        return None
    return _made(request, "reduce_mean", (request.operand(0),), attrs=attrs)


def _clamp(request: _Request) -> Unit | None:
    """Read a clamp: a change of scale with bounds."""
    row = operators.of(request.node.op)
    if row.least is not None:
        return _made(request, "requantize", (request.operand(0),), bounds=(row.least, None))
    ends: list[float | None] = []
    for position, name in ((1, "min"), (2, "max")):
        coded = request.given(position)
        if coded is not None and coded.quant is None:
            ends.append(float(coded.values.reshape(-1)[0]))
        elif coded is not None:
            return None
        else:
            ends.append(request.call().real(name) if name in request.node.attrs else None)
    return _made(request, "requantize", (request.operand(0),), bounds=(ends[0], ends[1]))


def _function(request: _Request) -> Unit | None:
    return _made(request, "lookup", (request.operand(0),), function=request.node.op)


def _softmax(request: _Request) -> Unit | None:
    return _made(request, "softmax", (request.operand(0),))


def _concat(request: _Request) -> Unit | None:
    return _made(request, "concat", tuple(request.operand(place) for place in range(len(request.inputs))))


def _where(request: _Request) -> Unit | None:
    condition = request.given(0)
    if condition is None:
        return None
    return _made(request, "where", (request.operand(1), request.operand(2)), condition=condition.values)


def _settings(request: _Request, *positions: int) -> tuple[np.ndarray | None, ...]:
    found = [request.given(position) for position in positions]
    return tuple(None if coded is None else coded.values for coded in found)


def _resize(request: _Request) -> Unit | None:
    settings = _settings(request, *range(1, len(request.inputs)))
    return _made(request, "resize", (request.operand(0),), function=request.node.op, settings=settings)


def _pad(request: _Request) -> Unit | None:
    """Read Pad; a real value to pad with is made a code of the input, one of the input's type is such a code."""
    data, value = request.operand(0), request.given(2)
    operands = [data]
    if value is not None and data is not None:
        operand = request.operand(2)
        if operand is None and value.values.dtype == data.codes.dtype:
            operand = Operand(codes=value.values, scale=data.scale, zero_point=data.zero_point)  # a code of the input
        if operand is None:
            ratio = np.rint(value.values.reshape(()) / data.scale.reshape(-1)[0]).astype(np.int32)
            operand = Operand(codes=ratio, scale=data.scale, zero_point=np.zeros((), np.int32))
        operands.append(operand)
    return _made(request, "pad", operands, function=request.node.op, settings=_settings(request, 1, 3))


def _move(request: _Request) -> Unit | None:
    settings = _settings(request, *range(1, len(request.inputs)))
    operand = request.operand(0)
    if operand is None or operand.scale.size > 1:
        return None
    function = "" if operators.of(request.node.op).keeps_values else request.node.op
    return _made(request, "requantize", (operand,), function=function, settings=settings)


_READERS: Mapping[str, Callable[[_Request], Unit | None]] = MappingProxyType(
    {
        **dict.fromkeys(("add", "sub", "mul", "div"), _pair),
        **dict.fromkeys(("average_pool", "global_average_pool", "max_pool"), _pool),
        "concat": _concat,
        "conv": _conv,
        "linear": _linear,
        "lookup": _function,
        "pad": _pad,
        "reduce_mean": _mean,
        "requantize": _move,
        "resize": _resize,
        "softmax": _softmax,
        "where": _where,
    }
)
"""What reads a unit, by `Operator.unit`."""
