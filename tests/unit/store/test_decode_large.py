"""A graph kept as columns answers every question as the one kept as objects does."""

import pickle
from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from qdebug.errors import GraphError
from qdebug.model import Graph, Node, QuantParams, Role, RunInfo, TensorInfo, bulk
from qdebug.model import texts as model_texts
from qdebug.model.graph import Known
from qdebug.model.large_graph import LargeGraph
from qdebug.model.texts import Names, Rows
from qdebug.store import decode_large, reader
from qdebug.store.decode import decode_graph, decode_run
from qdebug.store.decode_large import decode_as_columns
from qdebug.store.encode import encode_tables
from qdebug.store.reader import FileRecording
from qdebug.store.texts import TextTable

HOSTILE = ["", "x", "größe", "名前", "\ud800", "a\0b", "/t/../x", "\x1b[31m", "x" * 300]
NAMES = st.sampled_from(HOSTILE) | st.text(st.characters(), max_size=3)
WRITTEN = [{"a": 1, "b": (1, 2)}, {"b": (1, 2), "a": 1}, {"a": 1.0, "b": (1, 2)}, {"a": 1, "b": (1.0, 2.0)}]
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
        attrs = draw(st.sampled_from([{}, {"pads": (1, 2)}, {"alpha": float("inf")}, {"w": np.arange(3)}, *WRITTEN]))
        origin = tuple(draw(st.lists(NAMES, max_size=2)))
        op, domain = draw(st.sampled_from(["Conv", "Relu", ""])), draw(st.sampled_from(["", "com.example"]))
        node = {"inputs": tuple(read), "outputs": tuple(given), "attrs": attrs, "origin": origin, "domain": domain}
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


def both(tables):
    """Decode tables into objects and into columns."""
    run, texts = decode_run(tables), TextTable(tables)
    names = Names(Rows(texts, tables["tensors"]["name"]))
    return decode_graph(tables, texts.shared(), run), decode_as_columns(tables, texts, names, run)


def assert_alike(expected, found):
    assert tuple(found.nodes) == tuple(expected.nodes)
    assert found.nodes == expected.nodes
    assert found.nodes[1:] == expected.nodes[1:]
    assert len(found.nodes) == len(expected.nodes)
    assert dict(found.tensors) == dict(expected.tensors)
    assert list(found.tensors.values()) == list(expected.tensors.values())
    assert len(found.tensors) == len(expected.tensors)
    for name in ("inputs", "outputs", "name", "opset"):
        assert getattr(found, name) == getattr(expected, name)
    for tensor in (*expected.tensors, "", "nowhere"):
        assert found.producer(tensor) == expected.producer(tensor)
        assert found.position(tensor) == expected.position(tensor)
        assert found.consumers(tensor) == expected.consumers(tensor)
        assert found.is_constant(tensor) == expected.is_constant(tensor)
        assert found.tensors.get(tensor) == expected.tensors.get(tensor)
        assert (tensor in found.tensors) == (tensor in expected.tensors)


@settings(max_examples=150, deadline=None)
@given(graphs())
def test_columns_answer_as_objects_do(graph):
    expected, found = both(tables_of(graph))
    assert isinstance(found, LargeGraph)
    assert_alike(expected, found)
    with found.at_hand(Known()), found.at_hand():
        assert isinstance(found.nodes, tuple)
        assert_alike(expected, found)
    assert not isinstance(found.nodes, tuple)
    assert_alike(expected, found)
    assert_alike(expected, pickle.loads(pickle.dumps(found)))  # noqa: S301  made here


@settings(max_examples=100, deadline=None)
@given(st.tuples(graphs(), graphs()), st.booleans())
def test_two_graphs_at_hand_are_what_they_are_apart(pair, alike):
    decoded, known = [both(tables_of(graph)) for graph in (pair[0], pair[0] if alike else pair[1])], Known()
    with decoded[0][1].at_hand(known), decoded[1][1].at_hand(known):
        known.clear()
        for expected, found in decoded:
            assert_alike(expected, found)
        if alike:
            assert all(one is other for one, other in zip(decoded[0][1].nodes, decoded[1][1].nodes, strict=True))


@pytest.mark.parametrize(("one", "other"), product(range(len(WRITTEN)), repeat=2))
def test_nodes_are_shared_only_if_their_attributes_are_written_alike(one, other):
    """An axis 1.0 is no axis, though it equals 1; nodes whose attributes stand in another order are told apart, too."""
    nodes, known = [Node(name="n", op="Pad", outputs=("y",), attrs=WRITTEN[each]) for each in (one, other)], Known()
    found = [both(tables_of(Graph([node])))[1] for node in nodes]
    with found[0].at_hand(known), found[1].at_hand(known):
        assert (found[0].nodes[0] is found[1].nodes[0]) == (one == other)
        assert [repr(dict(graph.nodes[0].attrs)) for graph in found] == [repr(WRITTEN[one]), repr(WRITTEN[other])]


