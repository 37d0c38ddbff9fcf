"""Operators are known by their row in the table: nobody else asks for one by its name.

A question about an operator is a question about a trait, so that a new operator is one row and one kernel.
"""

import ast

from qdebug.model import operators
from qdebug.model.operators.table import ROWS
from qdebug.replay import node_units
from qdebug.replay.registry import REAL, known_kernels

NAMES = {row.name for row in ROWS} | {op for _, op in known_kernels()}
PLACES = (
    "qdebug/model/operators/",
    "qdebug/replay/kernels/",
    "qdebug/arithmetic/definitions/",  # the steps of operators
    "qdebug/arithmetic/floats/recipes.py",  # the steps of kernels
    "qdebug/backends/",  # what a framework writes and runs
    "qdebug/probe/",  # nets that are made to be probed
    "qdebug/running/random_net.py",
)
EXCEPTIONS = {
    "qdebug/arithmetic/mistakes/accumulation.py": "sums and means along axes",
    "qdebug/arithmetic/mistakes/attributes.py": "attributes that one operator takes fewer values of than others",
    "qdebug/arithmetic/mistakes/attention.py": "what kernels of single operators confuse: heads, positions",
    "qdebug/arithmetic/mistakes/elements.py": "what kernels of single operators confuse: powers, norms",
    "qdebug/arithmetic/mistakes/indices.py": "what kernels of single operators confuse: indices, blocks",
    "qdebug/arithmetic/mistakes/layers.py": "what kernels of single operators confuse: functions, orders, bounds",
    "qdebug/arithmetic/mistakes/normalization.py": "what kernels of single operators confuse: statistics",
    "qdebug/arithmetic/mistakes/recurrent.py": "what kernels of single operators confuse: gates, functions",
    "qdebug/arithmetic/mistakes/resizing.py": "what kernels of single operators confuse: positions, scales",
    "qdebug/arithmetic/mistakes/tails.py": "sums, means and softmaxes over the last axes",
    "qdebug/arithmetic/mistakes/softmax.py": "what kernels of single operators confuse: maxima and sums",
    "qdebug/arithmetic/mistakes/tiles.py": "what kernels of single operators confuse: parts of axes",
    "qdebug/compare/align/expand.py": "writes the nodes that a fused one is shown as: Add, Mul, ReduceSum",
    "qdebug/compare/explaining/layer_cause.py": "writes Identity where a node is left out, Gather for another order",
    "qdebug/replay/fixed_forms.py": "kernels in fixed point of Sigmoid and Tanh",
    "qdebug/replay/interpolate.py": "part of the kernels of Resize and Upsample, which read other inputs",
    "qdebug/present/reports/reproducer.py": "writes the QLinearConv that a cut convolution is run as",
}


def exported(tree):
    """The strings of `__all__`: a class may be called as an operator is."""
    assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    own = [node for node in assigned if "__all__" in ast.unparse(node).partition("=")[0]]
    return {id(part) for node in own for part in ast.walk(node)}


def named(source):
    """The operators that a module names, with the lines."""
    left_out = exported(source.tree)
    return [
        f"{source.path}:{node.lineno} {node.value}"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Constant) and node.value in NAMES and id(node) not in left_out
    ]


def test_operators_are_named_in_the_table_the_kernels_and_the_adapters_alone(package):
    others = [s for s in package if not s.path.startswith(PLACES) and s.path not in EXCEPTIONS]
    assert not [line for source in others for line in named(source)]


def test_exceptions_are_few_and_needed(package):
    assert len(EXCEPTIONS) <= 20
    assert {source.path for source in package if source.path in EXCEPTIONS and named(source)} == set(EXCEPTIONS)


def test_every_kernel_has_a_row():
    assert {op for _, op in known_kernels()} <= {row.name for row in ROWS}


def test_every_real_form_and_gate_has_a_row():
    rows = {row.name for row in ROWS}
    assert {row.real.op for row in ROWS if row.real} | {row.gate.op for row in ROWS if row.gate} <= rows


def test_what_is_computed_between_codes_is_read_by_kind():
    kinds = {row.unit for row in ROWS if row.unit and not row.clamps}
    assert kinds == set(node_units._CODED_READERS)
    real = {operators.of(row.real.op).unit for row in ROWS if row.real and not row.converts_codes}
    assert set(node_units._READERS) < real <= kinds


def test_what_takes_codes_can_be_replayed_on_real_numbers():
    real = {op for domain, op in known_kernels() if domain == REAL}
    assert operators.names_where(lambda row: row.takes_codes) == real


def test_the_checks_can_fail(example):
    found = named(example('if node.op == "Softmax":\n    pass\nRELU = "Relu"\nOPS = {"Add": 0, "add": 1}\n'))
    assert sorted(found) == [f"qdebug/example.py:{line}" for line in ("1 Softmax", "3 Relu", "4 Add")]
    assert not named(example('__all__ = ["Where"]\n\n\nclass Where:\n    """Softmax."""\n'))
