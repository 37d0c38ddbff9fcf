"""Accuracies are counted as argmax does, judged on paired differences, and never against the wrong samples."""

import jsonschema
import numpy as np
import pytest

from qdebug.accuracy.report import AccuracyOptions, Decision, accuracy
from qdebug.errors import UsageError
from qdebug.model import Fidelity, Graph, MemoryRecording, Node, QuantParams, Role, RunInfo, TensorInfo
from qdebug.present.reports.schema import load_schema

LABELS = np.arange(400) % 10


def run(scores, *, backend="npu", quant=None, fed=None, **facts):
    """Make a recording with a row of scores for each sample."""
    graph = Graph(
        [Node(name="n", op="Softmax", inputs=("x",), outputs=("y",))],
        tensors=[TensorInfo(name="x", role=Role.INPUT), TensorInfo(name="y", role=Role.OUTPUT, quant=quant)],
        inputs=["x"],
        outputs=["y"],
    )
    arrays = {("y", sample, 0): row for sample, row in enumerate(scores)}
    arrays |= {
        ("x", sample, 0): np.full(3, sample if fed is None else fed, np.float32) for sample in range(len(scores))
    }
    return MemoryRecording(graph, arrays, RunInfo(backend=backend, **facts))


def scores(labels=LABELS, wrong=0, classes=10):
    """Return rows whose label is first, but for the first few rows, in which the next class is."""
    rows = np.eye(classes, dtype=np.float32)[labels]
    rows[:wrong] = np.roll(rows[:wrong], 1, axis=1)
    return rows


def codes(rows):
    return (rows * 100).astype(np.int8)


QUANT = QuantParams(dtype="int8", scale=0.01)


def measured(*runs, labels=LABELS, **options):
    return accuracy({f"run{at}": each for at, each in enumerate(runs)}, labels, AccuracyOptions(**options))


def test_a_loss_far_beyond_the_margin_is_worse_and_one_near_it_is_not_decided():
    float_run = run(scores())
    report = measured(float_run, run(codes(scores(wrong=40)), quant=QUANT))
    (pair,) = report.pairs
    loss = pair.losses[0]
    assert (loss.name, loss.value, loss.lost, loss.won, loss.decision) == ("top-1", 0.1, 40, 0, Decision.WORSE)
    assert (pair.agreement, pair.worst_rank, report.exit_code, report.verdict) == (0.9, 10, 1, "worse")
    near = measured(float_run, run(codes(scores(wrong=1)), quant=QUANT))
    assert (near.verdict, near.exit_code) == ("undecided", 0)
    assert near.pairs[0].losses[0].needed > 400
    assert measured(float_run, run(codes(scores(wrong=1)), quant=QUANT), within=0.05).verdict == "within"
    jsonschema.validate(near.to_dict(), load_schema("accuracy"))


def test_a_quantized_run_is_held_against_the_float_run_of_its_own_backend_and_against_the_first():
    runs = [run(scores()), run(scores(), backend="gpu"), run(codes(scores()), backend="gpu", quant=QUANT)]
    pairs = [(pair.reference.file, pair.backend.file, pair.same_backend) for pair in measured(*runs).pairs]
    assert pairs == [("run0", "run1", False), ("run1", "run2", True), ("run0", "run2", False)]
    twice = measured(*runs[2:], *runs[2:])
    assert [(pair.reference, pair.backend) for pair in twice.pairs] == [twice.runs]


def test_equal_scores_are_ordered_as_argmax_does_and_what_that_hides_is_said():
    rows = np.zeros((400, 10), np.float32)
    report = measured(run(rows))
    (top1, top5) = report.runs[0].measures
    assert top1.value == np.mean(rows.argmax(axis=1) == LABELS)
    assert (top1.ties, top5.value) == ((0.0, 1.0), 0.5)
    assert "top-1 is between 0.00 % and 100.00 %" in report.notes[0]


def test_a_row_with_a_nan_has_no_winner():
    rows = scores()
    rows[3, 5] = np.nan
    report = measured(run(scores()), run(rows))
    assert report.runs[1].broken == 1
    assert report.runs[1].measures[0].value == 399 / 400
    assert report.pairs[0].agreement == 399 / 400


