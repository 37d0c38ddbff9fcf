"""The table of strings, decoded as it is asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.store.layout import TABLES
from qdebug.store.tables import TextTable

PLAIN = ["conv1", "", "a" * 300, "conv1/weight"]
ODD = ["größe", "名前", "\ud800", "conv1"]


def tables(texts):
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    strings = np.zeros(len(texts), dtype=TABLES["strings"])
    strings["length"] = [len(text) for text in encoded]
    strings["offset"] = np.cumsum([0, *strings["length"]])[: len(texts)]
    return {"names": np.frombuffer(b"".join(encoded), np.uint8), "strings": strings}


@pytest.mark.parametrize("texts", [PLAIN, ODD])
def test_some_rows_are_given_in_the_order_asked_for(texts):
    assert TextTable(tables(texts)).at(np.array([3, 0, 3])) == [texts[3], texts[0], texts[3]]


@given(st.lists(st.text(st.characters()), max_size=8), st.data())
def test_all_rows_are_given_whatever_was_asked_for_before(texts, data):
    table = TextTable(tables(texts))
    rows = data.draw(st.lists(st.integers(0, len(texts) - 1), unique=True)) if texts else []
    rows = np.array(rows, np.int64)
    assert table.shared(rows, table.at(rows)) == texts
    assert table.shared() == texts


def test_two_recordings_share_what_is_the_same_in_both():
    texts = [f"{text} of both" for text in PLAIN]
    one, other = TextTable(tables(texts)), TextTable(tables(texts))
    rows = np.array([0, 1])
    pairs = zip(one.shared(rows, one.at(rows)), other.shared(), strict=True)
    assert all(ours is theirs for ours, theirs in pairs)


def test_a_row_outside_the_text_is_refused():
    wrong = tables(PLAIN)
    wrong["strings"]["length"][2] += 1000
    with pytest.raises(ValueError, match="strings"):
        TextTable(wrong)


def test_what_is_no_text_is_refused_when_it_is_asked_for():
    wrong = tables(PLAIN)
    wrong["names"] = wrong["names"].copy()
    wrong["names"][0] = 0xFF
    table = TextTable(wrong)
    assert table.at(np.array([3])) == [PLAIN[3]]
    with pytest.raises(ValueError, match="utf-8"):
        table.shared()
