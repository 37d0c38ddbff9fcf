"""Rounding and integer requantization against Python's own integers and fractions."""

import math
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.errors import UsageError
from qdebug.numerics import fixedpoint
from qdebug.numerics.fixedpoint import round_values
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.replay.steps import STEPS

HALF = Fraction(1, 2)
EXACT = {
    "even": round,
    "up": lambda x: math.floor(x + HALF),
    "down": lambda x: math.ceil(x - HALF),
    "away": lambda x: math.floor(abs(x) + HALF) * (1 if x >= 0 else -1),
    "floor": math.floor,
    "trunc": math.trunc,
}
"""What each rounding gives; of plus and tosa the text in NumPy tells."""
INT32_MIN, INT32_MAX = -(2**31), 2**31 - 1
EDGES = (0, 1, -1, 2, -2, 3, -3, INT32_MAX, INT32_MIN, 2**62, -(2**62), 2**61 + 1)
names = st.sampled_from(sorted(EXACT))
int32s = st.one_of(st.integers(INT32_MIN, INT32_MAX), st.sampled_from(EDGES[:9]), st.integers(-200, 200))
wides = st.one_of(st.integers(-(2**62), 2**62), st.sampled_from(EDGES), st.integers(-200, 200))
multipliers = st.floats(1e-30, 1e30, allow_nan=False)
# Ties and their neighbours, which random integers almost never hit.
ties = st.builds(
    lambda odd, bits, off: (odd * 2 + 1) * 2**bits // 2 + off,
    st.integers(-40, 40),
    st.integers(1, 40),
    st.sampled_from([-1, 0, 1]),
)


@drawn(300)
@given(values=st.lists(st.one_of(wides, ties), min_size=1, max_size=8), bits=st.integers(0, 130), name=names)
def test_shifts_to_the_right_are_exact(values, bits, name):
    shifted = fixedpoint.shift_right(np.array(values), bits, name)
    assert shifted.dtype == np.int64
    assert shifted.tolist() == [EXACT[name](Fraction(value, 2**bits)) for value in values]


@drawn(100)
@given(pairs=st.lists(st.tuples(st.one_of(wides, ties), st.integers(0, 80)), min_size=1, max_size=8), name=names)
def test_each_element_may_have_its_own_shift(pairs, name):
    values, bits = (np.array(column) for column in zip(*pairs, strict=True))
    expected = [EXACT[name](Fraction(value, 2**shift)) for value, shift in pairs]
    assert fixedpoint.shift_right(values, bits, name).tolist() == expected


@pytest.mark.parametrize("name", sorted(EXACT))
def test_ties_of_small_integers(name):
    values = np.arange(-64, 65)
    for bits in range(5):
        assert fixedpoint.shift_right(values, bits, name).tolist() == [
            EXACT[name](Fraction(int(value), 2**bits)) for value in values
        ]


@pytest.mark.parametrize("name", sorted(EXACT))
def test_a_shift_in_place_gives_the_same_and_any_other_leaves_its_input(name):
    values = np.arange(-50, 50)
    kept = values.copy()
    shifted = fixedpoint.shift_right(values, 3, name)
    assert np.array_equal(values, kept)
    place = values.copy()
    assert fixedpoint.shift_right(place, 3, name, out=place) is place
    assert np.array_equal(place, shifted)


def test_narrow_integers_are_widened_before_anything_is_added():
    assert fixedpoint.shift_right(np.array([INT32_MAX, INT32_MIN], np.int32), 1, "up").tolist() == [2**30, -(2**30)]
    assert fixedpoint.shift_right(np.array([127, -128], np.int8), 1, "away").tolist() == [64, -64]


def test_scalars_stay_scalars():
    assert fixedpoint.shift_right(np.array(5), 1, "even").shape == ()
    assert int(fixedpoint.shift_right(np.array(5), 1, "even")) == 2
    assert int(fixedpoint.multiply_high(np.array(3), 2**30)) == 2


def test_empty_arrays_stay_empty():
    empty = np.zeros((0, 3), np.int32)
    assert fixedpoint.shift_right(empty, 3, "even").shape == (0, 3)
    assert fixedpoint.multiply_high(empty, 5).shape == (0, 3)
    assert fixedpoint.divide(empty, 5, "up").shape == (0, 3)


def saturated(value, width):
    return max(-(2 ** (width - 1)), min(2 ** (width - 1) - 1, value))


def wrapped(value, width):
    return (value + 2 ** (width - 1)) % 2**width - 2 ** (width - 1)


