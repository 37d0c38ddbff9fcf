"""Rows by their text."""

import numpy as np
import pytest

from qdebug.tui.nodes import places
from qdebug.tui.nodes.places import Places

TEXTS = ["a", "b", "", "c", "b", "ü/1", "d", "e", "f", "g", "h"]


def found(known):
    """Give what each of these texts is found at, one by one and all at once."""
    asked = [*TEXTS, "nothing", "B"]
    one_by_one = [known.find(text) for text in asked]
    at_once = known.find_all(asked).tolist()
    assert at_once == [-1 if row is None else row for row in one_by_one]
    assert known.find_all(asked[:3]).tolist() == at_once[:3]
    return dict(zip(asked, one_by_one, strict=True))


def expected():
    return {text: row for row, text in enumerate(TEXTS) if text} | {"": None, "nothing": None, "B": None}


def test_the_last_row_of_a_text_is_found_and_no_empty_one():
    assert found(Places(TEXTS, TEXTS.__getitem__)) == expected()


@pytest.mark.parametrize("bits", [0, 1])
def test_texts_of_one_hash_are_told_apart(monkeypatch, bits):
    monkeypatch.setattr(places, "_BITS", bits)
    assert found(Places(TEXTS, TEXTS.__getitem__)) == expected()


def test_rows_that_are_not_there_are_not_found():
    there = np.array([text != "b" for text in TEXTS])
    known = Places(TEXTS, TEXTS.__getitem__, there=there)
    assert known.find("b") is None
    assert known.find("") == 2
    assert known.find_all(TEXTS).tolist() == [0, -1, 2, 3, -1, 5, 6, 7, 8, 9, 10]


def test_nothing_is_found_where_nothing_is():
    known = Places([], [].__getitem__)
    assert known.find("a") is None
    assert known.find_all(TEXTS).tolist() == [-1] * len(TEXTS)
    assert known.find_all([]).tolist() == []
