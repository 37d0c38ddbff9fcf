"""What belongs to some of very many names is what a set or a dictionary would say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.model.name_maps import NameGroups, NameLinks, NameSet
from qdebug.model.texts import Names, Texts

NAMES = ["", "conv", "größe", "\ud800", "a", "b"]
TEXT = st.sampled_from([*NAMES, "elsewhere", "nowhere"])


def names():
    return Names(Texts.of(NAMES))


@given(st.sets(TEXT))
def test_a_set_of_names(chosen):
    found = NameSet(names(), chosen)
    assert set(found) == chosen
    assert len(found) == len(chosen)
    assert bool(found) == bool(chosen)
    for name in (*NAMES, "elsewhere", "nowhere", 7):
        assert (name in found) == (name in chosen)
        assert found.isdisjoint([name]) == (name not in chosen)


@given(st.dictionaries(TEXT, TEXT))
def test_a_name_for_each_of_some_names(known):
    assert_same(NameLinks(names(), known), known)


@given(st.dictionaries(TEXT, st.lists(TEXT, max_size=4).map(tuple)))
def test_several_names_for_each_of_some_names(known):
    assert_same(NameGroups(names(), known), known)


def assert_same(found, known):
    assert dict(found) == known
    assert len(found) == len(known)
    for name in (*NAMES, "elsewhere", "nowhere"):
        assert found.get(name, "nothing") == known.get(name, "nothing")
        assert (name in found) == (name in known)
        if name not in known:
            with pytest.raises(KeyError):
                found[name]
