"""What lint finds in recordings: each finding comes with a witness that reproduces, and right rewrites give none."""

from pathlib import Path

import jsonschema
import numpy as np
import pytest

from qdebug import data
from qdebug.errors import UsageError
from qdebug.lint.replay import LintModel
from qdebug.lint.rewrites import lint, open_model
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.present.reports.schema import load_schema
from qdebug.recording.reading.opening import open_recording

STEP = 1 / 32


def within(low, high):
    """Return codes that hold values to a range: 32 steps for 1."""
    ends = round(low / STEP) - 128, round(high / STEP) - 128
    return QuantParams(dtype="int16", scale=np.float32(STEP), zero_point=-128, qmin=ends[0], qmax=ends[1])


def model(nodes, infos, outputs, *, backend="npu", constants=(), values=None):
    """Return a recorded model that reads x."""
    tensors = [TensorInfo(name="x", dtype="float32", shape=(1, 4, 8, 8), role=Role.INPUT), *infos]
    graph = Graph(nodes, tensors=tensors, inputs=["x"], outputs=outputs)
    arrays = {(name, 0, 0): array for name, array in constants}
    arrays["x", 0, 0] = np.random.default_rng(1).standard_normal((1, 4, 8, 8)).astype(np.float32)
    return open_model(
        Path(f"{len(nodes)}.h5"), MemoryRecording(graph, arrays | (values or {}), RunInfo(backend=backend))
    )


def rescales(*ranges):
    """Return a model that rescales codes to one range after the other."""
    names = [f"within {low} {high}" for low, high in ranges]
    nodes, infos, read = [], [], "x"
    for name, (low, high) in zip(names, ranges, strict=True):
        op = "Identity" if nodes else "QuantizeLinear"
        nodes.append(Node(name=name, op=op, inputs=(read,), outputs=(name,)))
        infos.append(TensorInfo(name=name, dtype="int16", quant=within(low, high)))
        read = name
    nodes.append(Node(name="real", op="DequantizeLinear", inputs=(read,), outputs=("y",)))
    return model(nodes, infos, ["y"])


def test_merged_rescales_must_keep_the_intersection_of_their_ranges():
    before, last = rescales((1, 3), (0, 4), (2, 4)), rescales((2, 4))
    report = lint(before, last)
    finding = report.findings[-1]
    assert finding.kind == "rescale_merged"
    assert (finding.span_before, finding.span_after) == ((2.0, 3.0), (2.0, 4.0))
    shown = finding.witness
    assert (shown.before, shown.after) == (3.0, 4.0)
    # the same by hand: what each range holds the witness to
    x = shown.values[0].reshape(-1)
    held = x
    for span in ((1, 3), (0, 4), (2, 4)):
        held = dequantize(quantize(held, within(*span)), within(*span))
    place = np.ravel_multi_index(shown.index, shown.values[0].shape)
    assert held[place] == 3.0
    assert dequantize(quantize(x, within(2, 4)), within(2, 4))[place] == 4.0
    assert report.exit_code == 1
    jsonschema.validate(report.to_dict(), load_schema("lint"))
    assert not lint(before, rescales((2, 3))).findings


def test_what_is_cut_off_or_let_through_is_never_allowed_and_rounding_may_be():
    assert not lint(rescales((1, 3), (0, 4), (2, 4)), rescales((2, 4)), allow=True).findings[-1].allowed
    quants = [QuantParams(dtype="int8", scale=np.float32(step), zero_point=0) for step in (0.05, 0.04)]

    def rounded(*used):
        nodes, infos, read = [], [], "x"
        for at, quant in enumerate(used):
            name = f"codes of {quant.scale[0]:g}"
            op = "Identity" if nodes else "QuantizeLinear"
            nodes.append(Node(name=f"q{at}", op=op, inputs=(read,), outputs=(name,)))
            infos.append(TensorInfo(name=name, dtype="int8", quant=quant))
            read = name
        nodes.append(Node(name="real", op="DequantizeLinear", inputs=(read,), outputs=("y",)))
        return model(nodes, infos, ["y"])

    twice, once = rounded(*quants), rounded(quants[1])
    assert [each.allowed for each in lint(twice, once).findings] == [False]
    (finding,) = lint(twice, once, allow=True).findings
    assert finding.allowed
    assert finding.witness.largest <= 0.05 * (1 + 1e-6)


