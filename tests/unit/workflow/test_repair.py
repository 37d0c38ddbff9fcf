"""A repair is the smallest set of edits that reaches the goal, measured on samples that it was not looked for with."""

from importlib.resources import files

import jsonschema
import numpy as np
import pytest

from qdebug import data
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.present.reports.schema import load_schema
from qdebug.session import DiffSession, open_recording
from qdebug.workflow.repair import RepairOptions, find_repair
from qdebug.workflow.repair_search import EditCost

RNG = np.random.default_rng(5)
WEIGHTS = {name: RNG.standard_normal((6, 6)).astype(np.float32) / 2 for name in "abcd"}


def net(samples=4, **other):
    """Record max(x a, x b) c + x d: an error that both branches have is in the maximum as long as one has it."""
    nodes = [
        Node(name="one", op="MatMul", inputs=("x", "a"), outputs=("p",)),
        Node(name="other", op="MatMul", inputs=("x", "b"), outputs=("q",)),
        Node(name="largest", op="Max", inputs=("p", "q"), outputs=("m",)),
        Node(name="after", op="MatMul", inputs=("m", "c"), outputs=("s",)),
        Node(name="beside", op="MatMul", inputs=("x", "d"), outputs=("t",)),
        Node(name="sum", op="Add", inputs=("s", "t"), outputs=("y",)),
    ]
    graph = Graph(
        nodes,
        tensors=[TensorInfo(name=name, role=Role.CONSTANT) for name in WEIGHTS],
        inputs=("x",),
        outputs=("y",),
        opset={"": 17},
    )
    weights = WEIGHTS | other
    values = {(name, 0, 0): array for name, array in weights.items()}
    for sample in range(samples):
        x = np.abs(np.random.default_rng(sample).standard_normal((3, 6))).astype(np.float32)
        p, q = x @ weights["a"], x @ weights["b"]
        m, t = np.maximum(p, q), x @ weights["d"]
        made = {"x": x, "p": p, "q": q, "m": m, "s": m @ weights["c"], "t": t, "y": m @ weights["c"] + t}
        values |= {(name, sample, 0): array for name, array in made.items()}
    return MemoryRecording(graph, values)


def ruined(*names, by=5.0):
    return {name: WEIGHTS[name] + np.float32(by) for name in names}


def repaired(backend, labels=None, **options):
    return find_repair(DiffSession(net(), backend), RepairOptions(**options), labels=labels)


def nodes_of(found):
    return {edit.unit.node.name for edit in found.edits}


def test_two_nodes_of_which_neither_helps_alone_are_found_and_no_third():
    backend = net(**ruined("a", "b"), d=WEIGHTS["d"] + np.float32(0.01))
    assert not repaired(backend, within=25, cost=_floats(most=1)).reached
    found = repaired(backend, within=25, cost=_floats())
    assert (found.reached, found.minimal) == (True, True)
    assert nodes_of(found) == {"one", "other"}
    assert found.search.before < 0 < 25 <= found.search.after
    assert (found.search.samples, found.held_out.samples) == (2, 2)
    assert found.held_out.after > 25


def test_what_is_small_beside_the_worst_is_found_once_that_is_repaired():
    backend = net(**ruined("a", "b"), d=WEIGHTS["d"] + np.float32(0.01))
    found = repaired(backend, within=60, cost=_floats())
    assert (found.reached, nodes_of(found)) == (True, {"one", "other", "beside"})


def _floats(most=32):
    return EditCost(kinds=["float"], most=most)


def test_a_goal_that_is_reached_already_takes_no_edit():
    found = repaired(net(d=WEIGHTS["d"] + np.float32(1e-3)), within=20)
    assert (found.reached, found.edits, found.exit_code) == (True, (), 0)


def test_what_cannot_be_reached_is_said():
    found = repaired(net(**ruined("a", "b")), within=30, cost=EditCost(kinds=["16-bit"]))
    assert (found.reached, found.exit_code, found.edits) == (False, 1, ())


def test_a_repair_that_runs_out_of_time_gives_what_it_has():
    found = repaired(net(**ruined("a", "b")), within=30, minutes=0)
    assert not found.reached
    assert "time" in found.stopped


