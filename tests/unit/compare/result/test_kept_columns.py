"""Rows become columns and come back the same; columns that are not theirs are refused."""

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.result.kept import from_columns, to_columns
from qdebug.compare.result.result import NodeResult, OutputRanking

NOTHING = frozenset()


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Part:
    weight: float
    index: tuple[int, ...] | None = None


@dataclass(frozen=True, kw_only=True)
class Row:
    number: int
    colour: Colour
    good: bool
    name: str | None = None
    part: Part | None = None
    parts: tuple[Part, ...] = ()
    words: tuple[str, ...] = ()
    extra: object = None


OMIT = frozenset({"extra"})
ints = st.integers(-(2**63), 2**63 - 1)
parts = st.builds(Part, weight=st.floats(), index=st.none() | st.lists(ints, max_size=3).map(tuple))
rows = st.builds(
    Row,
    number=ints,
    colour=st.sampled_from(Colour),
    good=st.booleans(),
    name=st.none() | st.text(st.characters(), max_size=5),
    part=st.none() | parts,
    parts=st.lists(parts, max_size=3).map(tuple),
    words=st.lists(st.text(max_size=3), max_size=3).map(tuple),
)


def example():
    return [
        Row(number=-7, colour=Colour.RED, good=True, name="\udc80 \u00b5", part=Part(weight=math.nan, index=(1, 2))),
        Row(
            number=2**62, colour=Colour.BLUE, good=False, parts=(Part(weight=-0.0), Part(weight=math.inf)), words=("",)
        ),
    ]


@drawn(60)
@given(st.lists(rows, max_size=6))
def test_rows_come_back_the_same(given_rows):
    back = from_columns(to_columns(given_rows, Row, omit=OMIT), Row, len(given_rows), omit=OMIT)
    assert repr(back) == repr(given_rows)  # NaN and -0.0 included, which == does not tell
    assert all(type(one.colour) is Colour and type(one.good) is bool for one in back)


def test_columns_are_flat_arrays_of_three_dtypes():
    columns = to_columns(example(), Row, omit=OMIT)
    assert {array.dtype.str for array in columns.values()} == {"<f8", "<i8", "|u1"}
    assert all(array.ndim == 1 for array in columns.values())
    assert columns["part?"].tolist() == [1, 0]
    assert columns["parts#"].tolist() == [0, 2]


@pytest.mark.parametrize("kind", [NodeResult, OutputRanking])
def test_results_can_be_kept(kind):
    omit = frozenset({"quant"})
    assert from_columns(to_columns([], kind, omit=omit), kind, 0, omit=omit) == []


def test_a_field_without_columns_is_a_mistake_in_the_program():
    with pytest.raises(TypeError, match="'extra' is declared as <class 'object'>"):
        to_columns([], Row)


@pytest.mark.parametrize(
    "row",
    [
        Row(number=True, colour=Colour.RED, good=True),
        Row(number=2**63, colour=Colour.RED, good=True),
        Row(number=1.0, colour=Colour.RED, good=True),
        Row(number=1, colour=Colour.RED, good=True, part=Part(weight=1)),
        Row(number=1, colour=Colour.RED, good=True, name=b"text"),
    ],
)
def test_what_would_not_come_back_the_same_is_refused(row):
    with pytest.raises(ValueError, match="holds"):
        to_columns([row], Row, omit=OMIT)


def spoiled(name, values):
    columns = to_columns(example(), Row, omit=OMIT)
    if values is None:
        del columns[name]
    else:
        columns[name] = np.asarray(values)
    return columns


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("number", None),
        ("number", np.array([1], np.int64)),
        ("number", np.array([1, 2], np.int32)),
        ("number", np.array([[1, 2]], np.int64)),
        ("number", np.array([1.0, 2.0])),
        ("colour", np.array([0, 99], np.int64)),
        ("colour", np.array([-1, 0], np.int64)),
        ("colour", np.array([1, 1], np.int64) * 2),  # a text that is no colour
        ("good", np.array([0, 2], np.uint8)),
        ("part?", np.array([1, 1], np.uint8)),
        ("part?", np.array([2, 0], np.uint8)),
        ("parts#", np.array([3, -1], np.int64)),
        ("parts#", np.array([2**62, 2**62], np.int64)),
        ("texts", np.array([255] * 3, np.uint8)),
        ("texts#", np.array([2**60], np.int64)),
        ("surplus", np.zeros(2)),
    ],
)
def test_columns_that_do_not_fit_are_refused(name, values):
    with pytest.raises(ValueError, match=r"column|Colour"):
        from_columns(spoiled(name, values), Row, 2, omit=OMIT)


def test_texts_that_are_not_utf8_are_refused():
    columns = to_columns(example(), Row, omit=OMIT)
    columns["texts"] = np.full(columns["texts"].size, 255, np.uint8)
    with pytest.raises(ValueError, match="utf-8"):
        from_columns(columns, Row, 2, omit=OMIT)
