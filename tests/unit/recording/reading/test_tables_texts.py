"""The table of strings, all of it or those rows that are asked for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.recording.format.specification import TABLES
from qdebug.recording.reading.tables import decode_texts

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
    assert decode_texts(tables(texts), np.array([3, 0, 3])) == [texts[3], texts[0], texts[3]]


@given(st.lists(st.text(st.characters()), max_size=8))
def test_all_rows_are_given(texts):
    assert decode_texts(tables(texts)) == texts


def test_two_recordings_share_what_is_the_same_in_both():
    texts = [f"{text} of both" for text in PLAIN]
    some = decode_texts(tables(texts), np.array([0, 1]))
    one, other = decode_texts(tables(texts)), decode_texts(tables(texts))
    assert all(ours is theirs for ours, theirs in zip(one, other, strict=True))
    assert all(ours is theirs for ours, theirs in zip(some, one[:2], strict=True))


def test_a_row_outside_the_text_is_refused():
    wrong = tables(PLAIN)
    wrong["strings"]["length"][2] += 1000
    with pytest.raises(ValueError, match="strings"):
        decode_texts(wrong)


def test_what_is_no_text_is_refused_when_it_is_asked_for():
    wrong = tables(PLAIN)
    wrong["names"] = wrong["names"].copy()
    wrong["names"][0] = 0xFF
    assert decode_texts(wrong, np.array([3])) == [PLAIN[3]]
    with pytest.raises(ValueError, match="utf-8"):
        decode_texts(wrong)
