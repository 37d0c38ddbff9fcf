"""Names of dumps: cleaned, changed by rules, and held against a graph."""

import pytest

from qdebug.errors import UsageError
from qdebug.importing.names import clean_name, make_renamer, match_names
from qdebug.model import Graph, Node, TensorInfo


def test_names_are_cleaned_as_tools_clean_them():
    assert clean_name("/layer.1/Conv (1):0") == clean_name("layer_1/Conv__1_:0") == "layer_1_Conv__1__0"


def test_rules_change_names_one_after_the_other():
    rename = make_renamer(["^out/=", r"layer_(\d+)=conv\1", "a=b=c"])
    assert rename("out/layer_12") == "conv12"
    assert rename("a=b") == "c"
    assert make_renamer([])("x") == "x"


@pytest.mark.parametrize("rule", ["x", "=x", "(=x", r"x=\2", r"(x)=\2"])
def test_a_rule_that_is_none_is_refused(rule):
    with pytest.raises(UsageError, match="cannot be parsed"):
        make_renamer([rule])("x")


def graph_of(*nodes, tensors=()):
    return Graph(nodes, tensors=[TensorInfo(name=name) for name in tensors])


def test_a_name_that_fits_several_tensors_fits_none():
    graph = graph_of(tensors=("a/b", "a:b", "c/d", "e"))
    matched, unmatched = match_names(["a_b", "c_d", "c:d", "e", "E"], graph)
    assert [(match.name, match.tensor) for match in matched] == [("e", "e")]
    assert unmatched["a_b"] == "its name fits 'a/b', 'a:b'"
    assert unmatched["c_d"] == unmatched["c:d"] == "'c_d', 'c:d' fit 'c/d'"
    assert unmatched["E"] == "the model has no tensor with this name"


def test_an_exact_name_comes_before_a_node_and_a_node_before_a_cleaned_name():
    graph = graph_of(Node(name="a", op="X", outputs=("a_out",)), Node(name="n", op="X", outputs=("p", "q")))
    matched, unmatched = match_names(["a_out", "a", "n"], graph)
    assert [(match.name, match.how) for match in matched] == [("a_out", "exact")]
    assert unmatched == {"a": "'a_out' is already matched to 'a_out'", "n": "the model has no tensor with this name"}


def test_a_name_with_the_operator_that_makes_the_tensor_is_matched():
    graph = Graph([Node(name="n", op="Conv", inputs=("x",), outputs=("conv1",))], inputs=["x"])
    matched, unmatched = match_names(["conv1_Conv", "x_Conv"], graph)
    assert [(match.name, match.tensor) for match in matched] == [("conv1_Conv", "conv1")]
    assert [*unmatched] == ["x_Conv"]
