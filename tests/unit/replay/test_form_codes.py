from fractions import Fraction

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.replay.form_codes import fused_multiply_add, logistic

SINGLE = st.floats(width=32, min_value=-(2.0**50), max_value=2.0**50, allow_subnormal=False)


def rounded_once(exact):
    """Round a fraction to float32, half to even, exactly."""
    near = np.float32(float(exact))
    around = [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))]
    distance = {float(value): abs(Fraction(float(value)) - exact) for value in around}
    least = min(distance.values())
    nearest = [np.float32(value) for value, far in distance.items() if far == least]
    return next((value for value in nearest if value.view(np.uint32) & 1 == 0), nearest[0])


def check(a, b, c):
    a, b, c = np.float32(a), np.float32(b), np.float32(c)
    exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
    if exact == 0 or abs(exact) > Fraction(2) ** -100:
        assert fused_multiply_add(np.asarray(a), np.asarray(b), np.asarray(c)) == rounded_once(exact)


@drawn(300)
@given(SINGLE, SINGLE, SINGLE)
def test_a_product_and_a_sum_are_rounded_once(a, b, c):
    check(a, b, c)


def test_a_second_rounding_does_not_go_astray():
    # The sum lies just above the middle between two float32, by less than float64 can tell.
    check(1 + 2**-12, 1 + 2**-12, 2**-60)
    check(1 + 2**-23, 2**-24 + 2**-47, 1)
    check(2**-24, 1, 1)
    check(2**-24 * (1 + 2**-23), 1 - 2**-23, 1)
    check(1 + 2**-23, 1 + 2**-1, 2**-80)
    rng = np.random.default_rng(0)
    for _ in range(2000):
        middle = np.float32(1 + rng.integers(0, 2**22) * 2**-22)
        tiny = np.float32((rng.random() - 0.5) * 2.0 ** -rng.integers(50, 90))
        check(middle * np.float32(1 + 2**-23), 1, tiny)
        check(np.float32(1 + rng.integers(0, 2**12) * 2**-12), np.float32(1 + rng.integers(0, 2**12) * 2**-12), tiny)


def test_the_polynomials_are_the_sigmoid():
    x = np.linspace(-17, 17, 5001, dtype=np.float32)
    np.testing.assert_allclose(logistic(x), 1 / (1 + np.exp(-x.astype(np.float64))), atol=2e-7)
    assert logistic(np.array([-1e9, 1e9], np.float32)).tolist() == logistic(np.array([-18, 18], np.float32)).tolist()
