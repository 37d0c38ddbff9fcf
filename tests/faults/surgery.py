"""Seed faults into ONNX graphs: one wrong thing in one node, chosen by a seed.

A fault either is in the model, where the graph shows it (a weight, a stride, a scale), or imitates a kernel's: nodes
put behind the faulty one spoil its result, and `Disguise` says how to take them out of the recorded graph again, so
that the recording shows a healthy graph and values that are wrong.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import onnx
from onnx import helper, numpy_helper

PRODUCTS = ("Conv", "Gemm", "MatMul", "QLinearConv", "QGemm")
ACTIVATIONS = ("Relu", "Clip", "HardSigmoid", "Sigmoid", "LeakyRelu")
PASSES_ROWS = ("Conv", "Gemm", "MatMul", "Add", "Mul", "BatchNormalization", "MaxPool", "AveragePool")


@dataclass(frozen=True)
class Disguise:
    """What to undo in the recorded graph: nodes to leave out, tensors to rename, attributes as they were."""

    drop: frozenset[str] = frozenset()
    rename: Mapping[str, str] = field(default_factory=dict)
    attrs: Mapping[str, Mapping[str, object]] = field(default_factory=dict)


@dataclass(frozen=True)
class Fault:
    """A seeded fault: the source nodes that do wrong (any of them is the right answer), and what was done."""

    nodes: frozenset[str]
    what: str
    disguise: Disguise | None = None


class Net:
    """A model under surgery; constants are initializers and every node has a name.

    Args:
        model: It is copied.
        look: Gives the values that named tensors have in a healthy run, on another input if `other` is set.
    """

    def __init__(self, model: onnx.ModelProto, look: Callable[..., dict[str, np.ndarray]] | None = None) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        self.graph = self.model.graph
        self.look = look
        del self.graph.value_info[:]
        self._name_everything()

    def _name_everything(self) -> None:
        kept = []
        for index, node in enumerate(self.graph.node):
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                tensor = node.attribute[0].t
                tensor.name = node.output[0]
                self.graph.initializer.append(tensor)
                continue
            node.name = node.name or f"{node.op_type}@{index}"
            kept.append(node)
        del self.graph.node[:]
        self.graph.node.extend(kept)

    def node(self, name: str) -> onnx.NodeProto:
        return next(node for node in self.graph.node if node.name == name)

    def constant(self, name: str) -> np.ndarray | None:
        found = next((tensor for tensor in self.graph.initializer if tensor.name == name), None)
        return None if found is None else numpy_helper.to_array(found)

    def add_constant(self, array: np.ndarray, title: str) -> str:
        taken = {tensor.name for tensor in self.graph.initializer}
        name = next(f"{title}__{number}" for number in itertools.count(1) if f"{title}__{number}" not in taken)
        self.graph.initializer.append(numpy_helper.from_array(np.array(array, order="C"), name))
        return name

    def consumers(self, tensor: str) -> list[onnx.NodeProto]:
        return [node for node in self.graph.node if tensor in node.input]

    def producer(self, tensor: str) -> onnx.NodeProto | None:
        return next((node for node in self.graph.node if tensor in node.output), None)

    def insert_after(self, node: onnx.NodeProto, *new: onnx.NodeProto) -> None:
        place = next(i for i, other in enumerate(self.graph.node) if other.name == node.name) + 1
        for offset, each in enumerate(new):
            self.graph.node.insert(place + offset, each)

    def insert_before(self, node: onnx.NodeProto, *new: onnx.NodeProto) -> None:
        place = next(i for i, other in enumerate(self.graph.node) if other.name == node.name)
        for offset, each in enumerate(new):
            self.graph.node.insert(place + offset, each)

    def forget_shapes(self) -> None:
        """Let outputs have any shape of their rank, as a fault may change it."""
        for value in self.graph.output:
            for number, dim in enumerate(value.type.tensor_type.shape.dim):
                dim.Clear()
                dim.dim_param = f"any_{value.name}_{number}"


Surgeon = Callable[[Net, onnx.NodeProto, np.random.Generator], Fault | None]


def attribute(node: onnx.NodeProto, name: str) -> object:
    """Return an attribute, or None."""
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), None)


def set_attribute(node: onnx.NodeProto, name: str, value: object) -> None:
    """Set an attribute that may be there."""
    for found in [a for a in node.attribute if a.name == name]:
        node.attribute.remove(found)
    node.attribute.append(helper.make_attribute(name, value))


def fault_of(node: onnx.NodeProto, what: str, disguise: Disguise | None = None) -> Fault:
    """Return the fault of one node."""
    return Fault(frozenset({node.name}), what, disguise)


# -- what a node of real numbers may have wrong ------------------------------------------------------------------------


def weight_slot(node: onnx.NodeProto) -> int:
    """Return the slot of a node's weight."""
    return 3 if node.op_type in ("QLinearConv", "QGemm") else 1


