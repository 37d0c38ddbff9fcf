"""Scale and zero point of a range: the contract of each scheme, and other tools' choices to the last bit."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qdebug.errors import UsageError
from qdebug.numerics.affine import dequantize
from qdebug.numerics.scheme import BITS, RULES, SCHEMES, QuantScheme

ENDS = st.floats(-1e6, 1e6, width=32)


def pair(low, high, **options):
    found = QuantScheme(**options).parameters(low, high)
    return float(found.scale[0]), int(found.zero_point[0])


@given(ENDS, ENDS, st.sampled_from(list(SCHEMES)), st.sampled_from(BITS), st.booleans(), st.booleans())
def test_codes_reach_both_ends_and_0_has_a_code(first, second, kind, bits, signed, narrow):
    low, high = sorted((first, second))
    scheme = QuantScheme(kind=kind, bits=bits, signed=signed, narrow=narrow)
    found = scheme.parameters(low, high)
    scale, zero_point = float(found.scale[0]), int(found.zero_point[0])
    assert scale > 0
    assert scheme.qmin <= zero_point <= scheme.qmax
    slack = scale * (0.5 if kind == "asymmetric" else 1e-6 * scheme.levels)  # the zero point is rounded
    assert (scheme.qmin - zero_point) * scale <= min(low, 0) + slack
    assert (scheme.qmax - zero_point) * scale >= max(high, 0) - slack
    if kind != "asymmetric" and not (kind == "symmetric_uint8" and low >= 0):
        assert zero_point == scheme.middle
    if kind == "power_of_two":
        assert np.frexp(scale)[0] == 0.5


def test_the_examples_of_the_guide():
    assert pair(-1.0, 3.0) == (float(np.float32(4 / 255)), -64)
    assert pair(-1.0, 3.0, kind="symmetric") == (float(np.float32(3 / 127)), 0)
    assert pair(-1.28, 1.0, kind="symmetric") == (float(np.float32(0.01)), 0)
    assert pair(0.5, 2.55, kind="symmetric_uint8") == (float(np.float32(0.01)), -128)
    assert pair(-1.0, 3.0, kind="power_of_two") == (1 / 32, 0)
    assert pair(0.0, 0.0) == (1.0, 0)


def test_a_scale_that_is_a_power_of_two_already_is_kept():
    assert pair(0.0, 127 / 64, kind="power_of_two") == (1 / 64, 0)
    assert pair(0.0, 127 / 64 + 1e-6, kind="power_of_two") == (1 / 32, 0)


@given(ENDS, ENDS, st.booleans(), st.booleans())
def test_as_onnxruntime(first, second, symmetric, signed):
    quant_utils = pytest.importorskip("onnxruntime.quantization.quant_utils")
    low, high = (np.float32(end) for end in sorted((first, second)))
    scheme = QuantScheme(kind="symmetric" if symmetric else "asymmetric", rule="onnxruntime", signed=signed)
    dtype = np.int8 if signed else np.uint8
    zero_point, scale = quant_utils.compute_scale_zp(
        low, high, dtype(scheme.qmin), dtype(scheme.qmax), symmetric=symmetric
    )
    assert pair(low, high, kind=scheme.kind, rule=scheme.rule, signed=signed) == (float(scale), int(zero_point))


def test_as_glow():
    """Values by hand from chooseQuantizationParams, read in its source."""
    glow = {"rule": "glow"}
    assert pair(0.0, 0.0, **glow) == (float(np.float32(0.1)), 0)
    assert pair(-1.0, 1.0, **glow)[1] == 0  # min == -max: forced to 0, although (qmin + qmax) / 2 is no integer
    assert pair(-1.0, 1.0)[1] in (0, -1)
    assert pair(-2.0, 1.0, kind="symmetric", **glow)[0] == pytest.approx(2 / 128, rel=1e-6)
    assert pair(-1.0, 2.0, kind="symmetric", **glow)[0] == pytest.approx(2 / 127, rel=1e-6)
    assert pair(0.0, 2.55, kind="symmetric_uint8", **glow) == (float(np.float32(np.float32(2.55) / 255.0)), -128)
    assert pair(-0.1, 2.55, kind="symmetric_uint8", **glow)[1] == 0
    assert pair(-1.0, 2.0, kind="power_of_two", **glow) == (1 / 32, 0)


def test_as_tvm():
    """Values by hand from _power2_scale and _set_params: the range is rounded up, then divided by 128."""
    assert pair(-1.0, 0.9, kind="power_of_two", rule="tvm") == (1 / 128, 0)
    assert pair(-1.0, 1.001, kind="power_of_two", rule="tvm") == (2 / 128, 0)
    assert pair(-1.0, 0.9, kind="symmetric", rule="tvm") == (1 / 128, 0)
    assert pair(0.0, 0.0, kind="power_of_two", rule="tvm") == (1 / 128, 0)
    assert QuantScheme(kind="symmetric", rule="tvm").qmin == -127


def test_channels_and_blocks_are_put_together():
    scheme = QuantScheme(kind="symmetric", bits=4)
    channels = scheme.stacked([(-8, 0), (0, 14)], 1)
    assert channels.scale.tolist() == [1.0, 2.0]
    assert channels.axis == 1
    blocks = scheme.stacked([(-8, 0), (0, 14), (0, 7), (0, 21)], 0, (3, (2, 2)))
    weights = np.array([[1, 1], [1, 1], [1, 1], [1, 1]]).astype(blocks.dtype.replace("int4", "int8"))
    assert dequantize(weights, blocks).tolist() == [[1, 2], [1, 2], [1, 2], [1, 3]]


@pytest.mark.parametrize(
    "wrong",
    [{"kind": "log"}, {"bits": 7}, {"rule": "mine"}, {"rule": "tvm"}, {"rule": "onnxruntime", "kind": "power_of_two"}],
)
def test_what_there_is_not_is_refused_with_a_hint(wrong):
    with pytest.raises(UsageError):
        QuantScheme(**wrong)


def test_a_range_that_is_none_is_refused():
    with pytest.raises(UsageError, match="No scale can represent a range"):
        QuantScheme().parameters(1.0, 0.0)
    with pytest.raises(UsageError, match="No scale can represent a range"):
        QuantScheme().parameters(float("nan"), 0.0)
    assert set(RULES) == {"qdebug", "onnxruntime", "glow", "tvm"}
