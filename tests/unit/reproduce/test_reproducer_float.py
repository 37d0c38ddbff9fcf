"""Float nodes cut out of a run: the file passes where only rounding differs, and fails on a fault."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.present.reports.reproducer import float_reproducer_text
from qdebug.replay.registry import run_node
from qdebug.reproduce.reproducer import is_float_node, make_float_reproducer

CONVS = [
    Node(
        name=f"conv{at}", op="Conv", inputs=(f"x{at}", "w", "b"), outputs=(f"x{at + 1}",), attrs={"pads": (1, 1, 1, 1)}
    )
    for at in range(3)
]


def recorded(samples=2, cast=lambda values: values, fault=None, backend="npu", name="conv"):
    """Record three convolutions in a row, computed on inputs that are cast first; a fault changes the last output."""
    rng = np.random.default_rng(3)
    constants = {
        "w": rng.normal(0, 0.2, (6, 6, 3, 3)).astype(np.float32),
        "b": rng.normal(0, 1, 6).astype(np.float32),
    }
    arrays = {(key, 0, 0): array for key, array in constants.items()}
    for sample in range(samples):
        x = rng.normal(0, 1, (1, 6, 10, 10)).astype(np.float32)
        arrays["x0", sample, 0] = x
        for at, node in enumerate(CONVS):
            values = {f"x{at}": cast(x), "w": cast(constants["w"]), "b": constants["b"]}
            x = run_node(node, values, {"": 13})[f"x{at + 1}"]
            if at == 2 and fault is not None:
                x = fault(sample, x.copy())
            arrays[f"x{at + 1}", sample, 0] = x
    tensors = [TensorInfo(name=key, role=Role.CONSTANT) for key in constants]
    graph = Graph(CONVS, tensors=tensors, inputs=["x0"], outputs=["x3"], opset={"": 13})
    return MemoryRecording(graph, arrays, RunInfo(backend=backend, versions={backend: "1.2"}))


def bf16(values):
    return values.astype(ml_dtypes.bfloat16).astype(np.float32)


def reordered(sample, values):
    return (values.astype(np.float64) * (1 + 2.0**-24)).astype(np.float32)


def tail(sample, values):
    if sample == 1:
        values[..., -1] *= np.float32(1.01)
    return values


def run(text):
    names = {"__name__": "test_node"}
    exec(compile(text, "test_node.py", "exec"), names)  # noqa: S102  what is tested is a program
    return names["test_the_backend_is_as_near_the_replay_as_rounding_allows"]


def text_of(recording, name="conv2", **options):
    return float_reproducer_text(make_float_reproducer(recording, name, **options), Path("test_node.py"))


def test_a_healthy_node_passes():
    found = make_float_reproducer(recorded(fault=reordered), "conv2")
    assert found.within
    assert 0 < found.error <= found.allowed
    assert (found.precision, found.siblings) == ("fp32", 0)
    run(float_reproducer_text(found, Path("test_node.py")))()


def test_a_fault_fails_on_the_sample_that_shows_it():
    recording = recorded(fault=tail)
    found = make_float_reproducer(recording, "conv2")
    assert found.place == (1, 0)
    assert not found.within
    text = text_of(recording)
    with pytest.raises(AssertionError, match=r"the recording: the norm of the error is .* times what is allowed"):
        run(text)()
    run(text_of(recording, sample=0))()


def test_the_precision_of_the_siblings_is_the_tolerance():
    """A net in bfloat16 is held against that: its faults fail, its coarse products do not."""
    healthy, broken = recorded(cast=bf16), recorded(cast=bf16, fault=tail)
    found = make_float_reproducer(healthy, "conv1")
    assert (found.precision, found.siblings) == ("bf16 inputs", 0)
    run(float_reproducer_text(found, Path("test_node.py")))()
    wrong = make_float_reproducer(broken, "conv2")
    assert (wrong.precision, wrong.siblings) == ("bf16 inputs", 2)
    text = text_of(broken)
    said = text.replace("\n", " ")
    assert "the rounding bound of its sums in bf16 inputs; 2 other Conv nodes of the run are within it" in said
    with pytest.raises(AssertionError, match="times what is allowed"):
        run(text)()


def test_nan_is_never_within():
    def fault(sample, values):
        values[0, 0, 0, 0] = np.nan
        return values

    found = make_float_reproducer(recorded(fault=fault), "x3")
    assert found.error == np.inf
    with pytest.raises(AssertionError, match="1 of 600 elements are NaN or infinite on one side only"):
        run(float_reproducer_text(found, Path("test_node.py")))()


def test_what_rounds_nothing_has_to_be_equal():
    node = Node(name="r", op="Relu", inputs=("x",), outputs=("y",))
    x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(4, 10)
    graph = Graph([node], inputs=["x"], outputs=["y"], opset={"": 13})
    right = MemoryRecording.single(graph, {"x": x, "y": np.maximum(x, 0)})
    run(text_of(right, "r"))()
    wrong = MemoryRecording.single(graph, {"x": x, "y": np.nextafter(np.maximum(x, 0), np.float32(2))})
    text = text_of(wrong, "r")
    assert "none, because Relu does not round" in text
    with pytest.raises(AssertionError, match="inf times what is allowed"):
        run(text)()


def test_a_hostile_name_ends_no_docstring():
    recording = recorded(fault=tail)
    info = RunInfo(backend="npu", model='x"""\nraise SystemExit\n"""')
    hostile = MemoryRecording(
        recording.graph,
        {(n, s, 0): recording.load(n, s) for n in recording.names for s in range(2) if recording.has(n, s)},
        info,
    )
    names = run(text_of(hostile)).__globals__
    assert "raise SystemExit" in names["__doc__"].replace("\n", " ")


def test_only_float_nodes_are():
    assert is_float_node(recorded(), "conv1")
    assert is_float_node(recorded(), "x2")
    assert not is_float_node(recorded(), "conv9")
    quant = QuantParams(dtype="int8", scale=0.1)
    node = Node(name="r", op="Relu", inputs=("x",), outputs=("y",))
    tensors = [TensorInfo(name=name, dtype="int8", quant=quant) for name in "xy"]
    graph = Graph([node], tensors=tensors, inputs=["x"], outputs=["y"], opset={"": 13})
    codes = np.arange(6, dtype=np.int8)
    assert not is_float_node(MemoryRecording.single(graph, {"x": codes, "y": codes}), "r")


def test_what_is_not_there_is_said():
    with pytest.raises(UsageError, match="no node 'conv9'"):
        make_float_reproducer(recorded(), "conv9")
    with pytest.raises(UsageError, match="for sample 7"):
        make_float_reproducer(recorded(), "conv1", sample=7)


@pytest.mark.parametrize("kept", [np.float16, np.float32])
def test_what_the_range_of_float16_took_is_said_and_a_wrong_row_still_fails(kept):
    x = np.random.default_rng(1).normal(0, 1, (16, 32)).astype(np.float16)
    right = np.clip(x.astype(np.float32) * 30000, -65504, 65504).astype(np.float16)
    node = Node(name="scale", op="Mul", inputs=("x", "s"), outputs=("y",))
    graph = Graph([node], tensors=[TensorInfo(name="s", role=Role.CONSTANT)], inputs=["x"], outputs=["y"])
    wrong = right.copy()
    wrong[3] = (right[3].astype(np.float32) * np.float32(0.5)).astype(np.float16)
    for y, within in ((right, True), (wrong, False)):
        values = {"x": x.astype(kept), "s": np.asarray(30000, kept), "y": y.astype(kept)}
        found = make_float_reproducer(MemoryRecording.single(graph, values), "scale")
        text = float_reproducer_text(found, Path("test_node.py"))
        assert found.within == within
        assert "results are beyond 65504, the largest float16 value; the first, " in " ".join(text.split())
        if within:
            run(text)()
        else:
            with pytest.raises(AssertionError):
                run(text)()
