"""The diagnosis: which faults a comparison ends with, their class, share and reason, and what is ruled out."""

import numpy as np
import pytest

from qdebug.compare.result.diagnosis import FaultClass
from qdebug.compare.result.limits import Limits
from qdebug.compare.weight_channels import reason_of_weights
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.session import DiffSession

RNG = np.random.default_rng(5)
X = RNG.normal(size=(4, 32)).astype(np.float32)
WEIGHT = RNG.normal(size=(32, 8)).astype(np.float32)
STEP = QuantParams(dtype="int8", scale=0.25, zero_point=0)


def dense(first, second=None, *, quant=None, codes=None, x=X, unknown=False):
    """Return a run of two products, the second of which may read the same weight as the first."""
    names = ("w", "w") if second is None else ("w", "v")
    infos = [TensorInfo(name=name, role=Role.CONSTANT, quant=quant) for name in dict.fromkeys(names)]
    op = "Mystery" if unknown else "MatMul"
    nodes = [
        Node(name="one", op=op, inputs=("x", names[0]), outputs=("a",)),
        Node(name="two", op=op, inputs=("x", names[1]), outputs=("b",)),
    ]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("a", "b"))
    held = {"w": first} if second is None else {"w": first, "v": second}
    made = {name: x @ held[weight] for name, weight in zip("ab", names, strict=True)}
    return MemoryRecording.single(graph, {"x": x, **(held if codes is None else codes), **made})


def faults(reference, backend, **limits):
    result = DiffSession(reference, backend, limits=Limits(**limits)).result()
    return result, result.diagnosis


def test_a_right_run_has_no_diagnosis_and_what_was_looked_at_is_ruled_out():
    result, found = faults(dense(WEIGHT), dense(WEIGHT * np.float32(1 + 1e-6)))
    assert (result.exit_code, found) == (0, ())
    assert {each.fault for each in result.ruled_out} >= {FaultClass.MODEL, FaultClass.NUMERIC}


def test_nothing_is_ruled_out_that_no_replay_looked_at():
    result, _ = faults(dense(WEIGHT, unknown=True), dense(WEIGHT, unknown=True, x=X * np.float32(1 + 1e-7)))
    assert not {FaultClass.KERNEL, FaultClass.MODEL} & {each.fault for each in result.ruled_out}


def test_a_weight_that_two_nodes_read_is_one_fault_with_both_nodes():
    wrong = WEIGHT.copy()
    wrong[:, 3] *= 2
    result, (fault,) = faults(dense(WEIGHT), dense(wrong))
    assert (fault.fault, str(fault.kind)) == (FaultClass.MODEL, "weight")
    assert fault.nodes == ("one", "two")
    assert fault.evidence == ("w",)
    (share,) = (share for share in fault.share.values() if share is not None)
    assert share == pytest.approx(1.0, rel=1e-3)
    assert FaultClass.MODEL not in {each.fault for each in result.ruled_out}


def test_independent_faults_are_all_there_the_larger_share_first():
    small, large = WEIGHT.copy(), WEIGHT.copy()
    small[0] += 0.5
    large[:, 2] *= 3

    def chain(first, second):
        infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in "wv"]
        nodes = [
            Node(name="early", op="MatMul", inputs=("x", "w"), outputs=("a",)),
            Node(name="late", op="MatMul", inputs=("a", "v"), outputs=("b",)),
        ]
        graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("b",))
        hidden = X @ first
        return MemoryRecording.single(graph, {"x": X, "w": first, "v": second, "a": hidden, "b": hidden @ second})

    back = RNG.normal(size=(8, 5)).astype(np.float32)
    wrong = back.copy()
    wrong[:, 1] *= 20
    result, found = faults(chain(WEIGHT, back), chain(small, wrong))
    assert [each.node for each in found] == ["late", "early"]
    shares = [each.share["b"] for each in found]
    assert shares[0] > 10 * shares[1] > 0
    assert result.first_divergence == "early"


def test_an_outlier_that_sets_the_scale_of_all_weights_is_the_reason():
    weight = np.full((32, 8), 0.05, np.float32) * RNG.normal(size=(32, 8)).astype(np.float32)
    weight[0, 0] = 60.0
    quant = QuantParams(dtype="int8", scale=60.0 / 127, zero_point=0)
    codes, x = quantize(weight, quant), X * np.arange(32).clip(max=1).astype(np.float32)  # which does not read it
    backend = dense(dequantize(codes, quant).astype(np.float32), quant=quant, codes={"w": codes}, x=x)
    result, found = faults(dense(weight, x=x), backend)
    assert result.exit_code == 1
    assert found[0].fault is FaultClass.QUANTIZATION
    assert "one scale for 8 channels, of which 7 are below 10 dB SQNR (largest weight 60" in found[0].why


def test_codes_that_keep_too_little_are_no_fault_of_a_kernel():
    node = Node(name="sum", op="Add", inputs=("x", "x"), outputs=("y",))
    values = X * np.float32(0.3)

    def run(made, quant=None):
        info = [TensorInfo(name="y", quant=quant)]
        return MemoryRecording.single(
            Graph([node], tensors=info, inputs=("x",), outputs=("y",)), {"x": values, "y": made}
        )

    result, (fault,) = faults(run(values + values), run(quantize(values + values, STEP), STEP))
    assert (str(result.status), fault.fault, fault.kind) == ("accumulated", FaultClass.QUANTIZATION, None)
    assert fault.share["y"] == pytest.approx(1.0, abs=1e-6)
    assert "rounding to its codes; its own error leaves" in fault.why
    assert FaultClass.KERNEL in {each.fault for each in result.ruled_out}


