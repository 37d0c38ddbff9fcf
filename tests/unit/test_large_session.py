"""A comparison of which everything is kept as columns says what any other says."""

import pickle

import numpy as np
import pytest

from qdebug.compare.align.columns import PairColumns, as_columns
from qdebug.compare.align.pairs import Alignment, Kind, Side, Unmatched
from qdebug.compare.attribute.plan import PlanColumns
from qdebug.errors import UsageError
from qdebug.model import bulk
from qdebug.model import texts as model_texts
from qdebug.record.opening import open_recording
from qdebug.session import DiffSession, diff
from qdebug.store import decode_large, reader
from qdebug.tui.nodes import planned
from qdebug.tui.nodes.planned import column
from qdebug.tui.nodes.rows import NodeTable
from qdebug.tui.reading.plan_rows import named_rows, planned_rows
from qdebug.workflow.demo import run_demo

FIELDS = ("node", "op", "tensor", "reference_tensor", "match", "shape", "dtype", "quant", "missing", "ordered")


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    found = run_demo(tmp_path_factory.mktemp("demo"))
    return found.reference, found.backend


@pytest.fixture
def expected(files):
    """The session as it is of a small net."""
    return DiffSession(*map(open_recording, files))


@pytest.fixture
def large(expected, files, monkeypatch):
    """The same where nothing is small, and hardly anything stays made."""
    for module in (bulk, model_texts, decode_large, reader, planned):
        monkeypatch.setattr(module, "MANY", -1)
    monkeypatch.setattr(model_texts, "_RECENT", 2)
    session = DiffSession(*map(open_recording, files))
    assert isinstance(session.alignment.pairs, PairColumns)
    assert isinstance(session.entries(), PlanColumns)
    return session


def test_its_alignment_is_the_same(expected, large):
    for mine, theirs in ((large.alignment.pairs, expected.alignment.pairs), (large.entries(), expected.entries())):
        assert tuple(mine) == tuple(theirs)
        assert mine[-1] == theirs[-1]
        assert mine[2:5] == theirs[2:5]
        assert len(mine) == len(theirs)
        with pytest.raises(IndexError):
            mine[len(theirs)]
    assert tuple(large.alignment.unmatched) == tuple(expected.alignment.unmatched)
    assert large.alignment.lost == expected.alignment.lost
    assert large.alignment == expected.alignment
    copied = pickle.loads(pickle.dumps(large.alignment))  # noqa: S301  made here
    assert copied == expected.alignment
    assert isinstance(copied.pairs, tuple)


def test_its_results_are_the_same(expected, large):
    assert large.result().to_json() == expected.result().to_json()
    assert list(large.held) == list(expected.held)
    assert large.held.tensors() == expected.held.tensors()
    assert large.held.ops() == expected.held.ops()


def test_what_was_compared_before_is_not_compared_again(expected, large):
    first = [next(large.results()) for _ in range(3)]
    assert [found.tensor for found in first] == [expected.entries()[0].tensor] * 3
    assert [found.index for found in large.results()] == list(range(large.total))


def test_entries_are_found_by_any_of_their_names(expected, large):
    for entry in expected.entries():
        for name in (entry.tensor, entry.node, entry.reference_tensor):
            assert large.entry(name) == expected.entry(name)
    with pytest.raises(UsageError) as said:
        expected.entry("pwconv_quantt")
    with pytest.raises(UsageError) as found:
        large.entry("pwconv_quantt")
    assert found.value.message == said.value.message


def test_its_rows_are_the_same(expected, large):
    mine, theirs = planned_rows(large), planned_rows(expected)
    assert list(mine) == list(theirs)
    for name in FIELDS:
        assert column(mine, name) == column(theirs, name)
    tables = NodeTable(mine), NodeTable(theirs)
    assert list(tables[0].names) == list(tables[1].names)
    assert np.array_equal(tables[0].by_name, tables[1].by_name)
    assert tables[0].comparable == tables[1].comparable
    names = [list(named_rows(each.backend.names).names) for each in (large, expected)]
    assert names[0] == names[1]


def test_a_tensor_that_no_graph_knows_is_listed_all_the_same(large):
    odd = [
        Unmatched(side=Side.BACKEND, tensor="skipped", kind=Kind.LOST, reason="of a type that was not recorded"),
        Unmatched(side=Side.REFERENCE, tensor="x", kind=Kind.BENIGN, reason="inside", inside="a part that is none"),
        Unmatched(side=Side.REFERENCE, tensor="x", kind=Kind.BENIGN, reason="inside", inside="logits"),
    ]
    graphs = large.reference.graph, large.backend.graph
    assert list(as_columns(Alignment(pairs=(), unmatched=odd), *graphs).unmatched) == odd


def test_many_reasons_are_kept_as_they_are(large, expected, monkeypatch):
    monkeypatch.setattr("qdebug.compare.align.columns._FEW_REASONS", 0)
    graphs = large.reference.graph, large.backend.graph
    assert as_columns(expected.alignment, *graphs) == expected.alignment


def test_the_same_comparison_of_paths(files, expected, large):
    assert diff(*files).to_json() == expected.result().to_json()
