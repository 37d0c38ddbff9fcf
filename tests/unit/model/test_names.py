"""Names as people type them: parts and patterns, and what is near."""

import pytest

from qdebug.errors import UsageError
from qdebug.model.names import format_names, matching_names, near_names, resolve_name

KNOWN = ["net/conv1", "net/conv10", "net/Relu[0]", "head"]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("conv1", ["net/conv1", "net/conv10"]),
        ("RELU", ["net/Relu[0]"]),
        ("*conv1", ["net/conv1"]),
        ("net/conv1?", ["net/conv10"]),
        ("[0]", ["net/Relu[0]"]),
        ("*[0]", ["net/Relu[0]"]),
        ("tail", []),
        ("", []),
    ],
)
def test_a_text_stands_for_the_names_that_it_fits(text, found):
    assert matching_names(text, KNOWN) == found


def test_names_are_listed_up_to_a_number():
    assert format_names(["a", "b"]) == "'a', 'b'"
    assert format_names(map(str, range(10))).endswith("'7' and 2 more")


def test_near_names_are_a_sentence():
    assert near_names("haed", KNOWN) == " Near names: 'head'."
    assert near_names("zzz", KNOWN) == ""
    assert near_names("covn1", ["net/conv1/quant_token_7"]) == " Near names: 'net/conv1/quant_token_7'."


@pytest.mark.parametrize(
    ("text", "name"), [("b", "b"), ("conv1", "conv1_quant"), ("conv1_out", "conv1_out"), ("*_out", "conv1_out")]
)
def test_a_part_stands_for_the_only_node_that_it_fits(text, name):
    owners = {"conv1_quant": "conv1_quant", "conv1_out": "conv1_quant", "b": "b", "bb": "bb"}
    assert resolve_name(text, owners, what="node", hint="") == name


def test_a_part_of_several_nodes_or_of_none_is_refused():
    owners = {"conv1": "conv1", "conv2": "conv2"}
    with pytest.raises(UsageError, match="'conv' matches 2 nodes: 'conv1', 'conv2'"):
        resolve_name("conv", owners, what="node", hint="")
    with pytest.raises(UsageError, match=r"No node is called 'cnov1'\. Near names: 'conv1'"):
        resolve_name("cnov1", owners, what="node", hint="")