def test_a_repair_that_is_interrupted_gives_what_it_has():
    def stop(done, total, label):
        raise KeyboardInterrupt

    session = DiffSession(net(), net(**ruined("a", "b")))
    found = find_repair(session, RepairOptions(within=30), progress=stop)
    assert (found.reached, found.stopped) == (False, "interrupted")


def test_a_metric_of_the_user_is_called_with_both_runs_and_the_labels(tmp_path):
    (tmp_path / "own.py").write_text(
        "import numpy as np\n"
        "def score(outputs, reference, labels):\n"
        "    assert outputs['y'].shape == reference['y'].shape == (len(labels), 3, 6)\n"
        "    return -float(np.abs(outputs['y'] - reference['y']).max())\n"
    )
    backend = net(**ruined("d"))
    found = repaired(backend, np.arange(4), metric=f"{tmp_path / 'own.py'}:score", within=1e-3)
    assert (found.goal, found.reached, nodes_of(found)) == (-1e-3, True, {"beside"})
    for wrong in ("nothing", f"{tmp_path / 'none.py'}:score", f"{tmp_path / 'own.py'}:other"):
        with pytest.raises(UsageError):
            repaired(backend, metric=wrong)
    with pytest.raises(UsageError, match="3 labels and 4 samples"):
        repaired(backend, np.arange(3), metric="top1")


@pytest.fixture(scope="module")
def digits():
    return [open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")]


def test_a_net_on_codes_is_repaired_by_the_cheapest_edits(digits):
    session = DiffSession(*digits)
    found = find_repair(session, RepairOptions(within=46))
    assert (found.reached, found.minimal, found.faithful) == (True, True, np.inf)
    dear = find_repair(session, RepairOptions(within=46, cost=EditCost(kinds=["float"])))
    assert dear.reached
    assert sum(edit.macs for edit in found.edits) < sum(edit.macs for edit in dear.edits)
    jsonschema.Draft202012Validator(load_schema("repair")).validate(found.to_dict())
    excluded = dear.hand_over()["onnxruntime"]["nodes_to_exclude"]
    assert set(excluded) <= {node.name for node in digits[0].graph.nodes}
    assert len(excluded) == len(dear.edits)


def test_a_net_all_in_float_is_the_reference(digits):
    from qdebug.compare.graph_checks.graph_check import GraphCheck
    from qdebug.replay import Arithmetic
    from qdebug.workflow.edited_replay import EditedReplay
    from qdebug.workflow.repair_edits import EditCatalog

    session = DiffSession(*digits)
    catalog = EditCatalog(GraphCheck(*digits, session.alignment.pairs), session.entries(), [(0, 0)])
    edits = [edit for name in catalog.units for edit in catalog.edits_of(name) if edit.kind == "float"]
    assert len(edits) == len(catalog.units)
    made = EditedReplay(session.backend, Arithmetic()).outputs(catalog.change(edits), (0, 0))
    reference = digits[0].load("logits")
    off = np.linalg.norm(made["logits"] - reference) / np.linalg.norm(reference)
    assert off < 0.01  # the input is still in codes


def test_edits_that_led_nowhere_are_not_kept():
    """Two errors cancel each other: either alone in float makes the output worse."""

    def run(first, second):
        nodes = [
            Node(name="one", op="MatMul", inputs=("x", "a"), outputs=("p",)),
            Node(name="other", op="MatMul", inputs=("x", "b"), outputs=("q",)),
            Node(name="sum", op="Add", inputs=("p", "q"), outputs=("y",)),
        ]
        infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in "ab"]
        graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})
        a, b = WEIGHTS["a"] + np.float32(first), WEIGHTS["b"] + np.float32(second)
        values = {("a", 0, 0): a, ("b", 0, 0): b}
        for sample in range(2):
            x = np.abs(np.random.default_rng(sample).standard_normal((3, 6))).astype(np.float32)
            made = {"x": x, "p": x @ a, "q": x @ b, "y": x @ a + x @ b}
            values |= {(name, sample, 0): array for name, array in made.items()}
        return MemoryRecording(graph, values)

    session = DiffSession(run(0, 0), run(5, -4.9))
    found = find_repair(session, RepairOptions(within=40, cost=_floats(most=1)))
    assert (found.reached, found.edits) == (False, ())
    assert found.search.after == found.search.before
    assert find_repair(session, RepairOptions(within=40, cost=_floats())).reached
