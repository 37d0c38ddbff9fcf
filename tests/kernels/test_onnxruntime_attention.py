"""Attention and what goes with it in transformers, held against ONNX Runtime's fused operators on random data."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

from qdebug.errors import KernelError

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def _load(name):
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


run_both = _load("test_onnxruntime_kernels").run_both
B, N, S, H = 3, 4, 6, 16
MICROSOFT = "com.microsoft"


@pytest.fixture
def normal():
    rng = np.random.default_rng(7)
    return lambda *shape: rng.normal(size=shape).astype(np.float32)


def check(op, inputs, *, outputs=1, tolerance=1e-5, domain=MICROSOFT, **attrs):
    theirs, ours = run_both(op, inputs, domain=domain, outputs=outputs, **attrs)
    for one, other in zip(theirs, ours, strict=True):
        assert other.dtype == one.dtype
        np.testing.assert_allclose(other, one, rtol=1e-4, atol=tolerance, equal_nan=False)


def masks():
    lengths = np.array([6, 3, 1], np.int32)
    raw = (np.arange(S) < lengths[:, None]).astype(np.int32)
    rows = np.random.default_rng(3).integers(0, 2, (B, S, S)).astype(np.int32)
    rows[:, :, 0] = 1
    starts = np.array([0, 1, 0], np.int32)
    return {
        "none": None,
        "ends": lengths,
        "ends and starts": np.concatenate([lengths, starts]),
        "raw": raw,
        "rows": rows,
    }


class TestAttention:
    @pytest.fixture
    def inputs(self, normal):
        return [normal(B, S, 24), normal(24, 3 * N * H) * 0.3, normal(3 * N * H)]

    @pytest.mark.parametrize("causal", [0, 1])
    @pytest.mark.parametrize("mask", masks())
    def test_masks(self, inputs, mask, causal):
        check("Attention", [*inputs, masks()[mask]], num_heads=N, unidirectional=causal)

    def test_what_is_hidden_by_another_number(self, inputs):
        check("Attention", [*inputs, masks()["raw"]], num_heads=N, mask_filter_value=-2.0, scale=0.2)

    def test_bias_of_scores(self, inputs, normal):
        check("Attention", [*inputs, masks()["raw"], None, normal(1, N, S, S)], num_heads=N)

    @pytest.mark.parametrize("causal", [0, 1])
    def test_what_was_kept(self, inputs, normal, causal):
        past = normal(2, B, N, 5, H)
        check("Attention", [*inputs, None, past], outputs=2, num_heads=N, unidirectional=causal)

    def test_values_of_another_extent(self, normal):
        inputs = [normal(B, S, 24), normal(24, 2 * N * H + N * 5), normal(2 * N * H + N * 5)]
        check("Attention", inputs, num_heads=N, qkv_hidden_sizes=[N * H, N * H, N * 5])

    def test_what_is_not_computed_is_refused(self, inputs):
        from qdebug.model import Node
        from qdebug.replay import run_node

        node = Node(
            name="a", op="Attention", domain=MICROSOFT, inputs=("x", "w"), outputs=("y",),
            attrs={"num_heads": N, "do_rotary": 1},
        )  # fmt: skip
        with pytest.raises(KernelError, match="rotates"):
            run_node(node, {"x": inputs[0], "w": inputs[1]})


class TestMultiHeadAttention:
    @pytest.fixture
    def parts(self, normal):
        return [normal(B, S, N * H), normal(B, 9, N * H), normal(B, 9, N * 5)]

    def test_plain_and_biased(self, parts, normal):
        check("MultiHeadAttention", parts, num_heads=N)
        check("MultiHeadAttention", [*parts, normal(2 * N * H + N * 5)], num_heads=N, scale=0.1)

    def test_masks_and_biases_of_scores(self, parts, normal):
        mask = (np.arange(9) < np.array([[9], [4], [2]])).astype(np.int32)
        check("MultiHeadAttention", [*parts, None, mask], num_heads=N)
        check("MultiHeadAttention", [*parts, None, None, normal(1, N, S, 9)], num_heads=N)

    def test_causal(self, normal):
        parts = [normal(B, S, N * H) for _ in range(3)]
        check("MultiHeadAttention", parts, num_heads=N, unidirectional=1)

    def test_keys_in_heads(self, normal):
        parts = [normal(B, S, N * H), normal(B, N, 9, H), normal(B, N, 9, H)]
        check("MultiHeadAttention", parts, num_heads=N)

    def test_what_was_kept(self, normal):
        parts = [normal(B, S, N * H) for _ in range(3)]
        past = [normal(B, N, 5, H), normal(B, N, 5, H)]
        check("MultiHeadAttention", [*parts, None, None, None, *past], outputs=3, num_heads=N)


class TestGroupQueryAttention:
    K = 2

    def check_run(self, normal, *, length, total, room=0, packed=False, ends=None, extra=(), **attrs):
        ends = np.full(B, total - 1, np.int32) if ends is None else np.array(ends, np.int32)
        extents = [N * H, self.K * H, self.K * H]
        new = [normal(B, length, sum(extents)), None, None] if packed else [normal(B, length, e) for e in extents]
        past = [normal(B, self.K, room, H) for _ in range(2)] if room else [None, None]
        inputs = [*new, *past, ends, np.array([total], np.int32), *extra]
        check("GroupQueryAttention", inputs, outputs=3, num_heads=N, kv_num_heads=self.K, **attrs)

    @pytest.mark.parametrize("packed", [False, True])
    def test_the_first_run(self, normal, packed):
        self.check_run(normal, length=S, total=S, packed=packed)

    @pytest.mark.parametrize("attrs", [{"local_window_size": 3}, {"softcap": 2.0}, {"scale": 0.1}])
    def test_choices(self, normal, attrs):
        self.check_run(normal, length=S, total=S, **attrs)
        self.check_run(normal, length=1, total=8, room=7, **attrs)

    def test_one_more(self, normal):
        self.check_run(normal, length=1, total=8, room=7)
        self.check_run(normal, length=1, total=8, room=7, ends=[7, 3, 5])

    @pytest.mark.parametrize("interleaved", [0, 1])
    def test_rotated(self, normal, interleaved):
        caches = [normal(16, H // 2), normal(16, H // 2)]
        self.check_run(normal, length=S, total=S, extra=caches, do_rotary=1, rotary_interleaved=interleaved)
        self.check_run(normal, length=1, total=8, room=7, extra=caches, do_rotary=1, rotary_interleaved=interleaved)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(normal, interleaved):
    caches = [normal(16, H // 2), normal(16, H // 2)]
    ids = np.random.default_rng(1).integers(0, 16, (B, S))
    check("RotaryEmbedding", [normal(B, S, N * H), ids, *caches], interleaved=interleaved)
    check("RotaryEmbedding", [normal(B, N, S, H), np.array([4]), *caches], interleaved=interleaved)
    half = [normal(16, H // 4), normal(16, H // 4)]
    attrs = {"num_heads": N, "rotary_embedding_dim": H // 2, "interleaved": interleaved}
    check("RotaryEmbedding", [normal(B, S, N * H), ids, *half], **attrs)


def test_embeddings(normal):
    rng = np.random.default_rng(2)
    ids, segments = (rng.integers(0, 5, (B, S)).astype(np.int32) for _ in range(2))
    tables, scale, shift = [normal(9, 16) for _ in range(3)], normal(16), normal(16)
    mask = (np.arange(S) < np.array([[6], [3], [1]])).astype(np.int32)
    every = [ids, segments, *tables, scale, shift]
    check("EmbedLayerNormalization", every, outputs=2)
    check("EmbedLayerNormalization", [*every, mask], outputs=3)
    check("EmbedLayerNormalization", [ids, None, *tables[:2], None, scale, shift, mask], outputs=2)
    places = rng.integers(0, 9, (B, S)).astype(np.int32)
    check("EmbedLayerNormalization", [*every, mask, places], outputs=2, epsilon=1e-3)


def test_normalizations_without_a_mean(normal):
    x, skip, scale, bias = normal(B, S, 16), normal(B, S, 16), normal(16), normal(16)
    check("SimplifiedLayerNormalization", [x, scale], domain="", axis=-1, epsilon=1e-6, stash_type=1)
    check("SkipSimplifiedLayerNormalization", [x, skip, scale])
    theirs, ours = run_both("SkipSimplifiedLayerNormalization", [x, skip, scale, bias], domain=MICROSOFT, outputs=4)
    for at in (0, 3):
        np.testing.assert_allclose(ours[at], theirs[at], rtol=1e-4, atol=1e-5)


def test_fast_gelu(normal):
    check("FastGelu", [normal(B, S, 16)])
    check("FastGelu", [normal(B, S, 16), normal(16)])


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("points", [False, True])
@pytest.mark.parametrize("level", [0, 4])
def test_product_with_packed_codes(normal, bits, points, level):
    rng, block, rows, columns = np.random.default_rng(5), 32, 70, 24
    blocks = -(-rows // block)
    weight = rng.integers(0, 256, (columns, blocks, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.01, 0.1, columns * blocks).astype(np.float32)
    zero = rng.integers(0, 256, columns * -(-blocks * bits // 8)).astype(np.uint8) if points else None
    attrs = {"K": rows, "N": columns, "bits": bits, "block_size": block, "accuracy_level": level}
    inputs = [normal(B, S, rows), weight, scales, zero]
    check("MatMulNBits", inputs, tolerance=1e-3, constant=[1], **attrs)
    check("MatMulNBits", [*inputs, None, normal(columns)], tolerance=1e-3, constant=[1], **attrs)
