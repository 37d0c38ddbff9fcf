"""How far from the limit between two codes elements were rounded, whatever kind of rounding it was."""

from __future__ import annotations

import numpy as np
import pytest

from qdebug.arithmetic.evidence import distance_to_ties
from qdebug.arithmetic.units import Units
from qdebug.replay.evaluate import accumulate
from qdebug.replay.variant import parse_variant


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("", 0.5),
        ("m=q31 steps=mul,shr.up,zp,sat", 0.5),
        ("steps=mul,floor,zp,sat", 0.0),
        ("m=q31 steps=mul,shr.trunc,zp,sat", 0.0),
        ("m=q31 steps=shl,mulhi.up,shr.floor,zp,sat", 0.0),
        ("m=bf16 steps=mul,even,zp,sat", 0.5),
    ],
)
def test_it_is_where_codes_change(quantized, text, limit):
    recording = quantized.conv(text, scales=quantized.generic)
    unit = Units(recording).find(recording.graph.nodes[0], "y").unit((0, 0))
    variant = parse_variant(text)
    columns = accumulate(unit, variant.sums)
    x, w, y = (float(np.float32(scale)) for scale in quantized.generic)
    part = columns.values[0] * (x * w / y) % 1
    gap = np.abs(part - limit)
    np.testing.assert_allclose(distance_to_ties(unit, columns, variant), np.minimum(gap, 1 - gap), atol=3 / 4096)
