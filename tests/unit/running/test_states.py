"""Which outputs are fed back into which inputs, and that they are."""

import numpy as np
import pytest

import qdebug
from qdebug.cli.main import main
from qdebug.errors import InputError, UsageError
from qdebug.model import Graph, MemoryRecording, Node, Role, TensorInfo
from qdebug.recording.recorder import Recorder
from qdebug.running.record import record_run
from qdebug.running.states import StateFeeds, find_state_pairs, parse_state_pairs

RNG = np.random.default_rng(6)


def infos(names, shape=(1, 4), dtype="float32"):
    return [TensorInfo(name=name, shape=shape, dtype=dtype) for name in names.split()]


@pytest.mark.parametrize(
    ("inputs", "outputs", "expected"),
    [
        ("x h", "y h_out", {"h": "h_out"}),
        ("x h_in c_in", "y h_out c_out", {"h_in": "h_out", "c_in": "c_out"}),
        ("x h0 c0", "y hn cn", {"h0": "hn", "c0": "cn"}),
        ("x h_0 c_0", "y h_n c_n", {"h_0": "h_n", "c_0": "c_n"}),
        ("input state", "output stateN", {"state": "stateN"}),
        ("x past_key_values.0.key past_key_values.1.key", "y present.0.key present.1.key",
         {"past_key_values.0.key": "present.0.key", "past_key_values.1.key": "present.1.key"}),
        ("x hidden:0", "y new_hidden:0", {"hidden:0": "new_hidden:0"}),
        ("x prevState", "y nextState", {"prevState": "nextState"}),
        ("input", "output", {}),  # nothing is left of their names
        ("x a", "y b", {}),
        ("x h h_in", "y h_out", {}),  # two inputs fit
    ],
)  # fmt: skip
def test_states_are_paired_by_their_names(inputs, outputs, expected):
    assert find_state_pairs(infos(inputs), infos(outputs)) == expected


@pytest.mark.parametrize(
    ("shape", "dtype", "pairs"),
    [((1, 4), "float32", True), ((None, 4), "float32", True), ((1, 5), "float32", False), ((4,), "float32", False),
     ((1, 4), "int64", False), (None, None, True)],
)  # fmt: skip
def test_a_state_has_one_shape_and_dtype_on_either_side(shape, dtype, pairs):
    assert bool(find_state_pairs(infos("h"), infos("h_out", shape, dtype))) is pairs


def test_states_that_are_stated_name_an_output_and_an_input():
    assert parse_state_pairs(["a=b=c"], ["c"], ["a=b"]) == {"c": "a=b"}
    for wrong in (["y"], ["y=z"], ["x=y"], ["y=x", "z=x"]):
        with pytest.raises(UsageError) as caught:
            parse_state_pairs(wrong, ["x"], ["y", "z"])
        assert caught.value.hint


def step_net():
    """Return a recording of a net whose state is the sum of its inputs so far, and its constants."""
    nodes = [
        Node(name="sum", op="Add", inputs=("x", "h"), outputs=("h_out",)),
        Node(name="scale", op="Mul", inputs=("h_out", "two"), outputs=("y",)),
    ]
    tensors = [*infos("x h", (1, 3)), TensorInfo(name="two", role=Role.CONSTANT, dtype="float32", shape=())]
    tensors += infos("y h_out", (1, 3))
    graph = Graph(nodes, tensors=tensors, inputs=("x", "h"), outputs=("y", "h_out"), opset={"": 18})
    return MemoryRecording.single(graph, {"two": np.float32(2)})


@pytest.fixture
def model(tmp_path):
    net, path = step_net(), tmp_path / "net.h5"
    with Recorder(path, backend="made", graph=net.graph) as rec:
        rec.constant("two", net.load("two"))
        for name in ("x", "h", "y", "h_out"):
            rec.put(name, np.zeros((1, 3), np.float32))
    return path


X = RNG.normal(size=(2, 5, 1, 3)).astype(np.float32)


def recorded(model, inputs, **rest):
    out = model.parent / "run.h5"
    summary = record_run(model, backend="interpreter", inputs=inputs, out=out, force=True, steps=5, **rest)
    assert summary.fidelity == "bit_equal"
    return summary, qdebug.open_recording(out)


def assert_sums(recording, x, first):
    for sample in range(recording.samples):
        state = first[sample]
        for step in range(5):
            np.testing.assert_array_equal(recording.load("h", sample, step), state)
            state = x[sample, step] + state
            np.testing.assert_array_equal(recording.load("h_out", sample, step), state)
            np.testing.assert_array_equal(recording.load("y", sample, step), 2 * state)


