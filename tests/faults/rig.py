"""Run a small net on ONNX Runtime as it is, and once more with errors added to some of its tensors."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from qdebug.api import diff
from qdebug.backends.onnx.model import OnnxModel
from qdebug.compare.result.result import RunComparison
from qdebug.model import MemoryRecording, RunInfo

Feeds = Mapping[str, np.ndarray]


def node(op: str, inputs: str | Sequence[str], outputs: str, **attrs: object) -> onnx.NodeProto:
    """Make a node that is called as its first output; names are separated by spaces."""
    made = outputs.split()
    return helper.make_node(op, inputs.split() if isinstance(inputs, str) else inputs, made, name=made[0], **attrs)


def model(nodes: Sequence[onnx.NodeProto], feeds: Feeds, constants: Feeds, *outputs: str) -> onnx.ModelProto:
    """Make a net."""
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in feeds.items()
    ]
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "net", inputs, [onnx.ValueInfoProto(name=name) for name in outputs], stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def run(net: onnx.ModelProto, feeds: Feeds, added: Feeds) -> dict[str, np.ndarray]:
    """Return every tensor of a run in which something is added to some of them."""
    changed = onnx.ModelProto()
    changed.CopyFrom(net)
    made = [name for each in net.graph.node for name in each.output if name]
    for tensor, error in added.items():
        place = next(place for place, each in enumerate(changed.graph.node) if tensor in each.output)
        outputs = changed.graph.node[place].output
        outputs[list(outputs).index(tensor)] = f"{tensor}/right"
        changed.graph.initializer.append(numpy_helper.from_array(np.asarray(error), f"{tensor}/error"))
        op = "Xor" if np.asarray(error).dtype == bool else "Add"
        changed.graph.node.insert(place + 1, helper.make_node(op, [f"{tensor}/right", f"{tensor}/error"], [tensor]))
    known = {each.name for each in changed.graph.output}
    changed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in known)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(changed.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, map(np.asarray, session.run(names, dict(feeds))), strict=True))


def recorded(net: onnx.ModelProto, feeds: Feeds, constants: Feeds, added: Feeds) -> MemoryRecording:
    """Record a run under the graph of the right net."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.onnx"
        onnx.save(onnx.shape_inference.infer_shapes(net), path)
        graph = OnnxModel(path, onnx.load(path)).graph
    values = {**feeds, **constants, **run(net, feeds, added)}
    arrays = {name: np.asarray(array) for name, array in values.items() if name in graph.tensors}
    return MemoryRecording.single(graph, arrays, RunInfo(backend="rig"))


def compared(nodes: Sequence[onnx.NodeProto], feeds: Feeds, constants: Feeds, added: Feeds) -> RunComparison:
    """Compare the right run with the one in which something is added to some tensors."""
    net = model(nodes, feeds, constants, "y")
    return diff(recorded(net, feeds, constants, {}), recorded(net, feeds, constants, added))
