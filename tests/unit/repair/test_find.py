"""A repair is the smallest set of edits that reaches the goal, measured on samples that it was not looked for with."""

from dataclasses import replace
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

from qdebug import data
from qdebug.arithmetic.arithmetic_file import find_arithmetic
from qdebug.arithmetic.presets import DEFAULT_PRESET
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.present.reports.repair import repair_document
from qdebug.present.reports.schema import load_schema
from qdebug.repair.find import RepairOptions, find_repair, measure_fidelity, prepare_search
from qdebug.repair.search import EditCost, choose_half
from qdebug.session import DiffSession, open_recording

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


def held_values(run):
    """Return all that a recording holds."""
    names = [("x", 0), *((name, sample) for sample in range(run.samples) for name in ("x", *"pqmsty"))]
    return {(name, sample, 0): run.load(name, sample) for name, sample in names} | {
        (name, 0, 0): run.load(name) for name in WEIGHTS
    }


def ruined(*names, by=5.0):
    return {name: WEIGHTS[name] + np.float32(by) for name in names}


def repaired(backend, labels=None, **options):
    return find_repair(DiffSession(net(), backend), RepairOptions(**options), labels=labels)


def nodes_of(found):
    return {edit.unit.node.name for edit in found.edits}


def test_two_nodes_of_which_neither_helps_alone_are_found_and_no_third():
    backend = net(**ruined("a", "b"), d=WEIGHTS["d"] + np.float32(0.01))
    assert not repaired(backend, within=25, cost=_floats(max_edits=1)).reached
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


def _floats(max_edits=32):
    return EditCost(kinds=["float"], max_edits=max_edits)


def test_a_goal_that_is_reached_already_takes_no_edit():
    found = repaired(net(d=WEIGHTS["d"] + np.float32(1e-3)), within=20)
    assert (found.reached, found.edits, found.exit_code) == (True, (), 0)


def test_what_cannot_be_reached_is_said():
    found = repaired(net(**ruined("a", "b")), within=30, cost=EditCost(kinds=["16-bit"]))
    assert (found.reached, found.exit_code, found.edits) == (False, 1, ())
    assert "no allowed edit changes" in found.notes[0]
    assert "'one' (" in found.notes[0]


def test_what_others_refute_is_not_proved():
    found = repaired(net(**ruined("a", "b")), within=25, cost=_floats())
    assert (found.exit_code, found.refuted) == (0, ())
    short = replace(found, held_out=replace(found.held_out, after=24.0))
    assert (short.exit_code, short.refuted) == (1, ("held out",))
    ran = replace(found, proof=replace(found.held_out, after=float("nan")))
    assert ran.refuted == ("model run",)
    title = repair_document(ran)[0]
    assert (title.word, "NaN dB when the changed model is run" in title.text) == ("NOT PROVED", True)


def test_a_changed_model_that_does_not_run_proves_nothing(tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"no model")
    session = DiffSession(net(), net(**ruined("a", "b")))
    options = RepairOptions(within=25, cost=_floats())
    found = find_repair(session, options, model=tmp_path / "net.onnx", out=tmp_path / "out.onnx")
    assert (found.reached, found.exit_code, found.refuted) == (True, 1, ("model run",))
    assert "was not written" in found.failed
    assert "not known for the changed model" in repair_document(found)[0].text


def test_a_gain_that_the_replay_makes_without_edits_is_no_repair():
    """The backend is wrong in a way that no replay of its nodes shows."""
    values = held_values(net())
    noise = {place: array + np.float32(1) for place, array in values.items() if place[0] in "sty"}
    backend = MemoryRecording(net().graph, {**values, **noise, ("d", 0, 0): values["d", 0, 0] + np.float32(0.01)})
    found = repaired(backend, within=25, cost=_floats())
    assert found.reached
    assert found.edits
    assert found.faithful < 20
    assert found.replayed > 25 > found.search.before
    assert (found.refuted, found.exit_code) == (("replay",), 1)
    title, facts, *_ = repair_document(found)
    assert (title.word, "(goal 25.00 dB)" in title.text) == ("NOT PROVED", True)
    assert "output-sqnr is" in str(facts)


