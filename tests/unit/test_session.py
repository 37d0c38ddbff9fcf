"""The session: what is compared, in which order, what is kept, and how it sums up."""

import json
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

import qdebug
import qdebug.session
from qdebug.api import diff
from qdebug.compare.result.limits import Limits
from qdebug.compare.result.result import Status
from qdebug.errors import AlignmentError, UsageError
from qdebug.model import Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.recording.reading import opening
from qdebug.recording.reading.read import FileRecording
from qdebug.running.demo import run_demo
from qdebug.session import DiffSession

QUANT = QuantParams(dtype="int8", scale=np.float32(0.25), zero_point=-3)
X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(2, 3, 4)


def recording(arrays, *, quant=None, samples=None):
    """A chain x -> a -> b, with `b` quantized on request."""
    graph = Graph(
        [
            Node(name="first", op="Relu", inputs=("x",), outputs=("a",)),
            Node(name="second", op="Neg", inputs=("a",), outputs=("b",)),
        ],
        tensors=[TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="b", role=Role.OUTPUT, quant=quant)],
        inputs=("x",),
        outputs=("b",),
    )
    keyed = {(name, s, 0): array for s in range(samples or 1) for name, array in arrays.items()}
    return MemoryRecording(graph, keyed, RunInfo(backend="test"))


def chain(*, wrong=None, quantized=False, samples=None):
    a = np.maximum(X, 0)
    b = -a
    if wrong is not None:
        a = a + wrong
    if quantized:
        b = np.rint(b / 0.25 - 3).astype(np.int8)
    return recording({"x": X, "a": a, "b": b}, quant=QUANT if quantized else None, samples=samples)


def test_identical_runs():
    result = diff(chain(), chain())
    assert result.status is Status.IDENTICAL
    assert result.exit_code == 0
    assert [(n.index, n.node, n.op, n.tensor) for n in result.nodes] == [
        (0, "x", "Input", "x"),
        (1, "first", "Relu", "a"),
        (2, "second", "Neg", "b"),
    ]
    assert result.nodes[1].metrics.sqnr_db == float("inf")


def test_first_divergence_is_a_node_and_exit_code_one():
    result = diff(chain(), chain(wrong=np.float32(3)))
    assert (result.status, result.first_divergence, result.exit_code) == (Status.DIVERGED, "first", 1)
    assert [n.status for n in result.nodes] == [Status.IDENTICAL, Status.DIVERGED, Status.IDENTICAL]


def test_codes_are_compared_as_real_numbers_and_their_rails_counted():
    result = diff(chain(), chain(quantized=True))
    node = result.nodes[2]
    assert node.status is Status.WITHIN
    assert node.metrics.max_lsb <= 0.5
    assert node.quant == QUANT
    assert node.saturation.total == 24
    assert result.nodes[1].quant is None
    assert result.nodes[1].saturation is None


def test_limits_of_the_user_replace_the_default():
    assert diff(chain(), chain(quantized=True), limits=Limits(max_lsb=0.1)).first_divergence == "second"
    assert diff(chain(), chain(quantized=True)).first_divergence is None


def test_results_are_computed_once_and_in_order():
    session = DiffSession(chain(), chain(quantized=True))
    first = list(session.results())
    assert [node.index for node in first] == [0, 1, 2]
    assert all(one is other for one, other in zip(first, session.results(), strict=True))
    assert [entry.tensor for entry in session.entries()] == ["x", "a", "b"]


def test_progress_is_told():
    seen = []
    diff(chain(), chain(), progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]


def test_each_sample_has_its_own_result_and_the_worst_is_named():
    backend = chain(samples=2)
    arrays = {(n, s, 0): backend.load(n, s) for n in ("x", "a", "b") for s in (0, 1)}
    arrays["a", 1, 0] = arrays["a", 1, 0] + np.float32(1)
    spoiled = MemoryRecording(backend.graph, arrays, backend.info)
    node = diff(chain(samples=2), spoiled).nodes[1]
    assert [s.status for s in node.samples] == [Status.IDENTICAL, Status.DIVERGED]
    assert node.metrics.worst_sample == 1


def test_samples_that_one_side_lacks_make_the_comparison_incomplete():
    result = diff(chain(samples=2), chain())
    assert (result.status, result.exit_code) == (Status.INCOMPLETE, 3)
    assert "samples" in result.shortcomings[0]
    assert diff(chain(samples=2), chain(), limits=Limits(allow_partial=True)).exit_code == 0


def test_a_shape_that_does_not_fit_is_said_and_fails():
    other = recording({"x": X, "a": np.zeros((5,), np.float32), "b": -np.maximum(X, 0)})
    result = diff(chain(), other)
    assert result.nodes[1].status is Status.INCOMPARABLE
    assert "(5,)" in result.nodes[1].reason
    assert result.exit_code == 3


def test_nothing_comparable_is_an_error():
    other = recording({name: np.zeros(5, np.float32) for name in ("x", "a", "b")})
    with pytest.raises(AlignmentError, match="None of the 2 shared tensors can be compared"):
        diff(chain(), other)


def test_values_and_worst_elements_of_one_tensor():
    session = DiffSession(chain(), chain(quantized=True))
    values = session.values("b")
    assert values.backend_quant == QUANT
    assert values.backend_codes.dtype == np.int8
    assert values.reference_codes is None
    np.testing.assert_array_equal(values.backend, 0.25 * (values.backend_codes.astype(np.float32) + 3))
    worst = session.worst("second", k=3)
    assert len(worst) == 3
    assert abs(worst[0].difference) == np.abs(values.backend - values.reference).max()


