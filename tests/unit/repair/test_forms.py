"""Edits as quantizers take them."""

import re

import pytest

from qdebug.model import Node
from qdebug.repair.edits import Edit
from qdebug.repair.forms import find_nameless_results, quantizer_forms


def in_float(node):
    """Return an edit that puts a node in float."""
    names = {"reference_node": node, "reference_tensor": node.outputs[0], "reference_weight": "w"}
    return Edit(kind="float", unit=None, change=None, macs=0.1, size=0, **names)


NAMED = Node(name="first", op="Conv", inputs=("x", "w"), outputs=("a",))
NAMELESS = Node(name="Conv:a#2", op="Conv", inputs=("x", "w"), outputs=("a",))


def test_a_name_that_was_made_when_a_model_was_read_is_given_to_nobody():
    forms = quantizer_forms([in_float(NAMED), in_float(NAMELESS)])
    assert forms["onnxruntime"]["nodes_to_exclude"] == ["first"]
    assert forms["nncf"]["ignored_scope"]["names"] == ["first"]
    assert find_nameless_results([in_float(NAMED), in_float(NAMELESS)]) == ["a"]


@pytest.mark.parametrize("name", ["a+b (1).c", "a/b;a/c"])
def test_an_operator_is_found_by_its_whole_result(name):
    """ai-edge-quantizer searches for the expression in the names of the results, each followed by a semicolon."""
    lite = Node(name=f"CONV_2D:{name}", op="CONV_2D", inputs=("x", "w"), outputs=(name,))
    [entry] = quantizer_forms([in_float(lite)])["ai-edge-quantizer"]
    assert re.search(entry["regex"], f"{name};")
    assert re.search(entry["regex"], f"other;{name};")
    assert not re.search(entry["regex"], f"{name}2;")
    assert not re.search(entry["regex"], f"un{name};")
