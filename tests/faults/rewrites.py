"""Faults that a converter leaves in a graph: wrong constants, attributes, operators, operands, ranges.

They add to those of `surgery.py`. Each is a surgeon: it changes one node of a net, or returns None where it cannot.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from surgery import (
    PASSES_CODES,
    PRODUCTS,
    Fault,
    Net,
    Surgeon,
    attribute,
    channel_axis,
    fault_of,
    set_attribute,
    weight_slot,
)

SWAPS = {
    "Relu": ("LeakyRelu", {"alpha": 0.3}),
    "LeakyRelu": ("Relu", {}),
    "Sigmoid": ("HardSigmoid", {}),
    "HardSwish": ("Relu", {}),
    "HardSigmoid": ("Sigmoid", {}),
    "Tanh": ("Softsign", {}),
    "Erf": ("Tanh", {}),
    "PRelu": ("Mul", {}),
    "Softplus": ("Relu", {}),
    "Elu": ("Relu", {}),
}
POOLS = {
    "MaxPool": "AveragePool",
    "AveragePool": "MaxPool",
    "GlobalAveragePool": "GlobalMaxPool",
    "ReduceMean": "ReduceMax",
    "ReduceMax": "ReduceMean",
}
POOL_ATTRIBUTES = ("kernel_shape", "strides", "pads", "ceil_mode", "axes", "keepdims")
WRITES = {"QLinearConv": (6, 7), "QGemm": (7, 8), "QLinearAdd": (6, 7), "QLinearMul": (6, 7), "QuantizeLinear": (1, 2)}
"""Slots of the scale and the zero point with which an operator writes codes."""


# -- weights and other constants ---------------------------------------------------------------------------------------


def _weight(net: Net, node: onnx.NodeProto) -> tuple[int, np.ndarray] | None:
    """Return slot and value of the float weight of a product."""
    if node.op_type not in (*PRODUCTS, "ConvTranspose"):
        return None
    slot = weight_slot(node)
    weight = net.constant(node.input[slot]) if slot < len(node.input) else None
    return None if weight is None or weight.ndim < 2 else (slot, weight)


def weight_transposed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Store a weight with two of its axes exchanged, where that fits."""
    found = _weight(net, node)
    if found is None:
        return None
    slot, weight = found
    if weight.shape[-1] != weight.shape[-2] or weight.shape[-1] == 1:
        return None
    node.input[slot] = net.add_constant(np.swapaxes(weight, -1, -2), "transposed_weight")
    return fault_of(node, "its weight is transposed")


