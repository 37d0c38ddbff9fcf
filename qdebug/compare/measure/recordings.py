"""Views of recordings: a single sample, real values for codes whose scale varies, and recently read tensors."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from qdebug.compare.result.result import RunComparison
from qdebug.errors import RecordingError, UsageError
from qdebug.model import Graph, Node, QuantParams, Recording, Role, TensorInfo, operators
from qdebug.model.dtypes import bit_width, is_float, is_integer, logical_dtype, logical_name
from qdebug.model.kept import Kept
from qdebug.model.layouts import normalize_layouts
from qdebug.model.operators import with_onnx_op
from qdebug.model.operators.dialects import Translated, translate_to_onnx
from qdebug.model.operators.known_scales import Facts, quant_facts
from qdebug.model.recording import Outline, quant_of
from qdebug.model.view import View
from qdebug.numerics.affine import dequantize, is_wide_code
from qdebug.numerics.checkpoint import checkpoint

__all__ = [
    "DequantizedPerSample",
    "OneSample",
    "RecentTensors",
    "as_compared",
    "dequantize_where_scale_varies",
    "is_fed_back",
    "renumber_sample",
    "with_understood_graph",
]


class OneSample(View):
    """A view of a single sample of a recording, numbered 0.

    Args:
        recording: The whole recording.
        sample: The sample.

    Raises:
        UsageError: The recording has no such sample.
    """

    def __init__(self, recording: Recording, sample: int) -> None:
        if sample >= recording.samples:
            last = recording.samples - 1
            samples_text = "only sample 0" if last == 0 else f"samples 0 to {last}"
            raise UsageError(
                f"There is no sample {sample}: the recording of {recording.info.backend!r} has {samples_text}.",
                hint=f"Give --sample N with N at most {last}.",
            )
        super().__init__(recording)
        self._sample = sample

    @property
    def samples(self) -> int:
        """Always 1."""
        return 1

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the recorded steps of the sample for a tensor, or for any tensor, as places in order."""
        if tensor is not None and self.graph.is_constant(tensor):
            return super().places(tensor)
        return tuple((0, step) for sample, step in super().places(tensor) if sample == self._sample)

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether values of a tensor were kept for the sample and a step."""
        return sample == 0 and super().has(tensor, self._sample, step)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements of the sample, read-only.

        Raises:
            RecordingError: No values are kept under this name and step, or a different sample is requested.
        """
        if sample != 0:
            raise RecordingError(
                f"This view contains only sample {self._sample} of {self.info.backend!r}, as sample 0.",
                hint="Ask for sample 0.",
            )
        return super().load(tensor, self._sample, step)

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the record of partially kept values, or None if they were kept in full or not at all."""
        return super().kept(tensor, self._sample, step) if sample == 0 else None

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that differs from their tensor's, by tensor, sample and step."""
        all_quants = super().event_quants
        return {(name, 0, step): quant for (name, sample, step), quant in all_quants.items() if sample == self._sample}


def renumber_sample(result: RunComparison, sample: int) -> RunComparison:
    """Return a comparison of a single sample, renumbered with the sample's number in the recordings.

    Args:
        result: A comparison of two `OneSample` recordings.
        sample: The sample's number.
    """
    nodes = []
    for node in result.nodes:
        samples = tuple(replace(entry, sample=sample) for entry in node.samples)
        metrics = node.metrics
        if metrics is not None and metrics.worst_sample is not None:
            metrics = replace(metrics, worst_sample=sample)
        nodes.append(replace(node, samples=samples, metrics=metrics))
    outputs = tuple(
        output if output.worst_sample is None else replace(output, worst_sample=sample) for output in result.outputs
    )
    verdict = result.verdict
    if verdict.worst_sample is not None:
        verdict = replace(verdict, worst_sample=sample)
    return replace(result, nodes=tuple(nodes), outputs=outputs, verdict=verdict)


def as_compared(recording: Recording) -> Recording:
    """Return a recording with every scale that can be derived, and with its nodes fully described.

    Each scale applies to all samples. A harness may declare a scale only once: where the tensor is computed, where it
    is read, or at a tensor whose codes are passed on, see `qdebug.model.operators.known_scales`. If nothing can be
    added, the recording itself is returned.

    Args:
        recording: The recording.
    """
    return dequantize_where_scale_varies(with_understood_graph(recording))


def with_understood_graph(recording: Recording) -> Recording:
    """Return a recording whose graph states all derivable scales and node facts, the same one if it already does.

    Args:
        recording: The recording.
    """
    recording = _with_recorded_outputs(_translate_to_onnx(_with_known_scales(recording)))
    graph = normalize_layouts(recording.graph)
    return recording if graph is recording.graph else View(recording, graph=graph)