@settings(max_examples=60, deadline=None)
@given(graphs(), st.randoms())
def test_nodes_in_another_order_make_the_same_graph(graph, random):
    tables = tables_of(graph)
    order = list(range(len(tables["nodes"])))
    random.shuffle(order)
    tables["nodes"] = tables["nodes"][order]
    assert_alike(*both(tables))


def chain():
    return [Node(name=f"make {b}", op="Relu", inputs=(a,), outputs=(b,)) for a, b in pairwise("abcd")]


@pytest.mark.parametrize("wrong", ["two names", "two makers", "circle"])
def test_what_is_no_graph_is_refused_in_the_same_words(wrong):
    tables = tables_of(Graph(chain()))
    nodes = tables["nodes"]
    if wrong == "two names":
        nodes["name"][2] = nodes["name"][0]
    elif wrong == "two makers":
        nodes["outputs_off"][2] = nodes["outputs_off"][0]
    else:
        nodes["inputs_off"][0] = nodes["outputs_off"][2]
    run, texts = decode_run(tables), TextTable(tables)
    with pytest.raises(GraphError) as said:
        decode_graph(tables, texts.shared(), run)
    with pytest.raises(GraphError, match=str(said.value.message)):
        decode_as_columns(tables, texts, Names(Rows(texts, tables["tensors"]["name"])), run)


def test_a_text_that_is_none_is_refused_at_once():
    tables = tables_of(Graph(chain()))
    tables["names"] = tables["names"].copy()
    tables["names"][tables["strings"]["offset"][tables["nodes"]["op"][0]]] = 0xFF
    texts = TextTable(tables)
    with pytest.raises(ValueError, match="utf-8"):
        decode_as_columns(tables, texts, Names(Rows(texts, tables["tensors"]["name"])), decode_run(tables))


def test_an_attribute_that_is_none_is_refused_at_once():
    node = Node(name="n", op="Conv", inputs=("x",), outputs=("y",), attrs={"group": 1})
    tables = tables_of(Graph([node]))
    tables["attributes"] = tables["attributes"].copy()
    tables["attributes"][:] = ord("[")
    texts = TextTable(tables)
    with pytest.raises(ValueError, match="Expecting"):
        decode_as_columns(tables, texts, Names(Rows(texts, tables["tensors"]["name"])), decode_run(tables))


@pytest.fixture
def nothing_is_small(monkeypatch):
    """Keep every recording as columns, and hardly anything of what was made of them."""
    for module in (bulk, model_texts, decode_large, reader):
        monkeypatch.setattr(module, "MANY", -1)
    monkeypatch.setattr(model_texts, "_RECENT", 2)


def answers(recording):
    """Give all that a recording says."""
    places = [(name, sample, step) for name in (*recording.names, "nowhere") for sample in range(3) for step in (0, 1)]
    held = [place for place in places if recording.has(*place)]
    graph = recording.graph
    return {
        "names": tuple(recording.names),
        "held": held,
        "values": [recording.load(*place).tobytes() for place in held],
        "outlines": [recording.outline(*place) for place in places],
        "kept": [recording.kept(*place) is None for place in places],
        "events": list(recording.events()),
        "digests": recording.digests(recording.names),
        "facts": (recording.tensor_bytes, recording.content_hash, recording.info, recording.event_quants),
        "graph": (tuple(graph.nodes), dict(graph.tensors), graph.inputs, graph.outputs, graph.name),
    }


def test_a_recording_kept_as_columns_says_the_same(recorded, request):
    with FileRecording(recorded) as recording:
        expected = answers(recording)
    request.getfixturevalue("nothing_is_small")
    with FileRecording(recorded) as recording:
        assert isinstance(recording.graph, LargeGraph)
        assert answers(recording) == expected


def test_very_many_quantizations_are_made_when_they_are_asked_for(nothing_is_small):
    quants = [
        QuantParams(dtype="int8", scale=[0.5, step], zero_point=[1, 2], axis=1, shift=[3, 4]) for step in (1, 2, 3)
    ]
    infos = [TensorInfo(name=f"t{at}", quant=quant) for at, quant in enumerate(quants)]
    expected, found = both(tables_of(Graph(tensors=infos)))
    for _ in range(2):
        assert dict(found.tensors) == dict(expected.tensors)
