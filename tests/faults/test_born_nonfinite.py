"""Nets that a lower precision breaks: where the first NaN or infinity is born, and which constant did not fit."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.api import diff
from qdebug.compare.result.result import RunComparison, Status
from qdebug.running.record import record_run
from qdebug.session import open_recording

onnx = pytest.importorskip("onnx")

SHAPE = (1, 3, 4, 4)

# each net: nodes (op, inputs, output, attributes) and its constants; "conv" comes first in all
CONV = ("Conv", ("x", "w", "b"), "conv", {})
NORM = ("BatchNormalization", ("conv", "gamma", "beta", "mean", "var"), "norm", {"epsilon": 1e-5})
ONES, ZEROS = np.ones(3, np.float32), np.zeros(3, np.float32)
CONSTANTS = {
    "w": np.eye(3, dtype=np.float32)[:, :, None, None] * 2,
    "b": np.array([0.5, -0.5, 0.25], np.float32),
    "gamma": ONES,
    "beta": ZEROS,
    "mean": ZEROS,
    "var": ONES,
}
NETS = {
    # the largest float16 is 65504
    "norm_overflows_and_is_clipped": (
        [CONV, NORM, ("Sigmoid", ("norm",), "gate", {}), ("Mul", ("gate", "conv"), "y", {})],
        {"gamma": ONES * 300, "var": ONES * 1e-4},
        "norm",
        None,
    ),
    "norm_overflows_to_the_end": (
        [CONV, NORM, ("Relu", ("norm",), "relu", {}), ("Mul", ("relu", "conv"), "y", {})],
        {"gamma": ONES * 300, "var": ONES * 1e-4},
        "norm",
        None,
    ),
    # the smallest float16 is 6e-8
    "variance_underflows": (
        [
            CONV,
            (*NORM[:3], {"epsilon": 1e-12}),
            ("Clip", ("norm", "low", "high"), "y", {}),
        ],
        {"var": np.array([1, 1e-9, 1], np.float32), "low": np.float32(-6), "high": np.float32(6)},
        "norm",
        "var",
    ),
    "log_of_an_epsilon_that_is_gone": (
        [
            CONV,
            ("Relu", ("conv",), "relu", {}),
            ("Add", ("relu", "tiny"), "kept_off", {}),
            ("Log", ("kept_off",), "log", {}),
            ("Exp", ("log",), "y", {}),
        ],
        {"tiny": np.float32(1e-9)},
        "log",
        "tiny",
    ),
    "log_to_the_end": (
        [
            CONV,
            ("Relu", ("conv",), "relu", {}),
            ("Add", ("relu", "tiny"), "kept_off", {}),
            ("Log", ("kept_off",), "log", {}),
            ("Add", ("log", "conv"), "y", {}),
        ],
        {"tiny": np.float32(1e-9)},
        "log",
        "tiny",
    ),
    "constant_overflows": (
        [CONV, ("Mul", ("conv", "large"), "wide", {}), ("Sigmoid", ("wide",), "y", {})],
        {"large": np.float32(1e5)},
        "wide",
        "large",
    ),
}


def model(name: str, dtype: type, path: Path) -> Path:
    """Write a net in one precision."""
    nodes, changed, _, _ = NETS[name]
    kind = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    reads = {tensor for _, inputs, _, _ in nodes for tensor in inputs}
    with np.errstate(over="ignore"):
        constants = {k: np.asarray(v).astype(dtype) for k, v in (CONSTANTS | changed).items() if k in reads}
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node(op, list(ins), [out], name=out, **attrs) for op, ins, out, attrs in nodes],
        name,
        [onnx.helper.make_tensor_value_info("x", kind, SHAPE)],
        [onnx.helper.make_tensor_value_info("y", kind, SHAPE)],
        [onnx.numpy_helper.from_array(array, key) for key, array in constants.items()],
    )
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 15)], ir_version=8)
    onnx.save(made, path)
    return path


def compared(name: str, folder: Path) -> RunComparison:
    """Record a net in float32 and in float16, and compare the two.

    ONNX Runtime computes float16 nets in float32 on the CPU; the interpreter rounds each tensor to float16.
    """
    x = np.random.default_rng(3).uniform(-4, 4, SHAPE).astype(np.float32)
    recordings = []
    for dtype in (np.float32, np.float16):
        path = model(name, dtype, folder / f"{np.dtype(dtype)}.onnx")
        out = folder / f"{np.dtype(dtype)}.h5"
        record_run(path, backend="interpreter", inputs={"x": x.astype(dtype)}, out=out)
        recordings.append(open_recording(out))
    return diff(*recordings)


@pytest.mark.parametrize("name", NETS)
def test_the_node_where_it_is_born_is_named(tmp_path, name):
    _, _, born, constant = NETS[name]
    result = compared(name, tmp_path)
    output = next(node for node in result.nodes if node.tensor == "y")
    assert (output.status is Status.NONFINITE) == name.endswith("to_the_end")
    if name.endswith("to_the_end"):
        assert result.verdict.status is Status.NONFINITE
    if result.verdict.status is not Status.WITHIN:
        assert result.verdict.origin == born
        assert result.verdict.first_divergence == born
    said = [result.verdict.sentence, *(found.sentence for node in result.nodes for found in node.findings)]
    if constant is not None:
        assert any(repr(constant) in each for each in said)


def test_what_changes_nothing_is_a_remark(tmp_path):
    for name in ("norm_overflows_and_is_clipped", "log_of_an_epsilon_that_is_gone", "constant_overflows"):
        (tmp_path / name).mkdir()
        result = compared(name, tmp_path / name)
        assert (result.verdict.status, result.exit_code) == (Status.WITHIN, 0)
        (found,) = [each for each in result[NETS[name][2]].findings if "no tensor computed from them" in each.sentence]
        assert (found.kind, found.role) == ("nonfinite", "note")


def test_a_nan_of_a_kernel_is_no_remark_although_its_readers_were_recorded_right():
    x = X * np.where(np.arange(X.size).reshape(X.shape) % 2, -1, 1).astype(np.float32)

    def run(negated):
        with qdebug.Recorder(None, backend="b") as rec:
            rec.put("x", x)
            rec.put("made", negated, node="made", op="Neg", inputs=("x",))
            rec.put("y", np.maximum(-x, 0), node="relu", op="Relu", inputs=("made",))
            rec.outputs("y")
        return rec.recording

    with_nan = -x
    with_nan[PLACE] = np.nan
    result = diff(run(-x), run(with_nan))
    assert (result.verdict.status, result.exit_code, result.verdict.first_divergence) == (Status.NONFINITE, 1, "made")


def test_an_overflow_of_half_precision_names_the_element_the_result_and_the_format(tmp_path):
    result = compared("norm_overflows_to_the_end", tmp_path)
    found = result.verdict.nonfinite
    assert (found.born.node, found.born.rule, found.born.format, found.born.largest) == (
        "norm",
        "overflow",
        "float16",
        65504,
    )
    assert abs(found.born.exact) > 65504
    assert not found.born.selected  # the reference's values do not fit the format either
    assert (found.path, found.output) == (("norm", "relu", "y"), "y")
    assert next(each for each in result.nodes if each.node == "relu").born is None  # it hands on what arrives
    assert "the largest float16" in result.verdict.sentence
    assert "It reaches the output 'y' through 'norm', 'relu', 'y'." in result.verdict.sentence


def test_a_constant_that_is_infinite_in_this_precision_is_named(tmp_path):
    born = compared("constant_overflows", tmp_path)["wide"].born
    assert (born.node, born.rule, [operand.tensor for operand in born.operands]) == ("wide", "constant", ["large"])


# one element of one tensor is wrong, and finite

_SPEC = importlib.util.spec_from_file_location("qdebug_tests_faults_rig", Path(__file__).with_name("rig.py"))
rig = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(rig)
node = rig.node

X = np.abs(np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)) + np.float32(0.5)
PLACE = (1, 2)
ONE = {"one": np.float32(1)}
MADE = node("Mul", "x one", "made")
TAIL = [node("Mul", "born one", "next"), node("Add", "next one", "y")]
MASK = {"least": np.float32(0.1), "low": np.float32(-np.inf)}


def wrong(value, dtype=np.float32):
    """Return what is added to an element."""
    error = np.zeros(X.shape, dtype)
    error[PLACE] = value
    return error


GONE = wrong(-X[PLACE])
HALF, LARGE, ENDLESS = np.float32(0.5), np.float32(1e17), np.float32(np.inf)
# each: nodes, more constants, what is added to "made", the rule, and what the sentence says
RULES = {
    "x/0": ([node("Div", "one made", "born")], {}, GONE, "x/0", "1 is divided by 'made' = 0"),
    "0/0": ([node("Div", "made made", "born")], {}, GONE, "0/0", "0 is divided by 'made' = 0"),
    "reciprocal": ([node("Reciprocal", "made", "born")], {}, GONE, "x/0", "1 is divided by 'made' = 0"),
    "log": ([node("Log", "made", "born")], {}, wrong(-9), "domain", "the logarithm of"),
    "log of 0": ([node("Log", "made", "born")], {}, GONE, "domain", "the logarithm of 'made' = 0 is not finite"),
    "root": ([node("Sqrt", "made", "born")], {}, wrong(-9), "domain", "the root of"),
    "arc": ([node("Mul", "made one", "m"), node("Acosh", "m", "born")], {}, wrong(-2), "domain", "cosine"),
    "power": (
        [node("Pow", "made half", "born")],
        {"half": HALF},
        wrong(-9),
        "power",
        "to the power of 0.5 is undefined",
    ),
    "exp": ([node("Exp", "made", "born")], {}, wrong(100), "overflow", "beyond 3.40282e+38, the largest float32"),
    "product": ([node("Mul", "made made", "born")], {}, wrong(1e25), "overflow", "its exact result 1e+50 is beyond"),
    "0*inf": ([node("Mul", "made big", "born")], {"big": ENDLESS}, GONE, "0*inf", "0 is multiplied by infinity"),
    "taken": (
        [node("Greater", "made least", "mask"), node("Where", "mask made low", "born")],
        MASK,
        wrong(-9),
        "taken",
        "it is copied from 'low'; the reference copies a different value",
    ),
}


@pytest.mark.parametrize("name", RULES)
def test_the_rule_is_named_and_a_finite_error_that_selects_it_is_the_origin(name):
    nodes, constants, error, rule, said = RULES[name]
    x = X if name != "arc" else X + 1
    result = rig.compared([MADE, *nodes, *TAIL], {"x": x}, ONE | constants, {"made": error})
    found = result.verdict.nonfinite
    assert (found.born.tensor, found.born.index, found.born.rule) == ("born", PLACE, rule), found.born.sentence
    assert said in result.verdict.sentence
    assert found.born.elements == 1
    assert result.verdict.origin == "made"
    assert result.status == "nonfinite"
    assert [each.tensor for each in found.born.selected] == [found.born.selected[0].tensor]
    assert f"in {found.born.selected[0].tensor!r} causes it." in result.verdict.sentence
    assert (found.path, found.output) == (("born", "next", "y"), "y")
    (cause,) = [each for each in named(result, "born").findings if each.sentence == found.born.sentence]
    assert (cause.kind, cause.role) == ("nonfinite", "cause")
    json.dumps(result.to_dict(), allow_nan=False)


def named(result, tensor):
    return next(each for each in result.nodes if each.tensor == tensor)


def test_a_value_that_the_arithmetic_of_a_node_spoils_is_born_there_and_selected_by_nothing():
    nodes = [MADE, node("Sigmoid", "made", "born"), *TAIL]
    result = rig.compared(nodes, {"x": X}, ONE, {"born": wrong(np.nan), "made": wrong(0.5)})
    born = result.verdict.nonfinite.born
    assert (born.rule, born.selected, result.verdict.origin) == ("arithmetic", (), "born")
    assert born.exact == pytest.approx(1 / (1 + np.exp(-X[PLACE] - 0.5)), rel=1e-5)


def test_where_rounding_within_the_limits_selects_it_its_own_node_is_the_origin():
    x = np.full((3, 4), 1e-3, np.float32)
    nodes = [node("Add", "x big", "sum"), node("Sub", "sum big", "made"), node("Div", "one made", "born"), *TAIL]
    step = np.spacing(np.float32(1e4))
    result = rig.compared(nodes, {"x": x}, ONE | {"big": np.float32(1e4)}, {"sum": wrong(-step)})
    assert (result.verdict.origin, result.verdict.first_divergence) == ("born", "born")
    said = f"A difference of {step:.3g} in 'made' causes it, and no node beyond its limit explains that difference."
    assert said in result.verdict.sentence


def test_an_infinity_that_arrives_is_not_born_again_and_a_second_birth_is():
    nodes = [MADE, node("Div", "one made", "born"), node("MatMul", "born square", "next"), node("Log", "x2", "other")]
    nodes += [node("Add", "next other", "y")]
    feeds = {"x": X, "x2": X}
    constants = ONE | {"square": np.eye(4, dtype=np.float32) + 1}
    result = rig.compared(nodes, feeds, constants, {"made": GONE})
    assert [each.tensor for each in result.nodes if each.born is not None] == ["born"]
    assert named(result, "next").status == named(result, "y").status == "nonfinite"
    nodes[3:4] = [node("Mul", "x2 one", "less"), node("Log", "less", "other")]
    result = rig.compared(nodes, feeds, constants, {"made": GONE, "less": wrong(-9)})
    assert [each.tensor for each in result.nodes if each.born is not None] == ["born", "other"]


def test_the_birth_that_reaches_the_output_counts_and_not_the_first():
    nodes = [MADE, node("Div", "one made", "early"), node("Sigmoid", "early", "gate"), node("Mul", "x one", "later")]
    nodes += [node("Log", "later", "late"), node("Add", "late gate", "y")]
    result = rig.compared(nodes, {"x": X}, ONE, {"made": GONE, "later": wrong(-9)})
    assert named(result, "early").born is not None
    assert (result.verdict.nonfinite.born.node, result.verdict.origin) == ("late", "later")
    assert result.verdict.nonfinite.path == ("late", "y")


def test_a_long_path_is_cut_in_the_middle_and_counted():
    nodes = [MADE, node("Div", "one made", "p0")]
    nodes += [node("Add", f"p{at} one", f"p{at + 1}") for at in range(14)]
    found = rig.compared([*nodes, node("Neg", "p14", "y")], {"x": X}, ONE, {"made": GONE}).verdict
    assert found.nonfinite.path == ("p0", "p1", "p2", "p3", "p12", "p13", "p14", "y")
    assert found.nonfinite.left_out == 8
    assert "'p3', 8 more, 'p12'" in found.sentence


def test_what_is_not_finite_alike_on_both_sides_is_no_birth():
    nodes = [node("Sub", "x x", "none"), node("Div", "none none", "both"), MADE, node("Add", "both made", "y")]
    result = rig.compared(nodes, {"x": X}, ONE, {"made": wrong(5)})
    assert named(result, "y").metrics.matched_nonfinite == X.size
    assert (result.status, result.verdict.origin, result.verdict.nonfinite) == ("diverged", "made", None)
