"""The attachment for Netron: entries under the names that Netron looks for, one of each."""

import json
import math

import pytest

from qdebug.compare.result.limits import Acknowledgement
from qdebug.compare.result.result import Status
from qdebug.model import Graph, Node
from qdebug.present.reports.exports import netron_attachment


def entries(result, graph=None):
    plain = json.loads(netron_attachment(result, graph))
    assert plain["signature"] == "netron:attachment"
    found = {}
    for list_ in ("metadata", "metrics"):
        for row in plain[list_]:
            assert set(row) == {"kind", "target", "name", "value"}
            key = (row["kind"], row["target"], row["name"])
            assert key not in found
            found[key] = row["value"]
    return found


def test_nodes_and_values_carry_status_and_figures(made):
    found = entries(made.result([made.node(0), made.node(1, Status.DIVERGED, introduced=made.stats(max_lsb=9.0))]))
    assert found["model", "", "qdebug"] == "diverged"
    assert found["node", "conv1", "qdebug"] == "diverged"
    assert found["value", "conv1_q", "qdebug why"] == "SQNR 8 dB is below 20 dB"
    assert found["node", "conv1", "introduced LSB"] == 9.0
    assert found["value", "conv0_q", "SQNR dB"] == 30.0
    assert found["node", "conv0", "clipped"] == "1.0 %"


def test_the_reference_s_model_is_met_by_its_own_names(made):
    graph = Graph([Node(name="ref_conv", op="Conv", inputs=("x",), outputs=("conv0_out",))])
    found = entries(made.result([made.node(0), made.node(1, reference_tensor="x", op="Input")]), graph)
    assert found["node", "ref_conv", "qdebug"] == "within"
    assert found["value", "conv0_out", "qdebug"] == "within"
    assert ("node", "conv0", "qdebug") not in found
    assert ("node", "", "qdebug") not in found


def test_a_node_with_two_outputs_is_said_once_and_its_values_twice(made):
    found = entries(made.result([made.node(0, node="split", tensor="a"), made.node(1, node="split", tensor="b")]))
    assert {target for kind, target, _ in found if kind == "value"} == {"a", "b"}


def test_what_is_not_finite_is_a_text_and_what_is_acknowledged_says_so(made):
    node = made.node(
        0,
        Status.DIVERGED,
        metrics=made.stats(sqnr_db=math.inf, max_abs=math.nan),
        acknowledged=Acknowledgement(node="conv0", reason="known"),
    )
    found = entries(made.result([node]))
    assert found["node", "conv0", "SQNR dB"] == "Infinity"
    assert found["node", "conv0", "max abs"] == "NaN"
    assert found["node", "conv0", "qdebug"] == "diverged, acknowledged"
    assert found["node", "conv0", "qdebug acknowledged"] == "known"


@pytest.mark.parametrize("name", ["a\nb", "\n", "\x1b[0m"])
def test_names_are_met_up_to_their_first_line_break_as_netron_does(name, made):
    text = netron_attachment(made.result([made.node(0, node=name, tensor=name)]))
    assert all(character.isprintable() or character == "\n" for character in text)
    targets = {row["target"] for row in json.loads(text)["metadata"] if row["kind"] == "node"}
    assert targets == ({name.split("\n")[0]} - {""})
