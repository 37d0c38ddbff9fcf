"""Inputs of compared runs: random ones, those of another recording, and what fits them to another model."""

import numpy as np
import pytest

from qdebug.errors import InputError, UsageError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.running.fitted_inputs import (
    GivenInputs,
    fit_inputs,
    input_ranges,
    load_recorded_inputs,
    make_given_inputs,
    random_inputs,
    random_inputs_note,
)

RANDOM = RunInfo(backend="b", options={"inputs": "random, seed 0", "inputs_random": True})
QUANT = QuantParams(dtype="int8", scale=0.5, zero_point=3)


def info(name="x", shape=(1, 3, 4, 5), dtype="float32", quant=None):
    return TensorInfo(name=name, shape=shape, dtype=dtype, quant=quant, role=Role.INPUT)


def recording(arrays, **infos):
    tensors = [infos.get(name) or info(name, values[0].shape, values[0].dtype.name) for name, values in arrays.items()]
    held = {(name, at, 0): value for name, values in arrays.items() for at, value in enumerate(values)}
    return MemoryRecording(Graph([], tensors=tensors, inputs=list(arrays)), held)


def given(samples=None, **arrays):
    return GivenInputs(arrays=arrays, samples=samples, origin_text="test")


def test_random_inputs_are_the_same_for_one_seed_and_what_the_model_takes():
    infos = [
        info(shape=(None, 3, None)),
        info("codes", (4000,), "int8", QuantParams(dtype="int8", scale=1, qmin=-7, qmax=7)),
        info("ids", (64,), "int64"),
        info("mask", (64,), "bool"),
    ]
    made = random_inputs(infos, samples=2, seed=5)
    assert {name: (array.shape, array.dtype.name) for name, array in made.items()} == {
        "x": ((2, 1, 3, 32), "float32"),
        "codes": ((2, 4000), "int8"),
        "ids": ((2, 64), "int64"),
        "mask": ((2, 64), "bool"),
    }
    assert (made["codes"].min(), made["codes"].max()) == (-7, 7)
    assert set(made["ids"].ravel()) == {0, 1}
    again, other = random_inputs(infos, samples=2, seed=5), random_inputs(infos, samples=2, seed=6)
    assert all((made[name] == again[name]).all() for name in made)
    assert (made["x"] != other["x"]).any()


@pytest.mark.parametrize("lacking", [{"dtype": None}, {"shape": None}])
def test_no_values_are_made_for_what_is_not_known(lacking):
    with pytest.raises(InputError, match="does not state"):
        random_inputs([info(**lacking)], samples=None, seed=0)


def test_inputs_of_a_recording_are_real_values_with_an_axis_of_samples():
    codes = [np.full((1, 2), at, np.int8) for at in (3, 5, 7)]
    found = load_recorded_inputs(recording({"x": codes}, x=info("x", (1, 2), "int8", QUANT)), title="ref.h5")
    assert found.samples == 3
    assert found.arrays["x"].tolist() == [[[0, 0]], [[1, 1]], [[2, 2]]]
    assert found.origin_text == "those of ref.h5"
    random = MemoryRecording(Graph([], tensors=[info()], inputs=["x"]), {("x", 0, 0): np.zeros(2, np.float32)}, RANDOM)
    assert (
        load_recorded_inputs(random, title="ref.h5").origin_text == "random, seed 0"
    )  # of whoever is fed with them too


def test_a_run_of_steps_gives_no_inputs():
    held = {("x", 0, step): np.zeros(2, np.float32) for step in range(2)}
    with pytest.raises(UsageError, match="run of 2 steps"):
        load_recorded_inputs(MemoryRecording(Graph([], tensors=[info()], inputs=["x"]), held), title="ref.h5")


def test_values_become_codes_and_that_is_said():
    values = np.float32([[0, 0.5, 1, 100]])
    made, said = fit_inputs(given(x=values), [info("x", (1, 4), "int8", QUANT)], may_adapt=True)
    assert made["x"].tolist() == [[3, 4, 5, 127]]
    assert said == ["'x': quantized to int8 by scale 0.5 / zero point 3"]


