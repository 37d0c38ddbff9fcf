"""Reshapes that an optimizer puts around products hold what they read; others do not."""

from __future__ import annotations

import pytest

from qdebug.backends.onnxruntime.executed import source_tensors
from qdebug.model import Graph, Node


def graph(*nodes: tuple[str, str, str]) -> Graph:
    made = [Node(name=f"{op}:{out}", op=op, inputs=tuple(read.split()), outputs=(out,)) for op, read, out in nodes]
    return Graph(made, inputs=["x"], outputs=[made[-1].outputs[0]])


SOURCE = graph(("Abs", "x", "a"), ("Norm", "a", "y"))


@pytest.mark.parametrize(("reader", "holds"), [("Gemm", True), ("QGemm", True), ("Reshape", False), ("Sub", False)])
def test_a_reshape_holds_what_it_reads_only_where_a_product_made_it_necessary(reader, holds):
    executed = graph(("Abs", "x", "a"), ("Reshape", "a shape", "flat"), (reader, "flat w", "y"))
    assert (source_tensors(SOURCE, executed).get("flat") == "a") is holds


def test_codes_in_between_hide_no_product():
    nodes = (
        ("Abs", "x", "a"),
        ("Reshape", "a shape", "flat"),
        ("QuantizeLinear", "flat s z", "q"),
        ("QGemm", "q", "y"),
    )
    assert source_tensors(SOURCE, graph(*nodes))["flat"] == "a"


def test_what_the_model_only_arranges_is_not_what_an_optimizer_reshapes_to_it():
    model = graph(("Abs", "x", "a"), ("Reshape", "a shape", "r"), ("Cast", "r", "c"), ("QuantizeLinear", "c s z", "q"))
    executed = graph(("QuantizeLinear", "x s z", "early"), ("Reshape", "early shape2", "q"), ("Sub", "q", "y"))
    assert "early" not in source_tensors(model, executed)
