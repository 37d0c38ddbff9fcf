"""Tables of a recording as objects."""

import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import GraphError
from qdebug.model import Graph, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.recording.reading import tables as decode
from qdebug.recording.reading.tables import decode_graph, decode_quants, decode_run
from qdebug.recording.writing.tables import encode_tables

HOSTILE = ["", "x", "größe", "名前", "\ud800", "a\0b", "/t/../x", "\x1b[31m", "x" * 300]
NAMES = st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=3)
QUANTS = [
    None,
    QuantParams(dtype="int8", scale=0.5, zero_point=3),
    QuantParams(dtype="uint8", scale=[1.0, 2.0], axis=0),
]


@st.composite
def graphs(draw):
    """Graphs with nodes in any order that is one, and tensors of all kinds."""
    made: list[str] = []
    nodes = []
    for number, name in enumerate(draw(st.lists(NAMES, unique=True, max_size=7))):
        free = draw(NAMES).join("<>")
        read = draw(st.lists(st.sampled_from(["", free, *made]), max_size=4))
        given = [f"o{number}.{end}" for end in draw(st.lists(st.sampled_from("ab"), unique=True, max_size=2))]
        if draw(st.booleans()):
            given.insert(0, "")
        attrs = draw(st.sampled_from([{}, {"pads": (1, 2)}, {"alpha": float("inf")}, {"w": np.arange(3)}]))
        origin = tuple(draw(st.lists(NAMES, max_size=2)))
        op, domain = draw(st.sampled_from(["Conv", "Relu", ""])), draw(st.sampled_from(["", "com.example"]))
        place = draw(st.sampled_from(["", "CPU", "GPU: jit_\ud800"]))
        node = {"inputs": tuple(read), "outputs": tuple(given), "attrs": attrs, "origin": origin, "domain": domain}
        node["placement"] = place
        nodes.append(Node(name=name, op=op, **node))
        made += [tensor for tensor in given if tensor]
    known = [
        TensorInfo(
            name=name,
            shape=draw(st.sampled_from([None, (), (1, None, 3), (2,)])),
            dtype=draw(st.sampled_from([None, "int8", "bfloat16"])),
            role=draw(st.sampled_from(list(Role))),
            layout=draw(st.sampled_from([None, "NCHW", ""])),
            quant=draw(st.sampled_from(QUANTS)),
            stands_for=draw(st.sampled_from([None, *made, "elsewhere"])),
        )
        for name in draw(st.lists(st.sampled_from([*made, *HOSTILE]), unique=True, max_size=4))
    ]
    return Graph(nodes, tensors=known, inputs=["in"], outputs=made[-1:], name=draw(NAMES), opset={"": 13})


def tables_of(graph):
    return encode_tables(graph, RunInfo(backend="test"), (), samples=1, steps=1)[0]


def decoded(tables):
    return decode_graph(tables, decode_run(tables))


def assert_alike(expected, found):
    assert found.nodes == expected.nodes
    assert dict(found.tensors) == dict(expected.tensors)
    for name in ("inputs", "outputs", "name", "opset"):
        assert getattr(found, name) == getattr(expected, name)
    for tensor in (*expected.tensors, "", "nowhere"):
        assert found.producer(tensor) == expected.producer(tensor)
        assert found.position(tensor) == expected.position(tensor)
        assert found.consumers(tensor) == expected.consumers(tensor)
        assert found.is_constant(tensor) == expected.is_constant(tensor)


@drawn(100)
@given(graphs())
def test_a_graph_comes_back(graph):
    assert_alike(graph, decoded(tables_of(graph)))