@drawn(200)
@given(
    values=st.lists(st.one_of(int32s, wides), min_size=1, max_size=6),
    bits=st.integers(0, 70),
    width=st.sampled_from([8, 16, 20, 32]),
)
def test_shifts_to_the_left_saturate_or_wrap(values, bits, width):
    array = np.array(values)
    clipped = fixedpoint.shift_left(array, bits, width=width)
    assert clipped.tolist() == [saturated(value << bits, width) for value in values]
    lost = fixedpoint.shift_left(array, bits, width=width, overflow="wrap")
    assert lost.tolist() == [wrapped(value << bits, width) for value in values]


@drawn(100)
@given(values=st.lists(wides, min_size=1, max_size=6), width=st.sampled_from([5, 8, 16, 24, 32, 48]))
def test_registers_saturate_or_wrap(values, width):
    array = np.array(values)
    assert fixedpoint.saturate_to(array, width).tolist() == [saturated(value, width) for value in values]
    assert fixedpoint.wrap_to(array, width).tolist() == [wrapped(value, width) for value in values]


@drawn(200)
@given(
    values=st.lists(st.one_of(int32s, ties.filter(lambda v: INT32_MIN <= v <= INT32_MAX)), min_size=1, max_size=6),
    multiplier=int32s,
    name=names,
    bits=st.sampled_from([15, 24, 31]),
)
def test_high_multiplies_are_exact(values, multiplier, name, bits):
    product = fixedpoint.multiply_high(np.array(values), multiplier, name, bits=bits, saturating=False)
    assert product.tolist() == [EXACT[name](Fraction(value * multiplier, 2**bits)) for value in values]


def gemmlowp_high_multiply(a, b):
    """Follow the published definition, with the truncating division of C."""
    if a == b == INT32_MIN:
        return INT32_MAX
    product = a * b
    nudged = product + (2**30 if product >= 0 else 1 - 2**30)
    return abs(nudged) // 2**31 * (1 if nudged >= 0 else -1)


@drawn(200)
@given(value=int32s, multiplier=int32s)
def test_the_high_multiply_is_gemmlowps(value, multiplier):
    assert int(fixedpoint.multiply_high(np.array(value), multiplier)) == gemmlowp_high_multiply(value, multiplier)


def test_the_only_product_that_does_not_fit_saturates():
    lowest = np.array([INT32_MIN])
    assert fixedpoint.multiply_high(lowest, INT32_MIN).tolist() == [INT32_MAX]
    assert fixedpoint.multiply_high(lowest, INT32_MIN, saturating=False).tolist() == [2**31]


@drawn(200)
@given(values=st.lists(wides, min_size=1, max_size=6), divisor=st.integers(1, 2**31), name=names)
def test_divisions_are_exact(values, divisor, name):
    divided = fixedpoint.divide(np.array(values), divisor, name)
    assert divided.tolist() == [EXACT[name](Fraction(value, divisor)) for value in values]


@pytest.mark.parametrize("name", sorted(EXACT))
def test_ties_of_divisions(name):
    values = np.arange(-40, 41)
    for divisor in (1, 2, 3, 4, 6, 9):
        assert fixedpoint.divide(values, divisor, name).tolist() == [
            EXACT[name](Fraction(int(value), divisor)) for value in values
        ]


@drawn(200)
@given(real=multipliers, bits=st.sampled_from([8, 15, 24, 31]), name=st.sampled_from(["even", "away", "trunc"]))
def test_fixed_point_multipliers_are_in_normal_form_and_nearest(real, bits, name):
    multiplier, shift = fixedpoint.quantize_multiplier(real, bits=bits, rounding=name)
    assert 2 ** (bits - 1) <= int(multiplier) < 2**bits
    step = Fraction(2) ** (int(shift) - bits)
    error = abs(int(multiplier) * step - Fraction(real))
    assert error <= (step if name == "trunc" else step / 2)


def test_a_significand_that_rounds_up_to_one_is_halved():
    real = 1.0 - 2.0**-40
    assert [int(part) for part in fixedpoint.quantize_multiplier(real)] == [2**30, 1]
    assert [int(part) for part in fixedpoint.quantize_multiplier(real, rounding="trunc")] == [2**31 - 1, 0]
    assert [int(part) for part in fixedpoint.quantize_multiplier(-real)] == [-(2**30), 1]