def test_a_state_goes_from_step_to_step_and_begins_with_zeros(model):
    summary, run = recorded(model, {"x": X}, samples=2)
    assert summary.states == ("h_out -> h (from zeros)",)
    assert_sums(run, X, np.zeros((2, 1, 3), np.float32))


@pytest.mark.parametrize("shared", [True, False])
def test_a_first_value_is_one_for_all_samples_or_one_for_each(model, shared):
    first = RNG.normal(size=(1, 3) if shared else (2, 1, 3)).astype(np.float32)
    summary, run = recorded(model, {"x": X, "h": first}, samples=2, states=["h_out=h"])
    assert summary.states == ("h_out -> h",)
    assert_sums(run, X, [first, first] if shared else first)


def test_a_state_whose_array_has_steps_is_read_from_it(model):
    given = RNG.normal(size=(5, 1, 3)).astype(np.float32)
    summary, run = recorded(model, {"x": X[0], "h": given})
    assert summary.states == ()
    np.testing.assert_array_equal(run.load("h", 0, 3), given[3])


def test_what_cannot_be_fed_back_is_refused(model):
    with pytest.raises(UsageError, match="--state needs --steps"):
        record_run(model, backend="interpreter", inputs={"x": X[0, 0]}, out=model.parent / "o.h5", states=["h_out=h"])
    with pytest.raises(InputError, match="expected"):
        recorded(model, {"x": X[0], "h": np.zeros((5, 1, 3), np.float32)}, states=["h_out=h"])
    with pytest.raises(InputError, match="missing 'x'"):
        recorded(model, {})


def test_the_command_says_what_is_fed_back(model, capsys):
    np.savez(model.parent / "x.npz", x=X[0])
    words = ["record", str(model), "--backend", "interpreter", "--inputs", str(model.parent / "x.npz"), "--steps", "5"]
    assert main([*words, "-o", str(model.parent / "a.h5")]) == 0
    assert "states fed back: h_out -> h (from zeros)\n" in capsys.readouterr().err
    assert main([*words, "--state", "h_out=h", "-o", str(model.parent / "b.h5")]) == 0
    assert main([*words, "--state", "y=z", "-o", str(model.parent / "c.h5")]) == 2


@pytest.mark.parametrize("same_first", [True, False])
def test_a_state_that_is_fed_back_is_not_where_an_error_begins(same_first):
    """The error of a state came with an output of the step before, unless the first values differ."""

    def run(factor, first=0.0):
        net, values, state = step_net(), {}, np.full((1, 3), first, np.float32)
        for step in range(5):
            made = X[0, step] * np.float32(factor) + state
            values |= {("x", 0, step): X[0, step], ("h", 0, step): state, ("h_out", 0, step): made}
            values["y", 0, step], state = 2 * made, made
        return MemoryRecording(net.graph, {**values, ("two", 0, 0): np.float32(2)})

    result = qdebug.diff(run(1), run(1.5, 0.0 if same_first else 3.0))
    row = next(each for each in result.nodes if each.tensor == "h")
    assert row.metrics.sqnr_db < 20
    assert row.status == ("within" if same_first else "diverged")
    assert (result.first_divergence, result.origin) == ("sum" if same_first else "h",) * 2


def test_each_step_is_run_once_however_often_it_is_asked_for():
    class Fixed:
        samples, steps = 1, 4

        def feed(self, sample, step=0):
            return {"x": np.array(step), "h": np.array(0)}

    calls = []

    def run(feed):
        calls.append(int(feed["x"]))
        return {"h_out": feed["x"] + feed["h"]}

    feeds = StateFeeds(Fixed(), run, {"h": "h_out"})
    assert [int(feeds.feed(0, step)["h"]) for step in (0, 1, 2, 3, 3)] == [0, 0, 1, 3, 3]
    assert calls == [0, 1, 2]
    assert int(feeds.plain(0, 3)["h_out"]) == 6
    assert int(feeds.feed(0, 1)["h"]) == 0
    assert calls == [0, 1, 2, 3, 0]


def test_each_sample_begins_with_a_model_that_has_forgotten_the_one_before():
    class Fixed:
        samples, steps = 2, 2

        def feed(self, sample, step=0):
            return {"x": np.array(step), "h": np.array(0)}

    told = []
    feeds = StateFeeds(
        Fixed(), lambda feed: told.append("run") or {"o": feed["x"]}, {"h": "o"}, restart=lambda: told.append("restart")
    )
    for sample in (0, 1, 0):
        feeds.plain(sample, 1)
    assert told == ["restart", "run", "run"] * 3
