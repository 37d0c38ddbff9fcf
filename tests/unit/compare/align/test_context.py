"""What strategies find is kept by backend tensor, by class and by reference tensor, and the first that finds wins."""

from qdebug.compare.align import align as aligning
from qdebug.compare.align.context import Context, make_pair
from qdebug.compare.align.indexed_recording import IndexedRecording
from qdebug.compare.align.pairs import Match, Side, Transform
from qdebug.model import Graph, MemoryRecording, Node

NODES = [Node(name=name, op="Relu", inputs=(read,), outputs=(name,)) for name, read in (("a", "x"), ("b", "a"))]
GRAPH = Graph(NODES, inputs=["x"], outputs=["b"])


def made():
    return Context(**{side: IndexedRecording.of(MemoryRecording.single(GRAPH, {})) for side in ("ref", "be")})


def test_a_pair_that_is_dropped_is_forgotten_everywhere():
    context = made()
    context.note_unpaired("a", "several fit", undecided=True)
    context.add(make_pair("a", "b", Match.SIGNATURE, "both read x"))
    assert (context.notes, context.undecided) == ({}, set())
    assert (context.pair_map.partners, context.pair_map.taken) == ({"a": ("b",)}, {"b": "a"})
    context.pair_map.drop("a")
    assert [dict(context.pair_map), context.pair_map.partners, context.pair_map.taken] == [{}, {}, {}]


def test_what_is_done_to_one_side_is_said_and_leaves_the_other_alone():
    pair = make_pair("a", "b", Match.EXACT, "same name", Transform(clamp_low=0.0))
    turned = pair.with_view(Side.REFERENCE, Transform(transpose=(1, 0)), "turned")
    assert (turned.of(Side.REFERENCE), turned.of(Side.REFERENCE.other)) == ("b", "a")
    assert (turned.view_of(Side.BACKEND), turned.view_of(Side.REFERENCE).transpose) == (pair.backend_view, (1, 0))
    assert turned.reason == "same name; reference turned"


def test_the_first_evidence_that_has_a_pair_wins(monkeypatch):
    asked = []

    def strategy(name, pair=None):
        def find(_, tensor, *__):
            asked.append(name)
            return pair and make_pair(tensor, tensor, Match.EXACT, pair)

        return find

    monkeypatch.setattr(aligning, "EVIDENCE", (strategy("name"), strategy("nodes", "alike"), strategy("weights")))
    assert aligning._find_partner(made(), "a", NODES[0]).reason == "alike"
    assert asked == ["name", "nodes"]
    monkeypatch.setattr(aligning, "EVIDENCE", (strategy("name"),))
    assert aligning._find_partner(made(), "a", NODES[0]) is None
    assert asked == ["name", "nodes", "name"]