def test_known_multipliers():
    # The scales of a widely quoted disagreement between a runtime and a re-implementation of it.
    real = 0.05296124517917633 * 0.024093778803944588 / 0.11484327912330627
    multiplier, shift = fixedpoint.quantize_multiplier(real)
    assert Fraction(int(multiplier), 2**31) * Fraction(2) ** int(shift) == pytest.approx(Fraction(real), rel=2**-31)
    assert [int(part) for part in fixedpoint.quantize_multiplier(0.25)] == [2**30, -1]
    assert [int(part) for part in fixedpoint.quantize_multiplier(0.0)] == [0, 0]


@drawn(100)
@given(real=multipliers, bits=st.sampled_from([24, 31]))
def test_the_significand_of_a_single_is_taken_whole(real, bits):
    multiplier, shift = fixedpoint.mantissa_multiplier(real, bits=bits)
    assert Fraction(int(multiplier)) * Fraction(2) ** (int(shift) - bits) == Fraction(float(np.float32(real)))
    assert int(multiplier) % 2 ** (bits - 24) == 0


def test_multipliers_come_per_channel():
    reals = np.array([[0.3, 1.7], [2.0**-9, 5e-4]])
    multiplier, shift = fixedpoint.quantize_multiplier(reals)
    assert multiplier.shape == shift.shape == reals.shape
    assert np.array_equal(multiplier, [[int(fixedpoint.quantize_multiplier(r)[0]) for r in row] for row in reals])
    assert [part.shape for part in fixedpoint.glow_parameters(reals)] == [reals.shape] * 3


@drawn(200)
@given(exponent=st.integers(-120, 120), fraction=st.floats(1.0, 2.0, exclude_max=True))
def test_powers_of_two(exponent, fraction):
    real = fraction * 2.0**exponent
    assert int(fixedpoint.power_of_two(real, "floor")) == exponent
    assert int(fixedpoint.power_of_two(real, "up")) == exponent + (fraction > 1.0)
    if fraction not in (1.4142135623730951, 1.414213562373095):
        assert int(fixedpoint.power_of_two(real)) == exponent + (fraction > math.sqrt(2.0))


def glow_reference(scale):
    """Follow the description of the published algorithm, one float32 at a time."""
    scale = np.float32(scale)
    mantissa, exponent = math.frexp(float(scale))
    if mantissa == 0.5:
        return (0, 0, int(scale)) if exponent - 1 > 0 else (0, 1 - exponent, 1)
    pre = post = 0
    while scale < 0.5 or (scale < 256 and post < 15):
        scale, post = scale * np.float32(2), post + 1
    while scale < 255 and pre < post // 2:
        scale, pre = scale * np.float32(2), pre + 1
    return pre, post, math.floor(float(scale) + 0.5)


@drawn(200)
@given(scale=st.one_of(st.floats(1e-9, 1e4), st.integers(-20, 12).map(lambda e: 2.0**e)))
def test_shift_multiply_shift_parameters(scale):
    assert tuple(int(part) for part in fixedpoint.glow_parameters(scale)) == glow_reference(scale)


def test_shift_multiply_shift_keeps_about_eight_bits():
    pre, post, multiplier = (int(part) for part in fixedpoint.glow_parameters(0.0111))
    assert multiplier * 2.0 ** -(pre + post) == pytest.approx(0.0111, rel=2**-8)
    assert multiplier < 512


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: fixedpoint.shift_right(np.array([1]), -1), "by -1 bits"),
        (lambda: fixedpoint.shift_left(np.array([1]), -2), "by -2 bits"),
        (lambda: fixedpoint.shift_left(np.array([1]), 1, width=40), "40 bits"),
        (lambda: fixedpoint.shift_left(np.array([1]), 1, overflow="lose"), "'lose'"),
        (lambda: fixedpoint.shift_right(np.array([1]), 1, "sideways"), "'sideways'"),
        (lambda: fixedpoint.divide(np.array([1]), 0), "divide by 0"),
        (lambda: fixedpoint.divide(np.array([1]), 1, "sideways"), "'sideways'"),
        (lambda: fixedpoint.quantize_multiplier(np.inf), "not finite"),
        (lambda: fixedpoint.mantissa_multiplier(np.nan), "not finite"),
        (lambda: fixedpoint.glow_parameters(0.0), "not above 0"),
        (lambda: fixedpoint.power_of_two(-1.0), "not above 0"),
        (lambda: fixedpoint.power_of_two(1.0, "sideways"), "'sideways'"),
    ],
)
def test_what_is_none_is_refused(call, said):
    with pytest.raises(UsageError, match=said):
        call()


