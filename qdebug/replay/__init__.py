"""Run the nodes of a graph again with numpy: one kernel per operator, one family of operators per module.

Units, the language of variants and their evaluation are here because the kernels of quantized operators and the
executor need them. Which variants exist, and which fits a node, is decided in `qdebug.arithmetic`.
"""

from qdebug.replay.columns import Columns, HeavyPart
from qdebug.replay.evaluate import accumulate, compute, finish, finish_many
from qdebug.replay.node_units import Coded, unit_of_call, unit_of_codes
from qdebug.replay.registry import (
    Call,
    Kernel,
    find_kernel,
    has_kernel,
    kernel,
    known_kernels,
    run_node,
)
from qdebug.replay.run import Fault, OnTensor, one_thread, run_graph
from qdebug.replay.scaling import Multiplier
from qdebug.replay.steps import Step
from qdebug.replay.unit import Operand, Target, Unit
from qdebug.replay.variant import Arithmetic, Variant, describe, parse_variant

__all__ = [
    "Arithmetic",
    "Call",
    "Coded",
    "Columns",
    "Fault",
    "HeavyPart",
    "Kernel",
    "Multiplier",
    "OnTensor",
    "Operand",
    "Step",
    "Target",
    "Unit",
    "Variant",
    "accumulate",
    "compute",
    "describe",
    "find_kernel",
    "finish",
    "finish_many",
    "has_kernel",
    "kernel",
    "known_kernels",
    "one_thread",
    "parse_variant",
    "run_graph",
    "run_node",
    "unit_of_call",
    "unit_of_codes",
]