def test_a_name_that_is_not_compared_gets_near_names():
    with pytest.raises(UsageError, match="'second'"):
        DiffSession(chain(), chain()).entry("secund")


def test_an_executor_needs_paths():
    with ThreadPoolExecutor(1) as executor, pytest.raises(UsageError, match="needs paths"):
        diff(chain(), chain(), executor=executor)


def test_the_facade_hands_out_the_same_functions():
    assert qdebug.diff is diff


def test_what_is_missing_and_accepted_is_said_all_the_same():
    result = diff(chain(samples=2), chain(), limits=Limits(allow_partial=True))
    assert result.shortcomings == ()
    assert "Accepted by the limits: compared 1 of 2 samples" in result.verdict.sentence


class TestProfile:
    """One tensor in full detail, on the session."""

    def test_it_has_the_metrics_of_the_result_and_the_elements_behind_them(self):
        session = DiffSession(chain(samples=3), chain(wrong=np.float32(0.5), samples=3))
        before = session.profile("a")
        result = session.result().nodes[1]
        after = session.profile("first")
        assert before.stats == after.stats == result.metrics
        assert (after.tensors, after.sample, after.channels.axis) == (3, None, 2)
        assert after.errors.counts.sum() == result.metrics.mismatches
        assert after.worst[0].index == result.metrics.worst_index
        assert {element.sample for element in after.worst} == {0, 1, 2}

    def test_one_sample_alone(self):
        session = DiffSession(chain(samples=3), chain(wrong=np.float32(0.5), samples=3))
        found = session.profile("a", sample=2, k=4)
        assert (found.tensors, found.stats.count) == (1, X.size)
        assert {element.sample for element in found.worst} == {2}
        with pytest.raises(UsageError, match="sample 7"):
            session.profile("a", sample=7)

    def test_it_can_be_cancelled(self):
        session = DiffSession(chain(), chain())
        assert session.profile("a", cancelled=lambda: True) is None

    def test_what_is_not_compared_is_refused(self):
        with pytest.raises(UsageError, match="called 'nope'"):
            DiffSession(chain(), chain()).profile("nope")


def test_time_is_measured_and_no_part_of_the_result():
    session = DiffSession(chain(), chain(wrong=np.float32(3)))
    result = session.result()
    assert session.timing.tensors == session.total
    assert session.timing.comparing > 0
    assert "timing" not in json.dumps(result.to_dict())


def test_the_error_of_each_sample_is_split():
    result = diff(chain(samples=2), chain(wrong=np.float32(3), samples=2))
    for sample in result.nodes[1].to_dict()["samples"]:
        assert sample["introduced"]["max_abs"] == pytest.approx(3.0)
        assert sample["propagated"]["max_abs"] == 0.0
    assert result.verdict.worst_sample == 0


def test_results_do_not_depend_on_the_threads_of_blas():
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((64, 1024)).astype(np.float32) for _ in range(2))
    node = Node(name="sum", op="Add", inputs=("a", "b"), outputs=("y",))
    graph = Graph([node], inputs=("a", "b"), outputs=("y",))
    wrong = a + b
    wrong[3, 7] += 1
    sides = [MemoryRecording.single(graph, {"a": a, "b": b, "y": y}) for y in (a + b, wrong)]
    found = set()
    for threads in (1, 2, 4):
        with threadpool_limits(threads, user_api="blas"):
            found.add(diff(*sides).to_json())
    assert len(found) == 1


def test_a_worker_opens_the_files_once_for_all_its_chunks(tmp_path, monkeypatch):
    paths = [tmp_path / "ref.h5", tmp_path / "be.h5"]
    for path in paths:
        with qdebug.Recorder(path, backend="test") as recorder:
            recorder.put("t0", np.ones(4, np.float32))
            for at in range(1, 50):
                recorder.put(f"t{at}", np.full(4, at, np.float32), node=f"n{at}", op="Relu", inputs=f"t{at - 1}")
    opened = []
    for module in (opening, qdebug.session):
        monkeypatch.setattr(module, "open_recording", lambda path: opened.append(path) or FileRecording(path))
    with ThreadPoolExecutor(1) as executor:
        first = diff(*paths, executor=executor)
        assert opened == paths * 2  # here, and in the worker
        kept = tmp_path / "be.h5.qdebug-cache"
        for file in kept.iterdir():
            file.unlink()
        assert diff(*paths, executor=executor).to_json() == first.to_json()
    assert opened == paths * 4  # another comparison may be of other files under the same names


def test_who_aligns_tells_how_far_it_is(tmp_path):
    told, paths = [], run_demo(tmp_path)
    with qdebug.open_recording(paths.reference) as reference, qdebug.open_recording(paths.backend) as backend:
        DiffSession(reference, backend, on_stage=told.append)
        assert told[0] == "reading both graphs"
        pairing = [stage for stage in told if stage.startswith("pairing")]
        assert pairing[0] == "pairing tensors 0%"
        assert len(pairing) > 5
        assert told[-3:] == ["comparing layouts", "classifying unmatched tensors", "planning what to compare"]

        def leave(stage):
            raise InterruptedError(stage)

        with pytest.raises(InterruptedError, match="reading both graphs"):
            DiffSession(reference, backend, on_stage=leave)