@pytest.mark.parametrize("recorded", [0.0, np.nan, np.inf])
def test_outputs_that_are_zero_or_not_finite_are_not_called_the_same(recorded):
    values = held_values(net())
    spoilt = {place: np.full_like(array, recorded) for place, array in values.items() if place[0] == "y"}
    assert nearness(MemoryRecording(net().graph, values | spoilt)) == -np.inf


def test_how_near_a_replay_is_is_not_known_without_outputs():
    kept = {place: array for place, array in held_values(net()).items() if place[0] != "y"}
    assert np.isnan(nearness(MemoryRecording(net().graph, kept)))
    assert nearness(net()) == np.inf


def nearness(backend):
    return measure_fidelity(DiffSession(net(), backend), find_arithmetic(DEFAULT_PRESET).arithmetic, (0, 0))


def test_a_metric_that_is_infinite_of_equal_outputs_has_a_goal(tmp_path):
    (tmp_path / "own.py").write_text("def best(outputs, reference, labels):\n    return float('inf')\n")
    found = repaired(net(), metric=f"{tmp_path / 'own.py'}:best")
    assert (found.refuted, found.exit_code) == ((), 0)


def test_both_halves_have_like_errors_and_the_worst_sample_is_searched():
    reference, values = net(samples=5), {}
    for sample, error in enumerate((0.1, 0.5, 0.2, 0.4, 0.3)):
        values["y", sample, 0] = reference.load("y", sample) * np.float32(1 + error)
    backend = MemoryRecording(reference.graph, {**held_values(reference), **values})
    places = [(sample, 0) for sample in range(5)]
    assert choose_half(DiffSession(reference, backend), places) == [(0, 0), (1, 0), (2, 0)]
    values["y", 3, 0] = np.full_like(reference.load("y", 3), np.nan)
    backend = MemoryRecording(reference.graph, {**held_values(reference), **values})
    assert choose_half(DiffSession(reference, backend), places) == [(0, 0), (2, 0), (3, 0)]
    assert choose_half(DiffSession(reference, backend), places[:3]) == [(0, 0), (1, 0)]


def test_a_goal_below_the_reference_is_that_of_the_samples_it_is_measured_on(tmp_path):
    """All labels of the samples that are searched are what the reference says, and none of the others'."""
    first = "outputs['y'][:, 0].argmax(axis=-1) == labels"
    (tmp_path / "own.py").write_text(f"def right(outputs, reference, labels):\n    return ({first}).mean()\n")
    labels = np.array([net().load("y", at)[0].argmax() + wrong for at, wrong in enumerate((0, 10, 10, 0))])
    found = repaired(net(), labels, metric=f"{tmp_path / 'own.py'}:right", within=0.1)
    assert (found.search.reference, found.held_out.reference) == (1.0, 0.0)
    assert found.held_out.after < found.goal
    assert (found.reached, found.refuted) == (True, ())


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
    with pytest.raises(UsageError, match="3 labels, but 4 samples"):
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
    excluded = dear.hand_over["onnxruntime"]["nodes_to_exclude"]
    assert set(excluded) <= {node.name for node in digits[0].graph.nodes}
    assert len(excluded) == len(dear.edits)


def test_a_net_all_in_float_is_the_reference(digits):
    from qdebug.compare.graph_checks.graph_check import GraphCheck
    from qdebug.repair.edited_replay import EditedReplay
    from qdebug.repair.edits import EditCatalog
    from qdebug.replay import Arithmetic

    session = DiffSession(*digits)
    catalog = EditCatalog(GraphCheck(*digits, session.alignment.pairs), session.entries(), [(0, 0)])
    edits = [edit for name in catalog.units for edit in catalog.edits_of(name) if edit.kind == "float"]
    assert len(edits) == len(catalog.units)
    (made,) = EditedReplay(session.backend, Arithmetic()).outputs(catalog.change(edits), [(0, 0)])
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
    found = find_repair(session, RepairOptions(within=40, cost=_floats(max_edits=1)))
    assert (found.reached, found.edits) == (False, ())
    assert found.search.after == found.search.before
    assert find_repair(session, RepairOptions(within=40, cost=_floats())).reached