@pytest.mark.parametrize(
    ("shape", "words"), [((1, 4, 5, 3), "channels moved last"), ((1, 5, 3, 4), "channels moved second")]
)
def test_channels_are_moved_where_that_fits(shape, words):
    values = np.arange(2 * 60, dtype=np.float32).reshape(2, 1, 3, 4, 5)
    made, said = fit_inputs(given(2, x=values), [info("x", shape)], may_adapt=True)
    assert made["x"].shape == (2, *shape)
    assert said == [f"'x': {words}"]
    moved = (0, 1, 3, 4, 2) if words.endswith("last") else (0, 1, 4, 2, 3)
    assert (made["x"] == values.transpose(moved)).all()


def test_one_input_is_paired_whatever_it_is_called_and_two_are_not():
    values = np.zeros((1, 3, 4, 5), np.float32)
    made, said = fit_inputs(given(x=values), [info("serving_x:0")], may_adapt=True)
    assert list(made) == ["serving_x:0"]
    assert said == ["'serving_x:0' gets 'x', the only input without a partner"]
    with pytest.raises(InputError, match="missing 'c', 'd', unknown 'a', 'b'; found 'a', 'b'"):
        fit_inputs(given(a=values, b=values), [info("c"), info("d")], may_adapt=True)


def test_integers_are_cast_only_if_none_changes():
    infos = [info("x", (2,), "int32")]
    made, said = fit_inputs(given(x=np.int64([1, 2])), infos, may_adapt=True)
    assert (made["x"].dtype.name, said) == ("int32", ["'x': cast from int64 to int32"])
    made, said = fit_inputs(given(x=np.int64([1, 2**40])), infos, may_adapt=True)
    assert (made["x"].dtype.name, said) == ("int64", [])


def test_inputs_that_a_person_gives_to_the_reference_are_left_as_they_are(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.zeros((1, 4), np.float64))
    found = make_given_inputs(tmp_path / "x.npz", samples=None, seed=0)
    made, said = fit_inputs(found, [info("x", (1, 4))], may_adapt=False)
    assert (made["x"].dtype.name, said, found.origin_text) == ("float64", [], "of x.npz")


def test_random_inputs_are_known_from_the_run():
    assert random_inputs_note(RunInfo(backend="b")) is None
    said = make_given_inputs(None, samples=None, seed=7).origin_text
    known = random_inputs_note(RunInfo(backend="b", options={"inputs": said, "inputs_random": True}))
    assert known == "random, seed 7: random inputs hide errors that real inputs show"
    assert random_inputs_note(RunInfo(backend="b", options={"inputs": "random_noise.npz"})) is None


def test_random_values_stay_within_what_the_codes_of_the_input_stand_for():
    quantize = Node(name="q", op="QuantizeLinear", inputs=("image", "s", "z"), outputs=("codes",))
    tensors = [
        *(TensorInfo(name=name, role=Role.CONSTANT) for name in "sz"),
        info("image", (1000,)),
        info("codes", (1000,), "int8", QUANT),
        info("own", (4,), "int8", QUANT),
    ]
    ranges = input_ranges(Graph([quantize], tensors=tensors, inputs=["image", "own"], outputs=["codes"]))
    assert ranges == {"image": (-65.5, 62.0), "own": (-65.5, 62.0)}
    made = random_inputs([info("image", (1000,))], samples=None, seed=0, ranges=ranges)["image"]
    assert (made.min() < -60, made.max() > 57, made.min() >= -65.5, made.max() <= 62) == (True,) * 4
    only = {"image": (0.0, 1.0)}
    assert random_inputs([info("x", (100,))], samples=None, seed=0, ranges=only)["x"].min() >= 0
    said = make_given_inputs(None, samples=None, seed=0, ranges=only).origin_text
    assert said == "random, seed 0, 0..1 over the range of the codes"
    wider = Node(name="c", op="Conv", inputs=("x",), outputs=("y",))
    assert input_ranges(Graph([wider], tensors=[info("x"), info("y", (9,), "int8", QUANT)], inputs=["x"])) == {}


def test_an_input_with_scales_along_its_first_axis_is_read_sample_by_sample():
    quant = QuantParams(dtype="int8", scale=[0.5, 2.0], zero_point=[0, 0], axis=0)
    held = {("x", sample, 0): np.full((2, 3), sample, np.int8) for sample in range(3)}
    graph = Graph([], tensors=[info("x", (2, 3), "int8", quant)], inputs=["x"])
    found = load_recorded_inputs(MemoryRecording(graph, held), title="ref.h5")
    assert found.arrays["x"].tolist() == [[[0.5 * sample] * 3, [2.0 * sample] * 3] for sample in range(3)]
