"""Hand-made results for the tests of views and reports; recordings of small quantized nets, computed by a variant."""

from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.compare.align.pairs import Match, Side, Unmatched, UnmatchedKind
from qdebug.compare.result.result import (
    Coverage,
    NodeResult,
    OutputRanking,
    RunComparison,
    SampleResult,
    Status,
    Verdict,
)
from qdebug.model import Fidelity, Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.numerics.stats import ErrorStats, Rails, WorstElement
from qdebug.replay.evaluate import compute
from qdebug.replay.node_units import unit_of_call
from qdebug.replay.registry import Call
from qdebug.replay.variant import Variant, parse_variant

BEYOND = {Status.DIVERGED, Status.NONFINITE}


def stats(**changed):
    known = {
        "count": 100,
        "max_abs": 0.5,
        "mean_abs": 0.1,
        "rmse": 0.2,
        "max_rel": 3.0,
        "zero_refs": 4,
        "rel_l2": 0.0316,
        "sqnr_db": 30.0,
        "cosine": 0.99951,
        "max_lsb": 5.0,
        "mismatches": 90,
        "nonfinite": 0,
        "matched_nonfinite": 0,
        "worst_index": (0, 3, 1),
        "worst_sample": 1,
        "reference_min": -1.0,
        "reference_max": 2.0,
        "backend_min": -1.1,
        "backend_max": 1.9,
    }
    return ErrorStats(**{**known, **changed})


def node(index=0, status=Status.WITHIN, **changed):
    known = {
        "node": f"conv{index}",
        "op": "QLinearConv",
        "tensor": f"conv{index}_q",
        "reference_tensor": f"conv{index}_out",
        "match": Match.QUANTIZATION,
        "match_reason": "codes of the same tensor",
        "reason": "SQNR 8 dB is below 20 dB" if status is Status.DIVERGED else None,
        "metrics": None if status is Status.INCOMPARABLE else stats(),
        "saturation": Rails(at_qmin=30, at_qmax=2, clipped_low=0, clipped_high=1, floor=28, total=100),
        "quant": QuantParams(dtype="int8", scale=0.05, zero_point=-3),
        "samples": (
            SampleResult(sample=0, max_abs=0.2, sqnr_db=35.0, status=Status.WITHIN),
            SampleResult(sample=1, max_abs=0.5, sqnr_db=25.0, status=status),
        ),
    }
    return NodeResult(index=index, status=status, **{**known, **changed})


def unmatched(tensor="bias", *, kind=UnmatchedKind.BENIGN, side=Side.BACKEND, reason="folded into its node"):
    return Unmatched(side=side, tensor=tensor, kind=kind, reason=reason)


def ranking(tensor="logits", **changed):
    known = {
        "entries": 10,
        "samples": 16,
        "unranked": 0,
        "top1_agreement": 0.875,
        "top5_agreement": 1.0,
        "tied": 0,
        "worst_rank": 3,
        "worst_sample": 4,
    }
    return OutputRanking(tensor=tensor, **{**known, **changed})


def result(nodes, *, left_out=(), status=None, sentence="One sentence.", **changed):
    first = next((entry for entry in nodes if entry.status in BEYOND), None)
    known = {
        "reference": RunInfo(backend="onnxruntime", model="net.onnx", taps="faithful", fidelity=Fidelity.BIT_EQUAL),
        "backend": RunInfo(backend="npu", model="net.int8.onnx", options={"opt": "all"}),
        "limits": {"source": "default", "min_sqnr": 20.0},
        "coverage": Coverage(
            compared=sum(entry.status is not Status.INCOMPARABLE for entry in nodes), unmatched=tuple(left_out)
        ),
    }
    verdict = Verdict(
        status=status or (first.status if first else Status.WITHIN),
        first_divergence=first.node if first else None,
        origin=None,
        sentence=sentence,
    )
    return RunComparison(verdict=verdict, nodes=tuple(nodes), **{**known, **changed})


def worst(**changed):
    known = {
        "index": (0, 3, 1),
        "sample": 1,
        "reference": 1.25,
        "backend": 0.75,
        "difference": -0.5,
        "lsb": -10.0,
        "reference_code": None,
        "backend_code": 12,
    }
    return WorstElement(**{**known, **changed})