def test_an_output_of_another_size_is_no_goal():
    backend = net(**ruined("a"))
    cut = {(name, sample, step): backend.load(name, sample, step) for name, sample, step in _held(backend)}
    cut |= {key: array[:2] for key, array in cut.items() if key[0] == "y"}
    with pytest.raises(UsageError, match="No output of the network was compared"):
        repaired(MemoryRecording(backend.graph, cut))


def _held(run):
    return [(name, sample, 0) for name in run.names for sample in range(4) if run.has(name, sample)]


def test_what_helps_alone_is_found_where_all_at_once_miss_the_goal():
    """The errors of seven branches take back that of a node which no edit changes; that of an eighth is its own."""
    nodes = [Node(name=f"n{at}", op="Gemm", inputs=("x", f"w{at}", f"b{at}"), outputs=(f"t{at}",)) for at in range(8)]
    nodes.append(Node(name="other", op="Tanh", inputs=("x",), outputs=("other",)))
    nodes.append(Node(name="all", op="Sum", inputs=(*(f"t{at}" for at in range(8)), "other"), outputs=("y",)))
    infos = [TensorInfo(name=f"{kind}{at}", role=Role.CONSTANT) for kind in "wb" for at in range(8)]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})

    def run(own, small):
        rng, values = np.random.default_rng(0), {}
        for at in range(8):
            values[f"w{at}", 0, 0] = rng.standard_normal((6, 6)).astype(np.float32)
            values[f"b{at}", 0, 0] = np.full(6, small if at else own, np.float32)
        for sample in range(2):
            x = np.random.default_rng(sample).standard_normal((5, 6)).astype(np.float32)
            made = [x @ values[f"w{at}", 0, 0] + values[f"b{at}", 0, 0] for at in range(8)]
            other = np.tanh(x) - np.float32(7 * small + own / 50)
            values |= {(f"t{at}", sample, 0): made[at] for at in range(8)}
            values |= {("x", sample, 0): x, ("other", sample, 0): other, ("y", sample, 0): sum(made) + other}
        return MemoryRecording(graph, values)

    session = DiffSession(run(0, 0), run(0.5, 0.3))
    found = find_repair(session, RepairOptions(within=80, cost=EditCost(kinds=["bias"])))
    assert (found.reached, [edit.name for edit in found.edits]) == (False, ["bias n0"])
    assert found.search.after > found.search.before + 30
    search = prepare_search(session, RepairOptions(within=80, cost=EditCost(kinds=["bias", "float"], max_edits=10)))
    tried = watched(search)
    search.run()
    largest = max(tried, key=len)
    assert len({edit.unit.node.name for edit in largest}) == len(largest) == 8, "what is in float takes no second edit"


def watched(search):
    """Return a list that gets the sets of edits that a search tries."""
    tried, scores = [], search.trials.scores

    def noted(sets, places):
        tried.extend(map(list, sets))
        return scores(sets, places)

    search.trials.scores = noted
    return tried


def test_a_repair_goes_on_from_the_edits_of_another():
    backend = net(**ruined("a", "b"), d=WEIGHTS["d"] + np.float32(0.01))
    first = repaired(backend, within=25, cost=_floats())
    names = [edit.name for edit in first.edits]
    again = repaired(backend, within=25, cost=_floats(), start=names)
    assert nodes_of(again) == nodes_of(first)
    needless = repaired(backend, within=25, cost=_floats(), start=[*names, "float beside"])
    assert nodes_of(needless) == nodes_of(first)
    assert "dropped: 'float beside'" in needless.notes[0]
    given = repaired(backend, within=60, minutes=0, start=names)
    assert (given.reached, given.search.after) == (False, first.search.after), "what was given is measured"
    with pytest.raises(UsageError, match="has no edit"):
        repaired(backend, start=["16-bit one"])


