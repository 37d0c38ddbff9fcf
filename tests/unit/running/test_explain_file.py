"""A run by any known arithmetic is explained, and the backend is among those named."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.arithmetic.arithmetic_file import read_arithmetic
from qdebug.arithmetic.presets import known_presets
from qdebug.backends import load_backend
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.model import MemoryRecording, RunInfo
from qdebug.probe.models import NetBuilder, add_qdq_group
from qdebug.running.explain_file import arithmetic_text, explain
from qdebug.running.feeds import ArrayFeeds
from qdebug.running.record import record_feeds, record_run
from qdebug.session import open_recording

DATA = Path(qdebug.__file__).parent / "data"
NARROWED = ("conv", "linear")


def run(tmp_path, arithmetic):
    """Compute the int8 digits net on four digits."""
    with np.load(DATA / "digits.inputs.npz") as data:
        feeds = {name: data[name][:4] for name in data.files}
    out = tmp_path / "run.h5"
    options = {"arithmetic": str(arithmetic)}
    record_run(DATA / "digits.int8.h5", backend="interpreter", options=options, inputs=feeds, samples=4, out=out)
    return out


QUICK = {
    *("onnx-spec", "ort-mlas-avx2-nonvnni", "qnnpack", "gemmlowp", "tflite-reference", "glow-cpu"),
}
"""Scales as floats and in fixed point, sums that saturate, and backends that are hard to tell apart."""


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in known_presets()]
)
def test_every_known_backend_is_named(tmp_path, name):
    found = explain(run(tmp_path, name))
    assert not found.of(ExplainStatus.UNEXPLAINED)
    for node in found.nodes:
        if node.kind in NARROWED and node.kind in known_presets()[name].states:
            assert name in [preset.name for preset in node.presets], node.node


@pytest.mark.parametrize("name", ["glow-cpu", "tflite-reference"])
def test_what_is_written_computes_the_same(tmp_path, name):
    first = run(tmp_path, name)
    found = explain(first)
    file = tmp_path / "found.toml"
    file.write_text(arithmetic_text(found), encoding="utf-8")
    assert read_arithmetic(file).arithmetic.variants
    (tmp_path / "again").mkdir()
    second, recorded = open_recording(run(tmp_path / "again", file)), open_recording(first)
    for node in found.nodes:
        for sample in range(4):
            np.testing.assert_array_equal(second.load(node.tensor, sample), recorded.load(node.tensor, sample))


def test_one_node_has_the_evidence_of_its_siblings(tmp_path):
    path = run(tmp_path, "glow-cpu")
    whole = {node.tensor: node for node in explain(path).nodes}
    alone = explain(path, node="conv1_quant").nodes
    assert [node.node for node in alone] == ["conv1_quant"]
    assert alone[0].variants == whole[alone[0].tensor].variants
    assert alone[0].siblings == whole[alone[0].tensor].siblings > 1


def mixed_net():
    """Make a net in which one kind of node is computed by several kernels: functions, resizes, convolutions."""
    rng = np.random.default_rng(5)
    made = NetBuilder("lookup", "mixed")
    every = np.arange(256, dtype=np.uint8).reshape(1, 256)
    for scale in (0.031, 0.047):
        for op in ("HardSwish", "LeakyRelu", "Sigmoid"):
            add_qdq_group(made, op, [(every, scale, 120)], (scale * 0.4 if op != "Sigmoid" else 1 / 256, 20))
    for shape, size in (((1, 4, 16, 16), (1, 4, 23, 37)), ((1, 16, 16, 4), (1, 23, 37, 4))):
        codes = rng.integers(0, 256, shape).astype(np.uint8)
        sizes = made.add_constant(np.array(size, np.int64))
        add_qdq_group(made, "Resize", [(codes, 0.05, 3)], (0.05, 3), other_inputs=("", "", sizes), mode="linear")
    for scale in (0.05, 0.03, 0.05, 0.04):
        codes = rng.integers(0, 256, (1, 8, 30, 30)).astype(np.uint8)
        add_qdq_group(made, "AveragePool", [(codes, 0.05, 3)], (scale, 3), kernel_shape=(3, 2))
    for group in (1, 16, 1, 16):
        codes = rng.integers(0, 256, (1, 16, 32, 32)).astype(np.uint8)
        weights = rng.integers(0, 256, (16, 16 // group, 3, 3)).astype(np.uint8)
        add_qdq_group(made, "Conv", [(codes, 2.0**-4, 120), (weights, 2.0**-6, 128)], (2.0**-1, 99), group=group)
    return made.build()


def computed(net, path, **options):
    arrays = {(name, 0, 0): array for name, array in net.constants.items()}
    source = MemoryRecording(net.graph, arrays, RunInfo(backend="made"))
    backend = load_backend("interpreter").open(source, options=options)
    record_feeds(backend, ArrayFeeds(net.feed, backend.inputs), path)
    backend.close()
    return open_recording(path)


MIXED = """
format = "qdebug.arithmetic"
fused = true
[variants]
"lookup.HardSwish" = "form=hswish16 steps=shr.away,zp,sat"
"lookup.LeakyRelu" = "form=leaky m=q31 operand=shl,mulhi.up,shr.away steps=zp,sat"
lookup = "form=stepped steps=div,zp,even,sat"
average_pool = "form=raw m=q31 steps=avg.away,sat"
conv = "m=q31:d:xw/y steps=shl,mulhi.up,shr.up,zp,sat"
"conv.depthwise" = "steps=mul,zp,even,sat"
"""


def test_kernels_of_one_kind_are_told_apart_and_written_each(tmp_path):
    given = tmp_path / "given.toml"
    given.write_text(MIXED, encoding="utf-8")
    net = mixed_net()
    first = computed(net, tmp_path / "first.h5", arithmetic=str(given))
    found = explain(first)
    assert not found.of(ExplainStatus.UNEXPLAINED)
    for node in found.nodes:
        assert node.kind in ("conv", "average_pool") or node.reason is None, node
    keys = {key.partition(":")[0] for key in found.arithmetic}
    assert {"lookup.HardSwish", "lookup.LeakyRelu", "lookup.Sigmoid"} < keys
    assert {"resize.linear", "resize.linear-channels-last", "conv", "conv.depthwise"} < keys
    assert {"average_pool", "average_pool.same-scale"} < keys
    assert found.exceptions == {}
    file = tmp_path / "found.toml"
    file.write_text(arithmetic_text(found), encoding="utf-8")
    again = computed(net, tmp_path / "again.h5", arithmetic=str(file))
    plain = computed(net, tmp_path / "plain.h5", arithmetic="ort-mlas")
    others = 0
    for node in found.nodes:
        np.testing.assert_array_equal(again.load(node.tensor), first.load(node.tensor), err_msg=node.node)
        others += not np.array_equal(plain.load(node.tensor), first.load(node.tensor))
    assert others >= 6
