"""Kernels against the node test cases of the onnx package: inputs and outputs stated by those who define the operators.

Every case counts whose operators all have a kernel: those of one node, and those where an operator is expanded
into the nodes of its function body. With onnx 1.23 that is 1207 cases of one node, 1198 of them right, and 357 of
several nodes, 351 of them right; the others are `KNOWN_FAILURES`.
"""

import os
import warnings
from collections import Counter
from dataclasses import dataclass

import numpy as np
import pytest

from qdebug.arithmetic.presets import preset
from qdebug.errors import KernelError
from qdebug.model import Graph, Node
from qdebug.replay import known_kernels, run_graph
from qdebug.replay.precision import widen

onnx = pytest.importorskip("onnx")

ROUNDED_TWICE = (
    "the expected values come from numpy products whose steps are rounded to 16 bits; "
    "the kernels compute a node in float32 and round its output once"
)
AT_RANDOM = "the node drops elements at random, which cannot be replayed"
KNOWN_FAILURES = dict.fromkeys(
    (
        "test_attention_3d_causal_bf16",
        "test_attention_3d_causal_bf16_expanded",
        "test_attention_4d_attn_mask_causal_bf16",
        "test_attention_4d_attn_mask_causal_bf16_expanded",
        "test_attention_4d_causal_bf16",
        "test_attention_4d_causal_bf16_expanded",
        "test_attention_4d_causal_fp16_expanded",
        "test_attention_4d_causal_padded_kv_bf16",
        "test_attention_4d_causal_padded_kv_bf16_expanded",
        "test_attention_4d_padded_kv_bf16",
        "test_attention_4d_padded_kv_bf16_expanded",
    ),
    ROUNDED_TWICE,
) | dict.fromkeys(
    (
        "test_training_dropout",
        "test_training_dropout_default",
        "test_training_dropout_default_mask",
        "test_training_dropout_mask",
    ),
    AT_RANDOM,
)


QUANTIZED = {"QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul"}
QUANTIZED |= {"ConvInteger", "MatMulInteger"}


@dataclass(frozen=True)
class Outcome:
    """How one case came out; `failure` is empty if it is right."""

    name: str
    nodes: tuple
    failure: str


def attr_value(attribute):
    """Return an attribute as the plain value that `Node` keeps; raise ValueError for what has none."""
    value = onnx.helper.get_attribute_value(attribute)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, onnx.TensorProto):
        return onnx.numpy_helper.to_array(value)
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, (onnx.GraphProto, onnx.SparseTensorProto, onnx.TypeProto)):
        raise ValueError(f"{attribute.name} holds a {type(value).__name__}")
    return tuple(item.decode() if isinstance(item, bytes) else item for item in value)


def to_graph(model):
    """Return a model as a graph; raise ValueError if an attribute cannot be expressed."""
    nodes = [
        Node(
            name=f"{position}_{node.op_type}",
            op=node.op_type,
            domain=node.domain,
            inputs=tuple(node.input),
            outputs=tuple(node.output),
            attrs={a.name: attr_value(a) for a in node.attribute},
        )
        for position, node in enumerate(model.graph.node)
    ]
    return Graph(
        nodes,
        inputs=[i.name for i in model.graph.input],
        outputs=[o.name for o in model.graph.output],
        opset={o.domain: o.version for o in model.opset_import},
    )


def tensors(values):
    """Return arrays; raise ValueError for a sequence, an optional or text."""
    arrays = []
    for given in values:
        value = onnx.numpy_helper.to_array(given) if isinstance(given, onnx.TensorProto) else given
        if not isinstance(value, (np.ndarray, np.generic)) or np.asarray(value).dtype.kind in "OSU":
            raise ValueError(f"{type(value).__name__} is no tensor")
        arrays.append(np.asarray(value))
    return arrays


def failure_of(case, graph, arithmetic=None):
    """Run a case and say what is wrong with it; nothing if it is right."""
    inputs, outputs = (tensors(values) for values in case.data_sets[0])
    try:
        found = run_graph(graph, dict(zip(graph.inputs, inputs, strict=True)), {}, arithmetic=arithmetic)
    except KernelError as error:
        return str(error)
    for name, expected in zip(graph.outputs, outputs, strict=True):
        array = found[name]
        if (array.dtype, array.shape) != (expected.dtype, expected.shape):
            return f"{array.dtype}{array.shape} instead of {expected.dtype}{expected.shape}"
        if not np.allclose(widen(array), widen(expected), rtol=case.rtol, atol=case.atol, equal_nan=True):
            return "other values"
    return ""


LARGE = 1 << 14
"""Elements above which the package takes seconds to pool a case, in loops: the gate has smaller cases of each pool."""


