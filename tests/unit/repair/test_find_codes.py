"""Repairs of nets on codes: sums that overflow, codes that are cut off, branches that share a scale."""

from dataclasses import replace

import numpy as np

from qdebug.arithmetic.arithmetic_file import find_arithmetic
from qdebug.arithmetic.presets import DEFAULT_PRESET
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.repair.find import RepairOptions, find_repair, measure_fidelity
from qdebug.repair.search import EditCost
from qdebug.session import DiffSession


def coded(name, dtype, scale, zero_point=0):
    return TensorInfo(name=name, dtype=dtype, quant=QuantParams(dtype=dtype, scale=scale, zero_point=zero_point))


def product_on_codes(computed, scales, least=60):
    """Record x w in codes, computed from the products and the factor from their sums to codes."""
    rng = np.random.default_rng(1)
    w = rng.integers(least, 128, (8, 5)).astype(np.int8)
    floats = Graph(
        [Node(name="product", op="MatMul", inputs=("x", "w"), outputs=("y",))],
        tensors=[TensorInfo(name="w", role=Role.CONSTANT)],
        inputs=("x",),
        outputs=("y",),
        opset={"": 17},
    )
    names = ("x", "xs", "xz", "w", "ws", "wz", "ys", "yz")
    codes = Graph(
        [Node(name="product", op="QLinearMatMul", inputs=names, outputs=("y",))],
        tensors=[
            coded("x", "uint8", scales["x"]),
            coded("y", "uint8", scales["y"]),
            TensorInfo(name="w", role=Role.CONSTANT, quant=QuantParams(dtype="int8", scale=scales["w"], zero_point=0)),
            *(TensorInfo(name=name, role=Role.CONSTANT) for name in names if len(name) == 2),
        ],
        inputs=("x",),
        outputs=("y",),
        opset={"": 17},
    )
    theirs = {("w", 0, 0): (w * np.float32(scales["w"])).astype(np.float32)}
    ours = {("w", 0, 0): w}
    for name in "xwy":
        ours[f"{name}s", 0, 0] = np.float32(scales[name])
        ours[f"{name}z", 0, 0] = np.zeros((), np.int8 if name == "w" else np.uint8)
    for sample in range(4):
        x = rng.integers(100, 256, (3, 8)).astype(np.uint8)
        real = x.astype(np.float32) * np.float32(scales["x"])
        products = x[:, :, None].astype(np.int64) * w[None]
        y = np.clip(computed(products, scales["x"] * scales["w"] / scales["y"]), 0, 255).astype(np.uint8)
        theirs |= {("x", sample, 0): real, ("y", sample, 0): real @ theirs["w", 0, 0]}
        ours |= {("x", sample, 0): x, ("y", sample, 0): y}
    return DiffSession(MemoryRecording(floats, theirs), MemoryRecording(codes, ours))


def test_sums_of_pairs_that_saturate_are_repaired_by_wide_ones():
    """Two products at a time are added in 16 bits, as on processors without dot products."""

    def computed(products, factor):
        pairs = products.reshape(3, 4, 2, 5).sum(axis=2)
        return np.rint(np.clip(pairs, -(2**15), 2**15 - 1).sum(axis=1) * factor)

    session = product_on_codes(computed, {"x": 0.01, "w": 0.02, "y": 0.25})
    options = RepairOptions(within=30, arithmetic="onnx-spec", cost=EditCost(kinds=["range", "wide-sum"]))
    found = find_repair(session, options)
    assert (found.reached, [edit.exact for edit in found.edits]) == (True, ["wide-sum"])
    other = replace(options, cost=EditCost(kinds=["range"]))
    assert not find_repair(session, other).reached, "other codes do not help while the sums overflow"
    found = find_repair(session, replace(options, cost=EditCost(kinds=["wide-sum"])))
    assert [edit.kind for edit in found.edits] == ["wide-sum"]
    assert found.search.before < 20 < 30 < found.search.after
    found = find_repair(session, replace(options, arithmetic=None, cost=EditCost(kinds=["wide-sum"])))
    assert (found.arithmetic, found.faithful, found.replayed) == ("as explained", np.inf, None)
    assert found.exit_code == 0


def test_codes_that_are_cut_off_are_repaired_by_rounding():
    session = product_on_codes(
        lambda products, factor: np.floor(products.sum(axis=1) * factor), {"x": 0.01, "w": 0.002, "y": 0.25}, 0
    )
    options = RepairOptions(within=30, arithmetic="onnx-spec")
    found = find_repair(session, replace(options, cost=EditCost(kinds=["rounding"])))
    assert [(edit.kind, edit.exact) for edit in found.edits] == [("rounding", "rounding")]
    assert found.search.after > found.search.before + 3
    alone = find_repair(session, replace(options, cost=EditCost(kinds=["bias"])))
    assert alone.edits == (), "what the rounding gains is none of the bias'"
    nearest = product_on_codes(
        lambda products, factor: np.rint(products.sum(axis=1) * factor), {"x": 0.01, "w": 0.002, "y": 0.25}, 0
    )
    assert find_repair(nearest, replace(options, cost=EditCost(kinds=["rounding"]))).edits == ()