def channel_axis(node: onnx.NodeProto, rank: int) -> int:
    """Return the axis of a weight's output channels."""
    if node.op_type in ("Gemm", "QGemm"):
        return 0 if attribute(node, "transB") else 1
    return rank - 1 if node.op_type == "MatMul" else 0


def wrong_channel(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Return one output channel the weights of its neighbour."""
    readers = net.consumers(node.output[0]) if node.op_type == "DequantizeLinear" else [node]
    if len(readers) != 1 or readers[0].op_type not in PRODUCTS:
        return None
    slot = 0 if node is not readers[0] else weight_slot(node)
    weight = net.constant(node.input[slot]) if slot < len(node.input) else None
    if weight is None or weight.ndim < 2:
        return None
    axis = channel_axis(readers[0], weight.ndim)
    count = weight.shape[axis]
    channel = int(rng.integers(count))
    moved = np.moveaxis(weight.copy(), axis, 0)
    moved[channel] = moved[(channel + 1) % count] if count > 1 else -moved[channel]
    node.input[slot] = net.add_constant(np.moveaxis(moved, 0, axis), "wrong_weight")
    return fault_of(node, f"channel {channel} of its weight is its neighbour's")


def bias_dropped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Leave out a bias: of a product, a normalization, or an Add that carries one."""
    slots = {"Conv": 2, "Gemm": 2, "BatchNormalization": 2}
    if node.op_type == "Add":
        slot = next((i for i, name in enumerate(node.input) if net.constant(name) is not None), None)
    else:
        slot = slots.get(node.op_type)
    if slot is None or len(node.input) <= slot:
        return None
    bias = net.constant(node.input[slot])
    if bias is None or not np.any(bias):
        return None
    if node.op_type in ("Conv", "Gemm"):
        del node.input[slot]
    else:
        node.input[slot] = net.add_constant(np.zeros_like(bias), "no_bias")
    return fault_of(node, "its bias is dropped")


def activation_removed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Take an activation out and let the node before it write the activation's tensor."""
    before = net.producer(node.input[0]) if node.op_type in ACTIVATIONS else None
    if before is None or len(net.consumers(node.input[0])) != 1 or before.op_type in ("Reshape", "Transpose"):
        return None
    before.output[list(before.output).index(node.input[0])] = node.output[0]
    what = f"the {node.op_type} after it is gone"
    net.graph.node.remove(node)
    return fault_of(before, what)


def activation_bypassed(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Let what reads an activation read what enters it."""
    readers = net.consumers(node.output[0]) if node.op_type in ACTIVATIONS else []
    if len(readers) != 1 or node.output[0] in [value.name for value in net.graph.output]:
        return None
    if readers[0].op_type not in (*PRODUCTS, "Add", "Mul", "MaxPool", "AveragePool"):
        return None
    slot = list(readers[0].input).index(node.output[0])
    readers[0].input[slot] = node.input[0]
    what = f"it reads what enters the {node.op_type}"
    net.graph.node.remove(node)
    return fault_of(readers[0], what)


def pads_shifted(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Move padding from one end to the other; the shape stays."""
    pads = list(attribute(node, "pads") or ()) if node.op_type in ("Conv", "QLinearConv") else []
    half = len(pads) // 2
    axes = [axis for axis in range(half) if pads[axis] and pads[axis + half]]
    if not axes:
        return None
    axis = axes[int(rng.integers(len(axes)))]
    pads[axis], pads[axis + half] = pads[axis] - 1, pads[axis + half] + 1
    set_attribute(node, "pads", pads)
    net.forget_shapes()
    return fault_of(node, f"its pads are {pads}")


def stride_doubled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Make the last stride other than it is; the shape changes."""
    if node.op_type not in ("Conv", "MaxPool", "AveragePool", "QLinearConv"):
        return None
    kernel = attribute(node, "kernel_shape")
    if kernel is None:
        return None
    strides = list(attribute(node, "strides") or [1] * len(kernel))
    strides[-1] = 2 if strides[-1] == 1 else 1
    set_attribute(node, "strides", strides)
    net.forget_shapes()
    return fault_of(node, f"its strides are {strides}")


# -- what only a kernel does wrong -------------------------------------------------------------------------------------


def _stale(net: Net, node: onnx.NodeProto, rng: np.random.Generator, *, zero: bool) -> Fault | None:
    if node.op_type not in PASSES_ROWS or net.look is None:
        return None
    tensor = node.output[0]
    values = net.look(tensor)[tensor]
    if values.ndim < 2 or values.dtype != np.float32:
        return None
    axis = values.ndim - 2 if values.shape[-2] > 1 else values.ndim - 1
    row = int(rng.integers(values.shape[axis]))
    mask = np.zeros(values.shape, bool)
    np.moveaxis(mask, axis, 0)[row] = True
    old = np.zeros_like(values) if zero else net.look(tensor, other=True)[tensor]
    if old.shape != values.shape:
        return None
    node.output[0] = f"{tensor}__true"
    spoil = helper.make_node(
        "Where",
        [net.add_constant(mask, "mask"), net.add_constant(old, "old"), node.output[0]],
        [tensor],
        name=f"{node.name}__stale",
    )
    net.insert_after(node, spoil)
    hidden = Disguise(drop=frozenset({spoil.name}), rename={node.output[0]: tensor})
    return fault_of(node, f"row {row} of axis {axis} is {'zero' if zero else 'of another input'}", hidden)


def stale_row(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Let one row of a node's output keep what an earlier input left there."""
    return _stale(net, node, rng, zero=False)


def empty_row(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Let one row of a node's output be never written."""
    return _stale(net, node, rng, zero=True)


# -- what a quantized node may have wrong ------------------------------------------------------------------------------

CODED = ("QLinearConv", "QGemm", "QLinearAdd", "QLinearMul", "QLinearAveragePool", "QLinearGlobalAveragePool")


PASSES_CODES = (
    *("MaxPool", "Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Slice", "Gather", "Split", "Concat"),
    *("Resize", "Pad", "Relu", "Identity"),
)
"""Operators that have no scale, and hand codes on."""


def _from_constant(net: Net, name: str) -> bool:
    """Tell whether codes are those of a constant that was picked from or arranged: no node has written them."""
    made = net.producer(name)
    while made is not None and made.op_type in PASSES_CODES:
        name = made.input[0]
        made = net.producer(name)
    return net.constant(name) is not None


def zero_point_dropped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Read one tensor's codes without their zero point, in this node alone."""
    if node.op_type not in (*CODED, "DequantizeLinear") or _from_constant(net, node.input[0]):
        return None
    zero = net.constant(node.input[2])
    if zero is None or zero.ndim or not zero:
        return None
    node.input[2] = net.add_constant(np.zeros_like(zero), "zero_point_dropped")
    return fault_of(node, f"zero point {zero} of its input is dropped")


def scale_doubled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Read one tensor's codes, an input's or a weight's, with twice their scale, in this node alone."""
    slots = {"QLinearConv": (1, 4), "QGemm": (1, 4), "QLinearAdd": (1, 4), "QLinearMul": (1, 4)}
    chosen = slots.get(node.op_type, (1,) if node.op_type == "DequantizeLinear" else ())
    if chosen and net.constant(node.input[0]) is None and _from_constant(net, node.input[0]):
        return None
    return _doubled(net, node, int(rng.choice(chosen))) if chosen else None


def written_scale_doubled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Write one tensor's codes with twice the scale that they are read with.

    A tensor's scale is the one it is written with: by it the codes are right, and whoever reads them by another scale
    is the first to go wrong. The two cases cannot be told apart. A node without a scale hands the codes on.
    """
    slot = {"QLinearConv": 6, "QGemm": 7, "QLinearAdd": 6, "QLinearMul": 6, "QuantizeLinear": 1}.get(node.op_type)
    if slot is None or len(node.input) <= slot:
        return None
    fault = _doubled(net, node, slot)
    readers, left = set(), [*node.output]
    while left:
        for reader in net.consumers(left.pop()):
            readers.add(reader.name)
            left += reader.output if reader.op_type in PASSES_CODES else []
    return Fault(frozenset(readers), f"its input's {fault.what}") if fault and readers else None


def _doubled(net: Net, node: onnx.NodeProto, slot: int) -> Fault | None:
    scale = net.constant(node.input[slot])
    if scale is None:
        return None
    what = f"scale {node.input[slot]!r} is doubled"
    node.input[slot] = net.add_constant(scale * np.float32(2), "scale_doubled")
    return fault_of(node, what)


def scales_rolled(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Apply each channel's weight scale to its neighbour."""
    slot = {"QLinearConv": 4, "QGemm": 4, "DequantizeLinear": 1}.get(node.op_type)
    scale = None if slot is None else net.constant(node.input[slot])
    if slot is None or scale is None or scale.ndim != 1 or scale.size < 2:
        return None
    node.input[slot] = net.add_constant(np.roll(scale, 1), "scales_rolled")
    return fault_of(node, "its weight's scales are rolled by one channel")


def axis_swapped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Apply the scales of a weight along the other axis: what a transposed filter gets without its scales."""
    weight = net.constant(node.input[0]) if node.op_type == "DequantizeLinear" else None
    scale = net.constant(node.input[1]) if weight is not None else None
    if weight is None or scale is None or scale.ndim != 1 or weight.ndim < 2 or weight.shape[1] < 2:
        return None
    reach = weight.shape[1]
    zero = net.constant(node.input[2])
    node.input[1] = net.add_constant(np.resize(scale, reach), "scale_of_another_axis")
    node.input[2] = net.add_constant(np.resize(zero, reach), "zero_point_of_another_axis")
    set_attribute(node, "axis", 1)
    return fault_of(node, "its scales run along axis 1")


def output_clamped(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Clamp a node's codes to the inner three quarters of the range they take."""
    if node.op_type not in (*CODED, "QuantizeLinear") or net.look is None:
        return None
    tensor = node.output[0]
    codes = net.look(tensor)[tensor]
    if codes.dtype != np.uint8 or codes.size < 2:
        return None
    low, high = int(codes.min()), int(codes.max())
    margin = (high - low) // 8
    if not margin:
        return None
    table = np.clip(np.arange(256), low + margin, high - margin).astype(np.uint8)
    node.output[0] = f"{tensor}__true"
    cast = helper.make_node("Cast", [node.output[0]], [f"{tensor}__index"], name=f"{node.name}__index", to=6)
    clamp = helper.make_node(
        "Gather", [net.add_constant(table, "clamp"), cast.output[0]], [tensor], name=f"{node.name}__clamp", axis=0
    )
    net.insert_after(node, cast, clamp)
    hidden = Disguise(drop=frozenset({cast.name, clamp.name}), rename={node.output[0]: tensor})
    return fault_of(node, f"its codes are clamped to {low + margin}..{high - margin}", hidden)


def padded_with_zero(net: Net, node: onnx.NodeProto, rng: np.random.Generator) -> Fault | None:
    """Pad a quantized convolution with code 0 in place of the zero point."""
    pads = attribute(node, "pads") if node.op_type in ("Conv", "QLinearConv") else None
    if not pads or not any(pads):
        return None
    reader = node if node.op_type == "QLinearConv" else net.producer(node.input[0])
    if reader is None or reader.op_type not in ("QLinearConv", "DequantizeLinear"):
        return None
    zero = net.constant(reader.input[2])
    if zero is None or not zero:
        return None
    codes, padded = reader.input[0], f"{reader.input[0]}__padded"
    half = len(pads) // 2
    wide = [0, 0, *pads[:half], 0, 0, *pads[half:]]
    amounts = net.add_constant(np.array(wide, np.int64), "amounts")
    pad = helper.make_node(
        "Pad", [codes, amounts, net.add_constant(np.zeros_like(zero), "code_0")], [padded], name=f"{node.name}__pad"
    )
    new = [pad]
    if reader is node:
        node.input[0] = padded
    else:
        real = helper.make_node(
            "DequantizeLinear", [padded, *reader.input[1:]], [f"{padded}__real"], name=f"{node.name}__padded_real"
        )
        new.append(real)
        node.input[0] = real.output[0]
    set_attribute(node, "pads", [0] * len(pads))
    net.insert_before(node, *new)
    hidden = Disguise(
        drop=frozenset({pad.name}), rename={padded: codes}, attrs={node.name: {"pads": [int(p) for p in pads]}}
    )
    return fault_of(node, f"it pads with code 0 in place of {zero}", hidden)


SURGEONS: Mapping[str, Surgeon] = {
    surgeon.__name__: surgeon
    for surgeon in (
        wrong_channel,
        bias_dropped,
        activation_removed,
        activation_bypassed,
        pads_shifted,
        stride_doubled,
        stale_row,
        empty_row,
        zero_point_dropped,
        scale_doubled,
        written_scale_doubled,
        scales_rolled,
        axis_swapped,
        output_clamped,
        padded_with_zero,
    )
}


def operate(
    model: onnx.ModelProto, kind: str, seed: int, *, changes: Callable[[Net], bool], look=None, surgeons=SURGEONS
):
    """Seed a fault of a kind: nodes are tried in an order given by the seed until one changes the net's output.

    Returns:
        The faulty model and its fault.
    """
    rng = np.random.default_rng([seed, sum(kind.encode())])
    names = [node.name for node in Net(model).graph.node]
    for index in rng.permutation(len(names)):
        net = Net(model, look)
        fault = surgeons[kind](net, net.node(names[index]), rng)
        if fault is not None and changes(net):
            return net.model, fault
    raise LookupError(f"no node of this net can have {kind}")
