"""A QuantizeLinear or DequantizeLinear that reads no scale has that of its codes, as a harness states it."""

import numpy as np
import pytest

import qdebug
from qdebug.model import QuantParams
from qdebug.replay.run import run_graph

QUANTS = {
    "int8": QuantParams(dtype="int8", scale=0.03, zero_point=5),
    "narrow": QuantParams(dtype="int8", scale=np.float32(0.003), qmin=-127),
    "channels": QuantParams(
        dtype="uint8", scale=np.float32([0.02, 0.03, 0.04, 0.05]), zero_point=[1, 2, 3, 128], axis=0
    ),
    "fp8": QuantParams(dtype="float8_e4m3fn", scale=np.float32(0.02)),
    "wide": QuantParams(dtype="int32", scale=np.float32(1e-5)),
}


def run(quant, *, inputs=False, wrong=0):
    x = np.random.default_rng(0).normal(size=(4, 32)).astype(np.float32)
    scale = quant.scale.astype(np.float32)
    shaped = scale.reshape(-1, 1) if scale.size > 1 else scale
    point = quant.zero_point.reshape(shaped.shape)
    facts = {name: getattr(quant, name) for name in ("scale", "zero_point", "axis", "qmin", "qmax")}
    codes = (x / shaped).astype(qdebug.model.dtypes.logical_dtype(quant.dtype))
    if quant.qmin is not None:
        codes = np.clip(np.rint(x / shaped) + point, quant.qmin, quant.qmax).astype(quant.dtype)
    codes[1, 3:9] += codes.dtype.type(wrong)
    real = (codes.astype(np.float32) - point.astype(np.float32)) * shaped
    more = ("s", "z") if inputs else ()
    with qdebug.Recorder(None, backend="b") as rec:
        rec.put("x", x)
        if inputs:
            rec.constant("s", scale.reshape(()) if scale.size == 1 else scale)
            rec.constant("z", quant.zero_point.astype(codes.dtype).reshape(() if scale.size == 1 else -1))
        attrs = {"axis": 0} if inputs else {}
        rec.put("q", codes, node="q", op="QuantizeLinear", inputs=("x", *more), attrs=attrs, **facts)
        rec.put("y", real.astype(np.float32), node="d", op="DequantizeLinear", inputs=("q", *more), attrs=attrs)
        rec.outputs("y")
    return rec.recording


def said(recording):
    return [(str(node.status), node.variants, node.match) for node in qdebug.explain(recording).nodes]


@pytest.mark.parametrize("name", QUANTS)
def test_it_is_explained_like_one_that_reads_its_scale(name):
    stated = run(QUANTS[name])
    assert [status for status, *_ in said(stated)] == ["explained", "explained"]
    if name != "narrow":
        assert said(stated) == said(run(QUANTS[name], inputs=True))


@pytest.mark.parametrize("inputs", [False, True])
def test_wrong_codes_are_found(inputs):
    backend = run(QUANTS["int8"], wrong=9, inputs=inputs)
    assert [str(node.status) for node in qdebug.explain(backend).nodes] == ["unexplained", "explained"]
    result = qdebug.diff(run(QUANTS["int8"]), backend)
    assert (result.status, result.origin) == ("diverged", "q")
    assert result.nodes[1].introduced.max_lsb == pytest.approx(9, abs=0.51)


def test_its_graph_runs():
    recording = run(QUANTS["int8"])
    made = run_graph(recording.graph, {"x": recording.load("x")}, {})
    assert np.array_equal(made["y"], recording.load("y"))
