"""Eleven ways in which tools that compare networks mislead their users, and that qdebug has none of them.

Each test is about one behaviour that was seen in a tool of this kind, and says what is expected in its place.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from qdebug.api import diff
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Status
from qdebug.errors import AlignmentError
from qdebug.model import Fidelity, Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.session import open_recording


def recording(
    nodes: Sequence[Node],
    samples: Sequence[Mapping[str, np.ndarray]],
    constants: Mapping[str, np.ndarray] | None = None,
    outputs: Sequence[str] = (),
) -> MemoryRecording:
    """Make a recording of some samples of a net that reads "x"."""
    constants = {name: np.asarray(value, np.float32) for name, value in (constants or {}).items()}
    graph = Graph(
        nodes,
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in constants],
        inputs=["x"],
        outputs=outputs or nodes[-1].outputs,
    )
    arrays = {(name, index, 0): array for index, sample in enumerate(samples) for name, array in sample.items()}
    return MemoryRecording(graph, arrays | {(name, 0, 0): value for name, value in constants.items()})


def node(op: str, inputs: str, outputs: str, **attrs) -> Node:
    names = tuple(outputs.split())
    return Node(name=f"make_{names[0]}", op=op, inputs=tuple(inputs.split()), outputs=names, attrs=attrs)


def relu(samples: Sequence[np.ndarray]) -> MemoryRecording:
    """Record a Relu as some arrays, whatever it should have given."""
    return recording([node("Relu", "x", "y")], [{"x": array, "y": array} for array in samples])


def entry(result, tensor):
    return next(found for found in result.nodes if found.tensor == tensor)


X = np.random.default_rng(0).uniform(0.5, 2, (1, 3, 8, 8)).astype(np.float32)


# Pairs tensors by position when names differ, and calls the result a pass.
def test_tensors_of_other_names_are_never_paired_by_position():
    def branches(first: str, second: str, swapped: bool) -> MemoryRecording:
        nodes = [node("Sigmoid", "x", first), node("Tanh", "x", second)]
        arrays = {"x": X, first: 1 / (1 + np.exp(-X)), second: np.tanh(X)}
        return recording(nodes[::-1] if swapped else nodes, [arrays], outputs=[first, second])

    result = diff(branches("a", "b", swapped=False), branches("c", "d", swapped=True))
    assert {found.tensor: found.reference_tensor for found in result.nodes} == {"x": "x", "c": "a", "d": "b"}
    assert result.exit_code == 0


def test_tensors_that_only_their_position_tells_apart_are_lost_and_fail_the_comparison():
    def branches(first: str, second: str) -> MemoryRecording:
        nodes = [node("Neg", "x", "n"), node("Mystery", "n", first), node("Mystery", "n", second)]
        return recording(nodes, [{"x": X, "n": -X, first: X, second: 2 * X}], outputs=[first, second])

    result = diff(branches("a", "b"), branches("c", "d"))
    assert [found.tensor for found in result.nodes] == ["x", "n"]
    assert {found.tensor for found in result.coverage.unmatched} == {"a", "b", "c", "d"}
    assert result.exit_code == 3


def test_networks_that_share_nothing_are_refused():
    one = recording([node("Relu", "x", "a")], [{"x": X, "a": X}])
    other = recording([node("Exp", "x", "b")], [{"x": X, "b": X}])
    with pytest.raises(AlignmentError):
        diff(one, other)


# Turns NaN into 0 or a tiny number before it scores.
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_nan_or_infinity_is_never_scored_away(value):
    broken = X.copy()
    broken[0, 1, 2, 3] = value
    for reference, backend in ((X, broken), (broken, X)):
        plain = diff(relu([reference]), relu([backend]))
        assert (plain.status, plain.exit_code) == (Status.INCOMPLETE, 3)
        assert "'x' has 1 element NaN or infinite in one run only" in plain.verdict.sentence
        result = diff(relu([reference]), relu([backend]), limits=Limits(allow_different_inputs=True))
        found = entry(result, "y")
        assert (result.status, result.exit_code) == (Status.NONFINITE, 1)
        assert (found.metrics.nonfinite, found.metrics.worst_index) == (1, (0, 1, 2, 3))
        assert "1 of 192 elements" in found.reason
        assert [sample.status for sample in found.samples] == [Status.NONFINITE]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_no_metric_is_perfect_beside_a_nan(value):
    broken = X.copy()
    broken[0, 1, 2, 3] = value
    metrics = json.loads(diff(relu([X]), relu([broken])).to_json())["nodes"][-1]["metrics"]
    assert metrics["sqnr_db"] != "Infinity"
    assert metrics["cosine"] != 1
    assert metrics["max_abs"] != 0


# Gives two identical all-zero tensors the worst score there is.
def test_identical_zeros_are_identical():
    zeros = np.zeros((1, 3, 8, 8), np.float32)
    result = diff(relu([zeros]), relu([zeros]))
    metrics = entry(result, "y").metrics
    assert (result.status, result.exit_code) == (Status.IDENTICAL, 0)
    assert (metrics.mismatches, metrics.max_abs, metrics.rel_l2) == (0, 0, 0)
    assert metrics.sqnr_db == np.inf


# Averages over samples, so that one broken sample among many disappears.
def test_one_broken_sample_among_many_is_found_and_named():
    healthy = [X + index for index in range(100)]
    broken = [array.copy() for array in healthy]
    broken[73][...] = 0
    nodes = [node("Relu", "x", "y")]
    result = diff(
        recording(nodes, [{"x": array, "y": array} for array in healthy]),
        recording(nodes, [{"x": array, "y": spoiled} for array, spoiled in zip(healthy, broken, strict=True)]),
    )
    found = entry(result, "y")
    assert (result.status, result.exit_code, result.origin) == (Status.DIVERGED, 1, "make_y")
    assert found.metrics.worst_sample == 73
    assert [sample.sample for sample in found.samples if sample.status is not Status.IDENTICAL] == [73]


def test_a_slip_of_one_sample_that_no_mean_shows_is_found():
    healthy = [X] * 200
    broken = [X] * 199 + [X.copy()]
    broken[-1][0, 0, 0, 0] *= np.float32(1.2)
    nodes = [node("Relu", "x", "y")]
    result = diff(
        recording(nodes, [{"x": X, "y": array} for array in healthy]),
        recording(nodes, [{"x": X, "y": array} for array in broken]),
    )
    assert entry(result, "y").metrics.sqnr_db > 40
    assert entry(result, "y").samples[-1].status is Status.DIVERGED
    assert result.exit_code == 1


# Compares only every n-th tensor once there are more than two hundred.
@pytest.mark.parametrize("spoiled", [1, pytest.param(137, marks=pytest.mark.slow), 299])
def test_every_tensor_of_a_long_net_is_compared(spoiled):
    nodes = [node("Relu", "x" if index == 0 else f"t{index - 1}", f"t{index}") for index in range(300)]
    healthy = {"x": X, **{f"t{index}": X for index in range(300)}}
    broken = healthy | {f"t{spoiled}": X * np.float32(1.5)}
    result = diff(recording(nodes, [healthy]), recording(nodes, [broken]))
    assert result.coverage.compared == 301
    assert result.first_divergence == f"make_t{spoiled}"
    assert entry(result, f"t{spoiled}").status is Status.DIVERGED


# Looks at the last output of an operator that has several.
@pytest.mark.parametrize("spoiled", ["a", "b", "c"])
def test_every_output_of_an_operator_is_compared(spoiled):
    split = [node("Split", "x", "a b c", axis=1)]
    healthy = {"x": X, "a": X[:, :1], "b": X[:, 1:2], "c": X[:, 2:]}
    broken = healthy | {spoiled: healthy[spoiled] * np.float32(2)}
    result = diff(recording(split, [healthy]), recording(split, [broken]))
    assert [found.tensor for found in result.nodes if found.status is not Status.IDENTICAL] == [spoiled]
    assert result.exit_code == 1


# Skips what it cannot compare, and exits with 0 unless told otherwise.
def without(full: MemoryRecording, tensor: str) -> MemoryRecording:
    arrays = {(name, 0, 0): full.load(name) for name in full.names if name != tensor}
    return MemoryRecording(full.graph, arrays, replace(full.info, skipped={tensor: "the device did not give it"}))


def two_steps() -> MemoryRecording:
    nodes = [node("Relu", "x", "y"), node("Neg", "y", "z"), node("Abs", "z", "w")]
    return recording(nodes, [{"x": X, "y": X, "z": -X, "w": X}])


def test_a_tensor_that_could_not_be_compared_fails_unless_it_is_allowed():
    partial = without(two_steps(), "z")
    for sides in ((two_steps(), partial), (partial, two_steps())):
        result = diff(*sides)
        lost = [(found.tensor, str(found.kind)) for found in result.coverage.unmatched]
        assert ("z", "lost") in lost
        assert (result.status, result.exit_code) == (Status.INCOMPLETE, 3)
        assert "'z'" in result.verdict.sentence
        assert diff(*sides, limits=Limits(allow_uncompared=("z",))).exit_code == 0


def test_a_tensor_of_another_shape_fails_the_comparison():
    other = recording(
        [node("Relu", "x", "y"), node("Neg", "y", "z"), node("Abs", "z", "w")],
        [{"x": X, "y": X, "z": -X[:, :2], "w": X}],
    )
    result = diff(two_steps(), other)
    found = entry(result, "z")
    assert found.status is Status.INCOMPARABLE
    assert "(1, 3, 8, 8)" in found.reason
    assert "(1, 2, 8, 8)" in found.reason
    assert result.exit_code != 0


# Draws a few thousand elements at random, and can miss the corner where the bug is.
@pytest.mark.parametrize(
    "corner", [(3, 511, 510), *(pytest.param(at, marks=pytest.mark.slow) for at in ((0, 0, 0), (3, 511, 511)))]
)
def test_one_wrong_element_among_a_million_is_found(corner):
    values = np.random.default_rng(1).uniform(1, 2, (4, 512, 512)).astype(np.float32)
    broken = values.copy()
    broken[corner] += 8
    wrong = float(broken[corner]) - float(values[corner])
    nodes = [node("Relu", "x", "y")]
    result = diff(recording(nodes, [{"x": values, "y": values}]), recording(nodes, [{"x": values, "y": broken}]))
    metrics = entry(result, "y").metrics
    assert (metrics.count, metrics.mismatches, metrics.worst_index, metrics.max_abs) == (2**20, 1, corner, wrong)
    assert entry(result, "y").basis == "full"
    assert (result.status, result.origin) == (Status.DIVERGED, "make_y")


# Turns the optimizer off, so that another program is debugged than the one that ships.
@pytest.mark.parametrize(("form", "fused"), [("float", "FusedConv"), ("qdq.channel", "QLinearConv")])
def test_the_program_that_ships_is_what_is_recorded(tmp_path, bench_module, form, fused):
    from qdebug.running.record import record_run

    folder = bench_module.DIGITS
    source = folder / ("digits.onnx" if form == "float" else "digits.qdq.per_channel.onnx")
    with np.load(folder / "digits_test.npz") as data:
        feeds = {"x": data["x"][:2, None]}
    default, extended = tmp_path / "default.h5", tmp_path / "extended.h5"
    record_run(source, backend="onnxruntime", inputs=feeds, samples=2, out=default)
    record_run(source, backend="onnxruntime", options={"opt": "extended"}, inputs=feeds, samples=2, out=extended)
    info = open_recording(default).info
    assert info.options["graph_optimization_level"] == "ORT_ENABLE_ALL"
    for path in (default, extended):
        assert open_recording(path).info.fidelity is Fidelity.BIT_EQUAL
    assert fused in {found.op for found in open_recording(extended).graph.nodes}


def test_recording_that_changed_the_result_fails_the_comparison():
    observed = two_steps()
    arrays = {(name, 0, 0): observed.load(name) for name in observed.names}
    unfaithful = MemoryRecording(observed.graph, arrays, replace(observed.info, fidelity=Fidelity.DIFFERS))
    result = diff(two_steps(), unfaithful)
    assert (result.status, result.exit_code) == (Status.INCOMPLETE, 3)
    assert diff(two_steps(), unfaithful, limits=Limits(allow_unfaithful=True)).exit_code == 0


# Divides by 2e-16 where the reference is zero, and reports relative errors of no meaning.
def test_zero_references_are_counted_and_not_divided_by():
    reference = X.copy()
    reference[0, 0] = 0
    backend = reference.copy()
    backend[0, 0] = 1e-6
    backend[0, 1, 0, 0] *= np.float32(1.5)
    nodes = [node("Relu", "x", "y")]
    result = diff(recording(nodes, [{"x": X, "y": reference}]), recording(nodes, [{"x": X, "y": backend}]))
    metrics = entry(result, "y").metrics
    assert metrics.zero_refs == 64
    assert metrics.max_rel == pytest.approx(0.5, rel=1e-6)


# Lets one missing partner crash the whole report.
def test_a_missing_partner_leaves_the_rest_of_the_report():
    nodes = [node("Relu", "x", "y"), node("Exp", "y", "v")]
    shorter = recording(nodes, [{"x": X, "y": X, "v": np.exp(X)}])
    for result in (diff(two_steps(), shorter), diff(shorter, two_steps())):
        assert result.coverage.compared >= 2
        assert all(found.reason for found in result.coverage.unmatched)
        assert "z" in [found.tensor for found in result.coverage.unmatched]
        assert entry(result, "y").status is Status.IDENTICAL
        assert json.loads(result.to_json())["coverage"]["unmatched"]
        assert result.exit_code != 0


def test_a_wrong_result_after_a_missing_partner_is_blamed():
    """What has no partner is accounted for by the next compared tensor only if the graphs agree up to there."""
    nodes = [node("Relu", "x", "y"), node("Abs", "y", "w")]
    stale = recording(nodes, [{"x": X, "y": X, "w": X * np.float32(1.5)}])
    assert diff(two_steps(), stale).first_divergence == "make_w"
    nodes = [node("Relu", "x", "y"), node("Exp", "y", "e"), node("Abs", "e", "w")]
    other = diff(two_steps(), recording(nodes, [{"x": X, "y": X, "e": np.exp(X), "w": np.exp(X)}]))
    assert other.first_divergence == "make_w"
    assert "Exp + Abs on 'y' does not compute what the reference's Neg + Abs computes" in other.verdict.sentence
