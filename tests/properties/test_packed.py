"""Small tensors compared at once give what each gives alone, bit for bit."""

from __future__ import annotations

import numpy as np
from draws import FLOATS, arrays_of, dtype_of
from hypothesis import given, settings
from hypothesis import strategies as st

from qdebug.model import QuantParams
from qdebug.numerics.accumulate import ErrorAccumulator
from qdebug.numerics.affine import BLOCK
from qdebug.numerics.blocks import RealBlocks
from qdebug.numerics.packed import MOST_PACKED, PackedPair, packed_tallies
from qdebug.numerics.stats import ErrorStats
from qdebug.numerics.steps import Steps

SINGLE = [*(name for name in FLOATS if name != "float64"), "int4", "int8", "uint8", "int16", "bool"]


def alone(a: np.ndarray, b: np.ndarray, quants: tuple[QuantParams | None, QuantParams | None]) -> ErrorStats:
    accumulator = ErrorAccumulator(reference_quant=quants[0], backend_quant=quants[1])
    accumulator.update(a, b, sample=3)
    return accumulator.stats()


def pair_of(a: np.ndarray, b: np.ndarray, quants: tuple[QuantParams | None, QuantParams | None]) -> PackedPair:
    first, second = RealBlocks(a, quants[0]), RealBlocks(b, quants[1])
    return PackedPair(reference=first, backend=second, steps=Steps(quants[1], second.shape), sample=3)


def is_packed_as_alone(a: np.ndarray, b: np.ndarray, quants: tuple, tally: object) -> bool:
    """Compare all metrics; a tensor that float32 is not enough for is left to the other path."""
    expected = alone(a, b, quants)
    if tally is None:
        with np.errstate(invalid="ignore"):  # of a NaN in a narrow float
            sizes = [abs(float(v)) for side in (a, b) for v in np.asarray(side, np.float64).ravel()]
        return expected.nonfinite + expected.matched_nonfinite > 0 or any(s and not 2**-30 < s < 2**50 for s in sizes)
    return repr(tally.stats()) == repr(expected)


@st.composite
def packs(draw: st.DrawFn) -> list[tuple[np.ndarray, np.ndarray, tuple]]:
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    found = []
    for _ in range(draw(st.integers(1, 5))):
        names = draw(st.sampled_from(SINGLE)), draw(st.sampled_from(SINGLE))
        a, b = (draw(arrays_of(dtype_of(name), shape)) for name in names)
        if names[0] == names[1] and draw(st.booleans()):
            b = a.copy()
        quants: list[QuantParams | None] = [None, None]
        for side, name in enumerate(names):
            if "int" in name and draw(st.booleans()):
                per_channel = draw(st.booleans())
                scale = np.array([0.5, 0.1, 0.25, 3.0], np.float32)[: shape[0] if per_channel else 1]
                quants[side] = QuantParams(dtype=name, scale=scale, zero_point=1, axis=0 if per_channel else None)
        found.append((a, b, tuple(quants)))
    return found


@settings(max_examples=300, deadline=None)
@given(pack=packs())
def test_each_of_many_is_as_it_is_alone(pack: list[tuple[np.ndarray, np.ndarray, tuple]]) -> None:
    for entry, tally in zip(pack, packed_tallies([pair_of(*entry) for entry in pack]), strict=True):
        assert is_packed_as_alone(*entry, tally)


@settings(max_examples=40, deadline=None)
@given(
    size=st.sampled_from([1, 2, 255, 256, 257, 511, 512, 600, 1000, MOST_PACKED - 1, MOST_PACKED]),
    rows=st.integers(1, 40),
    seed=st.integers(0, 2**16),
    noise=st.sampled_from([0.0, 1e-6, 1e-3, 3.0]),
    integers=st.booleans(),
)
def test_sums_are_of_the_same_products_in_the_same_order(
    size: int, rows: int, seed: int, noise: float, integers: bool
) -> None:
    generator = np.random.default_rng(seed)
    pack = []
    for _ in range(rows):
        a = generator.standard_normal(size).astype(np.float32)
        b = a + generator.standard_normal(size).astype(np.float32) * np.float32(noise)
        quants: tuple = (None, None)
        if integers:
            quant = QuantParams(dtype="int8", scale=np.float32(0.02), zero_point=int(generator.integers(-9, 9)))
            a, b = (np.clip(np.rint(side / 0.02), -128, 127).astype(np.int8) for side in (a, b))
            quants = (quant if seed % 2 else QuantParams(dtype="int8", scale=np.float32(0.03)), quant)
        pack.append((a, b, quants))
    for entry, tally in zip(pack, packed_tallies([pair_of(*entry) for entry in pack]), strict=True):
        assert tally is not None
        assert repr(tally.stats()) == repr(alone(*entry))


def test_what_float32_is_not_enough_for_is_left_out_alone() -> None:
    plain = np.float32([1, 2]), np.float32([1, 3]), (None, None)
    odd = [np.float32([1, np.nan]), np.float32([np.inf, 1]), np.float32([1e-30, 0]), np.float32([1e30, 1])]
    pack = [plain, *((side, np.float32([1, 1]), (None, None)) for side in odd), plain]
    found = packed_tallies([pair_of(*entry) for entry in pack])
    assert [tally is None for tally in found] == [False, True, True, True, True, False]
    assert found[0].stats().max_abs == found[-1].stats().max_abs == 1.0


def test_more_tensors_than_fit_a_block_are_compared_and_none_are_none() -> None:
    many = BLOCK // MOST_PACKED * 2 + 3
    sides = np.random.default_rng(0).standard_normal((2, many, MOST_PACKED)).astype(np.float32)
    pack = [(a, b, (None, None)) for a, b in zip(*sides, strict=True)]
    found = packed_tallies([pair_of(*entry) for entry in pack])
    assert [repr(tally.stats()) for tally in found] == [repr(alone(*entry)) for entry in pack]
    assert packed_tallies([]) == []
