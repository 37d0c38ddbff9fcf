"""Very many texts and names: each is what it was given as, and found at its row."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.model import texts as model_texts
from qdebug.model.texts import Names, Recent, Rows, Texts, forget_recent, repeats

TEXTS = st.lists(st.text(st.characters(), max_size=5), max_size=12)


class Alike(str):
    """A text with the hash of all others of its kind."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other)


@given(TEXTS)
def test_texts_are_given_back(given_texts):
    kept = Texts.of(given_texts)
    assert list(kept) == given_texts
    assert [kept[row] for row in range(len(given_texts))] == given_texts
    assert kept[1:3] == given_texts[1:3]
    assert kept.all_ascii == all(map(str.isascii, given_texts))


def test_what_is_no_text_is_refused_when_it_is_asked_for():
    kept = Texts(b"ab\xff", np.array([0, 2]), np.array([2, 3]))
    assert kept[0] == "ab"
    with pytest.raises(UnicodeDecodeError):
        kept[1]


@given(TEXTS, st.data())
def test_some_rows_are_those_texts(given_texts, data):
    rows = data.draw(st.lists(st.integers(0, len(given_texts) - 1))) if given_texts else []
    some = Rows(Texts.of(given_texts), np.array(rows, np.int64))
    expected = tuple(given_texts[row] for row in rows)
    assert (tuple(some), some[1:], len(some)) == (expected, expected[1:], len(expected))
    assert some == expected
    assert expected == some
    assert some != (*expected, "more")
    assert repr(expected[:3]) in repr(some)


def tables(names, *, many):
    """Make a table of names as one of few names, or as one of very many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model_texts, "MANY", -1 if many else 1000)
        return Names(names)


@pytest.mark.parametrize("many", [False, True])
@given(names=TEXTS.map(lambda found: list(dict.fromkeys(found))), others=TEXTS)
def test_names_are_found_at_their_rows(many, names, others):
    table = tables(Texts.of(names), many=many)
    assert list(table) == names
    for name in (*names, *others, *others):
        assert table.rows[name] == (names.index(name) if name in names else -1)
        assert (name in table) == (name in names)


@pytest.mark.parametrize("many", [False, True])
@given(given_texts=TEXTS)
def test_equal_names_are_noticed(many, given_texts):
    twice = len(set(given_texts)) < len(given_texts)
    assert repeats(Texts.of(given_texts)) == twice
    if twice:
        with pytest.raises(ValueError, match="one name"):
            tables(Texts.of(given_texts), many=many)


@pytest.mark.parametrize("many", [False, True])
def test_names_of_one_hash_are_told_apart(many):
    names = [Alike(text) for text in "abc"]
    table = tables(names, many=many)
    assert [table.rows[Alike(text)] for text in "cbad"] == [2, 1, 0, -1]
    with pytest.raises(ValueError, match="one name"):
        tables([*names, Alike("b")], many=many)


@pytest.mark.parametrize("many", [False, True])
def test_names_that_are_held_are_found_and_given_as_before(many):
    table = tables(Texts.of(["a", "b"]), many=many)
    known = {"b": "b"}
    table.hold(known)
    assert table[1] is known["b"]
    assert (list(table), table.rows["a"], table.rows["c"]) == (["a", "b"], 0, -1)
    assert table.every_row() == {"a": 0, "b": 1}
    assert table.every_row() is table.rows
    table.let_go()
    assert (list(table), table.rows["b"], table.rows["c"]) == (["a", "b"], 1, -1)
    assert table.every_row() == {"a": 0, "b": 1}


def test_what_was_made_lately_is_kept_and_never_too_much_of_it(monkeypatch):
    monkeypatch.setattr(model_texts, "_RECENT", 3)
    asked = []
    made = Recent(lambda key: asked.append(key) or -key, model_texts.MANY + 1)
    assert [made[key] for key in (1, 2, 1, 2)] == [-1, -2, -1, -2]
    assert asked == [1, 2]
    assert [made[key] for key in range(100)] == [-key for key in range(100)]
    assert len(made) <= 3


def test_what_was_made_lately_can_be_forgotten():
    made, others = Recent(str), Recent(abs)
    assert (made[7], others[-7]) == ("7", 7)
    forget_recent()
    assert (len(made), len(others)) == (0, 0)
    assert (made[7], others[-7]) == ("7", 7)


def test_equal_texts_of_two_recordings_are_kept_once(monkeypatch):
    monkeypatch.setattr(model_texts, "_LARGE", 4)
    one, other, short = (Texts.of(words) for words in (["some", "words"], ["some", "words"], ["a"]))
    assert one._ascii is other._ascii
    assert list(one) == list(other) == ["some", "words"]
    assert list(other.some(np.array([1]))) == ["words"]
    assert list(short) == ["a"]
    del one, other
    assert not model_texts._PIECES


def test_of_few_keys_all_stay_made():
    made = Recent(str, 5000)
    assert [made[key] for key in range(5000)] == list(map(str, range(5000)))
    assert len(made) == 5000
