"""A net as ONNX Runtime executes it: one node's result is replaced, and everything below really runs again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from kernel_faults import Site
from onnx import helper

from qdebug.backends import load_backend
from qdebug.backends.onnxruntime.session import repair_subgraphs
from qdebug.model import MemoryRecording, Node
from qdebug.running.record import record_run
from qdebug.session import open_recording


class Executed:
    """A recorded healthy run, and the executed model to run again from any tensor on.

    Args:
        model: The model file.
        level: Optimization level.
        feeds: Inputs, samples along the leading axis.
        out: The recording to make.
    """

    def __init__(self, model: Path, level: str, feeds: Mapping[str, np.ndarray], out: Path) -> None:
        self._feeds = feeds
        self._count = len(next(iter(feeds.values())))
        chosen = {"backend": "onnxruntime", "options": {"opt": level, "threads": "1"}}
        record_run(model, **chosen, inputs=feeds, samples=self._count, out=out, force=True)
        self.recording = open_recording(out)
        run = load_backend("onnxruntime").open(model, options=chosen["options"])
        try:
            self._proto = onnx.load(run._executed_model.path)
        finally:
            run.close()
        repair_subgraphs(self._proto.graph)
        self._made = {name: node for node in self._proto.graph.node for name in node.output if name}
        self.arrays = {
            (name, sample, 0): self.recording.load(name, sample)
            for name in self.recording.names
            for sample in range(1 if self.recording.graph.is_constant(name) else self._count)
            if self.recording.has(name, sample)
        }

    @property
    def nodes(self) -> list[Node]:
        """Return the nodes that compute something, in order."""
        graph = self.recording.graph
        return [n for n in graph.nodes if n.outputs and n.outputs[0] in self._made and not self._constant(n.outputs[0])]

    def _constant(self, name: str) -> bool:
        return self.recording.graph.is_constant(name)

    def value(self, name: str, sample: int) -> np.ndarray | None:
        """Return a tensor's value; None if it was not recorded."""
        return self.arrays.get((name, 0 if self._constant(name) else sample, 0)) if name else None

    def site(self, tensor: str, sample: int, seed: int) -> Site | None:
        """Return what a kernel has at hand; None where a value is missing."""
        node = self._made[tensor]
        inputs = [self.value(name, sample) for name in node.input]
        if any(name and value is None for name, value in zip(node.input, inputs, strict=True)):
            return None
        right, stale = self.value(tensor, sample), self.value(tensor, (sample + 1) % self._count)
        if right is None or stale is None:
            return None
        constant = frozenset(slot for slot, name in enumerate(node.input) if name and self._constant(name))
        return Site(node, inputs, right, stale, self._proto.opset_import, seed, constant)

    def below(self, tensor: str, wrong: Mapping[int, np.ndarray]) -> MemoryRecording:
        """Run everything below a tensor on other values of it; the graph of the recording stays.

        Args:
            tensor: Its name.
            wrong: Its values by sample.
        """
        import onnxruntime

        proto = onnx.ModelProto()
        proto.CopyFrom(self._proto)
        made = next(node for node in proto.graph.node if tensor in node.output)
        made.output[list(made.output).index(tensor)] = f"{tensor}__right"
        kind = helper.np_dtype_to_tensor_dtype(wrong[0].dtype)
        proto.graph.input.append(helper.make_tensor_value_info(tensor, kind, None))
        known = [value for value in proto.graph.value_info if value.name != tensor]
        del proto.graph.value_info[:], proto.graph.output[:]
        proto.graph.value_info.extend(known)
        names = [name for name in self._made if name != tensor and (name, 0, 0) in self.arrays]
        names = [name for name in names if not self._constant(name)]
        proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session = onnxruntime.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        arrays = dict(self.arrays)
        for sample in range(self._count):
            feed = {name: array[sample] for name, array in self._feeds.items()}
            for name, array in zip(names, session.run(names, {**feed, tensor: wrong[sample]}), strict=True):
                arrays[name, sample, 0] = array
            arrays[tensor, sample, 0] = wrong[sample]
        return MemoryRecording(self.recording.graph, arrays, self.recording.info)

    def outputs(self, recording: MemoryRecording) -> dict[str, np.ndarray]:
        """Return the network outputs of a run, all samples of each joined."""
        return {
            f"{name} {sample}": recording.load(name, sample)
            for name in recording.graph.outputs
            for sample in range(self._count)
            if recording.has(name, sample)
        }