def test_few_classes_have_no_top_5_and_extents_of_1_are_no_classes():
    report = measured(run(scores(LABELS % 3, classes=3)[:, np.newaxis, :, np.newaxis, np.newaxis]), labels=LABELS % 3)
    assert [measure.name for measure in report.runs[0].measures] == ["top-1"]
    assert (report.runs[0].rows, report.runs[0].classes) == (400, 3)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (LABELS[:399], "There are 399 labels, but 'run0' has 400 rows"),
        (np.append(LABELS, 1), "There are 401 labels"),
        (np.where(LABELS == 3, 10, LABELS), "Label 10 of row 3 is not one of the 10 classes"),
        (np.where(LABELS == 3, -1, LABELS), "Label -1 of row 3"),
        (np.where(LABELS == 3, np.nan, LABELS), "Label nan of row 3"),
        (LABELS + 0.5, "Label 0.5 of row 0"),
        (np.eye(10)[LABELS], "There are 4000 labels"),
        (LABELS.astype(str), "are not class numbers"),
        (None, "Top-k accuracy needs labels"),
    ],
)
def test_labels_that_do_not_fit_are_refused(labels, said):
    with pytest.raises(UsageError, match=said):
        measured(run(scores()), labels=labels)


def test_runs_of_other_samples_are_refused_or_told():
    with pytest.raises(UsageError, match="There are 400 labels, but 'run1' has 399 rows of scores"):
        measured(run(scores()), run(scores()[:399]))
    report = measured(run(scores()), run(scores(), fed=7))
    assert "check that both have the same samples in the same order" in " ".join(report.notes)
    assert not measured(run(scores()), run(scores())).notes[1:]


def test_a_run_that_cannot_be_relied_on_is_code_3():
    for facts, allowed in (
        ({"complete": False}, "allow_partial"),
        ({"fidelity": Fidelity.DIFFERS}, "allow_unfaithful"),
    ):
        runs = run(scores()), run(scores(), **facts)
        assert measured(*runs).exit_code == 3
        assert measured(*runs, **{allowed: True}).exit_code == 0


def test_any_function_is_a_measure_with_an_interval_of_its_loss(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(
        "def share(outputs, reference, labels):\n    return (outputs['y'].argmax(axis=-1) == labels).mean()\n"
    )
    report = measured(run(scores()), run(codes(scores(wrong=40)), quant=QUANT), metric=f"{path}:share")
    (loss,) = report.pairs[0].losses
    assert (loss.value, loss.margin) == (pytest.approx(0.1), 0.005)
    assert (loss.decision, report.exit_code) == (Decision.WORSE, 1)
    assert [each.measures[0].value for each in report.runs] == [1.0, 0.9]
    one = measured(run(scores()[:1]), run(scores()[:1]), labels=LABELS[:1], metric=f"{path}:share")
    assert one.verdict == "undecided"
    jsonschema.validate(one.to_dict(), load_schema("accuracy"))
    with pytest.raises(UsageError, match="'run1' has 399 samples, but 'run0' has 400"):
        measured(run(scores()), run(scores()[:399]), labels=None, metric="output-sqnr")


def test_a_metric_keeps_the_value_of_the_run_it_was_measured_of(tmp_path):
    (tmp_path / "off.py").write_text(
        "import numpy as np\n"
        "def off(outputs, reference, labels):\n"
        "    return -float(np.abs(outputs['y'] - reference['y']).mean())\n"
    )
    one, other = run(scores(), backend="one"), run(scores() + np.float32(0.5), backend="other")
    third = run(codes(scores()), backend="other", quant=QUANT)
    report = measured(one, other, third, metric=f"{tmp_path / 'off.py'}:off")
    assert [each.measures[0].value for each in report.runs][:2] == [0.0, pytest.approx(-0.5)]


def test_a_metric_that_is_infinite_for_the_reference_is_refused():
    with pytest.raises(UsageError, match="infinite"):
        measured(run(scores()), run(scores()), metric="output-sqnr")
