"""Operators without a kernel of their own are replayed by ONNX's reference implementation."""

import subprocess
import sys

import numpy as np
import pytest

import qdebug
from qdebug.backends import replay_kernel
from qdebug.backends.onnx.reference import kernel_of
from qdebug.errors import KernelError, RefusedSizeError
from qdebug.model import Node
from qdebug.replay.registry import has_kernel, known_kernels, run_node
from qdebug.running.record import record_run

onnx = pytest.importorskip("onnx")


def test_a_rare_operator_has_a_kernel_though_none_is_written_here():
    assert ("", "RoiAlign") not in known_kernels()
    assert has_kernel("RoiAlign")
    assert has_kernel("RoiAlign", "ai.onnx")


def test_it_is_asked_whatever_was_imported_before():
    code = "from qdebug.replay.registry import has_kernel; print(has_kernel('RoiAlign'), has_kernel('NoSuchOp'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "True False\n"


@pytest.mark.parametrize("op", ["RandomNormal", "Bernoulli", "If", "Loop", "SequenceAt", "MaxRoiPool", "NoSuchOp"])
def test_what_is_random_holds_graphs_or_is_not_implemented_has_none(op):
    assert kernel_of(op, "") is None


def test_an_operator_of_another_domain_has_none():
    assert replay_kernel("RoiAlign", "com.example") is None


def test_it_computes_what_the_operator_says():
    node = Node(
        name="turn", op="ReverseSequence", inputs=("x", "n"), outputs=("y",), attrs={"time_axis": 1, "batch_axis": 0}
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    found = run_node(node, {"x": x, "n": np.array([4, 2])}, {"": 13})["y"]
    np.testing.assert_array_equal(found, [[3, 2, 1, 0], [5, 4, 6, 7]])


def test_an_input_left_out_is_left_out():
    node = Node(name="u", op="Unique", inputs=("x",), outputs=("y", "", "inverse"), attrs={"sorted": 1})
    found = run_node(node, {"x": np.float32([3, 1, 3])}, {"": 13})
    np.testing.assert_array_equal(found["y"], [1, 3])
    np.testing.assert_array_equal(found["inverse"], [1, 0, 1])


def test_what_it_cannot_compute_is_an_error_that_names_the_node():
    node = Node(name="det", op="Det", inputs=("x",), outputs=("y",))
    with pytest.raises(KernelError, match=r"'det' \(Det\).*reference implementation"):
        run_node(node, {"x": np.zeros(3, np.float32)}, {"": 16})


@pytest.mark.parametrize(
    ("op", "shapes", "attrs"),
    [
        ("RoiAlign", [(1, 64, 64, 64), (100, 4), (100,)], {"output_height": 7, "output_width": 7, "sampling_ratio": 2}),
        ("RoiAlign", [(1, 4, 512, 512), (4, 4), (4,)], {"output_height": 7, "output_width": 7}),
        ("MaxUnpool", [(1, 16, 160, 160), (1, 16, 160, 160)], {"kernel_shape": (2, 2), "strides": (2, 2)}),
    ],
)
def test_loops_in_python_that_would_take_seconds_are_refused_before_they_begin(op, shapes, attrs):
    names = ("x", "second", "third")[: len(shapes)]
    values = {name: np.zeros(shape, np.float32) for name, shape in zip(names, shapes, strict=True)}
    values[names[-1]] = values[names[-1]].astype(np.int64)
    node = Node(name="n", op=op, inputs=names, outputs=("y",), attrs=attrs)
    with pytest.raises(RefusedSizeError, match=r"would process 0 elements in \d+ iterations"):
        run_node(node, values, {"": 20})


@pytest.fixture
def sampler(tmp_path):
    """Return a net with a grid sampler, and a feed for it."""
    from onnx import TensorProto, helper

    nodes = [
        helper.make_node("Relu", ["x"], ["r"], name="relu"),
        helper.make_node("GridSample", ["r", "grid"], ["y"], name="sample", align_corners=1),
    ]
    graph = helper.make_graph(
        nodes,
        "sampler",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 6, 6]),
            helper.make_tensor_value_info("grid", TensorProto.FLOAT, [1, 4, 4, 2]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 4, 4])],
    )
    path = tmp_path / "sampler.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)
    rng = np.random.default_rng(0)
    feed = {"x": rng.normal(size=(1, 2, 6, 6)), "grid": rng.uniform(-1, 1, (1, 4, 4, 2))}
    return path, {name: array.astype(np.float32) for name, array in feed.items()}


def test_its_node_is_judged_by_what_it_introduces_itself(tmp_path, sampler):
    pytest.importorskip("onnxruntime")
    path, feed = sampler
    off = feed | {"x": feed["x"] + np.float32(0.01)}
    record_run(path, backend="interpreter", inputs=feed, out=tmp_path / "ref.h5")
    record_run(path, backend="onnxruntime", inputs=off, out=tmp_path / "ort.h5")
    limits = qdebug.Limits(allow_different_inputs=True)
    result = qdebug.diff(tmp_path / "ref.h5", tmp_path / "ort.h5", limits=limits)
    node = next(node for node in result.nodes if node.node == "sample")
    assert result.status in ("identical", "within")
    assert node.introduced is not None
    assert node.introduced.rel_l2 < 1e-6 < node.propagated.rel_l2


@pytest.mark.parametrize(
    ("op", "inputs", "attrs"),
    [
        ("HannWindow", {"size": np.array(1 << 40)}, {}),
        ("CenterCropPad", {"x": np.ones(4, np.float32), "shape": np.array([1 << 40])}, {}),
        (
            "RoiAlign",
            {
                "x": np.ones((1, 1, 8, 8), np.float32),
                "rois": np.ones((1, 4), np.float32),
                "at": np.zeros(1, np.int64),
            },
            {"sampling_ratio": 1 << 20},
        ),
        (
            "RoiAlign",
            {
                "x": np.ones((1, 1, 8, 8), np.float32),
                "rois": np.ones((1, 4), np.float32),
                "at": np.zeros(1, np.int64),
            },
            {"output_height": 1 << 20, "output_width": 1 << 20},
        ),
    ],
)
def test_what_would_be_far_larger_than_its_inputs_is_refused_before_it_is_made(op, inputs, attrs):
    node = Node(name="n", op=op, inputs=tuple(inputs), outputs=("y",), attrs=attrs)
    with pytest.raises(KernelError, match=r"would produce|would process"):
        run_node(node, inputs, {"": 20})
