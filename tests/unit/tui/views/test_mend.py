"""Edits that are marked: over several nodes, in place of one another, with the outputs, and as a file for a repair."""

import json
import re
from dataclasses import replace
from importlib.resources import files

import pytest

from qdebug import data
from qdebug.cli.repair import _earlier_edits
from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, OutputGain, Remedy
from qdebug.errors import UsageError
from qdebug.session import DiffSession, open_recording
from qdebug.tui.reading.messages import EditWish, TrialReady, TrialRequest
from qdebug.tui.reading.trials import EditFacts, Trials
from qdebug.tui.screen.exports import prepare_export
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.mend import MendView


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


@pytest.fixture(scope="module")
def session():
    return DiffSession(*(open_recording(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8")))


@pytest.fixture
def looked(session, make_scene):
    """Return a page, and a function that gives the scene on a tensor with what the reader tells of it and the marks."""
    page, told, opened = MendView(), [], make_scene().opened
    trials = Trials(told.append)

    def look(row, tensor, diagnosis=()):
        scene = replace(make_scene(row=row), opened=opened)
        scene = replace(scene, result=replace(scene.result, diagnosis=diagnosis))
        scene.table.diagnosis = dict(enumerate(diagnosis, 1))
        scene.navigator.choose_sample(None)
        request = TrialRequest(row=row, tensor=tensor, wish=page.trial(scene))
        trials.answer(session, request, lambda: False)
        return replace(scene, trial=told[-1])

    return page, look


def test_what_a_replay_gains_without_edits_is_said(session, make_scene, louder):
    """The recorded output is not what the net's nodes give: a replay of them alone is nearer to the reference."""
    run = session.backend
    off = DiffSession(session.reference, louder(run))
    page, told = MendView(), []
    scene = make_scene(row=3)
    scene.navigator.choose_sample(None)
    page._marks[0] = [f"float {next(node.name for node in run.graph.nodes if node.op == 'QLinearConv')}"]
    request = TrialRequest(row=3, tensor=tensors(session)[0], wish=page.trial(scene))
    Trials(told.append).answer(off, request, lambda: False)
    facts = told[-1].edits
    titles = next(line.split() for line in text(page.draw(replace(scene, trial=told[-1]), 120, 30)).splitlines()[1:])
    assert titles[-5:] == ["recorded", "replay", "with", "1", "edit"], "what the gains are over stands beside it"
    assert 5 < facts.unedited_effect.outputs[0].now.sqnr_db < 7
    assert facts.unedited_effect.outputs[0].trial.sqnr_db > 20
    drawn = " ".join(text(page.draw(replace(scene, trial=told[-1]), 100, 30)).split())
    assert re.search(
        r"the worst output has \d\d[.\d]* dB in a replay without edits, and [56][.\d]* dB as recorded: the replay",
        drawn,
    )
    page._marks[0] = []
    request = replace(request, wish=page.trial(scene))
    Trials(told.append).answer(off, request, lambda: False)
    first = next(part for part in told[-12:] if part.request is request and part.edits and part.edits.gains)
    assert first.edits.unedited_effect is not None, "known before any gain is"
    drawn = " ".join(text(page.draw(replace(scene, trial=told[-1]), 100, 30)).split())
    assert "dB as recorded: " in drawn
    assert "no edit is chosen" not in drawn


def tensors(session):
    return [entry.tensor for entry in session.entries() if entry.op == "QLinearConv"][:2]


def test_marks_on_two_nodes_are_replayed_together(looked, session, tmp_path):
    page, look = looked
    first, second = tensors(session)
    scene = look(1, first)
    drawn = text(page.draw(scene, 90, 24))
    assert "no edit is chosen" in drawn
    assert re.search(r"\[ \]\s+16-bit", drawn)
    gains = scene.trial.edits.gains
    assert gains.keys() == {edit.name for edit in scene.trial.edits.edits}
    assert f"{gains[scene.trial.edits.edits[0].name]:+.2f}" in drawn
    assert "gain: dB that the edit adds to the worst output, over all 3 samples" in drawn
    assert "bias" in page.mark(scene)
    assert "replaying" in text(page.draw(scene, 90, 24)), "what was told is without the mark"
    one = look(1, first).trial.edits.effect
    added = gains[scene.trial.edits.edits[0].name]
    line = next(line for line in text(page.draw(look(1, first), 90, 24)).splitlines() if "[x]" in line)
    assert line.rstrip().endswith(f"{added:+.2f}"), "what it added when it was chosen"
    page.move(scene, 1)
    assert "range" in page.mark(scene), "the answer is of other marks"
    scene = look(1, first)
    both = scene.trial.edits.effect.outputs[0].trial.sqnr_db
    added_now = [line[-1] for line in page.table(scene)[1] if line[0]]
    assert added_now[1] == pytest.approx(both - one.outputs[0].trial.sqnr_db), "what it adds to the other one"
    marked = [line for line in text(page.draw(scene, 90, 24)).splitlines() if "[x]" in line]
    assert [float(line.split()[-1]) for line in marked] == pytest.approx(added_now, abs=0.005)
    assert "+0.00" not in drawn
    assert "-0.00" not in drawn
    page.mark(scene)
    page.move(scene, -1)
    scene = look(2, second)
    page.move(scene, 1)
    page.mark(scene)
    scene = look(2, second)
    effect, drawn = scene.trial.edits.effect, text(page.draw(scene, 90, 24))
    assert effect.outputs[0].trial != one.outputs[0].trial
    assert "with 2 edits" in drawn
    assert "1 sample " in drawn
    assert "without edits the replay reproduces the recorded outputs of the first sample bit for bit" in " ".join(
        drawn.split()
    )
    assert drawn.count("[x]") == 2

    path, write = prepare_export(str(tmp_path / "marks.json"), scene, screenshot=str, view=page)
    assert page.command(scene, ("a", "b")) is None, "nothing is written yet"
    assert write(session, path) == "the edits; Y copies the command that goes on with them"
    assert "chosen in the terminal" in json.loads(path.read_text())["stopped"]
    assert set(_earlier_edits(path)) == set(page.trial(scene).edits)
    assert json.loads(path.read_text())["search"]["samples"] == 1
    assert page.command(scene, ("a", "b")) == ["qdebug", "repair", "a", "b", "--resume", str(path)]
    path.write_text("{}")
    assert page.command(scene, ("a", "b")) is None, "something else is in the file"
    path.unlink()
    write(session, path)
    page.move(scene, 100)
    assert "no longer chosen" in page.mark(scene)
    assert len(page.trial(scene).edits) == 1
    assert page.command(scene, ("a", "b")) is None, "other marks are in the file"
    kept = page.trial(scene).edits
    page.reset(scene)
    assert page.trial(scene).edits == ()
    assert "chosen again" in page.reset(scene)
    assert page.trial(scene).edits == kept
    page.reset(scene)
    with pytest.raises(UsageError, match="No edit is chosen"):
        prepare_export(str(tmp_path / "none.json"), scene, screenshot=str, view=page)


@pytest.fixture
def diagnosed(looked, session):
    """Return a page, and a function that gives the scene on a node of a diagnosis of two, with what was tried."""
    page, look = looked
    names = [next(edit.name for edit in look(row + 1, tensor).trial.edits.edits if edit.kind == "float")
             for row, tensor in enumerate(tensors(session))]  # fmt: skip

    def on(at, *tried):
        output = session.backend.graph.outputs[0]
        remedies = [
            Remedy(edit=edit, what="", gains=(OutputGain(output=output, db=gain),), samples=1, cost="", command="",
                   nodes=None if edit == "kernel" else len(edit.split(", ")))
            for edit, gain in tried
        ]  # fmt: skip
        faults = tuple(
            Diagnosis(fault=FaultClass.QUANTIZATION, kind=None, node=tensor, op="QLinearConv", tensor=tensor,
                      model_node=None, why="", share={output: 0.5}, remedies=tuple(remedies[row::2]))
            for row, tensor in enumerate(tensors(session))
        )  # fmt: skip
        return look(at + 1, tensors(session)[at], faults)

    return page, on, names


def test_x_tries_the_set_of_edits_that_the_first_screen_suggests(diagnosed):
    page, on, (first, second) = diagnosed
    tried = (("16-bit a", 3.0), ("kernel", 30.0), (f"{first}, {second}", 8.5))
    assert "2 edits chosen, as the first screen suggests" in page.try_best(on(0, *tried))
    assert set(page.trial(on(0, *tried)).edits) == {first, second}
    page.reset(on(1))
    assert "once they are known" in page.try_best(replace(on(1, *tried), result=None)), "the verdict is to come"
    assert not page.trial(on(1)).edits
    page.try_best(on(1, *tried))
    assert set(page.trial(on(1)).edits) == {first, second}, "the second node is in the set too"
    assert "chosen already" in page.try_best(on(1, *tried))


def test_x_tries_the_edit_that_is_suggested_though_another_gains_more(diagnosed):
    page, on, _ = diagnosed
    edits = on(0).trial.edits
    suggested = min(edits.gains, key=edits.gains.get)
    page.try_best(on(0, (suggested, 3.0)))
    assert page.trial(on(0)).edits == (suggested,)


def test_x_tries_the_edits_of_all_nodes(diagnosed):
    page, on, _ = diagnosed
    page.try_best(on(0, ("float *", 3.0)))
    assert page.trial(on(0)).edits == ("float *",)
    scene = on(0)
    page._name_marks(scene)
    named = page.trial(scene).edits
    assert len(named) > 2
    assert all(name.startswith("float ") for name in named)
    assert "*" not in "".join(named)


def with_gains(scene, gains):
    edits = scene.trial.edits
    known = dict(zip((edit.name for edit in edits.edits), gains, strict=False))
    return replace(scene, trial=replace(scene.trial, edits=replace(edits, gains=known)))


def test_x_tries_the_cheapest_of_the_best_edits_of_a_node_without_a_suggestion(diagnosed):
    page, on, _ = diagnosed
    scene = with_gains(on(0), [0.1, 3.001, 3.002, float("nan")])
    page.try_best(scene)
    assert page.trial(scene).edits == (scene.trial.edits.edits[1].name,), "both are shown as +3.00"


def test_x_chooses_no_edit_that_does_not_help(diagnosed):
    page, on, _ = diagnosed
    scene = with_gains(on(0), [0.1, 0.49, -2.0, float("nan")])
    best = scene.trial.edits.edits[1].kind
    assert page.try_best(scene) == f"no edit of {scene.trial.edits.node} helps: the best is {best}, +0.49 dB"
    assert page.trial(scene).edits == ()
    scene = with_gains(on(0), [])
    assert page.try_best(scene) == "the gain of its edits is not known; space chooses one"


def test_gains_are_of_the_output_that_the_shares_are_of(diagnosed):
    page, on, _ = diagnosed
    scene = on(0)
    (output,) = scene.result.diagnosis[0].share
    assert page.trial(scene).output == output
    drawn = text(page.draw(scene, 100, 24))
    assert f"gain of {output}" in drawn
    assert f"gain: dB that the edit adds to {output}, " in drawn


def test_an_edit_takes_the_place_of_those_that_it_undoes_and_that_undo_it(looked, session):
    page, look = looked
    scene = look(1, tensors(session)[0])
    kinds = [edit.kind for edit in scene.trial.edits.edits]
    for kind, left in (("bias", {"bias"}), ("float", {"float"}), ("16-bit", {"16-bit"}), ("bias", {"16-bit", "bias"})):
        page.move(scene, -100)
        page.move(scene, kinds.index(kind))
        page.mark(scene)
        assert {name.split()[0] for name in page.trial(scene).edits} == left


def test_the_gain_of_an_edit_is_not_that_over_the_one_it_replaced(looked, session):
    page, look = looked
    scene = look(1, tensors(session)[0])
    kinds = [edit.kind for edit in scene.trial.edits.edits]
    over_none = dict(zip(kinds, (scene.trial.edits.gains[edit.name] for edit in scene.trial.edits.edits), strict=True))
    for kind in ("16-bit", "float"):
        page.move(scene, -100)
        page.move(scene, kinds.index(kind))
        page.mark(scene)
        scene = look(1, tensors(session)[0])
    assert [line[-1] for line in page.table(scene)[1] if line[0]] == [pytest.approx(over_none["float"])]


def test_an_edit_that_would_replace_a_chosen_one_says_that_its_gain_is_instead_of_it(looked, session):
    page, look = looked
    scene = look(1, tensors(session)[0])
    alone = scene.trial.edits.gains
    kinds = [edit.kind for edit in scene.trial.edits.edits]
    assert "instead" not in text(page.draw(scene, 100, 24))
    page.move(scene, kinds.index("16-bit"))
    page.mark(scene)
    scene = look(1, tensors(session)[0])
    drawn = text(page.draw(scene, 100, 24))
    (line,) = (line for line in drawn.splitlines() if re.match(r"\W*\[ \]\s+float ", line))
    chosen, other = (alone[f"{kind} {scene.trial.edits.node}"] for kind in ("16-bit", "float"))
    word, gain = line.split()[-2:]
    assert word == "instead"
    assert float(gain) == pytest.approx(other - chosen, abs=0.01), "what it adds once the chosen one is gone"
    assert "instead: in place of the chosen edit that it replaces" in " ".join(drawn.split())
    (chosen_line,) = (line for line in drawn.splitlines() if "[x]" in line)
    assert "instead" not in chosen_line
    titles, rows = page.table(scene)
    replaced = {row[titles.index("kind")]: row[titles.index("instead_of")] for row in rows}
    assert replaced["float"] == f"16-bit {scene.trial.edits.node}"
    assert not replaced["bias"], "it is made beside the other one"


@pytest.mark.parametrize(
    ("samples", "sample", "scope", "title"),
    [
        (3, None, "over all 3 samples", "gain dB"),
        (3, 0, "in sample 0 alone", "gain in sample 0"),
        (1, None, "in the one sample", "gain dB"),
    ],
)
def test_gains_say_over_which_samples_they_are(looked, session, samples, sample, scope, title):
    page, look = looked
    scene = look(1, tensors(session)[0])
    scene.navigator.samples = samples
    scene.navigator.choose_sample(sample)
    drawn = " ".join(text(page.draw(scene, 100, 24)).split())
    assert f"gain: dB that the edit adds to the worst output, {scope}" in drawn
    assert title in drawn


def test_a_sample_that_is_chosen_is_replayed_alone(looked, session):
    page, look = looked
    scene = look(1, tensors(session)[0])
    page.mark(scene)
    for sample, seen in ((0, "sample 0 "), (2, "nothing of sample 2")):
        scene.navigator.choose_sample(sample)
        told = []
        request = TrialRequest(row=1, tensor=tensors(session)[0], wish=page.trial(scene))
        Trials(told.append).answer(session, request, lambda: False)
        assert seen in text(page.draw(replace(scene, trial=told[-1]), 90, 24))


def test_what_cannot_be_changed_says_so(looked, session):
    page, look = looked
    scene = look(1, session.backend.graph.inputs[0])
    assert "no edit changes this tensor" in page.mark(scene)
    assert "no edit changes this tensor" in text(page.draw(scene, 90, 24))
    assert page.enter(scene) is ScreenId.TENSOR


@pytest.mark.parametrize("size", [(60, 9), (60, 11), (80, 19), (160, 40)])
def test_it_fits_with_the_chosen_edit_in_sight(looked, session, size):
    page, look = looked
    width, height = size
    scene = look(1, tensors(session)[0])
    page.mark(scene)
    scene = look(1, tensors(session)[0])
    for _ in scene.trial.edits.edits:
        lines = page.draw(scene, width, height)
        assert len(lines) <= height
        assert all(len("".join(piece for piece, _ in line)) <= width for line in lines)
        assert any(style == "cursor" for line in lines for _, style in line)
        page.move(scene, 1)


def test_before_the_edits_of_a_node_are_known_nothing_is_chosen_or_taken_back(looked, session, make_scene):
    page, look = looked
    page.mark(look(1, tensors(session)[0]))
    waiting = replace(make_scene(row=2), trial=None)
    for act in (page.mark, lambda scene: page.move(scene, 1)):
        assert act(waiting) == "its edits are not known yet"
    assert len(page.trial(waiting).edits) == 1
    page.draw(waiting, 90, 24)
    scene = look(2, tensors(session)[1])
    said = page.mark(scene)
    assert said.startswith(f"bias of {scene.trial.edits.node}: ")
    assert f"bias {scene.trial.edits.node}" in page.trial(scene).edits


def test_edits_that_are_chosen_are_those_of_a_recording_that_was_opened_again(looked, session):
    page, look = looked
    first, second = tensors(session)
    page.mark(look(1, first))
    scene, told = look(2, second), []
    old = page._listed_edits(scene)[-1]
    again = DiffSession(session.reference, session.backend)
    Trials(told.append).answer(again, scene.trial.request, lambda: False)
    new = page._listed_edits(replace(scene, trial=told[-1]))[-1]
    assert new.name == old.name
    assert new is not old


@pytest.mark.parametrize("error", [KeyError("conv1"), MemoryError(), TypeError("no array")])
def test_what_a_replay_breaks_of_is_said_and_nothing_is_written(looked, session, tmp_path, monkeypatch, error):
    def broken(*_):
        raise error

    page, look = looked
    scene = look(1, tensors(session)[0])
    page.mark(scene)
    monkeypatch.setattr("qdebug.repair.find.find_repair", broken)
    path, write = prepare_export(str(tmp_path / "edits.json"), scene, screenshot=str, view=page)
    with pytest.raises(UsageError, match=type(error).__name__ if not isinstance(error, TypeError) else "no array"):
        write(session, path)
    assert not path.exists()
    assert page.command(scene, ("a", "b")) is None


@pytest.mark.parametrize("size", [(80, 18), (80, 12), (60, 9)])
def test_of_many_outputs_the_worst_are_shown_and_the_rest_counted(looked, session, size):
    page, look = looked
    width, height = size
    page.mark(look(1, tensors(session)[0]))
    scene = look(1, tensors(session)[0])
    (output,) = scene.trial.edits.effect.outputs
    errors = [float("nan") if number == 17 else 40.0 - number for number in range(20)]
    many = tuple(
        replace(output, output=f"out_{number:02}", trial=replace(output.trial, sqnr_db=error))
        for number, error in enumerate(errors)
    )
    effect = replace(scene.trial.edits.effect, outputs=many)
    scene = replace(scene, trial=replace(scene.trial, edits=replace(scene.trial.edits, effect=effect)))
    lines = page.draw(scene, width, height)
    drawn = text(lines)
    shown = re.findall(r"out_\d+", drawn)
    assert shown[0] == "out_17"
    assert f"{20 - len(shown)} more outputs" in drawn
    assert "out_00" not in drawn
    assert height < 12 or "replayed in" in drawn, "the list of edits goes first"
    assert height < 18 or "Y copies" in drawn
    assert any(style == "cursor" for line in lines for _, style in line)


@pytest.mark.parametrize(
    ("tensor", "node", "said"),
    [
        ("ref_only", "", "only the reference has this tensor: edits are made to the backend's net"),
        ("loose_out", "", "no edit changes this tensor: it has no codes of its own and no weights"),
        (
            "block0/relu_2_out",
            "conv1",
            "no edit of conv1 can be made: no weight of the reference is known to correspond to its own",
        ),
    ],
)
def test_each_reason_why_there_is_no_edit_is_said_in_full(make_scene, tensor, node, said):
    page, scene = MendView(), make_scene()
    scene.navigator.go(scene.table.find(tensor))
    request = TrialRequest(row=scene.row, tensor=tensor, wish=EditWish())
    scene = replace(scene, trial=TrialReady(request=request, edits=EditFacts(node=node)))
    assert page.mark(scene) == said
    assert said in " ".join(text(page.draw(scene, 40, 12)).split())