def test_many_small_errors_are_repaired_at_once_and_what_is_not_needed_goes():
    """Twelve products in a row, each with an error of its own, and a goal that takes most of them."""
    rng = np.random.default_rng(2)
    weights = {f"w{at}": (np.linalg.qr(rng.standard_normal((6, 6)))[0]).astype(np.float32) for at in range(12)}
    nodes = [Node(name=f"n{at}", op="MatMul", inputs=(f"t{at}", f"w{at}"), outputs=(f"t{at + 1}",)) for at in range(12)]
    infos = [TensorInfo(name=name, role=Role.CONSTANT) for name in weights]
    graph = Graph(nodes, tensors=infos, inputs=("t0",), outputs=("t12",), opset={"": 17})

    def run(error):
        held = {
            name: w + np.float32(error) * rng.standard_normal(w.shape).astype(np.float32) for name, w in weights.items()
        }
        values = {(name, 0, 0): array for name, array in held.items()}
        for sample in range(2):
            t = np.random.default_rng(sample).standard_normal((4, 6)).astype(np.float32)
            values["t0", sample, 0] = t
            for at in range(12):
                values[f"t{at + 1}", sample, 0] = t = t @ held[f"w{at}"]
        return MemoryRecording(graph, values)

    session = DiffSession(run(0), run(0.02))
    found = find_repair(session, RepairOptions(within=20, cost=_floats()))
    assert (found.reached, found.minimal) == (True, True)
    assert 6 < len(found.edits) < 12
    search = prepare_search(session, RepairOptions(within=20, cost=_floats()))
    search.run()
    assert search.is_reached()
    assert search.trials.score(search.edits[:-1], search.places) < 20, "so many are needed, the worst first"
    few = find_repair(session, RepairOptions(within=20, cost=_floats(max_edits=3)))
    assert (few.reached, len(few.edits)) == (False, 3)
    assert few.search.after > few.search.before


def test_two_nodes_with_small_shares_that_gain_only_together_are_found_behind_many():
    """Eight branches make nearly all of the error. A maximum of two equal products has an error that both have."""
    branches = range(10)
    nodes = [Node(name=f"n{at}", op="MatMul", inputs=("x", f"w{at}"), outputs=(f"t{at}",)) for at in branches]
    nodes.append(Node(name="largest", op="Max", inputs=("t8", "t9"), outputs=("m",)))
    names = (*(f"t{at}" for at in range(8)), "m")
    nodes.append(Node(name="all", op="Concat", inputs=names, outputs=("y",), attrs={"axis": -1}))
    infos = [TensorInfo(name=f"w{at}", role=Role.CONSTANT) for at in branches]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})

    def run(large, small):
        rng, values = np.random.default_rng(0), {}
        for at in branches:
            weight = rng.standard_normal((6, 4)) + (large if at < 8 else small)
            values[f"w{at}", 0, 0] = weight.astype(np.float32) if at < 9 else values["w8", 0, 0]
        for sample in range(2):
            x = np.abs(np.random.default_rng(sample).standard_normal((5, 6))).astype(np.float32)
            values["x", sample, 0] = x
            values |= {(f"t{at}", sample, 0): x @ values[f"w{at}", 0, 0] for at in branches}
            values["m", sample, 0] = np.maximum(values["t8", sample, 0], values["t9", sample, 0])
            values["y", sample, 0] = np.concatenate([values[name, sample, 0] for name in names], axis=-1)
        return MemoryRecording(graph, values)

    found = find_repair(DiffSession(run(0, 0), run(50, 0.5)), RepairOptions(within=60, cost=_floats()))
    assert (found.reached, found.minimal, nodes_of(found)) == (True, True, {f"n{at}" for at in branches})


