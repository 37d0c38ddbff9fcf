"""The budget as a screen: the report's numbers, a cursor over its nodes, what is under way, and what is written."""

import csv
import io
import json
from dataclasses import replace
from threading import Thread

import pytest

from qdebug.errors import UsageError
from qdebug.tui.drawing.glyphs import ASCII
from qdebug.tui.reading.messages import BudgetWish, TrialReady, TrialRequest
from qdebug.tui.screen.exports import prepare_export
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.budget import BudgetView


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


@pytest.fixture
def page():
    return BudgetView()


@pytest.fixture
def make_ready(make_session):
    """Return a function that makes an answer."""

    def make(outputs=("y",), samples=2, **facts):
        session, told = make_session(), []

        def read():
            told.append(session.budget(places=range(samples), only=outputs, progress=lambda *_: None))

        reader = Thread(target=read)
        reader.start()
        reader.join()
        (budget,) = told
        request = TrialRequest(row=9, tensor="t", wish=BudgetWish())
        return TrialReady(request=request, budget=budget, **facts)

    return make


@pytest.fixture
def scene(make_scene, make_ready):
    return replace(make_scene(row=0), trial=make_ready())


def test_lines_below_are_said_and_reached(page, scene):
    drawn = text(page.draw(scene, 60, 8)).splitlines()
    assert len(drawn) == 8
    assert "more lines, G shows the last" in drawn[-1]
    while "the last share" not in page.move(scene, 1):
        drawn = text(page.draw(scene, 60, 8)).splitlines()
        assert any(line.startswith("▸") for line in drawn), "what is chosen is to be seen"
    assert "more lines" not in text(page.draw(scene, 60, 8))


def test_it_says_what_the_report_says_and_how_many_samples_that_is_of(page, scene, make_ready):
    drawn = text(page.draw(scene, 100, 30))
    assert "over 2 samples" in drawn
    assert "40.0 %" in drawn
    assert "7 other nodes with less than 1.0 % each make 5.0 %; 2 of them were replayed only together" in drawn
    assert "the shares add up to" in drawn
    under_way = replace(scene, trial=make_ready(activity="8 of 8 samples", replay_progress=(3, 40)))
    assert "replaying 8 of 8 samples: 3 of 40 replays so far" in text(page.draw(under_way, 100, 30))
    assert "no budget: why" in text(page.draw(replace(scene, trial=make_ready(problem="why")), 100, 30))
    assert "24 of 24 compared so far" in text(page.draw(replace(scene, result=None), 100, 30))


def test_the_cursor_walks_over_the_nodes_of_all_outputs_and_is_that_of_the_list(page, scene, make_ready):
    scene = replace(scene, trial=make_ready(("y", "z")))
    shares = len(scene.trial.budget.outputs[0].nodes)
    assert page.enter(scene) == ""
    assert scene.row == 9
    rows = [scene.row]
    for _ in range(2 * shares - 1):
        assert page.move(scene, 1) == ""
        rows.append(scene.row)
    assert rows == [*range(9, 24, 3), *range(9, 24, 3)]
    assert "last share" in page.move(scene, 1)
    assert page.enter(scene) is ScreenId.WHY
    page.move(scene, -100)
    lines = page.draw(scene, 100, 40)
    chosen = [at for at, line in enumerate(lines) if any(style == "cursor" for _, style in line)]
    assert len(chosen) == 1
    assert page.click(scene, 3, chosen[0] + 1) == ""
    assert scene.row == 12
    assert page.click(scene, 3, chosen[0] + 1) is ScreenId.WHY
    assert page.click(scene, 3, 0) is None
    assert "output 'y' has an SQNR" in text(page.draw(scene, 100, 8)), "nothing scrolls before it has to"


@pytest.mark.parametrize("size", [(40, 6), (60, 9), (60, 11), (80, 19), (160, 40)])
def test_it_fits_and_every_share_and_note_is_seen(page, scene, size):
    width, height = size
    scene = replace(scene, glyphs=ASCII)
    seen = ""
    page.enter(scene)
    for _ in scene.trial.budget.outputs[0].nodes:
        lines = page.draw(scene, width, height)
        assert len(lines) <= height
        assert all(len("".join(piece for piece, _ in line)) <= width for line in lines)
        assert any(style == "cursor" for line in lines for _, style in line)
        seen += text(lines)
        page.move(scene, 1)
    assert "the shares add up to" in seen


def test_long_names_are_told_apart(page, scene, make_ready):
    ready = make_ready()
    (output,) = ready.budget.outputs
    names = [f"p2o.pd_op.block{number}_QuantizeLinear" for number in range(len(output.nodes))]
    nodes = tuple(replace(node, node=name) for node, name in zip(output.nodes, names, strict=True))
    ready = replace(ready, budget=replace(ready.budget, outputs=(replace(output, nodes=nodes),)))
    drawn = text(page.draw(replace(scene, trial=ready), 60, 20))
    assert all(f"{number}_QuantizeLinear" in drawn for number in range(len(nodes)))


def test_what_is_written_is_what_the_command_writes(page, scene, tmp_path):
    budget = scene.trial.budget
    for name, said in (("budget.json", "the budget"), ("budget.csv", "5 lines")):
        path, write = prepare_export(str(tmp_path / name), scene, screenshot=str, view=page)
        assert write(None, path) == said
    assert json.loads((tmp_path / "budget.json").read_text()) == budget.to_dict()
    rows = list(csv.DictReader(io.StringIO((tmp_path / "budget.csv").read_text())))
    assert [float(row["share"]) for row in rows] == [node.share for node in budget.outputs[0].nodes]
    assert page.command(scene, ("a", "b")) == ["qdebug", "budget", "a", "b"]


def test_where_the_first_replay_broke_no_output_is_said_to_be_left_out(page, scene):
    empty = replace(scene.trial.budget, outputs=())
    broken = replace(scene, trial=replace(scene.trial, budget=empty, problem="why"))
    assert text(page.draw(broken, 100, 30)).strip() == "no budget: why"
    assert "no output of the network was compared" in text(
        page.draw(replace(broken, trial=replace(broken.trial, problem="")), 100, 30)
    )


@pytest.mark.parametrize("suffix", ["json", "csv"])
@pytest.mark.parametrize("far", ["nothing yet", "under way", "broken"])
def test_nothing_is_written_that_is_not_the_whole_budget(page, scene, tmp_path, suffix, far):
    changed = {"nothing yet": None, "under way": {"activity": "2 of 3 samples"}, "broken": {"problem": "why"}}[far]
    scene = replace(scene, trial=None if changed is None else replace(scene.trial, **changed))
    with pytest.raises(UsageError, match="Nothing was written: "):
        prepare_export(str(tmp_path / f"budget.{suffix}"), scene, screenshot=str, view=page)


def test_nodes_that_are_not_listed_are_said_to_be_where_a_key_writes_them(page, scene):
    (output,) = scene.trial.budget.outputs
    unknown = {f"n{number}": "why" for number in range(9)}
    budget = replace(scene.trial.budget, outputs=(replace(output, unknown=unknown),))
    drawn = text(page.draw(replace(scene, trial=replace(scene.trial, budget=budget)), 100, 40))
    assert "and 4 more: e writes all of them to a .json" in drawn
