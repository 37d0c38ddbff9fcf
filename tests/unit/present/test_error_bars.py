"""One tensor in full detail as facts and bars: every element is in a bar, and nothing that is there looks like none."""

import numpy as np
import pytest

from qdebug.numerics.profile import profile_tensor
from qdebug.present.error_bars import (
    CHANNEL_TITLES,
    bar,
    channel_rows,
    error_bars,
    profile_facts,
    relative_bars,
    ulp_bars,
    value_bars,
)

F32 = np.float32


@pytest.fixture(scope="module")
def profile():
    generator = np.random.default_rng(0)
    a = generator.standard_normal((40, 300)).astype(F32)
    a[0, :7] = 0.0
    b = a + generator.standard_normal(a.shape).astype(F32) * F32(1e-3)
    b[0, :3], b[1] = 0.0, a[1]
    b[5, 2] = np.nan
    return profile_tensor(a, b, axis=0)


def test_every_element_is_in_a_bar(profile):
    size = 40 * 300
    assert sum(entry.count for entry in error_bars(profile)) == size
    assert sum(entry.count for entry in relative_bars(profile)) == size - 7 - 1
    assert sum(entry.count for entry in ulp_bars(profile)) == size - 1
    sides = value_bars(profile)
    assert [sum(pair[side].count for pair in sides) for side in (0, 1)] == [size, size]
    assert (sides[-1][0].label, sides[-1][0].count, sides[-1][1].count) == ("NaN", 0, 1)


def test_bars_are_few_and_the_longest_is_whole(profile):
    for bars in (error_bars(profile), relative_bars(profile)):
        assert len(bars) <= 18
        assert max(entry.length for entry in bars) == 1.0
    assert error_bars(profile)[0].label == "equal"
    assert error_bars(profile)[-1].label == "non-finite"
    assert max(side.length for pair in value_bars(profile, bars=4) for side in pair) == 1.0
    assert len(value_bars(profile, bars=4)) == 5


def test_ends_of_bars_are_powers_of_two():
    profile = profile_tensor(F32([1.0, 1.0, 1.0]), F32([1.0, 1.5, 3.0]))
    assert [(entry.label, entry.count) for entry in error_bars(profile)] == [
        ("equal", 1),
        ("0.50..1.0", 1),
        ("1.0..2.0", 0),
        ("2.0..4.0", 1),
    ]


def test_facts_in_a_line(profile):
    facts = dict(profile_facts(profile))
    assert facts["zero refs"].startswith("7 elements without relative error; the backend is 0 in 3 of them")
    assert "float32 apart" in facts["ULP"]
    assert "2.5 % equal" in facts["ULP"]
    assert "arrays" not in facts
    equal = profile_tensor(F32([1.0]), F32([1.0]))
    assert profile_facts(equal) == [("ULP", "at most 0 float32 apart; 100 % equal")]
    assert profile_facts(profile_tensor(np.int8([1]), np.int8([2]))) == []


@pytest.mark.parametrize(
    ("length", "drawn"),
    [(0.0, ""), (1e-9, "\u258f"), (0.5, "\u2588\u2588"), (0.53, "\u2588\u2588\u258f"), (1.0, "\u2588" * 4)],
)
def test_a_bar_is_never_empty_for_something(length, drawn):
    assert bar(length, 4) == drawn


def test_the_worst_channels_come_first(profile):
    rows = channel_rows(profile.channels, max_channels=3)
    assert all(len(row) == len(CHANNEL_TITLES) for row in rows)
    assert (rows[0][0], rows[0][-1]) == ("5", "1")
    assert len(rows) == 3
    every = channel_rows(profile.channels, max_channels=99)
    assert every[-1][:2] == ("1", "inf")
    assert channel_rows(None) == []


def test_nothing_finite_has_no_bars_of_values():
    profile = profile_tensor(F32([np.nan]), F32([np.nan]))
    assert value_bars(profile) == []
    assert [entry.label for entry in error_bars(profile)] == ["non-finite"]
    assert ulp_bars(profile) == relative_bars(profile) == []
