"""A node's own error is what it does otherwise than the reference's node on the same inputs."""

from importlib.resources import files

import numpy as np
import pytest

import qdebug
from qdebug import data
from qdebug.compare.graph_checks.graph_check import GraphCheck
from qdebug.compare.own_error import ErrorReplay
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.session import DiffSession, open_recording

X = np.random.default_rng(0).normal(size=(1, 64)).astype(np.float32)
WEIGHTS = [np.random.default_rng(seed).normal(size=(64, 64)).astype(np.float32) / 8 for seed in range(1, 4)]


def net(scales=(0.05, 0.05, 0.05)):
    """Record three products, each rounded to uint8 codes before the next one."""
    nodes, infos, values = [], [], {"x": X}
    source, real = "x", X
    for at, (weight, scale) in enumerate(zip(WEIGHTS, scales, strict=True)):
        quant = QuantParams(dtype="uint8", scale=np.float32(scale), zero_point=128)
        names = f"w{at}", f"s{at}", f"z{at}", f"y{at}", f"q{at}", f"d{at}"
        w, s, z, y, q, d = names
        nodes += [
            Node(name=f"product{at}", op="MatMul", inputs=(source, w), outputs=(y,)),
            Node(name=f"quantize{at}", op="QuantizeLinear", inputs=(y, s, z), outputs=(q,)),
            Node(name=f"dequantize{at}", op="DequantizeLinear", inputs=(q, s, z), outputs=(d,)),
        ]
        infos += [TensorInfo(name=name, role=Role.CONSTANT) for name in (w, s, z)]
        infos.append(TensorInfo(name=q, quant=quant, dtype="uint8"))
        made = real @ weight
        codes = quantize(made, quant)
        real, source = dequantize(codes, quant), d
        values |= {w: weight, s: np.float32(scale), z: np.uint8(128), y: made, q: codes, d: real}
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=(source,), opset={"": 17})
    return MemoryRecording.single(graph, values)


def test_a_quantized_model_against_itself_costs_nothing():
    [output] = qdebug.budget(net(), net(), least=0).outputs
    assert (output.nodes, output.sqnr_db) == ((), np.inf)


@pytest.mark.parametrize("scales", [(0.05, 0.01, 0.05), (0.05, 0.2, 0.05)])
@pytest.mark.parametrize("swapped", [False, True])
def test_one_changed_scale_is_named_alone_with_both_values(scales, swapped):
    reference, backend = (net(scales), net()) if swapped else (net(), net(scales))
    [output] = qdebug.budget(reference, backend).outputs
    assert [node.node for node in output.nodes] == ["quantize1"]
    assert output.nodes[0].share == pytest.approx(1, rel=0.05)
    found = qdebug.diff(reference, backend)
    values = [f"{value:.3g}" for value in ((0.05, scales[1]) if swapped else (scales[1], 0.05))]
    [said] = [each.sentence for each in found["quantize1"].findings if each.unit == "per code"]
    assert said == f"scale {values[0]}, the reference's is {values[1]}"
    if found.status == "accumulated":
        assert found.origin in (None, "quantize1")
        assert f"'quantize1' {output.sqnr_db:.1f} dB ({said})".replace(".0 dB", " dB") in found.verdict.sentence


def front_end(*, coded):
    """Record the root of a sum of squares, each in int8 codes on the backend."""
    a, b = (np.random.default_rng(seed).normal(size=(1, 400)).astype(np.float32) for seed in (5, 6))
    steps = [("square_a", "Mul", ("a", "a")), ("square_b", "Mul", ("b", "b")), ("sum", "Add", ("square_a", "square_b"))]
    nodes = [Node(name=name, op=op, inputs=inputs, outputs=(name,)) for name, op, inputs in steps]
    nodes.append(Node(name="root", op="Sqrt", inputs=("sum",), outputs=("root",)))
    quant = QuantParams(dtype="int8", scale=np.float32(0.4), zero_point=-128)
    infos = [TensorInfo(name=name, quant=quant, dtype="int8") for name, _, _ in steps] if coded else []
    real, values = {"a": a, "b": b}, {"a": a, "b": b}
    for name, op, (one, other) in steps:
        made = real[one] * real[other] if op == "Mul" else real[one] + real[other]
        values[name] = quantize(made, quant) if coded else made
        real[name] = dequantize(values[name], quant) if coded else made
    values["root"] = np.sqrt(real["sum"])
    graph = Graph(nodes, tensors=infos, inputs=("a", "b"), outputs=("root",), opset={"": 17})
    return MemoryRecording.single(graph, values)