@pytest.fixture(scope="session")
def made():
    """Return the makers above: made.node(3, Status.DIVERGED), made.result([...])."""
    return SimpleNamespace(stats=stats, node=node, unmatched=unmatched, ranking=ranking, result=result, worst=worst)


DYADIC = (2.0**-4, 2.0**-6, 2.0**-3)
GENERIC = (0.0312, 0.0057, 0.0421)


def conv_parts(*, scales=DYADIC, channels=8, filters=16, size=12, per_channel=False, seed=0, zero=-3):
    """Return what a QLinearConv reads, by tensor name, its activations left out."""
    rng = np.random.default_rng(seed)
    x_scale, w_scale, y_scale = (np.float32(scale) for scale in scales)
    many = np.linspace(0.5, 2, filters).astype(np.float32) * w_scale if per_channel else w_scale
    return {
        "x_scale": np.asarray(x_scale),
        "x_zero": np.asarray(5, np.int8),
        "w": rng.integers(-9, 10, (filters, channels, 3, 3)).astype(np.int8),
        "w_scale": np.asarray(many),
        "w_zero": np.zeros(many.shape, np.int8),
        "y_scale": np.asarray(y_scale),
        "y_zero": np.asarray(zero, np.int8),
        "b": rng.integers(-900, 900, filters).astype(np.int32),
    }, rng.integers(-128, 128, (4, 1, channels, size, size)).astype(np.int8)


def call_of(node, values):
    return Call(
        inputs=tuple(values[name] for name in node.inputs), attrs=node.attrs, opset=13, op=node.op, node=node.name
    )


def recording_of(node, constants, feeds, variant, *, fault=None, extra=()):
    """Record one node on several samples, computed by a variant; a fault changes what is recorded.

    Args:
        node: Reads x and constants, gives y.
        constants: Arrays by name.
        feeds: One x for each sample.
        variant: The variant, or its text.
        fault: Called with the sample and the codes.
        extra: Further nodes, which are not recorded.
    """
    variant = parse_variant(variant) if isinstance(variant, str) else variant
    arrays = {(name, 0, 0): array for name, array in constants.items()}
    for sample, x in enumerate(feeds):
        unit = unit_of_call(call_of(node, {**constants, "x": x}))
        codes = compute(unit, variant)
        arrays["x", sample, 0] = x
        arrays["y", sample, 0] = codes if fault is None else fault(sample, codes.copy())
    quant = QuantParams(dtype="int8", scale=constants["y_scale"], zero_point=constants["y_zero"])
    tensors = [TensorInfo(name=name, role=Role.CONSTANT) for name in constants]
    tensors += [TensorInfo(name="y", dtype="int8", quant=quant, role=Role.OUTPUT)]
    graph = Graph([node, *extra], tensors=tensors, inputs=["x"], outputs=["y"], opset={"": 13})
    return MemoryRecording(graph, arrays)


CONV = Node(
    name="conv",
    op="QLinearConv",
    inputs=("x", "x_scale", "x_zero", "w", "w_scale", "w_zero", "y_scale", "y_zero", "b"),
    outputs=("y",),
    attrs={"pads": (1, 1, 1, 1), "kernel_shape": (3, 3)},
)


def conv(variant: str | Variant = "", *, samples=2, fault=None, **parts):
    """Record a convolution on several samples."""
    constants, feeds = conv_parts(**parts)
    return recording_of(CONV, constants, feeds[:samples], variant, fault=fault)


@pytest.fixture
def quantized():
    return SimpleNamespace(
        conv=conv, recording_of=recording_of, conv_parts=conv_parts, node=CONV, generic=GENERIC, dyadic=DYADIC
    )


@pytest.fixture(scope="session")
def louder():
    """Return a function that returns a recording whose first output is not what its nodes give: half as much again."""

    def made(run):
        held = {
            (name, sample, 0): run.load(name, sample)
            for name in run.names
            for sample in range(1 if run.graph.is_constant(name) else run.samples)
            if run.has(name, sample)
        }
        for sample in range(run.samples):
            held[run.graph.outputs[0], sample, 0] = held[run.graph.outputs[0], sample, 0] * np.float32(1.5)
        return MemoryRecording(run.graph, held)

    return made
