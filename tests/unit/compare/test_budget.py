"""How much of an output's error each node's own error makes: shares that can be worked out by hand."""

from dataclasses import replace
from importlib.resources import files

import jsonschema
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

import qdebug
from qdebug import data
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, TensorInfo
from qdebug.numerics.affine import dequantize, quantize
from qdebug.present.reports.budget import budget_document
from qdebug.present.reports.document import Title
from qdebug.present.reports.schema import load_schema
from qdebug.session import DiffSession, open_recording


@pytest.fixture(scope="module")
def digits():
    """The recordings of the package; results of them are not to be kept beside them."""
    return [open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")]


X = np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32)
A, B = (
    np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed, shape in ((2, (8, 9)), (3, (9, 3)))
)


def power(values):
    return float(np.sum(np.asarray(values, np.float64) ** 2))


def chain(first=0.0, second=0.0, *, weight=A, op="MatMul", samples=1):
    """Record y = (x A) B, with an error after each product."""
    nodes = [
        Node(name="first", op=op, inputs=("x", "a"), outputs=("h",)),
        Node(name="second", op="MatMul", inputs=("h", "b"), outputs=("y",)),
    ]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in "ab"]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    values = {("a", 0, 0): weight, ("b", 0, 0): B}
    for sample in range(samples):
        x = X * (sample + 1)
        hidden = (x @ weight + first).astype(np.float32)
        values |= {("x", sample, 0): x, ("h", sample, 0): hidden}
        values["y", sample, 0] = (hidden @ B + second).astype(np.float32)
    return MemoryRecording(graph, values)


@drawn(20)
@given(st.integers(0, 2**32), st.floats(0.01, 0.3), st.floats(0.01, 0.3))
def test_a_share_is_the_power_of_what_an_error_alone_makes_of_the_output(seed, one, other):
    rng = np.random.default_rng(seed)
    first, second = one * rng.standard_normal((4, 9)), other * rng.standard_normal((4, 3))
    found = qdebug.budget(chain(), chain(first, second), least=0).outputs[0]
    whole = power(first @ B + second)
    shares = {node.node: node.share for node in found.nodes}
    assert shares == pytest.approx({"first": power(first @ B) / whole, "second": power(second) / whole}, rel=1e-3)
    assert found.shares == pytest.approx(sum(shares.values()))
    assert found.left == pytest.approx(0, abs=1e-6)
    assert all(set(node.parts) == {"arithmetic"} for node in found.nodes)


def test_what_another_weight_makes_is_a_part_of_its_own():
    weight = (np.round(A * 8) / 8).astype(np.float32)
    error = 0.05 * np.random.default_rng(4).standard_normal((4, 9))
    found = qdebug.budget(chain(), chain(error, weight=weight)).outputs[0].nodes[0]
    whole = power((X @ (weight - A) + error) @ B)
    wanted = {"weights": power(X @ (weight - A) @ B) / whole, "arithmetic": power(error @ B) / whole}
    assert found.parts == pytest.approx(wanted, rel=1e-3)


def test_samples_are_summed_by_their_power():
    error = 0.1 * np.random.default_rng(4).standard_normal((4, 9))
    found = qdebug.budget(chain(samples=3), chain(error, 0.01, samples=3)).outputs[0]
    assert found.samples == 3
    assert found.nodes[0].share == pytest.approx(power(error @ B) / power(error @ B + 0.01), rel=1e-3)


def test_steps_are_no_samples():
    plain = chain(0.1), chain()
    steps = [
        MemoryRecording(run.graph, {(name, 0, step): run.load(name) for name in "xhyab" for step in range(3)})
        for run in plain
    ]
    [output] = qdebug.budget(steps[1], steps[0]).outputs
    assert (output.samples, output.steps) == (1, 3)
    [document] = [
        block.text for block in budget_document(qdebug.budget(steps[1], steps[0])) if isinstance(block, Title)
    ]
    assert "in 1 sample, 3 steps in total" in document


def test_codes_part_into_saturation_and_rounding():
    quant = QuantParams(dtype="int8", scale=np.float32(0.02), zero_point=0)

    def run(*, coded):
        names = ("x", "q", "y") if coded else ("x", "y")
        nodes = [Node(name="act", op="Tanh", inputs=("x",), outputs=(names[1],))]
        if coded:
            nodes = [
                Node(name="act", op="Tanh", inputs=("x",), outputs=("t",)),
                Node(name="quantize", op="QuantizeLinear", inputs=("t", "s", "z"), outputs=("q",)),
                Node(name="back", op="DequantizeLinear", inputs=("q", "s", "z"), outputs=("y",)),
            ]
        made = np.tanh(4 * X) * 4
        infos = [TensorInfo(name="s", role=Role.CONSTANT), TensorInfo(name="z", role=Role.CONSTANT)]
        infos = [*infos, TensorInfo(name="q", quant=quant, dtype="int8")] if coded else []
        graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
        codes = quantize(made.astype(np.float32), quant)
        held = {"x": X, "y": dequantize(codes, quant)} if coded else {"x": X, "y": made.astype(np.float32)}
        more = {"t": made.astype(np.float32), "q": codes, "s": quant.scale[0], "z": np.int8(0)} if coded else {}
        return MemoryRecording.single(graph, {**held, **more})

    # both sides give four times what a Tanh of theirs would: that is no error of either
    found = qdebug.budget(run(coded=False), run(coded=True), least=0).outputs[0]
    node = next(each for each in found.nodes if each.node == "quantize")
    made = np.tanh(4 * X) * 4
    cut = np.clip(made, -2.56, 2.54)
    whole = power(dequantize(quantize(made.astype(np.float32), quant), quant) - made)
    assert node.parts["saturation"] == pytest.approx(power(cut - made) / whole, rel=1e-3)
    assert node.parts["rounding"] < 0.01 < node.parts["saturation"]


