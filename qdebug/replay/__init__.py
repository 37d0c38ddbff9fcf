"""Run the nodes of a graph again with numpy: one kernel per operator, one family of operators per module."""

from qdebug.replay.arithmetic import ROUNDINGS, Arithmetic
from qdebug.replay.registry import Call, Kernel, find_kernel, has_kernel, kernel, known_kernels, run_node
from qdebug.replay.run import Fault, OnTensor, one_thread, run_graph

__all__ = [
    "ROUNDINGS",
    "Arithmetic",
    "Call",
    "Fault",
    "Kernel",
    "OnTensor",
    "find_kernel",
    "has_kernel",
    "kernel",
    "known_kernels",
    "one_thread",
    "run_graph",
    "run_node",
]