def weight_of_another_layer(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Give a layer the weight of another layer of the same shape."""
    found = _weight(net, node)
    if found is None:
        return None
    slot, weight = found
    for other in net.graph.node:
        theirs = _weight(net, other)
        if theirs and other.name != node.name and theirs[1].shape == weight.shape and np.any(theirs[1] != weight):
            node.input[slot] = net.add_constant(theirs[1], "weight_of_another_layer")
            return fault_of(node, f"its weight is that of {other.name}")
    return None


def weight_bit_flipped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Make one weight 256 times as large: a flipped bit of its exponent."""
    found = _weight(net, node)
    if found is None or found[1].dtype != np.float32:
        return None
    slot, weight = found
    wrong = weight.copy()
    at = int(rng.choice(np.argsort(np.abs(wrong).ravel())[-max(1, wrong.size // 4) :]))
    wrong.flat[at] *= 256
    node.input[slot] = net.add_constant(wrong, "flipped_weight")
    return fault_of(node, f"element {at} of its weight is 256 times as large")


def weight_too_coarse(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Round a weight to seven levels."""
    found = _weight(net, node)
    if found is None or found[1].dtype != np.float32:
        return None
    slot, weight = found
    step = np.abs(weight).max() / 3
    node.input[slot] = net.add_constant((np.round(weight / step) * step).astype(np.float32), "coarse_weight")
    return fault_of(node, "its weight is rounded to seven levels")


def input_channels_swapped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Reverse the input channels of a weight: a picture in BGR where RGB was trained."""
    found = _weight(net, node)
    if found is None or node.op_type == "ConvTranspose":
        return None
    slot, weight = found
    axis = {"Conv": 1, "QLinearConv": 1}.get(node.op_type, 1 - channel_axis(node, 2))
    if weight.ndim == 2 and node.op_type == "Conv":
        return None
    if weight.shape[axis] < 2 or (weight.ndim > 2 and axis != 1):
        return None
    node.input[slot] = net.add_constant(np.flip(weight, axis), "flipped_channels")
    return fault_of(node, "its input channels are in reverse order")


def bias_rolled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Give each channel the bias of its neighbour."""
    slot = 2 if node.op_type in ("Conv", "Gemm", "ConvTranspose") else 8 if node.op_type == "QLinearConv" else None
    bias = net.constant(node.input[slot]) if slot is not None and len(node.input) > slot else None
    if bias is None or bias.size < 2 or not np.any(bias):
        return None
    node.input[slot] = net.add_constant(np.roll(bias, 1), "rolled_bias")
    return fault_of(node, "its bias is rolled by one channel")


def statistics_rolled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Give each channel of a batch normalization the mean of its neighbour."""
    if node.op_type != "BatchNormalization" or net.constant(node.input[3]) is None:
        return None
    node.input[3] = net.add_constant(np.roll(net.constant(node.input[3]), 1), "rolled_mean")
    return fault_of(node, "its means are rolled by one channel")


def gain_dropped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Normalize without the trained gain."""
    if node.op_type not in ("LayerNormalization", "InstanceNormalization", "BatchNormalization"):
        return None
    gain = net.constant(node.input[1])
    if gain is None or np.all(gain == 1):
        return None
    node.input[1] = net.add_constant(np.ones_like(gain), "no_gain")
    return fault_of(node, "its gain is 1")


def constant_changed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Change a constant that a node combines with a tensor."""
    if node.op_type not in ("Mul", "Div", "Add", "Sub", "Pow"):
        return None
    slot = next((i for i, name in enumerate(node.input) if net.constant(name) is not None), None)
    if slot is None or net.constant(node.input[slot]).dtype != np.float32:
        return None
    value = net.constant(node.input[slot])
    node.input[slot] = net.add_constant(value * np.float32(1.5), "changed_constant")
    return fault_of(node, "its constant is 1.5 times as large")


def table_rolled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Store a table of embeddings one row off."""
    table = net.constant(node.input[0]) if node.op_type == "Gather" else None
    if table is None or table.ndim < 2:
        return None
    node.input[0] = net.add_constant(np.roll(table, 1, attribute(node, "axis") or 0), "rolled_table")
    return fault_of(node, "its table is one row off")


def gates_swapped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Store the gates of a recurrent weight in another framework's order."""
    if node.op_type not in ("LSTM", "GRU") or net.constant(node.input[1]) is None:
        return None
    order = {"LSTM": [0, 2, 1, 3], "GRU": [1, 0, 2]}[node.op_type]
    slot = 1 + int(rng.integers(2))
    parts = np.split(net.constant(node.input[slot]), len(order), axis=1)
    node.input[slot] = net.add_constant(np.concatenate([parts[i] for i in order], axis=1), "swapped_gates")
    return fault_of(node, f"its gates are in the order {order}")


def index_off_by_one(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Pick the neighbours of what should be picked."""
    slots = {"Gather": (1,), "Slice": (1, 2)}.get(node.op_type, ())
    values = [net.constant(node.input[slot]) for slot in slots]
    if not slots or any(value is None for value in values) or net.look is None:
        return None
    down = min(int(value.min()) for value in values) > 0
    if node.op_type == "Slice" and not down and int(values[1].max()) > 2**30:
        return None
    for slot, value in zip(slots, values, strict=True):
        node.input[slot] = net.add_constant(value - 1 if down else value + 1, "index")
    return fault_of(node, f"its indices are {'one less' if down else 'one more'}")


def bound_changed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Clamp at a quarter of the upper bound."""
    high = net.constant(node.input[2]) if node.op_type == "Clip" and len(node.input) > 2 else None
    if high is None:
        return None
    node.input[2] = net.add_constant(high / np.array(4, high.dtype), "bound")
    return fault_of(node, "its upper bound is a quarter")


# -- attributes --------------------------------------------------------------------------------------------------------


def _set(net: Net, node: onnx.NodeProto, name: str, value: object) -> Fault:
    set_attribute(node, name, value)
    net.forget_shapes()
    return fault_of(node, f"its {name} is {value}")


def epsilon_changed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Normalize with another epsilon."""
    if node.op_type not in ("LayerNormalization", "InstanceNormalization"):
        return None
    return _set(net, node, "epsilon", 0.03)


def axis_changed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Normalize along the axis before the last."""
    if node.op_type not in ("Softmax", "LogSoftmax") or net.look is None:
        return None
    rank = net.look(node.output[0])[node.output[0]].ndim
    if (attribute(node, "axis") or -1) not in (-1, rank - 1) or rank < 2:
        return None
    return _set(net, node, "axis", rank - 2)


def slope_changed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Give an activation another slope."""
    if node.op_type not in ("LeakyRelu", "Elu", "HardSigmoid"):
        return None
    usual = {"LeakyRelu": 0.01, "Elu": 1.0, "HardSigmoid": 0.2}[node.op_type]
    return _set(net, node, "alpha", (attribute(node, "alpha") or usual) * 2.5)


def perm_changed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Exchange two axes of equal size in a transpose."""
    perm = list(attribute(node, "perm") or ()) if node.op_type == "Transpose" else []
    if not perm or net.look is None:
        return None
    shape = net.look(node.output[0])[node.output[0]].shape
    for first in range(len(perm)):
        for second in range(first):
            if shape[first] == shape[second] > 1:
                perm[first], perm[second] = perm[second], perm[first]
                return _set(net, node, "perm", perm)
    return None


def resize_changed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Resize with other pixel centres."""
    if node.op_type != "Resize":
        return None
    now = attribute(node, "coordinate_transformation_mode") or b"half_pixel"
    if attribute(node, "mode") in (None, b"nearest"):
        return _set(net, node, "mode", "linear")
    return _set(net, node, "coordinate_transformation_mode", "half_pixel" if now == b"asymmetric" else "asymmetric")


def pool_counts_padding(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Count the padding in an average, or leave it out."""
    if node.op_type != "AveragePool" or not any(attribute(node, "pads") or ()):
        return None
    return _set(net, node, "count_include_pad", 1 - int(attribute(node, "count_include_pad") or 0))


def reset_moved(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Apply the reset gate of a GRU on the other side of its product."""
    if node.op_type != "GRU":
        return None
    return _set(net, node, "linear_before_reset", 1 - int(attribute(node, "linear_before_reset") or 0))


def direction_reversed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Run a recurrent layer backwards in time."""
    if node.op_type not in ("LSTM", "GRU") or attribute(node, "direction") not in (None, b"forward"):
        return None
    return _set(net, node, "direction", "reverse")


def dilation_lost(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Leave out a dilation; the padding still fits."""
    dilations = list(attribute(node, "dilations") or ()) if node.op_type == "Conv" else []
    pads = list(attribute(node, "pads") or ())
    kernel = attribute(node, "kernel_shape")
    if not kernel or max(dilations, default=1) < 2 or not pads:
        return None
    less = [(d - 1) * (k - 1) for d, k in zip(dilations, kernel, strict=True)]
    half = len(less)
    for axis, total in enumerate(less):
        if pads[axis] + pads[axis + half] < total:
            return None
        from_start = min(pads[axis], total - min(pads[axis + half], total // 2))
        pads[axis], pads[axis + half] = pads[axis] - from_start, pads[axis + half] - (total - from_start)
    set_attribute(node, "pads", pads)
    return _set(net, node, "dilations", [1] * half)


def smallest_picked(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Pick the smallest in place of the largest."""
    return _set(net, node, "largest", 0) if node.op_type == "TopK" else None


def product_scaled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Scale a product by another alpha."""
    return _set(net, node, "alpha", 0.7) if node.op_type == "Gemm" else None


def pad_mode_changed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Pad with the border's own values, or with zeros where they were asked for."""
    if node.op_type != "Pad":
        return None
    if attribute(node, "mode") in (None, b"constant"):
        return _set(net, node, "mode", "edge")
    return _set(net, node, "mode", "constant")


# -- operators and operands --------------------------------------------------------------------------------------------


def activation_swapped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Compute another activation."""
    if node.op_type not in SWAPS:
        return None
    old = node.op_type
    node.op_type, attrs = SWAPS[old]
    del node.attribute[:]
    for name, value in attrs.items():
        set_attribute(node, name, value)
    return fault_of(node, f"it is a {node.op_type} and no {old}")


def pool_swapped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Take a maximum in place of a mean, or a mean in place of a maximum."""
    if node.op_type not in POOLS or len(node.output) > 1:
        return None
    old, node.op_type = node.op_type, POOLS[node.op_type]
    kept = [a for a in node.attribute if a.name in POOL_ATTRIBUTES]
    del node.attribute[:]
    node.attribute.extend(kept)
    return fault_of(node, f"it is a {node.op_type} and no {old}")


def operands_swapped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Exchange the two operands of a node whose order matters."""
    first = {"Sub": 0, "Div": 0, "Pow": 0, "MatMul": 0, "Where": 1}.get(node.op_type)
    if first is None or node.input[first] == node.input[first + 1]:
        return None
    node.input[first], node.input[first + 1] = node.input[first + 1], node.input[first]
    return fault_of(node, "its operands are swapped")


def parts_swapped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Join parts in another order."""
    if node.op_type != "Concat" or len(node.input) < 2:
        return None
    at = int(rng.integers(len(node.input) - 1))
    if node.input[at] == node.input[at + 1]:
        return None
    node.input[at], node.input[at + 1] = node.input[at + 1], node.input[at]
    return fault_of(node, f"its parts {at} and {at + 1} are swapped")


def wrong_part_read(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Read another part of a split tensor than the reference."""
    for slot, name in enumerate(node.input):
        made = net.producer(name) if name else None
        if made is None or made.op_type != "Split" or net.look is None:
            continue
        shape = net.look(name)[name].shape
        others = [o for o in made.output if o != name and net.look(o)[o].shape == shape]
        if others:
            node.input[slot] = others[int(rng.integers(len(others)))]
            return fault_of(node, f"it reads {node.input[slot]!r} and not {name!r}")
    return None


def _joined(net: Net, node: onnx.NodeProto, slot: int) -> Fault | None:
    """Take a node out: what it reads at a slot goes on under the name of its result."""
    source = net.producer(node.input[slot])
    ends = {value.name for value in net.graph.output}
    if source is None or node.output[0] in ends:
        return None
    readers = net.consumers(node.output[0])
    for reader in readers:
        for place, name in enumerate(reader.input):
            if name == node.output[0]:
                reader.input[place] = node.input[slot]
    net.graph.node.remove(node)
    named = frozenset({source.name, *(reader.name for reader in readers)})
    return Fault(named, f"the {node.op_type} {node.name} is gone")


def skip_dropped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Leave out a residual connection."""
    made = [net.producer(name) for name in node.input]
    if node.op_type != "Add" or any(each is None or each.op_type == "DequantizeLinear" for each in made):
        return None
    if net.look is not None:
        shapes = [net.look(name)[name].shape for name in (*node.input, node.output[0])]
        if len(set(shapes)) > 1:
            return None
    return _joined(net, node, int(rng.integers(2)))


def norm_dropped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Leave out a normalization."""
    if node.op_type not in ("LayerNormalization", "InstanceNormalization"):
        return None
    return _joined(net, node, 0)


# -- ranges of codes ---------------------------------------------------------------------------------------------------


def _meets_bias(net: Net, tensor: str) -> bool:
    """Tell whether codes enter a product with a bias: its integers are in steps of the product of both scales."""
    left = [tensor]
    while left:
        for reader in net.consumers(left.pop()):
            if reader.op_type in ("Conv", "Gemm", "QLinearConv", "QGemm", "ConvTranspose"):
                return True
            left += reader.output if reader.op_type in (*PASSES_CODES, "DequantizeLinear") else []
    return False


def _range_changed(net: Net, node: onnx.NodeProto, factor: float) -> Fault | None:
    """Write and read a tensor with another scale: what a wrong calibration gives."""
    if node.op_type not in WRITES or net.constant(node.input[WRITES[node.op_type][0]]) is None:
        return None
    if _meets_bias(net, node.output[0]):
        return None
    slot = WRITES[node.op_type][0]
    old = node.input[slot]
    scale = net.constant(old)
    if scale.size != 1 or (node.op_type == "QuantizeLinear" and net.constant(node.input[0]) is not None):
        return None
    new = net.add_constant(scale * np.float32(factor), "wrong_range")
    node.input[slot] = new
    for reader in net.consumers(node.output[0]):
        for place, name in enumerate(reader.input):
            if name == node.output[0] and place + 1 < len(reader.input) and reader.input[place + 1] == old:
                reader.input[place + 1] = new
    return fault_of(node, f"the scale of its codes is {factor} times as large")


def range_too_narrow(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Calibrate a tensor for a quarter of its range."""
    return _range_changed(net, node, 0.25)


def range_too_wide(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Calibrate a tensor for sixty times its range."""
    return _range_changed(net, node, 60.0)


def weight_zero_point_lost(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Read a weight's codes 16 codes off."""
    slot = {"QLinearConv": 5, "QGemm": 5, "DequantizeLinear": 2, "MatMulInteger": 3}.get(node.op_type)
    if slot is None or len(node.input) <= slot:
        return None
    if node.op_type == "DequantizeLinear" and net.constant(node.input[0]) is None:
        return None
    zero = net.constant(node.input[slot])
    if zero is None or zero.dtype not in (np.uint8, np.int8):
        return None
    node.input[slot] = net.add_constant((zero.astype(np.int16) - 16).astype(zero.dtype), "weight_zero_point")
    return fault_of(node, "the zero point of its weight is 16 less")


def bias_not_scaled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Store the integer bias of a product for another scale."""
    slot = {"QLinearConv": 8, "QGemm": 6}.get(node.op_type)
    if node.op_type == "DequantizeLinear":
        slot = 0
    bias = net.constant(node.input[slot]) if slot is not None and len(node.input) > slot else None
    if bias is None or bias.dtype != np.int32 or not np.any(bias):
        return None
    node.input[slot] = net.add_constant((bias * 4).astype(np.int32), "unscaled_bias")
    return fault_of(node, "its bias is 4 times as large")


SURGEONS: Mapping[str, Surgeon] = {
    surgeon.__name__: surgeon
    for surgeon in (
        *(weight_transposed, weight_of_another_layer, weight_bit_flipped, weight_too_coarse, input_channels_swapped),
        *(bias_rolled, statistics_rolled, gain_dropped, constant_changed, table_rolled, gates_swapped),
        *(index_off_by_one, bound_changed, epsilon_changed, axis_changed, slope_changed, perm_changed),
        *(resize_changed, pool_counts_padding, reset_moved, direction_reversed, dilation_lost, smallest_picked),
        *(product_scaled, pad_mode_changed, activation_swapped, pool_swapped, operands_swapped, parts_swapped),
        *(wrong_part_read, skip_dropped, norm_dropped, range_too_narrow, range_too_wide, weight_zero_point_lost),
        bias_not_scaled,
    )
}
