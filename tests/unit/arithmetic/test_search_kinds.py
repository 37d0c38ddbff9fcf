"""Whatever a unit is computed by, the search finds it: every kind, with each of its known variants."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from qdebug.arithmetic.candidates import candidates
from qdebug.arithmetic.search import search
from qdebug.replay.evaluate import compute
from qdebug.replay.unit import Operand, Target, Unit

RNG = np.random.default_rng(11)


def operand(shape, scale, zero=0, low=-128, high=128):
    codes = RNG.integers(low, high, shape).astype(np.int8)
    return Operand(codes=codes, scale=np.asarray(np.float32(scale)), zero_point=np.asarray(zero, np.int8))


def target(scale, zero=-3):
    return Target(dtype=np.dtype(np.int8), scale=np.asarray(np.float32(scale)), zero_point=np.asarray(zero, np.int8))


IMAGE = (1, 6, 14, 15)
WINDOW = {"kernel_shape": (3, 3), "strides": (1, 1), "pads": (1, 1, 1, 1)}
REAL = Operand(
    codes=RNG.normal(0, 3, (40, 90)).astype(np.float32),
    scale=np.ones((), np.float32),
    zero_point=np.zeros((), np.int8),
)
UNITS = {
    "conv": Unit(
        kind="conv",
        operands=(operand(IMAGE, 0.031, 5), operand((8, 6, 3, 3), 0.0041, 0, -30, 30)),
        out=target(0.043),
        bias=RNG.integers(-900, 900, 8).astype(np.int32),
        attrs={"pads": (1, 1, 1, 1)},
    ),
    "linear": Unit(kind="linear", operands=(operand((30, 40), 0.03, 5), operand((40, 60), 0.0041)), out=target(0.09)),
    "add": Unit(kind="add", operands=(operand(IMAGE, 0.031, 5), operand(IMAGE, 0.04, -7)), out=target(0.06)),
    "sub": Unit(kind="sub", operands=(operand(IMAGE, 0.031, 5), operand(IMAGE, 0.04, -7)), out=target(0.06)),
    "mul": Unit(kind="mul", operands=(operand(IMAGE, 0.031, 5), operand(IMAGE, 0.04, -7)), out=target(0.11)),
    "average_pool": Unit(kind="average_pool", operands=(operand(IMAGE, 0.031, 5),), out=target(0.022), attrs=WINDOW),
    "global_average_pool": Unit(
        kind="global_average_pool", operands=(operand((20, 30, 7, 9), 0.031, 5),), out=target(0.0022)
    ),
    "lookup": Unit(
        kind="lookup", operands=(operand(IMAGE, 0.05, 5),), out=target(0.0041), function="Sigmoid", op="Sigmoid"
    ),
    "softmax": Unit(
        kind="softmax",
        operands=(operand((40, 12), 0.05, 5),),
        out=target(1 / 256, -128),
        attrs={"axis": -1},
        op="Softmax",
    ),
    "requantize": Unit(kind="requantize", operands=(operand(IMAGE, 0.031, 5),), out=target(0.044)),
    "concat": Unit(
        kind="concat",
        operands=(operand(IMAGE, 0.031, 5), operand(IMAGE, 0.05, -9)),
        out=target(0.044),
        attrs={"axis": 1},
    ),
    "quantize": Unit(kind="quantize", operands=(REAL,), out=target(0.044)),
}


@dataclass
class Given:
    """A unit with the codes that a variant gives, in place of a recording."""

    computed: Unit
    recorded: np.ndarray
    places: tuple[tuple[int, int], ...] = ((0, 0),)

    @property
    def batches(self):
        return tuple((place,) for place in self.places)

    def unit(self, place):
        return self.computed

    def codes(self, place):
        return self.recorded


@pytest.mark.parametrize("kind", UNITS)
def test_the_variant_that_computed_a_unit_is_found(kind):
    unit = UNITS[kind]
    known = candidates(unit)
    assert len(known) > 1
    for variant in known[:: max(1, len(known) // 8)]:
        finding = search(Given(unit, compute(unit, variant)))
        assert variant in finding.matching, (kind, str(variant))
        assert finding.match == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNITS)
def test_every_variant_is_found(kind):
    unit = UNITS[kind]
    for variant in candidates(unit):
        assert variant in search(Given(unit, compute(unit, variant))).matching, (kind, str(variant))


@pytest.mark.parametrize("kind", UNITS)
def test_a_wrong_code_is_never_explained(kind):
    """One element too large by nine codes: no program, however odd, gives that."""
    unit = UNITS[kind]
    recorded = compute(unit, candidates(unit)[0]).copy()
    flat = recorded.reshape(-1)
    where = int(np.argmin(np.abs(flat.astype(int) - 10)))
    flat[where] += 9
    finding = search(Given(unit, recorded))
    assert finding.matching == ()
    assert finding.match == pytest.approx(1 - 1 / flat.size)


def test_channels_last_is_turned():
    unit = replace(UNITS["conv"], channels_last=True)
    codes = compute(unit, candidates(unit)[0])
    assert codes.shape == (1, 14, 15, 8)
    assert search(Given(unit, codes)).match == 1.0
