"""QMoE is ONNX Runtime's: weights bit for bit, sums up to the rounding of their order."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")

spec = importlib.util.spec_from_file_location("packed", Path(__file__).with_name("test_onnxruntime_packed.py"))
packed = importlib.util.module_from_spec(spec)
spec.loader.exec_module(packed)
TOKENS, HIDDEN, INNER, EXPERTS = 5, 32, 64, 4


def mixture(
    *, bits=4, block=0, points=False, activation="relu", top=2, fused=False, dtype=np.float32, weighed=False, **attrs
):
    rng, per = np.random.default_rng(5), 8 // bits
    outputs = (INNER * (2 if fused else 1), HIDDEN)

    def real(*shape):
        return rng.normal(size=shape).astype(dtype)

    inputs = [real(TOKENS, HIDDEN), real(TOKENS, EXPERTS), *[None] * 13]
    for layer, (rows, width) in enumerate(zip(outputs, (HIDDEN, INNER), strict=True)):
        blocks = (width // block,) if block else ()
        inputs[2 + 3 * layer] = rng.integers(0, 256, (EXPERTS, rows, width // per)).astype(np.uint8)
        inputs[3 + 3 * layer] = (0.01 + 0.05 * rng.random((EXPERTS, rows, *blocks))).astype(dtype)
        inputs[4 + 3 * layer] = real(EXPERTS, rows)
        if points:
            shape = (rows, -(-blocks[0] // per)) if block else (-(-rows // per),)
            inputs[11 + layer] = rng.integers(0, 256, (EXPERTS, *shape)).astype(np.uint8)
    if weighed:
        inputs[14] = rng.random((TOKENS, EXPERTS)).astype(dtype)
    attrs |= {"expert_weight_bits": bits, "k": top, "activation_type": activation}
    attrs |= {"block_size": block} if block else {}
    return inputs, attrs | ({"swiglu_fusion": 1} if fused else {})


def run_both(inputs, attrs):
    fed = tuple(at for at in (0, 1, 14) if inputs[at] is not None)
    (theirs,), (ours,) = packed.run_both("QMoE", inputs, fed=fed, **attrs)
    return theirs, ours


CASES = {
    "bits 2": {"bits": 2},
    "bits 4": {},
    "bits 8": {"bits": 8},
    "blocks": {"block": 32},
    "blocks of 2 bits": {"bits": 2, "block": 32},
    "blocks with zero points": {"block": 16, "points": True},
    "zero points": {"points": True},
    "zero points of 8 bits": {"bits": 8, "points": True},
    "blocks of 8 bits, data in codes": {"bits": 8, "block": 32},
    "the same with zero points": {"bits": 8, "block": 32, "points": True},
    "data in codes": {"block": 32, "accuracy_level": 4},
    "silu": {"activation": "silu"},
    "gelu": {"activation": "gelu"},
    "identity": {"activation": "identity"},
    "swiglu": {"activation": "swiglu", "fused": True},
    "swiglu with a limit": {
        "activation": "swiglu", "fused": True, "activation_alpha": 1.702, "activation_beta": 1.0, "swiglu_limit": 1.0,
    },
    "shares of their own": {"weighed": True},
    "normalized shares": {"weighed": True, "normalize_routing_weights": 1},
    "one expert": {"top": 1},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_it_gives_what_the_runtime_gives(name):
    theirs, ours = run_both(*mixture(**CASES[name]))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-6 * np.abs(theirs).max())


def test_half_precision_is_rounded_once_at_the_end():
    theirs, ours = run_both(*mixture(dtype=np.float16))
    assert ours.dtype == np.float16
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("block", [0, 16])
@pytest.mark.parametrize("bits", [2, 4])
def test_weights_are_bit_for_bit_where_each_sum_has_one_term(bits, block, points):
    inputs, attrs = mixture(bits=bits, block=block, points=points, activation="identity", top=1)
    inputs[0] = np.eye(HIDDEN, dtype=np.float32)
    inputs[1] = np.tile(np.arange(EXPERTS, dtype=np.float32), (HIDDEN, 1))
    middle = 2 ** (bits - 1)
    codes = np.full((EXPERTS, HIDDEN, INNER), middle)
    codes[:, np.arange(HIDDEN), np.arange(HIDDEN)] += 1
    inputs[5], inputs[6] = packed.packed(codes, bits), np.ones_like(inputs[6])
    inputs[4] = inputs[7] = None
    if points:
        inputs[12] = packed.packed(np.full((*inputs[12].shape[:-1], inputs[12].shape[-1] * 8 // bits), middle), bits)
    theirs, ours = run_both(inputs, attrs)
    assert np.unique(theirs).size > 5
    np.testing.assert_array_equal(ours, theirs)


def explained(theirs, inputs, attrs):
    names = [f"i{at}" if value is not None else "" for at, value in enumerate(inputs)]
    node = Node(
        name="moe", op="QMoE", domain=packed.MICROSOFT, inputs=tuple(names), outputs=("y",), attrs=attrs
    )  # fmt: skip
    values = {name: value for name, value in zip(names, inputs, strict=True) if name}
    roles = {name: Role.INPUT if name in ("i0", "i1", "i14") else Role.CONSTANT for name in values}
    infos = [TensorInfo(name=name, role=roles[name], shape=value.shape) for name, value in values.items()]
    graph = Graph([node], tensors=infos, inputs=("i0", "i1"), outputs=("y",), opset={packed.MICROSOFT: 1})
    return explain_recording(MemoryRecording.single(graph, {**values, "y": theirs}))


@pytest.mark.parametrize("name", ["bits 4", "the same with zero points", "swiglu"])
def test_a_run_is_explained_and_a_wrong_one_is_not(name):
    inputs, attrs = mixture(**CASES[name])
    theirs, _ = run_both(inputs, attrs)
    (node,) = explained(theirs, inputs, attrs).nodes
    assert (node.status, node.on_codes) == ("in_band", True)
    wrong = theirs.copy()
    wrong[3] = wrong[2]  # a token that went to another's experts
    found = explained(wrong, inputs, attrs)
    assert found.exit_code == 1
    assert found.nodes[0].status == "unexplained"