def pool(quant, *, backend="litert"):
    nodes = [
        Node(name="q", op="QuantizeLinear", inputs=("x",), outputs=("codes",)),
        Node(name="pool", op="MaxPool", inputs=("codes",), outputs=("pooled",), attrs={"kernel_shape": (2, 2)}),
        Node(name="real", op="DequantizeLinear", inputs=("pooled",), outputs=("y",)),
    ]
    first = QuantParams(dtype="int8", scale=np.float32(0.05), zero_point=0)
    infos = [
        TensorInfo(name=name, dtype="int8", quant=each) for name, each in (("codes", first), ("pooled", quant or first))
    ]
    return model(nodes, infos, ["y"], backend=backend)


def test_a_runtime_that_hands_codes_on_needs_equal_scales():
    other = QuantParams(dtype="int8", scale=np.float32(0.02), zero_point=0)
    (finding,) = lint(pool(other)).findings
    assert (finding.kind, finding.after) == ("moved", ("pool",))
    shown = finding.witness
    assert abs(shown.before - shown.after) == pytest.approx(shown.largest)
    assert not lint(pool(None)).findings
    assert not lint(pool(other, backend="npu")).findings  # nobody knows that it hands them on


def product(weight):
    nodes = [Node(name="m", op="MatMul", inputs=("x", "w"), outputs=("y",))]
    return model(nodes, [TensorInfo(name="w", role=Role.CONSTANT)], ["y"], constants=[("w", weight)])


def test_a_number_in_the_place_of_none_is_a_difference():
    weight = np.ones((8, 8), np.float32)
    broken = weight.copy()
    broken[0, 0] = np.nan
    (finding,) = lint(product(weight), product(broken)).findings
    assert np.isfinite(finding.witness.before)
    assert np.isnan(finding.witness.after)
    assert not lint(product(broken), product(broken)).findings
    assert not lint(product(weight), product(np.nextafter(weight, 2))).findings  # what a folded constant is rounded by


def test_what_the_interpreter_does_not_reproduce_is_no_finding(monkeypatch):
    weights = np.ones((8, 8), np.float32), 2 * np.ones((8, 8), np.float32)
    assert len(lint(*map(product, weights)).findings) == 1
    monkeypatch.setattr(LintModel, "replay", lambda *_: np.zeros((1, 4, 8, 8)))
    assert not lint(*map(product, weights)).findings


def scaled(weight, factor=None):
    """Return a product, by a factor where there is one, and its negative."""
    known = {"w": weight} | ({} if factor is None else {"f": np.float32(factor)})
    nodes = [Node(name="m", op="MatMul", inputs=("x", "w"), outputs=("m",))]
    nodes += [] if factor is None else [Node(name="s", op="Mul", inputs=("m", "f"), outputs=("s",))]
    nodes.append(Node(name="n", op="Neg", inputs=(nodes[-1].outputs[0],), outputs=("y",)))
    infos = [
        TensorInfo(name=name, role=Role.CONSTANT, shape=array.shape, dtype="float32") for name, array in known.items()
    ]
    return model(nodes, infos, ["y"], constants=known.items())


def test_a_node_that_keeps_its_name_and_does_something_else_is_no_partner():
    weight = np.random.default_rng(2).standard_normal((8, 8)).astype(np.float32)
    assert not lint(scaled(weight, 4), scaled(weight * 4)).findings
    assert [each.tensor for each in lint(scaled(weight, 4), scaled(weight * 5)).findings] == ["y"]


def test_the_first_tensor_that_differs_is_named_and_what_follows_is_not():
    weight = np.random.default_rng(2).standard_normal((8, 8)).astype(np.float32)
    assert [each.tensor for each in lint(scaled(weight), scaled(weight * 2)).findings] == ["m"]


def test_ties_may_be_rounded_either_way():
    def coarser(scale):
        steps = {"codes": 1.0, "halves": scale}
        nodes = [
            Node(name="q", op="QuantizeLinear", inputs=("x",), outputs=("codes",)),
            Node(name="h", op="Identity", inputs=("codes",), outputs=("halves",)),
            Node(name="d", op="DequantizeLinear", inputs=("halves",), outputs=("y",)),
        ]
        infos = [
            TensorInfo(name=name, dtype="int8", quant=QuantParams(dtype="int8", scale=np.float32(step), zero_point=0))
            for name, step in steps.items()
        ]
        return model(nodes, infos, ["y"])

    assert not lint(coarser(2), coarser(np.nextafter(np.float32(2), np.float32(3)))).findings
    assert lint(coarser(2), coarser(2.1)).findings