def test_an_error_put_in_before_a_root_is_accounted_for():
    """A small square less the error of its rounding is negative, and its root no number."""
    reference, backend = front_end(coded=False), front_end(coded=True)
    [output] = qdebug.budget(reference, backend, least=0).outputs
    assert not output.unknown
    assert {node.node for node in output.nodes} >= {"square_a", "square_b"}
    assert all(np.isfinite(node.share) and 0 < node.share < 10 for node in output.nodes)
    assert output.left < 0.01


def test_a_replay_that_is_not_finite_is_not_known_and_says_where():
    """An error is put in that leaves no value of either run in the domain of the logarithm behind it."""
    nodes = [
        Node(name="shift", op="Add", inputs=("x", "c"), outputs=("s",)),
        Node(name="scale", op="Mul", inputs=("s", "m"), outputs=("t",)),
        Node(name="log", op="Log", inputs=("t",), outputs=("y",)),
    ]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in "cm"]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})

    def run(off, sign):
        x = np.abs(X)
        s = x + 1 + np.float32(off)
        t = s * np.float32(sign)
        return MemoryRecording.single(
            graph, {"x": x, "c": np.float32(1), "m": np.float32(sign), "s": s, "t": t, "y": np.log(np.abs(t))}
        )

    [output] = qdebug.budget(run(0, 1), run(-0.3, -1), least=0).outputs
    assert output.unknown["scale"] == "the replay is not finite after Log 'log'"


def test_files_that_seem_swapped_are_said_so():
    coded = net()
    nodes = [node for node in coded.graph.nodes if node.op == "MatMul"]
    chain = [
        Node(name=node.name, op="MatMul", inputs=(source, node.inputs[1]), outputs=node.outputs)
        for node, source in zip(nodes, ("x", "y0", "y1"), strict=True)
    ]
    infos = [TensorInfo(name=f"w{at}", role=Role.CONSTANT) for at in range(3)]
    values, real = {"x": X}, X
    for at, weight in enumerate(WEIGHTS):
        real = real @ weight
        values |= {f"w{at}": weight, f"y{at}": real}
    plain = MemoryRecording.single(Graph(chain, tensors=infos, inputs=("x",), outputs=("y2",), opset={"": 17}), values)
    said = "The reference contains codes, but the backend does not; check whether the two files were swapped."
    assert qdebug.diff(coded, plain).verdict.sentence.startswith(said)
    assert not qdebug.diff(coded, plain).verdict.contributors
    assert said not in qdebug.diff(plain, coded).verdict.sentence
    assert qdebug.budget(coded, plain).remark == said


def test_errors_replayed_together_make_what_each_makes_alone():
    reference, backend = (open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8"))
    session = DiffSession(reference, backend)
    graphs, plan = GraphCheck(reference, backend, session.alignment.pairs), session.entries()
    output = next(entry for entry in plan if entry.tensor in backend.graph.outputs)
    replay = ErrorReplay(graphs, output, (0, 0))
    entries = [entry for entry in plan if isinstance(replay.size(entry), float) and replay.size(entry)]
    made = replay.outputs([[(entry, None)] for entry in entries])
    assert len(made) > 3
    for entry, together in zip(entries, made, strict=True):
        alone = ErrorReplay(graphs, output, (0, 0)).output([entry])
        assert (together.reason, alone.reason) == ("", "")
        assert together.values.tobytes() == alone.values.tobytes()


def test_an_error_that_cannot_be_replayed_keeps_no_other_from_its_replay():
    """Two of three errors are put in behind a root that one of them would make no number of."""
    reference, backend = front_end(coded=False), front_end(coded=True)
    session = DiffSession(reference, backend)
    graphs, plan = GraphCheck(reference, backend, session.alignment.pairs), session.entries()
    entries = [entry for entry in plan if entry.tensor in ("square_a", "square_b", "sum")]
    replay = ErrorReplay(graphs, next(entry for entry in plan if entry.tensor == "root"), (0, 0))
    assert all(np.isfinite(each.values).all() for each in replay.outputs([[(entry, None)] for entry in entries]))
    lost = np.full(reference.load("square_a").shape, np.nan)
    odd, *others = replay.outputs([[(entries[0], lost)], *([(entry, None)] for entry in entries)])
    assert (odd.values, odd.reason) == (None, "the replay is not finite after Add 'sum'")
    assert all(each.values is not None for each in others)
