"""Faults of kernels: the graph shows nothing, one node's values are wrong, and all nodes below really run on them.

A fault is a function of a `Site`: a node of the graph that ONNX Runtime executes, with what enters it and what it
should give. It returns what the broken kernel gives, or None where the node cannot have the fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper
from surgery import attribute, set_attribute

Array = np.ndarray
VIEWS = frozenset({"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Constant", "ConstantOfShape"})
"""Operators that compute nothing: their result is their input under another shape."""
CONVS = frozenset({"Conv", "FusedConv"})
PRODUCTS = CONVS | {"Gemm", "FusedGemm", "MatMul", "FusedMatMul", "ConvTranspose"}
SUMS = PRODUCTS | {"QLinearConv", "QGemm", "QLinearMatMul", "DynamicQuantizeMatMul", "MatMulIntegerToFloat"}


@dataclass(frozen=True)
class Site:
    """A node, its values in one sample, and its result in another sample.

    Args:
        node: The executed node.
        inputs: Values by slot; None where there is none.
        right: What it gives.
        stale: What it gives for another sample.
        opsets: The model's operator sets.
        seed: The same for all samples of a case.
    """

    node: onnx.NodeProto
    inputs: Sequence[Array | None]
    right: Array
    stale: Array
    opsets: Sequence[onnx.OperatorSetIdProto]
    seed: int
    constant: frozenset[int] = field(default_factory=frozenset)

    @property
    def op(self) -> str:
        """Return the operator; one on blocks of channels has a name of its own."""
        return f"{self.node.domain}.{self.node.op_type}" if "nchwc" in self.node.domain else self.node.op_type

    @property
    def rng(self) -> np.random.Generator:
        return np.random.default_rng(self.seed)

    def rerun(self, change: Mapping[int, Array] | None = None, op: str = "", **attrs: object) -> Array | None:
        """Run the node with other inputs, attributes or operator; None if it does not run, or gives another shape."""
        import onnxruntime

        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        if op:
            node.op_type, node.domain = op, ""
        for name, value in attrs.items():
            for old in [a for a in node.attribute if a.name == name]:
                node.attribute.remove(old)
            if value is not None:
                set_attribute(node, name, value)
        values = [(change or {}).get(slot, array) for slot, array in enumerate(self.inputs)]
        feed = {f"in{slot}": np.ascontiguousarray(v) for slot, v in enumerate(values) if v is not None}
        del node.input[:]
        node.input.extend(f"in{slot}" if value is not None else "" for slot, value in enumerate(values))
        at = list(node.output).index(self.node.output[0])
        types = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in feed.items()
        ]
        graph = helper.make_graph([node], "site", types, [onnx.ValueInfoProto(name=node.output[at])])
        model = helper.make_model(graph, opset_imports=self.opsets, ir_version=8)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            code = model.SerializeToString()
            session = onnxruntime.InferenceSession(code, options, providers=["CPUExecutionProvider"])
            (found,) = session.run(None, feed)
        except Exception:  # noqa: BLE001  the runtime's own errors: the fault does not fit this node
            return None
        return found if found.shape == self.right.shape else None


Plant = Callable[[Site], Array | None]


@dataclass(frozen=True)
class KernelFault:
    """A fault of a kernel, and the kinds of finding that name it rightly.

    The graphs agree, so the finding is one of `arithmetic`, unless the values themselves show more.
    """

    plant: Plant
    kinds: frozenset[str] = frozenset({"arithmetic"})


def _wide(site: Site, least: int = 16) -> bool:
    """Tell whether a node computes, and gives enough values."""
    return site.op not in VIEWS and site.right.size >= least and site.right.dtype.kind in "fiu"


def _real(site: Site) -> bool:
    return _wide(site) and site.right.dtype == np.float32


# -- memory ------------------------------------------------------------------------------------------------------------


def row_kept(site: Site) -> Array | None:
    """Keep a row of an earlier input."""
    if not _wide(site) or site.right.ndim < 2 or site.right.shape != site.stale.shape:
        return None
    axis = site.right.ndim - 2 if site.right.shape[-2] > 1 else site.right.ndim - 1
    row = int(site.rng.integers(site.right.shape[axis]))
    wrong = np.moveaxis(site.right.copy(), axis, 0)
    wrong[row] = np.moveaxis(site.stale, axis, 0)[row]
    return np.moveaxis(wrong, 0, axis)


def all_kept(site: Site) -> Array | None:
    """Give the whole result of another sample: a buffer that was not swapped."""
    return site.stale if _wide(site) and site.right.shape == site.stale.shape else None


def tail_unwritten(site: Site) -> Array | None:
    """Leave the last eighth of the elements as the zeros that memory held."""
    if not _wide(site):
        return None
    wrong = site.right.copy()
    wrong.reshape(-1)[-max(2, wrong.size // 8) :] = 0
    return wrong


def tail_garbage(site: Site) -> Array | None:
    """Leave the last few elements as whatever memory held."""
    if not _real(site):
        return None
    wrong = site.right.copy()
    count = max(2, wrong.size // 50)
    wrong.reshape(-1)[-count:] = site.rng.normal(0, 30 * np.abs(site.right).max(), count)
    return wrong


def block_repeated(site: Site) -> Array | None:
    """Write a block of the elements twice."""
    if not _wide(site, 48):
        return None
    wrong = site.right.copy()
    flat = wrong.reshape(-1)
    size = max(16, flat.size // 6)
    flat[size : 2 * size] = flat[:size]
    return wrong


def shifted_by_one(site: Site) -> Array | None:
    """Write every element one place too far."""
    if not _wide(site) or site.right.shape[-1] < 2:
        return None
    return np.roll(site.right, 1, -1)


def layout_mixed_up(site: Site) -> Array | None:
    """Write channels last where channels first are read."""
    if not _wide(site) or site.right.ndim < 3 or min(site.right.shape[1], int(np.prod(site.right.shape[2:]))) < 2:
        return None
    return np.ascontiguousarray(np.moveaxis(site.right, 1, -1)).reshape(site.right.shape)


def channels_exchanged(site: Site) -> Array | None:
    """Exchange the first two channels."""
    if not _wide(site) or site.right.ndim < 2:
        return None
    axis = 1 if site.right.ndim > 2 else site.right.ndim - 1
    if site.right.shape[axis] < 2:
        return None
    wrong = np.moveaxis(site.right.copy(), axis, 0)
    wrong[[0, 1]] = wrong[[1, 0]]
    return np.moveaxis(wrong, 0, axis)


# -- range and precision -----------------------------------------------------------------------------------------------


def in_float16(site: Site) -> Array | None:
    """Round the result to half precision."""
    if not _real(site) or np.abs(site.right).max() > 60000:
        return None
    return site.right.astype(np.float16).astype(np.float32)


def in_bfloat16(site: Site) -> Array | None:
    """Round the result to bfloat16."""
    import ml_dtypes

    return site.right.astype(ml_dtypes.bfloat16).astype(np.float32) if _real(site) else None


def sums_in_float16(site: Site) -> Array | None:
    """Add the two halves of a long sum in half precision, each rounded before."""
    if site.op not in PRODUCTS or site.right.dtype != np.float32 or 1 not in site.constant or site.inputs[1].ndim < 2:
        return None
    parts = _half_sums(site)
    if parts is None:
        return None
    first, second = (part.astype(np.float16) for part in parts)
    rough = (first + second).astype(np.float32)
    return _activated(site, rough)


def _depth_axis(site: Site) -> int:
    if site.op in CONVS:
        return 1
    if site.op in ("Gemm", "FusedGemm"):
        return 1 if attribute(site.node, "transB") else 0
    return 0 if site.op == "ConvTranspose" else site.inputs[1].ndim - 2


def _half_sums(site: Site) -> tuple[Array, Array] | None:
    """Return what each half of the depth gives; the second has the bias."""
    weight, axis = site.inputs[1], _depth_axis(site)
    depth = weight.shape[axis]
    if depth < 4:
        return None
    out = []
    for part in (slice(None, depth // 2), slice(depth // 2, None)):
        kept = np.zeros_like(weight)
        where = tuple(part if a == axis else slice(None) for a in range(weight.ndim))
        kept[where] = weight[where]
        change = {1: kept}
        if part.start is None and len(site.inputs) > 2 and site.inputs[2] is not None:
            change[2] = np.zeros_like(site.inputs[2])
        one = site.rerun(change, activation=None, activation_params=None)
        if one is None and site.op == "FusedConv":
            one = site.rerun(change, op="Conv", activation=None, activation_params=None)
        if one is None:
            return None
        out.append(one)
    return out[0], out[1]


def _activated(site: Site, values: Array) -> Array | None:
    fused = attribute(site.node, "activation")
    if fused is None:
        return values
    return np.maximum(values, 0) if fused == b"Relu" else None


def sums_saturate(site: Site) -> Array | None:
    """Saturate each half of a sum at a third of its largest value."""
    if site.op not in PRODUCTS or site.right.dtype != np.float32 or 1 not in site.constant or site.inputs[1].ndim < 2:
        return None
    parts = _half_sums(site)
    if parts is None:
        return None
    end = max(float(np.abs(part).max()) for part in parts) / 3
    return _activated(site, np.clip(parts[0], -end, end) + np.clip(parts[1], -end, end))


def clamped(site: Site) -> Array | None:
    """Clamp the result to half of its range."""
    if not _wide(site):
        return None
    low, high = site.right.min(), site.right.max()
    top = (float(high) + float(low)) / 2 if site.right.dtype.kind != "f" else float(high) * 0.5
    return np.minimum(site.right, np.array(top).astype(site.right.dtype))


def wrapped(site: Site) -> Array | None:
    """Wrap codes where they should saturate, or an integer beyond 8 bits."""
    if site.op == "QuantizeLinear":
        x, scale, zero = site.inputs[0], site.inputs[1], site.inputs[2]
        if np.ndim(scale) and scale.size > 1:
            return None
        real = np.rint(x / scale).astype(np.int64) + int(np.ravel(zero)[0])
        return real.astype(site.right.dtype)
    if site.right.dtype in (np.int32, np.int64) and site.op not in VIEWS:
        return site.right.astype(np.int8).astype(site.right.dtype)
    return None


def rounded_twice(site: Site) -> Array | None:
    """Round to every sixth code, and then to codes: two roundings where one is due."""
    if site.right.dtype not in (np.uint8, np.int8) or site.op in VIEWS or site.op not in SUMS | {"QuantizeLinear"}:
        return None
    wide = site.right.astype(np.int64)
    info = np.iinfo(site.right.dtype)
    return np.clip((wide + 2) // 6 * 6 + 1, info.min, info.max).astype(site.right.dtype)


def doubled(site: Site) -> Array | None:
    """Shift by one bit too few."""
    return site.right * np.float32(2) if _real(site) and site.op in PRODUCTS else None


def sign_lost(site: Site) -> Array | None:
    """Lose the sign."""
    return np.abs(site.right) if _real(site) and float(site.right.min()) < 0 else None


def not_a_number(site: Site) -> Array | None:
    """Give a NaN at one place."""
    if not _real(site):
        return None
    wrong = site.right.copy()
    wrong.reshape(-1)[int(site.rng.integers(wrong.size))] = np.nan
    return wrong


def overflows(site: Site) -> Array | None:
    """Overflow to infinity where values are largest."""
    if not _real(site) or site.op not in PRODUCTS | {"Exp", "Mul", "Pow", "Add"}:
        return None
    return np.where(np.abs(site.right) > 0.9 * np.abs(site.right).max(), np.copysign(np.inf, site.right), site.right)


def from_a_table(site: Site) -> Array | None:
    """Look a function of one element up in a table of 24 values."""
    if site.op not in ("Sigmoid", "Tanh", "Erf", "Exp", "Gelu", "HardSwish", "QuickGelu", "Softmax", "Sqrt", "Log"):
        return None
    low, high = float(site.right.min()), float(site.right.max())
    if site.right.dtype != np.float32 or high <= low:
        return None
    step = (high - low) / 23
    return (np.rint((site.right - low) / step) * step + low).astype(np.float32)


# -- arithmetic of single operators ------------------------------------------------------------------------------------


def activation_skipped(site: Site) -> Array | None:
    """Forget the activation that is fused into a product."""
    if attribute(site.node, "activation") is None:
        return None
    op = {"FusedConv": "Conv", "FusedGemm": "Gemm"}.get(site.op, "")
    return site.rerun(op=op, activation=None, activation_params=None)


def bias_forgotten(site: Site) -> Array | None:
    """Forget the bias."""
    if site.op not in PRODUCTS or len(site.inputs) < 3 or site.inputs[2] is None:
        return None
    return site.rerun({2: np.zeros_like(site.inputs[2])})


def bias_added_twice(site: Site) -> Array | None:
    """Add the bias twice."""
    if site.op not in PRODUCTS or len(site.inputs) < 3 or site.inputs[2] is None:
        return None
    return site.rerun({2: site.inputs[2] * 2})


def depth_cut_off(site: Site) -> Array | None:
    """Leave the last part of the depth out of a sum: the remainder loop is missing."""
    if site.op not in PRODUCTS or site.inputs[1] is None or site.inputs[1].ndim < 2:
        return None
    weight, axis = site.inputs[1].copy(), _depth_axis(site)
    depth = weight.shape[axis]
    if depth < 5:
        return None
    start = depth - (depth % 4 or 4)
    weight[tuple(slice(start, None) if a == axis else slice(None) for a in range(weight.ndim))] = 0
    return site.rerun({1: weight})


def weight_read_transposed(site: Site) -> Array | None:
    """Read the weight along the wrong axis."""
    weight = site.inputs[1] if site.op in PRODUCTS else None
    if weight is None or weight.ndim < 2 or weight.shape[-1] != weight.shape[-2] or weight.shape[-1] < 2:
        return None
    return site.rerun({1: np.swapaxes(weight, -1, -2)})


def filters_off_by_one(site: Site) -> Array | None:
    """Read the filter of the next channel."""
    if site.op not in CONVS or site.inputs[1].shape[0] < 2:
        return None
    return site.rerun({1: np.roll(site.inputs[1], -1, 0)})


def border_repeated(site: Site) -> Array | None:
    """Pad a convolution with its border in place of zeros."""
    pads = list(attribute(site.node, "pads") or ()) if site.op in CONVS else []
    if not any(pads):
        return None
    half = len(pads) // 2
    around = [(0, 0), (0, 0), *zip(pads[:half], pads[half:], strict=True)]
    return site.rerun({0: np.pad(site.inputs[0], around, mode="edge")}, pads=[0] * len(pads))


def dilation_ignored(site: Site) -> Array | None:
    """Sum over neighbours where a dilation was asked for."""
    dilations = list(attribute(site.node, "dilations") or ()) if site.op in CONVS else []
    pads, kernel = list(attribute(site.node, "pads") or ()), attribute(site.node, "kernel_shape")
    if max(dilations, default=1) < 2 or not kernel:
        return None
    less = [(d - 1) * (k - 1) // 2 for d, k in zip(dilations, kernel, strict=True)]
    narrow = [pad - cut for pad, cut in zip(pads, less * 2, strict=True)]
    return site.rerun(dilations=[1] * len(less), pads=narrow) if min(narrow) >= 0 else None


def epsilon_other(site: Site) -> Array | None:
    """Normalize with an epsilon of 0.05."""
    known = ("LayerNormalization", "InstanceNormalization", "SkipLayerNormalization", "SimplifiedLayerNormalization")
    return site.rerun(epsilon=0.05) if site.op in known else None


def mean_not_taken(site: Site) -> Array | None:
    """Divide by the root of the mean square: the mean is not subtracted."""
    if site.op != "LayerNormalization" or site.right.dtype != np.float32:
        return None
    x = site.inputs[0].astype(np.float64)
    scaled = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * site.inputs[1]
    return (scaled + (0 if len(site.inputs) < 3 or site.inputs[2] is None else site.inputs[2])).astype(np.float32)


def other_axis(site: Site) -> Array | None:
    """Normalize along the axis before the last."""
    if site.op not in ("Softmax", "LogSoftmax") or site.right.ndim < 2:
        return None
    return site.rerun(axis=site.right.ndim - 2)


def operands_exchanged(site: Site) -> Array | None:
    """Exchange two operands whose order matters."""
    if site.op not in ("Sub", "Div", "Pow", "MatMul", "FusedMatMul"):
        return None
    return site.rerun({0: site.inputs[1], 1: site.inputs[0]})


def parts_exchanged(site: Site) -> Array | None:
    """Write the parts of a concatenation in reverse order."""
    if site.op != "Concat" or any(part is None for part in site.inputs):
        return None
    return np.concatenate(site.inputs[::-1], axis=int(attribute(site.node, "axis")))


def neighbour_picked(site: Site) -> Array | None:
    """Pick the entry after the one that was asked for."""
    if site.op != "Gather" or site.inputs[1] is None:
        return None
    most = site.inputs[0].shape[int(attribute(site.node, "axis") or 0)]
    return site.rerun({1: (site.inputs[1] + 1) % most})


def slice_off_by_one(site: Site) -> Array | None:
    """Cut one place too late."""
    if site.op != "Slice" or site.inputs[0].ndim < 1:
        return None
    axis = int(site.inputs[3][0]) if len(site.inputs) > 3 and site.inputs[3] is not None else 0
    return site.rerun({0: np.roll(site.inputs[0], -1, axis)})


def padding_counted(site: Site) -> Array | None:
    """Count the padding in an average where it should not, or the other way round."""
    if site.op != "AveragePool" or not any(attribute(site.node, "pads") or ()):
        return None
    return site.rerun(count_include_pad=1 - int(attribute(site.node, "count_include_pad") or 0))


def window_starts_at_zero(site: Site) -> Array | None:
    """Start a maximum at 0."""
    if site.op not in ("MaxPool", "ReduceMax", "GlobalMaxPool") or site.right.dtype != np.float32:
        return None
    return np.maximum(site.right, 0)


def last_left_out(site: Site) -> Array | None:
    """Leave the last element out of a reduction."""
    if site.op not in ("ReduceMean", "ReduceSum", "GlobalAveragePool") or site.right.dtype != np.float32:
        return None
    x = site.inputs[0].copy()
    x[..., -1] = 0
    return site.rerun({0: x})


def pixels_floored(site: Site) -> Array | None:
    """Resize with the pixel to the left in place of the nearest or the weighted ones."""
    if site.op != "Resize" or site.right.ndim != 4:
        return None
    x = site.inputs[0]
    at = [np.minimum(np.arange(n) * m // n, m - 1) for n, m in zip(site.right.shape, x.shape, strict=True)]
    return x[np.ix_(*at)]


def state_kept(site: Site) -> Array | None:
    """Start a recurrent layer from the state that another input left."""
    if site.op not in ("LSTM", "GRU") or (len(site.inputs) > 5 and site.inputs[5] is not None):
        return None
    last = site.stale[-1]
    inputs = [*site.inputs, *[None] * (6 - len(site.inputs))]
    inputs[5] = np.ascontiguousarray(last)
    return _with_inputs(site, inputs).rerun()


def _with_inputs(site: Site, inputs: Sequence[Array | None]) -> Site:
    return Site(site.node, inputs, site.right, site.stale, site.opsets, site.seed, site.constant)


def gates_exchanged(site: Site) -> Array | None:
    """Read the gates of a recurrent weight in another order."""
    if site.op not in ("LSTM", "GRU"):
        return None
    order = [0, 2, 1, 3] if site.op == "LSTM" else [1, 0, 2]
    parts = np.split(site.inputs[1], len(order), axis=1)
    return site.rerun({1: np.concatenate([parts[i] for i in order], axis=1)})


def slope_ignored(site: Site) -> Array | None:
    """Give zero where a slope was asked for."""
    if site.op not in ("LeakyRelu", "PRelu", "Elu") or site.right.dtype != np.float32:
        return None
    return np.maximum(site.right, 0)


def bound_ignored(site: Site) -> Array | None:
    """Do not clamp at the upper bound."""
    if site.op != "Clip" or len(site.inputs) < 3 or site.inputs[2] is None:
        return None
    return site.rerun({2: site.inputs[2] * 100})


def one_channel_wide(site: Site) -> Array | None:
    """Add or multiply with the first element of a vector, not with all of it."""
    if site.op not in ("Add", "Mul", "Sub", "Div") or len(site.constant) != 1:
        return None
    (slot,) = site.constant
    vector = site.inputs[slot]
    if vector.size < 2 or vector.dtype != np.float32:
        return None
    return site.rerun({slot: np.full_like(vector, vector.flat[0])})


def rank_off_by_one(site: Site) -> Array | None:
    """Give the second best first."""
    if site.op not in ("TopK", "ArgMax") or site.right.shape[-1] < 2:
        return None
    return np.roll(site.right, 1, -1)


_ARITHMETIC = (
    *(row_kept, all_kept, tail_unwritten, tail_garbage, block_repeated, shifted_by_one, layout_mixed_up),
    *(channels_exchanged, wrapped, rounded_twice, doubled, sign_lost, from_a_table, activation_skipped),
    *(bias_forgotten, bias_added_twice, depth_cut_off, weight_read_transposed, filters_off_by_one, border_repeated),
    *(dilation_ignored, epsilon_other, mean_not_taken, other_axis, operands_exchanged, parts_exchanged),
    *(neighbour_picked, slice_off_by_one, padding_counted, window_starts_at_zero, last_left_out, pixels_floored),
    *(state_kept, gates_exchanged, slope_ignored, bound_ignored, one_channel_wide, rank_off_by_one),
)
_CEILING = frozenset({"arithmetic", "saturation"})
"""Values that all end at one ceiling are saturated; why, the graph does not say."""
_SHORT = frozenset({"precision"})
KERNEL_FAULTS: Mapping[str, KernelFault] = {
    **{plant.__name__: KernelFault(plant) for plant in _ARITHMETIC},
    **{plant.__name__: KernelFault(plant, _SHORT) for plant in (in_float16, in_bfloat16)},
    "sums_in_float16": KernelFault(sums_in_float16, _SHORT | {"arithmetic"}),  # the bias and the activation hide it
    **{plant.__name__: KernelFault(plant, _CEILING) for plant in (clamped, sums_saturate)},
    **{plant.__name__: KernelFault(plant, frozenset({"nonfinite"})) for plant in (not_a_number, overflows)},
}
"""Kernel faults by name."""