def test_a_nan_is_one_fault_where_it_is_born():
    def run(values):
        nodes = [
            Node(name="log", op="Log", inputs=("x",), outputs=("a",)),
            Node(name="next", op="Relu", inputs=("a",), outputs=("b",)),
        ]
        graph = Graph(nodes, inputs=("x",), outputs=("b",))
        held = np.where(values > 0, values, values * 0)  # which keeps a NaN
        return MemoryRecording.single(graph, {"x": np.abs(X) + 1, "a": values, "b": held})

    right = np.log(np.abs(X) + 1)
    wrong = right.copy()
    wrong[1, 2] = np.nan
    result, found = faults(run(right), run(wrong))
    assert str(result.status) == "nonfinite"
    assert [(each.fault, each.node) for each in found] == [(FaultClass.NUMERIC, "log")]
    assert "It reaches the output 'b'" in found[0].why


def test_a_nan_of_unknown_origin_is_one_fault_and_its_followers_are_none():
    def run(values):
        nodes = [
            Node(name="hidden", op="Mystery", inputs=("x",), outputs=("h",)),
            Node(name="log", op="Mystery", inputs=("h",), outputs=("a",)),
            Node(name="next", op="Relu", inputs=("a",), outputs=("b",)),
            Node(name="last", op="Transpose", inputs=("b",), outputs=("c",)),
        ]
        graph = Graph(nodes, inputs=("x",), outputs=("c",))
        clipped = np.where(values > 0, values, values * 0)
        return MemoryRecording.single(graph, {"x": X, "a": values, "b": clipped, "c": clipped.T})

    wrong = X.copy()
    wrong[1, 2] = np.nan
    result, found = faults(run(X), run(wrong))
    assert result.verdict.nonfinite is None
    assert [each.tensor for each in found] == ["a"]


def test_inputs_that_differ_accuse_no_node():
    result, found = faults(dense(WEIGHT), dense(WEIGHT, x=X * np.float32(1.2)))
    assert (result.exit_code, [(each.fault, each.node) for each in found]) == (3, [(FaultClass.RECORDING, "x")])


def test_a_limit_of_the_user_alone_names_no_kernel():
    backend = dense(WEIGHT, unknown=True)
    reference = dense(WEIGHT * np.float32(1.02), unknown=True)
    result, found = faults(reference, backend, min_sqnr=60.0)
    assert result.exit_code == 1
    assert FaultClass.KERNEL not in {each.fault for each in found}


def test_weights_that_rounding_does_not_account_for_are_others_than_the_references():
    def reason(backend, reference=WEIGHT):
        session = DiffSession(dense(reference), backend)
        session.result()
        return reason_of_weights(session._constant_pairs, session.reference, session.backend, "a")

    wrong = WEIGHT.copy()
    wrong[3, 4] += 1.5
    found = reason(dense(wrong))
    assert (found.rounded, found.sentence.split(" of ")[0]) == (False, "1")
    assert reason(dense(WEIGHT * np.float32(1 + 1e-3))) is None
    narrow = QuantParams(dtype="int8", scale=float(np.abs(WEIGHT).max()) / 200, zero_point=0)
    codes = quantize(WEIGHT, narrow)  # the largest are clipped
    real = dequantize(codes, narrow).astype(np.float32)
    clipped = reason(dense(real, quant=narrow, codes={"w": codes}))
    assert clipped is not None
    assert clipped.rounded


def test_nodes_are_looked_at_where_inputs_may_differ():
    wrong = WEIGHT.copy()
    wrong[:, 3] *= 2
    backend = dense(wrong, x=X * np.float32(1.2))
    _, found = faults(dense(WEIGHT), backend, allow_different_inputs=True)
    assert (FaultClass.MODEL, ("one", "two")) in [(each.fault, each.nodes) for each in found]


def test_without_shares_the_faults_are_the_same():
    wrong = WEIGHT.copy()
    wrong[:, 3] *= 2
    quick = DiffSession(dense(WEIGHT), dense(wrong)).result(contributors=False).diagnosis
    assert [(each.fault, each.nodes, each.share) for each in quick] == [(FaultClass.MODEL, ("one", "two"), {})]


def test_angles_that_are_rounded_to_float16_are_named_with_the_node_that_amplifies_the_rounding():
    nodes = [
        Node(name="cast", op="Cast", inputs=("x",), outputs=("t",), attrs={"to": 1}),
        Node(name="angles", op="Mul", inputs=("t", "w"), outputs=("a",)),
        Node(name="cosine", op="Cos", inputs=("a",), outputs=("y",)),
    ]
    graph = Graph(nodes, tensors=[TensorInfo(name="w", role=Role.CONSTANT)], inputs=["x"], outputs=["y"])
    x, w = np.arange(1, 65)[:, None], np.linspace(0.3, 50, 24, dtype=np.float32)
    t = x.astype(np.float32)
    exact = t * w
    rounded = exact.astype(np.float16).astype(np.float32)
    reference = MemoryRecording.single(graph, {"x": x, "w": w, "t": t, "a": exact, "y": np.cos(exact)})
    backend = MemoryRecording.single(graph, {"x": x, "w": w, "a": rounded, "y": np.cos(rounded)})
    result = DiffSession(reference, backend).result()
    assert (result.status, result.diagnosis[0].node) == ("accumulated", "angles")
    assert "its results are rounded to float16, which leaves" in result.diagnosis[0].why
    assert "; Cos 'cosine' turns that into" in result.diagnosis[0].why
