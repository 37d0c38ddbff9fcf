"""The roundings that explain finds in a run are those that the interpreter replays, bit for bit."""

import ml_dtypes
import numpy as np
import pytest

import qdebug
from qdebug.backends import load_backend
from qdebug.errors import KernelError
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.numerics.float_rounding import round_float
from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.running.explain_file import arithmetic_text
from qdebug.running.record import record_run
from qdebug.session import open_recording

RNG = np.random.default_rng(0)
BFLOAT16 = next(short for short in SHORT_FORMATS if short.name == "bfloat16")
SHAPE = (64, 128)


def rounded(values, word="even"):
    return round_float(np.asarray(values, np.float64), BFLOAT16, word).astype(ml_dtypes.bfloat16)


A, B, SCALE = (rounded(RNG.standard_normal(shape)) for shape in (SHAPE, SHAPE, SHAPE[1:]))


def engine(path, *, last="zero"):
    """Record an engine that truncates sums, and rounds the inverse root of a normalization."""
    h = rounded(A.astype(np.float64) + B, "zero")
    x = h.astype(np.float32)
    factor = rounded(1 / np.sqrt((x * x).mean(-1, keepdims=True) + np.float32(1e-5))).astype(np.float32)
    y = rounded(x * factor * SCALE.astype(np.float32))
    z = rounded(y.astype(np.float64) + A, last)
    with qdebug.Recorder(path, backend="engine") as recorder:
        recorder.constant("s", SCALE)
        recorder.put("a", A)
        recorder.put("b", B)
        recorder.put("h", h, node="add", op="Add", inputs=("a", "b"))
        recorder.put("y", y, node="norm", op="RMSNormalization", inputs=("h", "s"), attrs={"epsilon": 1e-5, "axis": -1})
        recorder.put("z", z, node="last", op="Add", inputs=("y", "a"))
        recorder.outputs("z")
    return path


@pytest.mark.parametrize("last", ["zero", "even"])
def test_explained_roundings_are_replayed(tmp_path, last):
    run = engine(tmp_path / "engine.h5", last=last)
    explanation = qdebug.explain(run)
    assert {node.status for node in explanation.nodes} == {"explained"}
    file = tmp_path / "engine.toml"
    file.write_text(arithmetic_text(explanation))
    assert ('"node:bfloat16:last" = "result=even"' in file.read_text()) == (last == "even")
    twin = tmp_path / "twin.h5"
    record_run(run, backend="interpreter", options={"rounding": str(file)}, inputs={"a": A, "b": B}, out=twin)
    held, made = open_recording(run), open_recording(twin)
    for name in "hyz":
        np.testing.assert_array_equal(held.load(name).astype(np.float32), made.load(name).astype(np.float32))
    assert "Add:bfloat16" in made.info.options["roundings"]


def test_results_in_float32_are_rounded_to_the_stated_format(tmp_path):
    node = Node(name="add", op="Add", inputs=("a", "b"), outputs=("c",))
    infos = [TensorInfo(name=name, dtype="float32", shape=SHAPE, role=Role.INPUT) for name in "ab"]
    graph = Graph([node], tensors=[*infos, TensorInfo(name="c", dtype="float32")], inputs=["a", "b"], outputs=["c"])
    a, b = A.astype(np.float32), B.astype(np.float32)
    file = tmp_path / "r.toml"
    file.write_text('format = "qdebug.arithmetic"\nversion = 1\n[roundings]\n"Add:bfloat16" = "result=up"\n')
    model = MemoryRecording.single(graph, {"a": a, "b": b, "c": a + b})
    made = load_backend("interpreter").open(model, options={"arithmetic": str(file)}).plain({"a": a, "b": b})["c"]
    np.testing.assert_array_equal(made, rounded(a.astype(np.float64) + b, "up").astype(np.float32))


def test_a_step_that_the_operator_has_not_is_an_error(tmp_path):
    run, file = engine(tmp_path / "engine.h5"), tmp_path / "r.toml"
    file.write_text(
        'format = "qdebug.arithmetic"\nversion = 1\n[roundings]\n"Add:bfloat16" = "the mean=even;result=even"\n'
    )
    with pytest.raises(KernelError, match="Add has no step 'the mean'"):
        record_run(
            run,
            backend="interpreter",
            options={"rounding": str(file)},
            inputs={"a": A, "b": B},
            out=tmp_path / "twin.h5",
        )
