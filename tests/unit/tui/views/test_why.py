"""Why a node differs: what the diagnosis says of it comes first, and what was tried on it."""

from dataclasses import replace

from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, OutputGain, Remedy
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.answer import AnswerView
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.table import Views
from qdebug.tui.views.view import heading


def diagnosed(scene, row, *, share=0.43):
    planned = scene.table.rows[row]
    remedy = Remedy(
        edit=f"per-channel {planned.node}",
        what="per-channel weights",
        gains=(OutputGain(output=planned.tensor, db=6.7),),
        samples=1,
        cost="512 bytes",
        command="qdebug repair REF BACKEND",
    )
    fault = Diagnosis(
        fault=FaultClass.QUANTIZATION, kind=None, node=planned.node, op=planned.op, tensor=planned.tensor,
        model_node=None, why="one scale for 128 channels", share={"out": share}, remedies=(remedy,),
    )  # fmt: skip
    result = replace(scene.result, diagnosis=(fault,))
    scene.table.conclude(result)
    return replace(scene, result=result)


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


def test_the_diagnosis_of_the_node_comes_first(make_scene):
    scene = diagnosed(make_scene(row=8), 8)
    lines = text(Views(ElementCursor())[ScreenId.WHY].draw(scene, 80, 24)).splitlines()[2:]
    assert lines[0].split(maxsplit=1) == ["why", "one scale for 128 channels"]
    assert lines[1].split(maxsplit=1) == ["share", "43 % of the output's error"]
    assert "per-channel weights" in lines[2]
    assert "whole error" in "\n".join(lines[3:])


def test_a_share_above_the_whole_says_that_other_errors_cancel_it(make_scene):
    scene = diagnosed(make_scene(row=8), 8, share=8.5)
    lines = text(Views(ElementCursor())[ScreenId.WHY].draw(scene, 120, 24))
    assert "850 % of the output's error: its error alone makes 8.5x the output's squared error" in lines
    assert "other errors cancel" in lines


def test_only_the_edits_of_the_key_are_offered_under_its_key(make_scene):
    """The key takes the edits of the first screen, which may be of several nodes; others are listed beside them."""
    scene = diagnosed(make_scene(row=8), 8)
    fault = scene.result.diagnosis[0]
    several = replace(fault.remedies[0], edit=f"float {fault.node}, float b", what="the first 2 nodes in float",
                      gains=(OutputGain(output=fault.tensor, db=9.0),), nodes=2)  # fmt: skip
    result = replace(scene.result, diagnosis=(replace(fault, remedies=(*fault.remedies, several)),))
    scene.table.conclude(result)
    lines = text(Views(ElementCursor())[ScreenId.WHY].draw(replace(scene, result=result), 100, 24)).splitlines()[2:]
    assert lines[2].strip().startswith("try (X)  the first 2 nodes in float")
    assert lines[3].strip().startswith("or  per-channel weights")


def test_of_another_node_its_own_reason_is_said(make_scene):
    scene = diagnosed(make_scene(row=9), 8)
    drawn = text(Views(ElementCursor())[ScreenId.WHY].draw(scene, 80, 24))
    assert "128 channels" not in drawn
    assert "SQNR 6.5 dB is below 20 dB" in drawn


def test_the_answer_names_what_to_try_and_leads_to_why(make_scene):
    scene = diagnosed(make_scene(row=8), 8)
    page = AnswerView()
    head, first, *_ = text(page.draw(scene, 80, 12)).splitlines()
    assert head.split()[-2:] == ["why", "try"]
    assert first.rstrip().endswith("per-channel +6.7 dB")
    assert "43 %" in first
    assert page.enter(scene) is ScreenId.WHY


def test_a_heading_shortens_the_status_before_the_name(make_scene):
    scene = diagnosed(make_scene(row=9, failing=()), 9)
    name = scene.table.title(9)
    assert text([heading(scene, 120, "a note")]).startswith(f"{name}  ")
    assert "43 % of the output's error" in text([heading(scene, 120, "a note")])
    narrow = text([heading(scene, len(name) + 36, "a note")])
    assert narrow.startswith(f"{name}  ")
    assert "43 % share, a note" in narrow