def test_quantizers_that_cut_off_are_known_for_that_and_repaired_by_rounding():
    """Quantizers behind operators without weights; nothing but the recorded codes tells how they round."""
    constants, scale = [TensorInfo(name=name, role=Role.CONSTANT) for name in "sz"], np.float32(0.01)
    curves = [Node(name=f"curve {at}", op="Tanh", inputs=(f"r{at}",), outputs=(f"r{at + 1}",)) for at in range(3)]
    floats = Graph(curves, inputs=("r0",), outputs=("r3",), opset={"": 17})
    nodes = []
    for at, curve in enumerate(curves):
        nodes += [
            replace(curve, outputs=(f"f{at}",)),
            Node(name=f"codes {at}", op="QuantizeLinear", inputs=(f"f{at}", "s", "z"), outputs=(f"c{at}",)),
            Node(name=f"real {at}", op="DequantizeLinear", inputs=(f"c{at}", "s", "z"), outputs=(f"r{at + 1}",)),
        ]
    infos = [*constants, *(coded(f"c{at}", "int8", 0.01) for at in range(3))]
    quantized = Graph(nodes, tensors=infos, inputs=("r0",), outputs=("r3",), opset={"": 17})
    theirs, ours = {}, {("s", 0, 0): scale, ("z", 0, 0): np.int8(0)}
    for sample in range(4):
        x = real = np.random.default_rng(sample).standard_normal((40, 50)).astype(np.float32)
        theirs["r0", sample, 0] = ours["r0", sample, 0] = x
        for at in range(3):
            theirs[f"r{at + 1}", sample, 0] = real = np.tanh(real)
            ours[f"f{at}", sample, 0] = made = np.tanh(x)
            ours[f"c{at}", sample, 0] = cut = np.trunc(made / scale).astype(np.int8)
            ours[f"r{at + 1}", sample, 0] = x = cut * scale
    session = DiffSession(MemoryRecording(floats, theirs), MemoryRecording(quantized, ours))
    found = find_repair(session, RepairOptions(within=40, cost=EditCost(kinds=["rounding"])))
    assert (found.arithmetic, found.faithful) == ("as explained", np.inf)
    assert {edit.kind for edit in found.edits} == {"rounding"}
    assert {edit.unit.node.name for edit in found.edits} <= {curve.name for curve in curves}
    assert found.search.before < 38 < 40 < found.search.after
    assert found.exit_code == 0


def test_branches_that_share_a_scale_get_one_each():
    """A wide and a narrow branch are joined in the codes of the wide one; a product needs the narrow one."""
    rng = np.random.default_rng(3)
    gains = np.repeat(np.float32([2.0, 0.001]), 4)[:, None] * rng.standard_normal((8, 3)).astype(np.float32)
    quant = QuantParams(dtype="int8", scale=np.float32(0.8), zero_point=0)
    branches = [
        node
        for at, name in enumerate("pq")
        for node in (
            Node(name=f"branch {name}", op=("Tanh", "Relu")[at], inputs=(f"x{name}",), outputs=(f"f{name}",)),
            Node(name=f"codes {name}", op="QuantizeLinear", inputs=(f"f{name}", "s", "z"), outputs=(f"c{name}",)),
            Node(name=f"real {name}", op="DequantizeLinear", inputs=(f"c{name}", "s", "z"), outputs=(f"r{name}",)),
        )
    ]
    nodes = [
        *branches,
        Node(name="join", op="Concat", inputs=("rp", "rq"), outputs=("j",), attrs={"axis": 1}),
        Node(name="codes j", op="QuantizeLinear", inputs=("j", "s", "z"), outputs=("cj",)),
        Node(name="real j", op="DequantizeLinear", inputs=("cj", "s", "z"), outputs=("rj",)),
        Node(name="product", op="MatMul", inputs=("rj", "w"), outputs=("y",)),
    ]
    constants = {("s", 0, 0): quant.scale[0], ("z", 0, 0): np.int8(0), ("w", 0, 0): gains}
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in "szw"]
    infos += [TensorInfo(name=name, dtype="int8", quant=quant) for name in ("cp", "cq", "cj")]
    options = {"inputs": ("xp", "xq"), "outputs": ("y",), "opset": {"": 17}}
    floats = [
        *(Node(name=n.name, op=n.op, inputs=n.inputs, outputs=n.outputs) for n in branches if "branch" in n.name),
        Node(name="join", op="Concat", inputs=("fp", "fq"), outputs=("j",), attrs={"axis": 1}),
        Node(name="product", op="MatMul", inputs=("j", "w"), outputs=("y",)),
    ]
    theirs, ours = {("w", 0, 0): gains}, dict(constants)
    for sample in range(4):
        x = {"xp": 3 * rng.standard_normal((5, 4)), "xq": 100 * rng.standard_normal((5, 4))}
        x = {name: array.astype(np.float32) for name, array in x.items()}
        made = {"fp": np.tanh(x["xp"]), "fq": np.maximum(x["xq"], 0)}
        real = {f"r{name}": dequantize(quantize(made[f"f{name}"], quant), quant) for name in "pq"}
        j, rj = (
            np.concatenate([each[f"{kind}p"], each[f"{kind}q"]], axis=1) for each, kind in ((made, "f"), (real, "r"))
        )
        theirs |= {(name, sample, 0): array for name, array in (x | made | {"j": j, "y": j @ gains}).items()}
        held = {f"c{name}": quantize(made[f"f{name}"], quant) for name in "pq"} | {"cj": quantize(rj, quant)}
        more = {"j": rj, "rj": rj, "y": rj @ gains}
        ours |= {(name, sample, 0): array for name, array in (x | made | real | held | more).items()}
    session = DiffSession(
        MemoryRecording(Graph(floats, tensors=[infos[2]], **options), theirs),
        MemoryRecording(Graph(nodes, tensors=infos, **options), ours),
    )
    found = find_repair(session, RepairOptions(within=30, cost=EditCost(kinds=["split"])))
    assert (found.reached, [edit.unit.node.name for edit in found.edits]) == (True, ["branch p"])
    assert found.search.before < 15