def test_no_node_is_put_in_float_as_long_as_cheaper_edits_of_all_nodes_do():
    """Eight branches make nearly all of the error, forty others a rest; each error is one that a bias takes back."""
    branches = range(48)
    nodes = [Node(name=f"n{at}", op="Gemm", inputs=("x", f"w{at}", f"b{at}"), outputs=(f"t{at}",)) for at in branches]
    nodes.append(
        Node(name="all", op="Concat", inputs=tuple(f"t{at}" for at in branches), outputs=("y",), attrs={"axis": -1})
    )
    infos = [TensorInfo(name=f"{kind}{at}", role=Role.CONSTANT) for kind in "wb" for at in branches]
    graph = Graph(nodes, tensors=infos, inputs=("x",), outputs=("y",), opset={"": 17})

    def run(large, small):
        rng, values = np.random.default_rng(0), {}
        for at in branches:
            values[f"w{at}", 0, 0] = rng.standard_normal((6, 4)).astype(np.float32)
            values[f"b{at}", 0, 0] = np.full(4, large if at < 8 else small, np.float32)
        for sample in range(2):
            x = np.random.default_rng(sample).standard_normal((5, 6)).astype(np.float32)
            made = [x @ values[f"w{at}", 0, 0] + values[f"b{at}", 0, 0] for at in branches]
            values |= {(f"t{at}", sample, 0): made[at] for at in branches}
            values |= {("x", sample, 0): x, ("y", sample, 0): np.concatenate(made, axis=-1)}
        return MemoryRecording(graph, values)

    search = prepare_search(DiffSession(run(0, 0), run(1, 0.05)), RepairOptions(within=40))
    tried = watched(search)
    search.run()
    assert search.is_reached()
    assert len(search.edits) > 8
    assert {edit.kind for edits in tried if len(edits) > 6 for edit in edits} == {"bias"}


def test_workers_find_the_same_repair(tmp_path, digits):
    from concurrent.futures import ThreadPoolExecutor

    paths = [tmp_path / f"{form}.h5" for form in ("float", "int8")]
    for path in paths:
        path.write_bytes(files(data).joinpath(f"digits.{path.name}").read_bytes())
    options = RepairOptions(within=46)
    alone = find_repair(DiffSession(*digits), options)
    shared = DiffSession(*map(open_recording, paths))
    with ThreadPoolExecutor(2) as executor:
        shared.compare_in(executor, *paths)
        found = find_repair(shared, options)
    assert [edit.name for edit in found.edits] == [edit.name for edit in alone.edits]
    assert found.search == alone.search


def test_an_output_in_codes_stays_in_codes(digits):
    from qdebug.compare.graph_checks.graph_check import GraphCheck
    from qdebug.repair.edits import EditCatalog

    session = DiffSession(*digits)
    catalog = EditCatalog(GraphCheck(*digits, session.alignment.pairs), session.entries(), [(0, 0)])
    outputs = set(session.backend.graph.outputs)
    last = [unit for unit in catalog.units.values() if not unit.tensors.isdisjoint(outputs)]
    for unit in last:
        assert not catalog.change(catalog.edits_of(unit.node.name, ("float",))).floats
    kept = [catalog.edit_named(f"float {name}") for name in catalog.units]
    assert outputs.isdisjoint(catalog.change(kept).floats)


def test_edits_that_are_not_allowed_are_no_beginning():
    backend = net(**ruined("a", "b"))
    names = ["float one", "float other"]
    with pytest.raises(UsageError, match="2 edits, but only 1 are allowed"):
        repaired(backend, start=names, cost=_floats(max_edits=1))
    with pytest.raises(UsageError, match="'float one', which is not allowed"):
        repaired(backend, start=names, cost=EditCost(kinds=["bias"]))


def test_a_file_of_the_user_that_cannot_be_read_is_told(tmp_path):
    (tmp_path / "broken.py").write_text("def score(:")
    for metric in (f"{tmp_path / 'broken.py'}:score", "./score:f"):
        with pytest.raises(UsageError, match="cannot be imported"):
            repaired(net(**ruined("a")), metric=metric)


