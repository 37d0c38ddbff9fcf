"""Nets for the adapters of several runtimes: real ones, and TensorFlow Lite ones made tensor by tensor."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"


class Net:
    """A TensorFlow Lite model under construction: tensors are known by the index that each method returns."""

    def __init__(self) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self.schema = schema
        self.model = schema.ModelT()
        self.model.version, self.model.buffers, self.model.operatorCodes = 3, [schema.BufferT()], []
        self.model.subgraphs = []
        self.subgraph()

    def subgraph(self):
        """Begin another subgraph."""
        graph = self.schema.SubGraphT()
        graph.tensors, graph.operators, graph.inputs, graph.outputs = [], [], [], []
        self.model.subgraphs.append(graph)
        self.graph = graph
        return len(self.model.subgraphs) - 1

    def tensor(self, name, shape, kind="FLOAT32", *, scale=None, zero=None, axis=0, data=None, **fields):
        """Add a tensor; `data` makes it a constant."""
        made = self.schema.TensorT()
        made.name, made.shape, made.type = name.encode(), list(shape), getattr(self.schema.TensorType, kind)
        if scale is not None:
            made.quantization = self.schema.QuantizationParametersT()
            made.quantization.scale = np.atleast_1d(np.asarray(scale, np.float32))
            zeros = np.zeros(made.quantization.scale.shape) if zero is None else zero
            made.quantization.zeroPoint = np.atleast_1d(np.asarray(zeros, np.int64))
            made.quantization.quantizedDimension = axis
        if data is not None:
            buffer = self.schema.BufferT()
            buffer.data = np.frombuffer(np.ascontiguousarray(data).tobytes(), np.uint8)
            made.buffer = len(self.model.buffers)
            self.model.buffers.append(buffer)
        for field, value in fields.items():
            setattr(made, field, value)
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1

    def constant(self, name, array, **facts):
        """Add a constant of an array's dtype."""
        array = np.asarray(array)
        return self.tensor(name, array.shape, array.dtype.name.upper(), data=array, **facts)

    def input(self, *facts, **more):
        """Add an input of the subgraph."""
        self.graph.inputs.append(self.tensor(*facts, **more))
        return self.graph.inputs[-1]

    def node(self, op: str, inputs: Sequence[int], outputs: Sequence[int], options="", version=1, custom="", **values):
        """Add an operator."""
        code, node = self.schema.OperatorCodeT(), self.schema.OperatorT()
        code.builtinCode, code.version = getattr(self.schema.BuiltinOperator, op), version
        code.deprecatedBuiltinCode = min(code.builtinCode, 127)
        code.customCode = custom.encode() if custom else None
        node.opcodeIndex = len(self.model.operatorCodes)
        self.model.operatorCodes.append(code)
        node.inputs, node.outputs = list(inputs), list(outputs)
        if options:
            node.builtinOptionsType = getattr(self.schema.BuiltinOptions, options)
            node.builtinOptions = getattr(self.schema, f"{options}T")()
            for name, value in values.items():
                setattr(node.builtinOptions, name, value)
        self.graph.operators.append(node)

    def output(self, *indices: int) -> None:
        """Make tensors outputs of the subgraph."""
        self.graph.outputs.extend(indices)

    def save(self, path: Path) -> Path:
        """Write the file."""
        import flatbuffers

        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), b"TFL3")
        path.write_bytes(bytes(builder.Output()))
        return path


@pytest.fixture(scope="session")
def nets() -> ModuleType:
    """Import the script that fetches real nets."""
    spec = importlib.util.spec_from_file_location("nets", Path(__file__).with_name("models.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def net() -> Net:
    """An empty TensorFlow Lite model."""
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    return Net()


@pytest.fixture
def digits_inputs() -> dict[str, dict[str, np.ndarray]]:
    """Four digits as the float net and as the int8 net take them."""
    pytest.importorskip("ai_edge_litert", reason="needs the extra litert")
    from qdebug.backends import load_reader

    with np.load(DIGITS / "digits_test.npz") as archive:
        images = archive["x"][:4].transpose(0, 2, 3, 1)
    found = {}
    for form in ("float", "int8"):
        graph = load_reader(DIGITS / f"digits_{form}.tflite").graph
        quant = graph.tensors[graph.inputs[0]].quant
        codes = images if quant is None else np.clip(np.round(images / quant.scale) + quant.zero_point, -128, 127)
        found[form] = {graph.inputs[0]: codes.astype(np.float32 if quant is None else np.int8)}
    return found
