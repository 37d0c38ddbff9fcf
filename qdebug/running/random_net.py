"""A small network with random weights, recorded in memory: test data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.model.dtypes import logical_name
from qdebug.numerics.affine import dequantize, quantize

__all__ = ["random_recording"]


def random_recording(
    rng: np.random.Generator,
    *,
    layers: int = 3,
    width: int = 8,
    samples: int = 2,
    quantized: bool = False,
    wrong: str | None = None,
) -> MemoryRecording:
    """Make the recording of a small network with random weights and inputs, as test data.

    The network is a chain of MatMul nodes ("fc1", "fc2", ...), each followed by a Relu ("fc1_relu", ...). Generators in
    the same state give the same network and inputs, so a float and a quantized recording form a matching pair.

    Args:
        rng: The generator, for example numpy.random.default_rng(0).
        layers: Number of MatMul nodes.
        width: Number of values in each tensor.
        samples: Number of samples.
        quantized: Whether to compute in 8-bit codes instead of float32.
        wrong: Name of a node with a wrong output.

    Raises:
        UsageError: There is no node with the name `wrong`, or a number is below 1.
    """
    if min(layers, width, samples) < 1:
        raise UsageError(f"{layers} layers of {width} values for {samples} samples do not make a recording.")
    net = _Net(rng, layers=layers, width=width, samples=samples, quantized=quantized)
    if wrong is not None and wrong not in net.names:
        raise UsageError(
            f"There is no node {wrong!r}; the nodes are {', '.join(net.names)}.", hint="Give one of these."
        )
    return net.record(wrong)


class _Net:
    """A chain of fully connected layers: weights, inputs, and quantization fitted to the activations."""

    def __init__(self, rng: np.random.Generator, *, layers: int, width: int, samples: int, quantized: bool) -> None:
        self._weights = {
            f"fc{layer}": (rng.normal(size=(width, width)) / np.sqrt(width)).astype(np.float32)
            for layer in range(1, layers + 1)
        }
        self._inputs = [rng.uniform(-1, 1, size=(1, width)).astype(np.float32) for _ in range(samples)]
        self._quants: dict[str, QuantParams] = {}
        self.names = [name for fc in self._weights for name in (fc, f"{fc}_relu")]
        if quantized:
            maxima: dict[str, float] = {}
            for x in self._inputs:
                for name, values in self._compute_tensors(x, None).items():
                    maxima[name] = max(maxima.get(name, 0.0), float(np.abs(values).max()))
            weight_maxima = {name: float(np.abs(weight).max()) for name, weight in self._weights.items()}
            maxima |= {f"{name}.weight": maximum for name, maximum in weight_maxima.items()}
            for name in self._weights:
                maxima[f"{name}_relu"] = maxima[name]  # a Relu keeps the codes of its input
            self._quants = {
                name: QuantParams(dtype="int8", scale=np.asarray((maximum or 1.0) / 127))
                for name, maximum in maxima.items()
            }

    def _compute_tensors(self, x: np.ndarray, faulty_node: str | None) -> dict[str, np.ndarray]:
        """Return every tensor of one sample: codes if the network is quantized, real values if not."""
        tensors = {"x": self._to_stored("x", x)}
        previous_tensor = "x"
        for name, weight in self._weights.items():
            real_inputs = dequantize(tensors[previous_tensor], self._quants.get(previous_tensor))
            real_weights = dequantize(self._to_stored(f"{name}.weight", weight), self._quants.get(f"{name}.weight"))
            tensors[name] = self._to_stored(name, self._with_fault(real_inputs @ real_weights, name, faulty_node))
            values = np.maximum(dequantize(tensors[name], self._quants.get(name)), 0)
            tensors[f"{name}_relu"] = self._to_stored(
                f"{name}_relu", self._with_fault(values, f"{name}_relu", faulty_node)
            )
            previous_tensor = f"{name}_relu"
        return tensors

    def _to_stored(self, name: str, values: np.ndarray) -> np.ndarray:
        return quantize(values, self._quants[name]) if name in self._quants else values.astype(np.float32)

    @staticmethod
    def _with_fault(values: np.ndarray, name: str, faulty_node: str | None) -> np.ndarray:
        return values[..., ::-1] + np.float32(0.25) if name == faulty_node else values

    def record(self, faulty_node: str | None) -> MemoryRecording:
        """Run every sample and return the recording."""
        arrays = {
            (f"{name}.weight", 0, 0): self._to_stored(f"{name}.weight", weight)
            for name, weight in self._weights.items()
        }
        for sample, x in enumerate(self._inputs):
            arrays |= {(name, sample, 0): values for name, values in self._compute_tensors(x, faulty_node).items()}
        nodes, previous_tensor = [], "x"
        for name in self._weights:
            nodes.append(Node(name=name, op="MatMul", inputs=(previous_tensor, f"{name}.weight"), outputs=(name,)))
            previous_tensor = f"{name}_relu"
            nodes.append(Node(name=previous_tensor, op="Relu", inputs=(name,), outputs=(previous_tensor,)))
        infos = {
            name: TensorInfo(
                name=name,
                shape=values.shape,
                dtype=logical_name(values.dtype),
                role=Role.CONSTANT if name.endswith(".weight") else Role.ACTIVATION,
                quant=self._quants.get(name),
            )
            for (name, _, _), values in arrays.items()
        }
        infos["x"] = replace(infos["x"], role=Role.INPUT)
        infos[previous_tensor] = replace(infos[previous_tensor], role=Role.OUTPUT)
        graph = Graph(nodes, tensors=infos.values(), inputs=("x",), outputs=(previous_tensor,), name="random")
        return MemoryRecording(graph, arrays, RunInfo(backend="int8" if self._quants else "float32", model="random"))
