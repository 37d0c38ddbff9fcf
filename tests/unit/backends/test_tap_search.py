"""Taps in few runs: what is accepted is what the plain run computes, whatever taps disturb."""

from __future__ import annotations

import pytest

from qdebug.backends.tap_search import PlainLayer, TappedRun, TapSearch

PLAIN, SPLIT = "fused", "split"


def chain(length):
    """Return layers in a row; tapping one's result keeps the next from being fused."""
    return [
        PlainLayer(layers_read=frozenset({place - 1} if place else ()), results=(f"t{place}",), form=PLAIN)
        for place in range(length)
    ]


def run(length, taps, *, harmful):
    """Run a chain: a layer that is not fused gives another value if that is harmful, and all behind it do."""
    forms = [SPLIT if place and f"t{place - 1}" in taps else PLAIN for place in range(length)]
    values, wrong = {}, ""
    for place in range(length):
        wrong += f"{place}," if forms[place] == SPLIT and harmful else ""
        values[f"t{place}"] = f"t{place} {wrong}".encode()
    seen = {*taps, f"t{length - 1}"}
    return TappedRun(taps=tuple(taps), forms=forms, digests={name: values[name] for name in seen})


def search_of(length):
    last = f"t{length - 1}"
    return TapSearch(chain(length), [f"t{place}" for place in range(length - 1)], {last: f"{last} ".encode()})


@pytest.mark.parametrize("length", [1, 2, 3, 9, 30])
def test_taps_that_change_no_value_take_three_runs_whatever_they_keep_from_being_fused(length):
    search, runs = search_of(length), 0
    while taps := search.choose_taps():
        search.add_run(run(length, taps, harmful=False))
        runs += 1
    assert not search.refused_taps
    assert set(search.proven_digests) == {f"t{place}" for place in range(length)}
    assert runs <= 3


@pytest.mark.parametrize("length", [2, 5, 12])
def test_no_value_is_accepted_that_a_tap_changed(length):
    search, runs = search_of(length), 0
    while taps := search.choose_taps():
        search.add_run(run(length, taps, harmful=True))
        runs += 1
    assert not search.refused_taps
    assert all(digest == f"{name} ".encode() for name, digest in search.proven_digests.items())
    assert len(search.proven_digests) == length
    assert runs <= length + 1


def test_what_was_not_tapped_alone_stays_open():
    search = search_of(6)
    search.add_run(run(6, search.choose_taps(), harmful=True))
    assert search.open_taps == ["t1", "t2", "t3", "t4"]
    assert search.proven_digests["t0"] == b"t0 "


def test_a_tap_that_changes_what_it_is_computed_from_is_refused():
    layers = chain(3)
    search = TapSearch(layers, ["t0", "t1"], {"t2": b"t2 "})
    while taps := search.choose_taps():
        forms = [SPLIT if "t0" in taps else PLAIN, PLAIN, PLAIN]
        digests = {name: b"other" if "t0" in taps else f"{name} ".encode() for name in (*taps, "t2")}
        search.add_run(TappedRun(taps=taps, forms=forms, digests=digests))
    assert search.refused_taps == ["t0"]
    assert search.proven_digests == {"t1": b"t1 ", "t2": b"t2 "}


def test_values_prove_nothing_where_plain_runs_differ():
    search = TapSearch(chain(3), ["t0", "t1"], {})
    search.add_run(run(3, search.choose_taps(), harmful=False))
    assert set(search.proven_digests) == {"t0"}
    search.add_run(run(3, search.choose_taps(), harmful=False))
    assert set(search.proven_digests) == {"t0", "t1"}


def test_the_run_that_gave_most_is_run_again():
    search = search_of(9)
    while taps := search.choose_taps():
        search.add_run(run(9, taps, harmful=False))
    names = [f"t{place}" for place in range(8)]
    best, held = search.best_run(names)
    assert best.taps == tuple(names)
    assert held == names
    assert search.best_run(["t8"]) is None


@pytest.mark.parametrize("length", [6, 40, 200])
def test_taps_that_change_their_own_layer_cost_the_others_no_runs(length):
    """Every fifth layer computes otherwise while its own result is tapped, and gives another value then."""
    search, runs = search_of(length), 0
    odd = {f"t{place}" for place in range(0, length - 1, 5)}
    while taps := search.choose_taps():
        forms = [SPLIT if f"t{place}" in odd.intersection(taps) else PLAIN for place in range(length)]
        values, wrong = {}, ""
        for place in range(length):
            wrong += f"{place}," if forms[place] == SPLIT else ""
            values[f"t{place}"] = f"t{place} {wrong}".encode()
        search.add_run(
            TappedRun(taps=taps, forms=forms, digests={name: values[name] for name in (*taps, f"t{length - 1}")})
        )
        runs += 1
    assert set(search.refused_taps) == odd
    assert set(search.proven_digests) == {f"t{place}" for place in range(length)} - odd
    assert all(digest == f"{name} ".encode() for name, digest in search.proven_digests.items())
    assert runs <= 4


def test_a_tap_that_disturbs_a_layer_two_before_it_costs_few_runs():
    """The layers between have no results to tap, and the layer gives another value then."""
    length = 60
    layers = [
        PlainLayer(
            layers_read=frozenset({place - 1} if place else ()),
            results=() if place % 6 in (2, 3) else (f"t{place}",),
            form=PLAIN,
        )
        for place in range(length)
    ]
    last, names = f"t{length - 1}", [name for layer in layers for name in layer.results]
    odd = {f"t{place}" for place in range(4, length - 1, 6)}
    search, runs = TapSearch(layers, names[:-1], {last: f"{last} ".encode()}), 0
    while taps := search.choose_taps():
        forms = [SPLIT if f"t{place + 2}" in odd.intersection(taps) else PLAIN for place in range(length)]
        values, wrong = {}, ""
        for place in range(length):
            wrong += f"{place}," if forms[place] == SPLIT else ""
            values[f"t{place}"] = f"t{place} {wrong}".encode()
        search.add_run(TappedRun(taps=taps, forms=forms, digests={name: values[name] for name in (*taps, last)}))
        runs += 1
    assert set(search.refused_taps) == odd
    assert set(search.proven_digests) == set(names) - odd
    assert runs <= 2 + 2 * len(odd)