def test_sums_of_codes_are_replayed_though_they_are_whole_numbers():
    """What the backend recorded of an integer product is wrong: the replay does not produce its outputs."""
    nodes = [
        Node(name="codes", op="QuantizeLinear", inputs=("x", "s", "z"), outputs=("c",)),
        Node(name="product", op="MatMulInteger", inputs=("c", "w"), outputs=("i",)),
        Node(name="real", op="Cast", inputs=("i",), outputs=("y",), attrs={"to": 1}),
    ]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in ("s", "z", "w")]
    infos += [coded("c", "uint8", 0.01), TensorInfo(name="i", dtype="int32")]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    rng = np.random.default_rng(0)
    x, w = rng.uniform(0, 2, (3, 4)).astype(np.float32), rng.integers(-9, 9, (4, 5)).astype(np.int8)
    codes = np.rint(x / np.float32(0.01)).astype(np.uint8)
    sums = codes.astype(np.int32) @ w.astype(np.int32)
    held = {("s", 0, 0): np.float32(0.01), ("z", 0, 0): np.uint8(0), ("w", 0, 0): w, ("x", 0, 0): x, ("c", 0, 0): codes}

    def run(off):
        wrong = {("i", 0, 0): (sums + off).astype(np.int32), ("y", 0, 0): (sums + off).astype(np.float32)}
        return MemoryRecording(graph, {**held, **wrong})

    usual = find_arithmetic(DEFAULT_PRESET).arithmetic
    assert measure_fidelity(DiffSession(run(0), run(0)), usual, (0, 0)) == np.inf
    assert measure_fidelity(DiffSession(run(0), run(1000)), usual, (0, 0)) < 40


def test_a_bias_before_a_quantizer_that_cuts_off_is_repaired_without_rounding():
    constants = [TensorInfo(name=name, role=Role.CONSTANT) for name in "wbsz"]
    product = Node(name="p", op="Gemm", inputs=("x", "w", "b"), outputs=("y",))
    floats = Graph([product], tensors=constants[:2], inputs=("x",), outputs=("y",), opset={"": 17})
    nodes = [
        replace(product, outputs=("f",)),
        Node(name="codes", op="QuantizeLinear", inputs=("f", "s", "z"), outputs=("c",)),
        Node(name="real", op="DequantizeLinear", inputs=("c", "s", "z"), outputs=("y",)),
    ]
    infos = [*constants, coded("c", "int16", 0.01)]
    quantized = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    rng, scale = np.random.default_rng(5), np.float32(0.01)
    w, b = rng.standard_normal((8, 4)).astype(np.float32), np.zeros(4, np.float32)
    theirs = {("w", 0, 0): w, ("b", 0, 0): b}
    ours = {("w", 0, 0): w, ("b", 0, 0): b + np.float32(0.5), ("s", 0, 0): scale, ("z", 0, 0): np.int16(0)}
    for sample in range(4):
        x = rng.standard_normal((50, 8)).astype(np.float32)
        made = x @ w + ours["b", 0, 0]
        cut = np.floor(made / scale).astype(np.int16)
        theirs |= {("x", sample, 0): x, ("y", sample, 0): x @ w}
        ours |= {("x", sample, 0): x, ("f", sample, 0): made, ("c", sample, 0): cut, ("y", sample, 0): cut * scale}
    session = DiffSession(MemoryRecording(floats, theirs), MemoryRecording(quantized, ours))
    found = find_repair(session, RepairOptions(within=35, cost=EditCost(kinds=["bias"])))
    assert [(edit.name, edit.exact) for edit in found.edits] == [("bias p", "")]
    assert found.search.after > 35
