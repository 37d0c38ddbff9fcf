"""A product that saturates in codes before a residual is added to it, in a layer of which codes alone were recorded."""

import numpy as np
import pytest

import qdebug
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.model.recording import SkipCause

RNG = np.random.default_rng(7)
X, W = RNG.integers(-128, 128, (60, 16)).astype(np.int8), RNG.integers(-127, 128, (16, 16)).astype(np.int8)
SCALES = {"sx": np.float32(0.02), "sw": np.float32(0.004), "sy": np.float32(0.027)}
ZEROS = {"zx": np.int8(-6), "zw": np.int8(0), "zy": np.int8(3)}
REAL = (X.astype(np.float32) + 6) * SCALES["sx"]
PRODUCT = REAL @ (W * SCALES["sw"])


def quant(scale, zero):
    return QuantParams(dtype="int8", scale=SCALES[scale], zero_point=int(ZEROS[zero]), qmin=-128, qmax=127)


def run(product, *recorded):
    """Return a run that recorded some tensors, with a product that is computed in another way."""
    total = product + REAL
    codes = np.clip(np.rint(total / SCALES["sy"]) + 3, -128, 127).astype(np.int8)
    nodes = [
        Node(name="x_dq", op="DequantizeLinear", inputs=("xq", "sx", "zx"), outputs=("xd",)),
        Node(name="w_dq", op="DequantizeLinear", inputs=("w", "sw", "zw"), outputs=("wd",)),
        Node(name="fc", op="MatMul", inputs=("xd", "wd"), outputs=("f",)),
        Node(name="residual", op="Add", inputs=("f", "xd"), outputs=("sum",)),
        Node(name="y_q", op="QuantizeLinear", inputs=("sum", "sy", "zy"), outputs=("yq",)),
        Node(name="y_dq", op="DequantizeLinear", inputs=("yq", "sy", "zy"), outputs=("y",)),
    ]
    constants = {"w": W} | SCALES | ZEROS
    values = {"xq": X, "xd": REAL, "wd": W * SCALES["sw"], "f": product, "sum": total, "yq": codes}
    values["y"] = ((codes.astype(np.float32) - 3) * SCALES["sy"]).astype(np.float32)
    quants = {"w": quant("sw", "zw"), "xq": quant("sx", "zx"), "yq": quant("sy", "zy")}
    roles = dict.fromkeys(constants, Role.CONSTANT) | {"xq": Role.INPUT}
    tensors = [
        TensorInfo(
            name=name, role=roles.get(name, Role.ACTIVATION), quant=quants.get(name), dtype=array.dtype.name,
            shape=array.shape,
        )
        for name, array in (constants | values).items()
    ]  # fmt: skip
    graph = Graph(nodes, tensors=tensors, inputs=["xq"], outputs=["y"], opset={"": 17})
    left_out = [name for name in values if name not in recorded]
    info = RunInfo(
        backend="npu",
        skipped=dict.fromkeys(left_out, "not in the dump"),
        skip_causes=dict.fromkeys(left_out, SkipCause.NOT_DUMPED),
    )
    kept = {name: array for name, array in (constants | values).items() if name not in left_out}
    return MemoryRecording.single(graph, kept, info=info)


def steps(product, low, high):
    return (np.clip(np.rint(product / SCALES["sy"]), low, high) * SCALES["sy"]).astype(np.float32)


ALL = ("xq", "xd", "wd", "f", "sum", "yq", "y")


@pytest.mark.parametrize(
    ("recorded", "offset", "said"),
    [
        (("xq", "yq", "y"), 0, "results saturate to int8 before the output's zero point 3 is added"),
        (("xq", "xd", "y"), 3, "the result is already clipped to the range of the layer's int8 codes"),
    ],
)
def test_a_product_that_saturates_before_the_sum_is_named(recorded, offset, said):
    wrong = steps(PRODUCT, -128 - offset, 127 - offset)
    assert 0.01 < np.mean(np.abs(wrong - PRODUCT) > SCALES["sy"]) < 0.2
    result = qdebug.diff(run(PRODUCT, *ALL), run(wrong, *recorded))
    assert result.status == "diverged"
    why = result.diagnosis[0].why
    assert why.startswith(f"{said} in 'fc' (MatMul)")


@pytest.mark.parametrize("recorded", [("xq", "yq", "y"), ("xq", "xd", "y")])
def test_a_product_that_is_rounded_before_the_sum_is_within(recorded):
    for product in (steps(PRODUCT, -1000, 1000), PRODUCT.astype(np.float16).astype(np.float32)):
        assert qdebug.diff(run(PRODUCT, *ALL), run(product, *recorded)).status in ("within", "identical")


def test_a_weight_that_was_not_dumped_follows_from_its_codes():
    other = np.nextafter(PRODUCT, np.float32(0))
    result = qdebug.diff(run(PRODUCT, *ALL), run(other, "xq", "xd", "f", "y"))
    node = next(each for each in result.nodes if each.tensor == "f")
    assert (node.judged_by, node.status) == ("replay", "within")