HARD = [
    0.49999999999999994,
    -0.49999999999999994,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    2.0**52 + 1,
    -(2.0**52) - 1,
    -0.5 + 2.0**-54,
    5e-324,
    -1e-20,
]


def test_every_rounding_is_tested_here():
    assert set(EXACT) == {name for name, row in ROUNDINGS.items() if row.rises is not None}
    assert set(ROUNDINGS) - set(EXACT) == {"plus", "tosa"}


@pytest.mark.parametrize("name", list(ROUNDINGS))
def test_a_rounding_has_the_formulas_of_its_steps_and_their_text(name):
    row = ROUNDINGS[name]
    assert row.words
    assert row.steps <= set(STEPS)
    assert ("round" in row.steps) == (row.real is not None) == bool(row.real_text)
    assert bool(row.steps & {"shr", "mulhi", "pre"}) == (row.nudge is not None) == bool(row.shift_text)
    assert ("avg" in row.steps) == (row.rises is not None)


@pytest.mark.parametrize("name", [name for name, row in ROUNDINGS.items() if row.real_text])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_text_rounds_real_numbers_as_the_formula_does(name, dtype):
    values = np.array([*HARD, *np.arange(-4, 4.25, 0.25)], dtype)
    expected = round_values(values, name)
    assert np.array_equal(eval(ROUNDINGS[name].real_text, {"np": np, "v": values}), expected)  # noqa: S307
    assert np.array_equal(ROUNDINGS[name].real(values.copy(), np.empty_like(values)), expected)


@drawn(100)
@given(
    values=st.lists(st.one_of(st.integers(-(2**60), 2**60), ties), min_size=1, max_size=8),
    bits=st.integers(0, 60),
    name=st.sampled_from([name for name, row in ROUNDINGS.items() if row.shift_text]),
)
def test_the_text_shifts_as_the_formula_does(values, bits, name):
    amount = np.int64(bits)
    found = {"np": np, "v": np.array(values), "bits": amount, "half": (np.int64(1) << amount) >> 1}
    assert eval(ROUNDINGS[name].shift_text, found).tolist() == fixedpoint.shift_right(values, bits, name).tolist()  # noqa: S307


@pytest.mark.parametrize("bits", range(4))
@pytest.mark.parametrize("name", [name for name, row in ROUNDINGS.items() if row.shift_text])
def test_the_text_shifts_small_ties_as_the_formula_does(name, bits):
    values, amount = np.arange(-24, 25), np.int64(bits)
    names = {"np": np, "v": values, "bits": amount, "half": (np.int64(1) << amount) >> 1}
    shifted = fixedpoint.shift_right(values, bits, name)
    np.testing.assert_array_equal(eval(ROUNDINGS[name].shift_text, names), shifted)  # noqa: S307


@pytest.mark.parametrize("name", list(EXACT))
@pytest.mark.parametrize("value", HARD)
def test_hard_cases_are_exact(name, value):
    assert round_values(np.array([value]), name)[0] == EXACT[name](Fraction(value))


@drawn(100)
@given(
    name=st.sampled_from(list(EXACT)),
    value=st.one_of(st.floats(-1e17, 1e17), st.integers(-200, 200).map(lambda n: n / 2)),
    single=st.booleans(),
)
def test_roundings_are_exact(name, value, single):
    array = np.array(value, np.float32 if single else np.float64)
    rounded = round_values(array, name)
    assert rounded.dtype == array.dtype
    assert rounded.shape == ()
    assert float(rounded) == float(array.dtype.type(EXACT[name](Fraction(float(array)))))


@pytest.mark.parametrize("name", list(EXACT))
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, ml_dtypes.bfloat16])
def test_nonfinite_values_and_dtypes_are_kept(name, dtype):
    values = np.array([np.nan, np.inf, -np.inf, 2.0]).astype(dtype)
    rounded = round_values(values, name)
    assert rounded.dtype == values.dtype
    assert np.array_equal(rounded, values, equal_nan=True)


def test_integers_come_back_as_a_copy():
    values = np.int8([1, 2])
    rounded = round_values(values, "floor")
    assert rounded.tolist() == [1, 2]
    assert not np.shares_memory(rounded, values)


def test_an_unknown_name_is_refused_with_the_known_ones():
    with pytest.raises(UsageError, match=r"banker.*even.*trunc"):
        round_values(np.zeros(1), "banker")