@pytest.fixture(scope="module")
def cases():
    """Make the cases of the package; in the gate, those of large pools are left out."""
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # some cases overflow on purpose while they are made
        from onnx.backend.test.loader import load_model_tests
        from onnx.reference.ops import op_pool_common

        real, quick = op_pool_common.pool, "CI" in os.environ

        def pool(padded, x_shape, kernel, strides, out_shape, *others, **more):
            if quick and padded.size > LARGE:
                return np.full((*x_shape[:2], *out_shape), UNKNOWN, np.float32)
            return real(padded, x_shape, kernel, strides, out_shape, *others, **more)

        patch.setattr(op_pool_common, "pool", pool)
        made = load_model_tests(kind="node")
    return [case for case in made if not (quick and is_unknown(case))]


UNKNOWN = 12345.0


def is_unknown(case):
    """Tell whether the answer of a case was not computed."""
    return any(
        isinstance(value, np.ndarray) and value.size and value.dtype == np.float32 and (value == UNKNOWN).all()
        for _, outputs in case.data_sets or ()
        for value in outputs
    )


@pytest.fixture(scope="module")
def runnable(cases):
    """Return the cases whose operators all have a kernel here: case, operators, graph."""
    found = []
    ours = set(known_kernels())  # what ONNX itself replays is not to be tested against its own cases
    for case in cases:
        nodes = case.model.graph.node
        if case.model.functions or not case.data_sets or not all((n.domain, n.op_type) in ours for n in nodes):
            continue
        ops = tuple((n.domain, n.op_type) for n in nodes)
        try:
            for values in case.data_sets[0]:
                tensors(values)
            found.append((case, ops, to_graph(case.model)))
        except ValueError:
            continue
    return found


@pytest.fixture(scope="module", params=[10, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def outcomes(runnable, request):
    """Run one case of so many: neighbours are of one operator."""
    return [Outcome(case.name, ops, failure_of(case, graph)) for case, ops, graph in runnable[:: request.param]]


def test_only_the_known_cases_fail(outcomes, record_testsuite_property):
    failed = {outcome.name: outcome.failure for outcome in outcomes if outcome.failure}
    expected = {outcome.name for outcome in outcomes} & set(KNOWN_FAILURES)
    right = Counter(len(outcome.nodes) == 1 for outcome in outcomes if not outcome.failure)
    record_testsuite_property("onnx_node_cases", f"{right[True]} + {right[False]} right, {len(failed)} not")
    assert set(failed) == expected, failed


def test_most_cases_are_run(runnable):
    # A harness that skips everything would pass the test above.
    run = Counter(len(ops) == 1 for _, ops, _ in runnable)
    assert run[True] >= 600
    assert run[False] >= 150


def test_quantized_operators_are_right_by_their_definitions(cases):
    failed, right = {}, Counter()
    for case in cases:
        ops = {node.op_type for node in case.model.graph.node}
        if not ops & QUANTIZED:
            continue
        failure = failure_of(case, to_graph(case.model), preset("onnx-spec").arithmetic)
        right.update([] if failure else ops & QUANTIZED)
        failed |= {case.name: failure} if failure else {}
    assert failed == {}
    assert set(right) == QUANTIZED
    assert sum(right.values()) >= 42


def test_most_kernels_of_the_standard_have_a_case(runnable):
    seen = {op for _, ops, _ in runnable if len(ops) == 1 for op in ops}
    missing = {op for domain, op in known_kernels() if not domain and ("", op) not in seen}
    # These have no case of a single node in the package, or only ones with random or text inputs.
    without = {"Scatter", "Upsample", "ReduceLogSum", "LpPool", "GatherND", "BitwiseNot", "CumProd"}
    without |= {"Unbind"}  # of PyTorch and TensorFlow Lite; ONNX makes a sequence of tensors instead
    without |= {"FakeQuantize"}  # of OpenVINO
    without |= {"Rsqrt", "SquaredDifference"}  # of TensorFlow Lite
    assert missing <= without | {"SimplifiedLayerNormalization"}  # ONNX Runtime's, though in the standard's domain


def test_a_wrong_kernel_is_noticed():
    class Case:
        rtol, atol = 1e-3, 1e-7
        data_sets = (([np.ones(3, np.float32)], [np.full(3, 0.5, np.float32)]),)

    graph = Graph([Node(name="n", op="Identity", inputs=("x",), outputs=("y",))], inputs=["x"], outputs=["y"])
    assert failure_of(Case, graph) == "other values"
    Case.data_sets = (([np.ones(3, np.float32)], [np.ones(3)]),)
    assert failure_of(Case, graph).startswith("float32(3,) instead of float64")
