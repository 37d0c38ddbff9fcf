"""Recorded facts as frozen values: graph, tensors, quantization, run facts. Does not read or write files."""

from qdebug.model.graph import AttrValue, Graph, Node
from qdebug.model.quant import QuantParams
from qdebug.model.recording import Fidelity, MemoryRecording, Recording, RunInfo
from qdebug.model.tensor import Role, TensorInfo

__all__ = [
    "AttrValue",
    "Fidelity",
    "Graph",
    "MemoryRecording",
    "Node",
    "QuantParams",
    "Recording",
    "Role",
    "RunInfo",
    "TensorInfo",
]
