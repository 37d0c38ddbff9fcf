"""Networks in float16: scales, a real bias and the ends of ranges in float16, as OpenVINO has them on x86."""

import numpy as np
import pytest

import qdebug

RNG = np.random.default_rng(12)


def half(values):
    return np.asarray(values, np.float32).astype(np.float16).astype(np.float32)


def counted(real, scale, zero, *, cut):
    """Return codes of 8 bits as OpenVINO 2026.4.1 makes them in float16; measured on single operators."""
    low, high = half(-np.float32(zero) * np.float32(scale)), half((255 - np.float32(zero)) * np.float32(scale))
    factor = np.float32(255) / (high - low)
    rest = -low * factor
    if not cut:
        return np.clip(np.rint(real * factor + rest), 0, 255).astype(np.uint8)
    fused = (real.astype(np.float64) * half(factor) + half(rest)).astype(np.float32)
    return np.clip(np.trunc(half(fused)), 0, 255).astype(np.uint8)


def explained(op, operands, made, scale, zero, **attrs):
    with qdebug.Recorder(None, backend="openvino") as rec:
        for name, (codes, own, point) in operands.items():
            if name == "w":
                rec.constant(name, codes, scale=own, zero_point=point)
            elif name == "c":
                rec.constant(name, codes, scale=own, zero_point=0)
            else:
                rec.put(name, codes, scale=own, zero_point=point)
        rec.put("y", made, node="n", op=op, inputs=tuple(operands), attrs=attrs, scale=scale, zero_point=zero)
    (node,) = qdebug.explain(rec.recording).nodes
    return node


def drawn(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


A, B = (drawn(1, 8, 12, 12), np.float32(0.05), 119), (drawn(1, 8, 12, 12), np.float32(0.031), 134)


def real(codes, scale, zero):
    return (codes.astype(np.float32) - np.float32(zero)) * half(scale)


@pytest.mark.parametrize(
    ("op", "operands", "function", "cut"),
    [
        ("Add", {"a": A, "b": B}, np.add, False),
        ("Sub", {"a": A, "b": B}, np.subtract, True),
        ("Mul", {"a": A, "b": B}, np.multiply, True),
        ("Relu", {"a": A}, lambda x: np.maximum(x, 0), False),
        ("Sigmoid", {"a": A}, lambda x: 1 / (1 + np.exp(-x)), True),
    ],
)
def test_operators_between_codes_are_explained(op, operands, function, cut):
    scale, zero = (1 / 256, 0) if op == "Sigmoid" else (0.027, 0) if op == "Relu" else (0.08, 131)
    made = counted(function(*(real(*each) for each in operands.values())), scale, zero, cut=cut)
    node = explained(op, operands, made, np.float32(scale), zero)
    assert node.status == "explained"
    assert "openvino-cpu-f16" in [match.name for match in node.presets]
    assert ("cut off" in node.words) == cut


def test_a_product_with_a_bias_is_explained_and_a_wrong_one_is_not():
    a, w = (
        (drawn(20, 24), np.float32(0.05), 119),
        (RNG.integers(-127, 128, (24, 16)).astype(np.int8), np.float32(0.004), 0),
    )
    bias = RNG.integers(-3000, 3000, 16).astype(np.int32)
    sums = (a[0].astype(np.int64) - 119) @ w[0].astype(np.int64) + bias
    made = counted(sums.astype(np.float32) * (half(0.05) * half(0.004)), 0.06, 131, cut=False)
    operands = {"a": a, "w": w, "c": (bias, np.float32(0.05) * np.float32(0.004), 0)}
    node = explained("Gemm", operands, made, np.float32(0.06), 131)
    assert node.status == "explained"
    made[3, 4] ^= 1
    assert explained("Gemm", operands, made, np.float32(0.06), 131).status == "unexplained"
