"""Recorded and plain outputs are equal only if every bit is."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.model import Fidelity
from qdebug.recording.fidelity import FidelityCheck


def check(*pairs):
    found = FidelityCheck()
    for sample, (recorded, plain) in enumerate(pairs):
        found.compare("y", np.asarray(recorded), np.asarray(plain), (sample, 0))
    return found


def test_nothing_compared_is_unknown():
    assert check().fidelity is Fidelity.UNKNOWN
    assert check().detail(3) == "no plain run was available for comparison"


@drawn(60)
@given(st.binary(min_size=16, max_size=16), st.sampled_from(["f4", "f8", "i8", "u2", "c8", "f2"]), st.integers(0, 127))
def test_any_bits_equal_themselves_and_no_others(data, kind, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    one, other = np.frombuffer(data, kind), np.frombuffer(changed, kind)
    assert check((one, one.copy())).fidelity is Fidelity.BIT_EQUAL
    differs = check((one, other))
    assert differs.fidelity is Fidelity.DIFFERS
    assert "'y' of sample 0" in differs.detail(1)


@pytest.mark.parametrize(
    ("recorded", "plain", "said"),
    [
        (np.float32(1), np.float32(3), "1 of 1 elements, by up to 2 at []"),
        ([0.0, 1.0], [-0.0, 1.0], "the bits of 1 of 2 elements, although the values are equal"),
        ([np.inf, 1.0], [np.inf, 3.0], "1 of 2 elements, by up to 2 at [1]"),
        ([np.inf], [-np.inf], "by up to inf"),
        ([1.0, np.nan], [1.0, 1.0], "by up to inf at [1]"),
        ([2**62], [2**62 + 1], "by up to 1 at [0]"),
        (np.uint8([3]), np.uint8([250]), "by up to 247"),
        ([3 + 4j], [0j], "by up to 5"),
    ],
    ids=str,
)
def test_the_difference_is_said_with_its_place(recorded, plain, said):
    assert said in check((recorded, plain)).detail(1)


def test_one_differing_sample_outweighs_all_others():
    found = check(([1.0], [1.0]), ([1.0], [1.5]), ([1.0], [3.0]), ([1.0], [1.0]))
    assert found.fidelity is Fidelity.DIFFERS
    assert found.detail(5) == (
        "output 'y' of sample 2 differs from a plain run in 1 of 1 elements, by up to 2 at [0]; "
        "outputs differ in 2 of the 4 runs checked"
    )


def test_empty_outputs_are_equal_if_their_shapes_are():
    assert check((np.zeros((0, 2)), np.zeros((0, 2)))).fidelity is Fidelity.BIT_EQUAL
    assert check((np.zeros((0, 2)), np.zeros((2, 0)))).fidelity is Fidelity.DIFFERS


def test_outputs_that_nobody_compared_are_named():
    check = FidelityCheck()
    check.compare("a", np.zeros(2), np.zeros(2), (0, 0))
    assert "not compared" not in check.detail(1, ("a",))
    assert check.detail(1, ("a", "b", "c")).endswith("; not compared: 'b', 'c'")
    check.compare("a", np.zeros(2), np.ones(2), (1, 0))
    assert check.detail(2, ("a", "b")).endswith("; not compared: 'b'")


def test_a_remark_stands_after_what_was_compared():
    found = check((np.zeros(2), np.zeros(2)))
    found.remark("the same without fusion")
    assert found.detail(1).endswith("checked for 1 of 1 recorded runs; the same without fusion")
    assert found.fidelity is Fidelity.BIT_EQUAL
    alone = check()
    alone.remark("the same without fusion")
    assert alone.detail(1) == "no plain run was available for comparison; the same without fusion"
    assert alone.fidelity is Fidelity.UNKNOWN


@pytest.mark.parametrize("turned", [False, True])
def test_any_distance_outweighs_bits_of_equal_value(turned):
    """Also one far below 1, whichever comes first."""
    pairs = [([0.0], [-0.0]), ([0.25], [0.5])]
    assert "by up to 0.25 at [0]" in check(*(pairs[::-1] if turned else pairs)).detail(2)


def test_a_second_plain_run_tells_who_is_to_blame():
    recorded, plain, other = np.zeros(2), np.ones(2), np.full(2, 3.0)
    disturbed = check((recorded, plain))
    disturbed.compare("y", recorded, plain, (0, 0))
    unsteady = check((recorded, plain))
    unsteady.compare("y", recorded, other, (0, 0))
    assert (disturbed.fidelity, unsteady.fidelity) == (Fidelity.DIFFERS, Fidelity.NONDETERMINISTIC)
    assert "two plain runs on the same inputs differ in output 'y' of sample 0" in unsteady.detail(1)
    assert (disturbed.differing, unsteady.differing) == ([(0, 0)], [(0, 0)])


def test_a_sample_behind_one_that_is_equal_is_no_more_excused():
    recorded, plain = np.zeros(4), np.ones(4)
    found = check((recorded, recorded))
    found.compare("y", recorded, plain, (1, 0))
    found.compare("y", recorded, plain + 1e-7, (1, 0))
    assert found.fidelity is Fidelity.DIFFERS


def test_an_output_without_values_excuses_none_that_has_some():
    found = check((np.zeros(4), np.ones(4)))
    for other in (b"1", b"2"):
        found.compare_hash("z", b"0", other, (0, 0))
    assert found.fidelity is Fidelity.DIFFERS
    alone = FidelityCheck()
    for other in (b"1", b"2"):
        alone.compare_hash("z", b"0", other, (0, 0))
    assert alone.fidelity is Fidelity.NONDETERMINISTIC


@pytest.mark.parametrize(("apart", "told"), [(1e-7, Fidelity.DIFFERS), (0.2, Fidelity.NONDETERMINISTIC)])
def test_plain_runs_excuse_a_recorded_one_only_by_as_much_as_they_differ(apart, told):
    recorded, plain = np.zeros(4), np.ones(4)
    found = check((recorded, plain))
    found.compare("y", recorded, plain + apart, (0, 0))
    assert found.fidelity is told
    assert ("plain runs differ from each other as well, but far less" in found.detail(1)) is (told is Fidelity.DIFFERS)
