"""An attribute that one side states with its default value is no difference; scales of extents are not disturbed."""

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.align import align
from qdebug.compare.attribute.plan import plan
from qdebug.compare.graph_checks.differences import is_declared_equally
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.errors import KernelError
from qdebug.model import Node, operators
from qdebug.replay.registry import run_node
from qdebug.replay.segment import estimate_spread

RNG = np.random.default_rng(3)
X = RNG.normal(size=(1, 3, 6, 6)).astype(np.float32)
W = RNG.normal(size=(3, 3, 3, 3)).astype(np.float32)
SCALES = np.array([1, 1, 2, 2], np.float32)


def run(op, attrs, *, half=False):
    names = {"Conv": ("x", "w"), "Resize": ("x", "", "scales"), "LeakyRelu": ("x",)}[op]
    constants = {name: value for name, value in (("w", W), ("scales", SCALES)) if name in names}
    node = Node(name="n", op=op, inputs=names, outputs=("y",), attrs=attrs)
    made = run_node(node, {"x": X, **constants}, {"": 17})["y"]
    with qdebug.Recorder(None, backend="b") as rec:
        for name, value in constants.items():
            rec.constant(name, value.astype(np.float16) if half else value)
        rec.put("x", X)
        rec.put("y", made.astype(np.float16) if half else made, node="n", op=op, inputs=names, attrs=attrs)
        rec.outputs("y")
    return rec.recording


def same(reference, backend):
    alignment = align(reference, backend)
    checks = GraphCheck(reference, backend, alignment.pairs)
    (entry,) = [entry for entry in plan(reference, backend, alignment) if entry.tensor == "y"]
    return is_declared_equally(checks.of(entry).facts, [(0, 0)])


@pytest.mark.parametrize(
    ("op", "stated", "others"),
    [
        ("Conv", {"strides": [1, 1]}, {}),
        ("Conv", {"dilations": [1, 1], "pads": [0, 0, 0, 0], "group": 1}, {"kernel_shape": [3, 3]}),
        ("Resize", {"coordinate_transformation_mode": "half_pixel"}, {}),
        ("LeakyRelu", {"alpha": 0.01}, {}),
    ],
)
def test_a_default_is_stated_or_left_out(op, stated, others):
    given = {"mode": "linear"} if op == "Resize" else {}
    one, other = run(op, {**given, **stated}), run(op, {**given, **others})
    assert same(one, other)
    assert same(other, one)


@pytest.mark.parametrize(
    ("op", "stated", "others"),
    [
        ("Conv", {"strides": [2, 2]}, {}),
        ("Conv", {"strides": [1, 1]}, {"strides": [2, 2]}),
        ("Resize", {"coordinate_transformation_mode": "asymmetric"}, {}),
        ("LeakyRelu", {"alpha": 0.2}, {}),
    ],
)
def test_another_value_is_a_difference(op, stated, others):
    given = {"mode": "linear"} if op == "Resize" else {}
    one, other = run(op, {**given, **stated}), run(op, {**given, **others})
    assert not same(one, other)
    assert op == "Conv" or qdebug.diff(one, other).origin == "n"  # of another shape


@pytest.mark.parametrize("attrs", [{"cubic_coeff_a": -0.75}, {"coordinate_transformation_mode": "asymmetric"}], ids=str)
def test_the_scales_of_a_resize_are_not_disturbed(attrs):
    reference, backend = run("Resize", {"mode": "linear"}), run("Resize", {"mode": "linear", **attrs}, half=True)
    result = qdebug.diff(reference, backend)
    assert result.status == ("within" if "cubic_coeff_a" in attrs else "diverged")
    assert qdebug.diff(backend, reference).status == result.status


def test_what_is_rounded_like_data():
    node = Node(name="n", op="Clip", inputs=("x", "low", "high"), outputs=("y",))
    for op, names in (("Clip", "x low high"), ("Resize", "x"), ("Conv", "x low high"), ("Pad", "x high")):
        assert " ".join(operators.valued_inputs(Node(name="n", op=op, inputs=node.inputs, outputs=("y",)))) == names


def test_rounding_that_changes_extents_is_an_error():
    with pytest.raises(KernelError, match="shape"):
        estimate_spread(np.zeros(3), lambda: np.zeros(2))