def _translate_to_onnx(recording: Recording) -> Recording:
    """Return a recording whose nodes are translated to ONNX where fully understood, with their weights permuted."""
    graph = recording.graph
    constants = _make_constant_loader(recording)
    translated_nodes = {
        node.name: translated_node
        for node in graph.nodes
        if (translated_node := translate_to_onnx(node, graph, constants)) is not None
    }
    shared_constants = {
        name
        for name, order in _orders_of_constants(translated_nodes.values()).items()
        if any(
            node.name not in translated_nodes or _orders_of_constants([translated_nodes[node.name]]).get(name) != order
            for node in graph.consumers(name)
        )
        or not graph.is_constant(name)
    }
    translated_nodes = {
        node: translated_node
        for node, translated_node in translated_nodes.items()
        if shared_constants.isdisjoint(_orders_of_constants([translated_node]))
    }
    if not translated_nodes:
        return recording
    orders = _orders_of_constants(translated_nodes.values())
    infos = [_permute_shape(info, orders[name]) if name in orders else info for name, info in graph.tensors.items()]
    nodes = [translated_nodes[node.name].node if node.name in translated_nodes else node for node in graph.nodes]
    new_constants = {
        name: values
        for translated_node in translated_nodes.values()
        for name, values in translated_node.constants.items()
    }
    infos += [
        TensorInfo(name=name, shape=values.shape, dtype=values.dtype.name, role=Role.CONSTANT)
        for name, values in new_constants.items()
    ]
    permutations = {name: partial(_rearrange, order=order) for name, order in orders.items()}
    return View(recording, graph=_with_tensors(graph, infos, nodes), constants=new_constants, changes=permutations)


_Order = tuple[int, ...] | None
"""The permutation applied to a constant's dimensions. None merges its first two dimensions."""


def _orders_of_constants(translated_nodes: Iterable[Translated]) -> dict[str, _Order]:
    """Return how constants are rearranged for translated nodes."""
    orders: dict[str, _Order] = {}
    for translated_node in translated_nodes:
        orders |= translated_node.permutations
        orders |= dict.fromkeys(translated_node.merged_constants)
    return orders


def _rearrange(array: np.ndarray, *, order: _Order) -> np.ndarray:
    return array.reshape(-1, *array.shape[2:]) if order is None else array.transpose(order)


def _permute_shape(info: TensorInfo, order: _Order) -> TensorInfo:
    shape, quant = info.shape, info.quant
    axis = None if quant is None else quant.axis
    if order is None:
        if shape is None or shape[0] is None or shape[1] is None:
            raise ValueError(f"the shape of {info.name!r} is not known")
        axis = None if axis is None else max(axis % len(shape) - 1, 0)
        shape = (shape[0] * shape[1], *shape[2:])
    else:
        axis = None if axis is None else order.index(axis % len(order))
        shape = None if shape is None else tuple(shape[source_axis] for source_axis in order)
    return replace(info, shape=shape, quant=quant if quant is None else replace(quant, axis=axis))


def _make_constant_loader(recording: Recording) -> Callable[[str], np.ndarray | None]:
    """Return a function that loads a constant by name, or returns None for tensors that are not recorded constants."""

    def constant(name: str) -> np.ndarray | None:
        if name not in recording.graph.tensors or not recording.graph.is_constant(name) or not recording.has(name):
            return None
        return recording.load(name)

    return constant


def _with_known_scales(recording: Recording) -> Recording:
    graph = recording.graph
    stated = {name: info.quant for name, info in graph.tensors.items() if info.quant is not None}
    if not any(info.quant is None and _may_be_code(info) for info in graph.tensors.values()):
        return recording
    facts = Facts(
        constant=_make_constant_loader(recording),
        dtype=lambda name: graph.tensors[name].dtype if name in graph.tensors else None,
        rank=lambda name: None if (shape := graph.tensors[name].shape) is None else len(shape),
    )
    nodes = [with_onnx_op(node) for node in graph.nodes]
    derived_quants = {
        name: quant
        for name, quant in quant_facts(nodes, facts, stated).items()
        if name in graph.tensors and graph.tensors[name].quant is None and _may_be_code(graph.tensors[name])
    }
    if not derived_quants:
        return recording
    infos = [replace(info, quant=derived_quants.get(name, info.quant)) for name, info in graph.tensors.items()]
    return View(recording, graph=_with_tensors(graph, infos))


def _with_recorded_outputs(recording: Recording) -> Recording:
    """Return a recording in which outputs without values are replaced by recorded tensors that determine them."""
    graph = recording.graph
    outputs = tuple(dict.fromkeys(_recorded_form(recording, name) for name in graph.outputs))
    if outputs == graph.outputs:
        return recording
    return View(recording, graph=_with_tensors(graph, list(graph.tensors.values()), outputs=outputs))


def _recorded_form(recording: Recording, output: str) -> str:
    """Return the name of a recorded tensor that determines a network output, or the output itself.

    Codes with a known scale determine it, and so do the same values in a different shape.
    """
    graph, name = recording.graph, output
    while not recording.has(name):
        node = graph.producer(name)
        row = None if node is None else operators.of(node.op)
        if node is None or row is None or not node.inputs or not (row.dequantizes or row.keeps_values):
            return output
        name = node.inputs[0]
        if row.dequantizes and graph.tensors[name].quant is None:
            return output
    return output if graph.is_constant(name) or name in graph.inputs else name


