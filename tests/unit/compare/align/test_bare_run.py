"""A run of which nobody stated a graph: in the order of the reference, which states one."""

import math

import ml_dtypes
import numpy as np

import qdebug

LAYERS = ("zeta", "mid", "alpha", "out")
RNG = np.random.default_rng(0)
WEIGHTS = {name: (RNG.normal(size=(16, 16)) * 0.3).astype(np.float32) for name in LAYERS}
X = RNG.normal(size=(4, 16)).astype(np.float32)


def reference():
    with qdebug.Recorder(None, backend="ref") as rec:
        rec.put("x", X)
        read = "x"
        for name, weight in WEIGHTS.items():
            rec.constant(f"w_{name}", weight)
            rec.put(name, _values(1)[name], node=f"n_{name}", op="MatMul", inputs=(read, f"w_{name}"))
            read = name
        rec.outputs("out")
    return rec.recording


def _values(factor):
    found, read = {}, X
    for name, weight in WEIGHTS.items():
        read = (read @ weight * (factor if name in ("zeta", "alpha") else 1)).astype(np.float32)
        found[name] = read
    return found


def bare(names, factor=1.3):
    with qdebug.Recorder(None, backend="dump", taps="import") as rec:
        for name in sorted(names):
            rec.put(name, ({"x": X} | _values(factor))[name])
    return rec.recording


def test_the_first_divergence_is_the_first_of_the_reference():
    result = qdebug.diff(reference(), bare(("x", *LAYERS)))
    assert result.verdict.first_divergence == "zeta"
    assert [node.tensor for node in result.nodes] == ["x", *LAYERS]
    assert {node.tensor for node in result.nodes if node.status == "diverged"} == {"zeta", "alpha"}
    assert result.network_outputs == ("out",)
    assert result.backend.borrowed_order


def test_what_a_bare_dump_does_not_hold_is_not_lost_but_an_output_is():
    result = qdebug.diff(reference(), bare(("x", "zeta", "out"), factor=1))
    assert {str(entry.kind) for entry in result.coverage.unmatched} == {"benign"}
    assert result.exit_code == 0
    result = qdebug.diff(reference(), bare(("x", "zeta"), factor=1))
    assert [entry.tensor for entry in result.coverage.unmatched if str(entry.kind) == "lost"] == ["out"]
    assert result.exit_code == 3


def bare_with(**values):
    with qdebug.Recorder(None, backend="dump", taps="import") as rec:
        for name, array in values.items():
            rec.put(name, array)
    return rec.recording


def test_the_cause_is_looked_for_in_the_node_of_the_reference():
    right = _values(1)
    wrong = (X @ WEIGHTS["zeta"].T).astype(np.float32)
    result = qdebug.diff(reference(), bare_with(x=X, zeta=wrong, mid=wrong @ WEIGHTS["mid"], out=right["out"]))
    (finding, *_) = result["zeta"].findings
    assert finding.kind == "arithmetic"
    assert "if the node computes what the reference specifies" in finding.sentence
    assert "reproduces every element" in finding.sentence
    assert not result["mid"].findings or "reproduces" not in result["mid"].findings[0].sentence


def test_a_mistake_that_gives_every_element_is_a_fault_within_the_usual_limit_too():
    wrong = (X @ WEIGHTS["zeta"] + np.float32(0.08)).astype(np.float32)
    result = qdebug.diff(reference(), bare_with(x=X, zeta=wrong))
    assert result["zeta"].metrics.sqnr_db > 20
    assert result["zeta"].status == "diverged"
    assert "0.08 more than it should be" in result["zeta"].findings[0].sentence


def test_other_weights_within_the_usual_limit_accuse_nobody():
    weights = WEIGHTS["zeta"] + RNG.normal(size=(16, 16)).astype(np.float32) * np.float32(0.01)
    result = qdebug.diff(reference(), bare_with(x=X, zeta=(X @ weights).astype(np.float32)))
    assert result["zeta"].status != "diverged"


def test_codes_have_the_scale_of_the_reference():
    codes = np.arange(-20, 20, dtype=np.int8).reshape(4, 10)

    def run(values, **facts):
        with qdebug.Recorder(None, backend="ref") as rec:
            rec.put("x", X, **({"node": "n"} if facts else {}))
            rec.put("q", values, **facts)
        return rec.recording

    result = qdebug.diff(run(codes, node="quantize", op="Custom", inputs=("x",), scale=0.1, zero_point=3), run(codes))
    assert result["q"].quant is not None
    assert result["q"].quant.zero_point == 3


def run_of_function(op, values, **attrs):
    with qdebug.Recorder(None, backend="ref") as rec:
        rec.put("x", X)
        rec.put("y", values, node="act", op=op, inputs=("x",), attrs=attrs)
        rec.put("z", -values, node="last", op="Neg", inputs=("y",))
        rec.outputs("z")
    return rec.recording


def gelu(x, *, approximate):
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    exact = np.vectorize(math.erf)(x / np.sqrt(2))
    return (x / 2 * (1 + (np.tanh(inner) if approximate else exact))).astype(np.float32)


def test_a_mistake_of_little_effect_is_a_fault_where_it_gives_every_element():
    right, wrong = gelu(X, approximate=False), gelu(X, approximate=True)
    result = qdebug.diff(run_of_function("Gelu", right, approximate="none"), bare_with(x=X, y=wrong, z=-wrong))
    assert result["y"].metrics.sqnr_db > 60
    assert result["y"].status == "diverged"
    assert "approximate = tanh, not none (reproduces every element)" in result["y"].findings[0].sentence


def test_fewer_digits_are_no_fault_of_a_run_that_may_have_chosen_them():
    rounded = np.tanh(X.astype(ml_dtypes.bfloat16).astype(np.float32))
    result = qdebug.diff(run_of_function("Tanh", np.tanh(X)), bare_with(x=X, y=rounded, z=-rounded))
    assert result["y"].status != "diverged"