def test_a_bias_is_written_once_after_all_that_changes_its_scale(digits, monkeypatch, tmp_path):
    from qdebug.compare.graph_checks.graph_check import GraphCheck
    from qdebug.repair import model as repair_model
    from qdebug.repair.edits import EditCatalog

    session = DiffSession(*digits)
    catalog = EditCatalog(GraphCheck(*digits, session.alignment.pairs), session.entries(), [(0, 0)])
    name = next(name for name in catalog.units if catalog.edits_of(name, ("bias",)))
    edits = [catalog.edit_named(f"bias {name}"), catalog.edit_named(f"float {name}")]
    written = []
    monkeypatch.setattr(repair_model, "edit_model", lambda model, given, out: written.extend(given))
    repair_model.write_repaired_model(tmp_path / "in.onnx", catalog, edits, tmp_path / "out.onnx")
    assert [each.bias is None for each in written] == [True, True, False]


def test_outputs_with_one_partner_are_both_measured():
    """The backend's second output is a copy of the first that went wrong; the reference has the first alone."""
    node = Node(name="product", op="MatMul", inputs=("x", "w"), outputs=("y",))
    weight = TensorInfo(name="w", role=Role.CONSTANT)
    floats = Graph([node], tensors=[weight], inputs=("x",), outputs=("y",), opset={"": 17})
    copy = Node(name="copy", op="Identity", inputs=("y",), outputs=("z",))
    twice = Graph([node, copy], tensors=[weight], inputs=("x",), outputs=("y", "z"), opset={"": 17})
    rng = np.random.default_rng(0)
    theirs = {("w", 0, 0): rng.standard_normal((4, 3)).astype(np.float32)}
    ours = dict(theirs)
    for sample in range(2):
        x = rng.standard_normal((5, 4)).astype(np.float32)
        theirs |= {("x", sample, 0): x, ("y", sample, 0): x @ theirs["w", 0, 0]}
        ours |= {("x", sample, 0): x, ("y", sample, 0): x @ theirs["w", 0, 0]}
        ours["z", sample, 0] = np.float32(1.5) * ours["y", sample, 0]
    session = DiffSession(MemoryRecording(floats, theirs), MemoryRecording(twice, ours))
    assert [session.entry(name).reference_tensor for name in ("y", "z")] == ["y", "y"]
    search = prepare_search(session, RepairOptions(within=40))
    assert search.trials.outputs == {"y": "y", "z": "z"}
    assert search.trials.score([], [(0, 0)]) == pytest.approx(20 * np.log10(2), abs=0.01)


def test_no_output_is_lost_whose_name_is_that_of_anothers_partner():
    nodes = [
        Node(name="product", op="MatMul", inputs=("x", "w"), outputs=("a",)),
        Node(name="curve", op="Tanh", inputs=("x",), outputs=("z",)),
    ]
    weight = TensorInfo(name="w", role=Role.CONSTANT)
    floats = Graph(nodes, tensors=[weight], inputs=("x",), outputs=("a", "z"), opset={"": 17})
    other = [
        nodes[0],
        Node(name="copy", op="Identity", inputs=("a",), outputs=("z",)),
        replace(nodes[1], outputs=("k",)),
    ]
    codes = Graph(other, tensors=[weight], inputs=("x",), outputs=("a", "z", "k"), opset={"": 17})
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((4, 3)).astype(np.float32), rng.standard_normal((5, 4)).astype(np.float32)
    a, curve = x @ w, np.tanh(x)
    session = DiffSession(
        MemoryRecording.single(floats, {"x": x, "w": w, "a": a, "z": curve}),
        MemoryRecording.single(codes, {"x": x, "w": w, "a": a, "z": np.float32(1.5) * a, "k": curve}),
    )
    search = prepare_search(session, RepairOptions(within=40))
    assert sorted(search.trials.outputs.values()) == ["a", "k", "z"]
    assert search.trials.score([], [(0, 0)]) < 7