def _may_be_code(info: TensorInfo) -> bool:
    if info.dtype is None or info.shape == ():
        return False
    return is_integer(info.dtype) or (is_float(info.dtype) and bit_width(info.dtype) <= _MAX_CODE_BITS)


_MAX_CODE_BITS = 8
"""Bits of the widest float format whose numbers are codes with a scale."""


def _with_tensors(
    graph: Graph,
    tensors: Sequence[TensorInfo],
    nodes: Sequence[Node] | None = None,
    *,
    outputs: Sequence[str] | None = None,
) -> Graph:
    return Graph(
        graph.nodes if nodes is None else nodes,
        tensors=tensors,
        inputs=graph.inputs,
        outputs=graph.outputs if outputs is None else outputs,
        name=graph.name,
        opset=graph.opset,
    )


def dequantize_where_scale_varies(recording: Recording) -> Recording:
    """Return a recording that shows tensors as real values if their quantization varies, or the recording itself."""
    varying = {tensor for tensor, _, _ in recording.event_quants}
    return DequantizedPerSample(recording, varying) if varying else recording


class DequantizedPerSample(View):
    """A recording that shows some tensors as real values.

    Args:
        recording: The recording.
        tensors: Tensors whose quantization varies.
    """

    def __init__(self, recording: Recording, tensors: set[str]) -> None:
        self._tensors = tensors
        graph = recording.graph
        infos = [
            replace(info, quant=None, dtype=_real_dtype(info.dtype)) if name in tensors else info
            for name, info in graph.tensors.items()
        ]
        super().__init__(recording, graph=_with_tensors(graph, infos))

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements or their real values, read-only.

        Raises:
            RecordingError: No values are kept under this name, sample and step.
        """
        array = self._recording.load(tensor, sample, step)
        if tensor not in self._tensors:
            return array
        shown = _real_dtype(logical_name(array.dtype))
        quant = quant_of(self._recording, tensor, sample, step)
        real = dequantize(array, quant, double=shown == "float64").astype(shown, copy=False)
        real.flags.writeable = False
        return real

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return dtype, shape and hash of values that are shown as recorded, or None for other values."""
        return None if tensor in self._tensors else self._recording.outline(tensor, sample, step)

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the record of partially kept values, or None for a tensor whose quantization varies."""
        return None if tensor in self._tensors else self._recording.kept(tensor, sample, step)

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Always empty."""
        return {}


def _real_dtype(dtype: str | None) -> str:
    """Return the dtype in which the real values of codes are shown."""
    return "float64" if dtype is not None and is_wide_code(logical_dtype(dtype)) else "float32"


def is_fed_back(recording: Recording, tensor: str) -> bool:
    """Return whether an input is a state: at every step but the first, it equals an output of the previous step.

    Args:
        recording: The run.
        tensor: An input of the network.
    """
    later_places = [place for place in recording.places(tensor) if place[1] and recording.has(tensor, *place)]
    if not later_places or len(later_places) < recording.samples * (recording.steps - 1):
        return False

    def feeds(output: str) -> bool:
        return all(
            recording.has(output, sample, step - 1)
            and np.array_equal(recording.load(tensor, sample, step), recording.load(output, sample, step - 1))
            for sample, step in later_places
        )

    return any(map(feeds, recording.graph.outputs))


_MAX_CACHED_BYTES = 1 << 23
_MAX_TENSOR_BYTES = 1 << 18


class RecentTensors(View):
    """A recording with its most recent small tensors cached.

    Args:
        recording: The recording.
        max_bytes: Maximum total size of the cached tensors.
        max_tensor_bytes: Maximum size of a cached tensor.
    """

    def __init__(
        self, recording: Recording, *, max_bytes: int = _MAX_CACHED_BYTES, max_tensor_bytes: int = _MAX_TENSOR_BYTES
    ) -> None:
        super().__init__(recording)
        self._max_bytes, self._max_tensor_bytes = max_bytes, max_tensor_bytes
        self._kept: OrderedDict[tuple[str, int, int], np.ndarray] = OrderedDict()
        self._bytes = 0

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether values of a tensor were kept for a sample and step."""
        return (tensor, sample, step) in self._kept or self._recording.has(tensor, sample, step)

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return dtype, shape and hash of values that were kept in full, or None if unknown."""
        return self._recording.outline(tensor, sample, step)

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements, read-only.

        Raises:
            RecordingError: No values are kept under this name, sample and step.
        """
        checkpoint()
        key = (tensor, 0, 0) if self.graph.is_constant(tensor) else (tensor, sample, step)
        array = self._kept.get(key)
        if array is not None:
            self._kept.move_to_end(key)
            return array
        array = self._recording.load(tensor, sample, step)
        if array.nbytes <= self._max_tensor_bytes:
            self._kept[key] = array
            self._bytes += array.nbytes + 512  # even a nearly empty array takes memory
            while self._bytes > self._max_bytes:
                _, oldest = self._kept.popitem(last=False)
                self._bytes -= oldest.nbytes + 512
        return array
