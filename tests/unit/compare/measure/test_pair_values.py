"""Both sides of one pair on request: real values, and the whole of the error over samples and steps."""

import numpy as np
import pytest

from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.measure.pair_values import PairReader
from qdebug.errors import UsageError
from qdebug.model import Graph, MemoryRecording, QuantParams, TensorInfo
from qdebug.numerics import large_arrays as spilled
from qdebug.numerics.profile import profile_tensor

F32 = np.float32
QUANT = QuantParams(dtype="int8", scale=F32(0.5), zero_point=1)


def recorded(name, arrays, *, quant=None):
    graph = Graph(tensors=[TensorInfo(name=name, quant=quant)], nodes=[], inputs=(name,), outputs=(name,))
    return MemoryRecording(graph, {(name, sample, step): array for (sample, step), array in arrays.items()})


def noise(shape, seed):
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


PLACES = [(0, 0), (0, 1), (2, 0), (2, 1)]
OURS = {place: noise((2, 3, 4), n) for n, place in enumerate(PLACES)}
THEIRS = {place: array + noise((2, 3, 4), 9) * F32(1e-2) for place, array in OURS.items()}
PAIR = Pair(reference="r", backend="b", match=Match.MANUAL, reason="")


@pytest.fixture
def reader():
    return PairReader(recorded("r", OURS), recorded("b", THEIRS), PAIR)


def test_all_samples_and_steps_together_are_as_one_tensor(reader):
    found = reader.profile()
    whole = profile_tensor(np.stack([*OURS.values()]), np.stack([*THEIRS.values()]))
    assert (found.sample, found.tensors, found.shape) == (None, 4, (2, 3, 4))
    assert found.errors.counts.tolist() == whole.errors.counts.tolist()
    assert found.relative.quotients.counts.tolist() == whole.relative.quotients.counts.tolist()
    assert found.reference.counts.tolist() == whole.reference.counts.tolist()
    assert found.backend.counts.tolist() == whole.backend.counts.tolist()
    assert found.ulp.counts.tolist() == whole.ulp.counts.tolist()
    ours = [(PLACES.index((e.sample, e.step)), *e.index) for e in found.worst]
    assert ours == [element.index for element in whole.worst]


def test_one_sample_with_all_its_steps(reader):
    found = reader.profile(sample=2)
    assert (found.sample, found.tensors) == (2, 2)
    assert {element.sample for element in found.worst} == {2}
    with pytest.raises(UsageError, match="no values of sample 1"):
        reader.profile(sample=1)


def test_metrics_that_are_known_are_not_computed_again(reader):
    stats = reader.profile().stats
    assert reader.profile(stats=stats).stats is stats


def test_it_stops_when_it_is_told_to(reader):
    asked = []
    for after in range(1, 9):
        asked.clear()

        def cancelled(after=after):
            asked.append(1)
            return len(asked) == after

        assert reader.profile(cancelled=cancelled) is None
        assert len(asked) == after
    assert reader.profile(cancelled=lambda: False) is not None


def test_values_are_real_and_in_the_references_order():
    codes = np.arange(6, dtype=np.int8).reshape(1, 2, 3)
    reference = recorded("r", {(0, 0): np.zeros((1, 3, 2), F32)})
    view = Transform(transpose=(0, 2, 1), clamp_low=0.0)
    pair = Pair(reference="r", backend="b", match=Match.MANUAL, reason="", backend_view=view)
    reader = PairReader(reference, recorded("b", {(0, 0): codes}, quant=QUANT), pair)
    found = reader.values(0, 0)
    assert found.backend.tolist() == [[[0.0, 1.0], [0.0, 1.5], [0.5, 2.0]]]
    assert found.backend_codes.shape == (1, 3, 2)
    assert (found.reference_codes, found.reference_quant, found.backend_quant) == (None, None, QUANT)
    assert reader.worst(1, 0, 0)[0].index == (0, 2, 1)
    assert reader.profile().worst[0].index == (0, 2, 1)


def test_what_is_turned_is_profiled_alike_from_memory_and_from_a_file(monkeypatch):
    theirs, codes = noise((2, 3, 4, 5), 1), np.rint(noise((2, 4, 5, 3), 2) * 20).astype(np.int8)
    quant = QuantParams(dtype="int8", scale=F32([0.5, 0.25, 0.1]), zero_point=[1, 0, 2], axis=3)
    pair = Pair(
        reference="r", backend="b", match=Match.MANUAL, reason="", backend_view=Transform(transpose=(0, 3, 1, 2))
    )
    both = PairReader(recorded("r", {(0, 0): theirs}), recorded("b", {(0, 0): codes}, quant=quant), pair)
    copied = both.profile(sample=0)
    monkeypatch.setattr(spilled, "SPILL_FROM", 1)
    assert not both.stored(0, 0)[1].flags.writeable, "it lies in a file"
    in_file = both.profile(sample=0)
    assert in_file.stats == copied.stats
    assert in_file.worst == copied.worst
    assert in_file.channels.rmse.tolist() == copied.channels.rmse.tolist()
    assert in_file.errors.counts.tolist() == copied.errors.counts.tolist()