def test_codes_that_cannot_hold_0_are_found():
    quant = QuantParams(dtype="int8", scale=np.float32(0.1), zero_point=-140)
    nodes = [Node(name="q", op="QuantizeLinear", inputs=("x",), outputs=("codes",))]
    report = lint(model(nodes, [TensorInfo(name="codes", dtype="int8", quant=quant)], ["codes"]))
    (finding,) = report.findings
    assert (finding.kind, finding.witness.before) == ("zero_point", 0.0)
    assert finding.witness.after == pytest.approx(1.2)
    jsonschema.validate(report.to_dict(), load_schema("lint"))


def test_the_nets_of_the_package_are_clean(tmp_path):
    for path in (data.FLOAT_NET, data.INT8_NET):
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes())
        opened = open_model(copy, open_recording(copy))
        assert not lint(opened).findings
        same = lint(opened, opened)
        assert (same.findings, dict(same.undecided)) == ((), {})


def test_a_float_net_and_its_quantized_form_are_no_rewrite_of_each_other():
    recordings = [open_model(path, open_recording(path)) for path in (data.FLOAT_NET, data.INT8_NET)]
    with pytest.raises(UsageError, match=r"float\.h5' is float and .*int8\.h5' is quantized"):
        lint(*recordings)


def test_what_cannot_be_computed_is_not_decided():
    def unknown(scale):
        nodes = [
            Node(name="q", op="QuantizeLinear", inputs=("x",), outputs=("codes",)),
            Node(name="own", op="Own", domain="mine", inputs=("codes",), outputs=("y",), attrs={"scale": scale}),
        ]
        quant = QuantParams(dtype="int8", scale=np.float32(0.1), zero_point=0)
        return model(nodes, [TensorInfo(name="codes", dtype="int8", quant=quant)], ["y"])

    report = lint(unknown(1.0), unknown(2.0))
    assert not report.findings
    assert "y" in report.undecided


@pytest.mark.parametrize(
    ("mistake", "said"),
    [
        ("bias", "the weight is scaled correctly, but the bias is not"),
        ("weight", "the weight is not scaled correctly"),
        ("", None),
    ],
)
def test_what_a_batch_normalization_was_folded_into_wrongly_is_said(mistake, said):
    r = np.random.default_rng(4)
    real = lambda *shape: r.normal(size=shape).astype(np.float32)  # noqa: E731
    held = {"w": real(6, 4, 3, 3), "b": real(6), "gain": 1 + real(6), "beta": real(6), "mean": real(6)}
    held["variance"] = np.abs(real(6)) + np.float32(0.3)
    by = held["gain"] / np.sqrt(held["variance"] + np.float32(1e-5))
    weight = held["w"] * (1 if mistake == "weight" else by[:, None, None, None])
    bias = held["b"] * (1 if mistake == "bias" else by) + held["beta"] - held["mean"] * by

    def net(constants, *nodes):
        infos = [
            TensorInfo(name=name, dtype="float32", shape=value.shape, role=Role.CONSTANT)
            for name, value in constants.items()
        ]
        infos += [TensorInfo(name=name, dtype="float32", shape=(1, 6, 6, 6)) for name in ("conv", "y")]
        return model(nodes, infos, ["y"], constants=list(constants.items()))

    norm = Node(name="bn", op="BatchNormalization", inputs=("conv", "gain", "beta", "mean", "variance"), outputs=("y",))
    conv = Node(name="conv", op="Conv", inputs=("x", "w", "b"), outputs=("conv",))
    folded = Node(name="conv", op="Conv", inputs=("x", "w", "b"), outputs=("y",))
    before = net(held, conv, norm)
    after = net({"w": weight.astype(np.float32), "b": bias.astype(np.float32)}, folded)
    found = lint(before, after).findings
    assert [(each.kind, each.detail) for each in found] == ([("batch_norm", said)] if said else [])