def test_a_node_that_cannot_be_replayed_is_named_and_not_counted():
    found = qdebug.budget(chain(op="Unheard"), chain(0.1, 0.05, op="Unheard")).outputs[0]
    assert [node.node for node in found.nodes] == ["first", "second"]  # of equal inputs the whole error is its own
    assert not found.unknown
    off = chain(0.1, 0.05, op="Unheard")
    x = MemoryRecording(off.graph, {(name, 0, 0): off.load(name) + (name == "x") for name in "xhyab"})
    found = qdebug.budget(chain(op="Unheard"), x).outputs[0]
    assert [node.node for node in found.nodes] == ["second"]
    assert list(found.unknown) == ["first"]
    assert "no kernel is known for" in found.unknown["first"]


def test_nodes_above_one_that_cannot_be_replayed_are_unknown_and_none_is_called_small():
    nodes = [
        Node(name="first", op="MatMul", inputs=("x", "a"), outputs=("h",)),
        Node(name="odd", op="Unheard", inputs=("h",), outputs=("y",)),
    ]
    infos = [TensorInfo(name="a", role=Role.CONSTANT)]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
    runs = [
        MemoryRecording.single(graph, {"x": X, "a": A, "h": X @ A + error, "y": (X @ A + error) * 2})
        for error in (np.float32(0), np.random.default_rng(6).standard_normal((4, 9)).astype(np.float32))
    ]
    for least in (0.01, 1.0):
        found = DiffSession(*runs).budget(least=least).outputs[0]
        assert (found.nodes, found.below, found.pruned, found.left) == ((), 0, 0, None)
        assert set(found.unknown) == {"first", "odd"}


def test_equal_outputs_have_no_budget():
    found = qdebug.budget(chain(), chain()).outputs[0]
    assert (found.nodes, found.below, found.sqnr_db) == ((), 0, np.inf)


def test_small_nodes_are_replayed_together(digits):
    every, few = (DiffSession(*digits).budget(least=least).outputs[0] for least in (0, 0.3))
    assert [node.node for node in few.nodes] == ["conv2_quant", "logits_quant"]
    assert few.below == len(every.nodes) - 2
    assert 0 < few.pruned <= few.below
    others = sum(node.share for node in every.nodes) - sum(node.share for node in few.nodes)
    assert few.below_share == pytest.approx(others, rel=0.3)  # as independent errors have it
    assert every.left == pytest.approx(0, abs=1e-6)


def test_the_json_form_is_that_of_its_schema(digits):
    plain = DiffSession(*digits).budget().to_dict()
    jsonschema.Draft202012Validator(load_schema("budget")).validate(plain)
    assert plain["outputs"][0]["nodes"][0]["node"] == "conv2_quant"


@pytest.mark.parametrize(("parts", "said"), [({"weights": 0.9, "rounding": 0.4}, True), ({"weights": 0.5}, False)])
def test_parts_that_do_not_add_up_to_their_share_are_said_to(parts, said):
    from qdebug.cli.reports import document_text

    made = qdebug.budget(chain(), chain(first=0.1))
    nodes = tuple(replace(node, share=0.5, parts=parts) for node in made.outputs[0].nodes)
    made = replace(made, outputs=(replace(made.outputs[0], nodes=nodes),))
    drawn = document_text(budget_document(made), "table", plain=True)
    assert ("do not add up to the share" in drawn) is said


def test_an_output_that_is_not_finite_has_no_budget_and_is_not_called_right():
    from qdebug.cli.reports import document_text
    from qdebug.present.reports.budget import budget_document

    made = qdebug.budget(chain(), chain(second=np.nan))
    assert np.isnan(made.outputs[0].sqnr_db)
    assert document_text(budget_document(made), "table", plain=True).startswith("NOT FINITE")


def test_workers_give_the_same_budget(tmp_path):
    from concurrent.futures import ThreadPoolExecutor

    paths = [tmp_path / f"{form}.h5" for form in ("float", "int8")]
    for path in paths:
        path.write_bytes(files(data).joinpath(f"digits.{path.name}").read_bytes())
    alone = DiffSession(*map(open_recording, paths)).budget()
    shared = DiffSession(*map(open_recording, paths))
    with ThreadPoolExecutor(2) as executor:
        shared.compare_in(executor, *paths)
        seen = []
        assert shared.budget(progress=lambda done, total: seen.append((done, total))) == alone
    assert seen[-1][0] == seen[-1][1]


def test_a_budget_that_was_given_up_goes_on_where_it_was():
    def given_up(done, total):
        asked.append((done, total))
        if len(asked) == 2:
            raise KeyboardInterrupt

    session, kept, asked = DiffSession(chain(samples=3), chain(0.1, 0.2, samples=3)), {}, []
    whole = session.budget()
    with pytest.raises(KeyboardInterrupt):
        session.budget(kept=kept, progress=given_up)
    before = dict(kept)
    assert 0 < len(before) < 6
    assert session.budget(kept=kept) == whole
    assert all(kept[key] is found for key, found in before.items()), "what was replayed is not replayed again"