@drawn(40)
@given(graphs(), st.randoms())
def test_nodes_in_another_order_make_a_graph_of_the_same_nodes(graph, random):
    tables = tables_of(graph)
    order = list(range(len(tables["nodes"])))
    random.shuffle(order)
    tables["nodes"] = tables["nodes"][order]
    found = decoded(tables)
    ours, theirs = ({node.name: replace(node, placement="") for node in each.nodes} for each in (found, graph))
    assert ours == theirs  # where they ran is said by their rows
    for node in found.nodes:
        sources = [found.position(tensor) for tensor in node.inputs]
        at = found.nodes.index(node)
        assert all(source is None or source < at for source in sources)


def chain():
    return [Node(name=f"make {b}", op="Relu", inputs=(a,), outputs=(b,)) for a, b in pairwise("abcd")]


@pytest.mark.parametrize("wrong", ["have the name", "is produced twice", "has a cycle"])
def test_what_is_no_graph_is_refused(wrong):
    tables = tables_of(Graph(chain()))
    nodes = tables["nodes"]
    if wrong == "have the name":
        nodes["name"][2] = nodes["name"][0]
    elif wrong == "is produced twice":
        nodes["outputs_off"][2] = nodes["outputs_off"][0]
    else:
        nodes["inputs_off"][0] = nodes["outputs_off"][2]
    with pytest.raises(GraphError, match=wrong):
        decoded(tables)


def test_an_attribute_that_is_none_is_refused():
    node = Node(name="n", op="Conv", inputs=("x",), outputs=("y",), attrs={"group": 1})
    tables = tables_of(Graph([node]))
    tables["attributes"] = tables["attributes"].copy()
    tables["attributes"][:] = ord("[")
    with pytest.raises(ValueError, match="Expecting"):
        decoded(tables)


@pytest.mark.parametrize("field", ["scale_off", "zero_point_off"])
@pytest.mark.parametrize("beyond", [1, 2, 1000])
def test_a_quantization_that_points_outside_its_pool_is_refused(field, beyond):
    """It has two scales and zero points, the last of their pools: the offset is too large from the first one on."""
    quant = QuantParams(dtype="uint8", scale=[1.0, 2.0], zero_point=[3, 4], axis=0)
    tables = tables_of(Graph(chain(), tensors=[TensorInfo(name="b", shape=(2,), quant=quant)]))
    assert decode_quants(tables) == [quant]
    tables["quants"] = tables["quants"].copy()
    tables["quants"][field] += beyond
    with pytest.raises(ValueError, match="points outside its pool"):
        decode_quants(tables)


@pytest.mark.parametrize("fact", ["samples", "steps"])
@pytest.mark.parametrize(("number", "taken"), [(0, False), (1, True), (2**32, True), (2**32 + 1, False)])
def test_samples_and_steps_are_from_one_to_what_32_bits_can_number(fact, number, taken):
    tables = tables_of(Graph(chain()))
    run = decode_run(tables) | {fact: number}
    tables["run"] = np.frombuffer(json.dumps(run).encode(), np.uint8)
    if taken:
        assert decode_run(tables) == run
    else:
        with pytest.raises(ValueError, match="impossible values"):
            decode_run(tables)


@pytest.mark.parametrize("at_once", [1, 3, 7, 100])
@pytest.mark.parametrize("rows", [0, 1, 6, 7])
def test_a_table_comes_in_pieces_and_whole(monkeypatch, at_once, rows):
    monkeypatch.setattr(decode, "_ROWS_AT_ONCE", at_once)
    table = np.zeros(rows, dtype=[("name", "<u4"), ("start", "<i8")])
    table["name"], table["start"] = np.arange(rows), -np.arange(rows)
    assert list(decode.rows_of(table)) == table.tolist()


def test_files_that_do_not_say_where_nodes_ran_are_read():
    graph = Graph([Node(name="a", op="Relu", inputs=("x",), outputs=("y",), placement="CPU")])
    tables = tables_of(graph)
    run = json.loads(tables["run"].tobytes())
    assert run["graph"].pop("placements") == {"CPU": [0]}
    tables["run"] = np.frombuffer(json.dumps(run).encode(), np.uint8)
    assert [node.placement for node in decoded(tables).nodes] == [""]
