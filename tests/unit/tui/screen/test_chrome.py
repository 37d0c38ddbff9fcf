from dataclasses import replace
from types import SimpleNamespace

import pytest
from rich.cells import cell_len

from qdebug.compare.result.diagnosis import Diagnosis, FaultClass, OutputGain, Remedy
from qdebug.compare.result.finding import Status
from qdebug.compare.result.node_result import is_beyond
from qdebug.errors import UsageError
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.nodes.rows import State
from qdebug.tui.screen.chrome import banner, status, verdict_lines, verdict_text
from qdebug.tui.views.view import heading


def words(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


def test_a_line_too_short_for_the_verdict_names_the_first_divergence(make_scene):
    scene = make_scene()
    now = SimpleNamespace(navigator=scene.navigator, opened=scene.opened, result=scene.result, failure=None)
    node = scene.result.first_divergence
    drawn = words(verdict_lines(now, 50, 1, UNICODE))
    assert drawn.startswith(f" FAIL diverges at …{node[-11:]}: SQNR")
    assert len(drawn) <= 50
    named = words(verdict_lines(now, 70, 1, UNICODE))
    assert named.startswith(f" FAIL diverges at {node}: SQNR")
    assert words(verdict_lines(now, 400, 1, UNICODE)).startswith(" FAIL The backend diverges first at")


def test_a_short_verdict_is_made_of_facts_and_not_cut_out_of_the_sentence(make_scene):
    scene = make_scene()
    verdict = replace(scene.result.verdict, sentence="Another wording.", origin="stem", worst_sample=1)
    result = replace(scene.result, verdict=verdict, shortcomings=("2 tensors are lost",))
    now = SimpleNamespace(navigator=scene.navigator, opened=scene.opened, result=result, failure=None)
    drawn = " ".join(words(verdict_lines(now, 200, 2, UNICODE, is_reason_shown=True)).split())
    over = sum(map(is_beyond, result.nodes))
    assert drawn.startswith(f"FAIL, INCOMPLETE diverges first here. {over} of ")
    for said in (
        "comes from 'stem'",
        "Of 3 samples, sample 1 comes out worst",
        "Incomplete: 2 tensors are lost. (1 v)",
    ):
        assert said in drawn
    assert "Another wording" not in drawn


def test_a_screen_without_the_list_says_the_filter_and_not_the_order(make_navigator):
    navigator = make_navigator(24, failing=(9,))
    navigator.choose_filter("row<5")
    navigator.sort_by("name")
    listed, alone = (words(status(navigator, "", 120, UNICODE, shows_list=each)) for each in (True, False))
    assert "by name" in listed
    assert "line 3 of 5 shown" in listed
    assert "by name" not in alone
    assert "#0 of 0..23" in alone
    assert "filter row<5" in alone, "keys that walk nodes obey it"
    navigator.choose_filter("row>500")
    assert "none of 26 fits" in words(status(navigator, "", 120, UNICODE))
    wide = words(status(navigator, "畳" * 20, 80, UNICODE))
    assert cell_len(wide) <= 80


def verdict_on(scene):
    return SimpleNamespace(navigator=scene.navigator, opened=scene.opened, result=scene.result, failure=None)


@pytest.mark.parametrize("height", [1, 2, 4])
def test_a_long_name_does_not_hide_the_cause(make_scene, height):
    scene = make_scene(names=("net/" + "x" * 200 + "/last",), failing=(0,))
    scene.navigator.go(3)
    drawn = words(verdict_lines(verdict_on(scene), 80, height, UNICODE))
    assert "SQNR 8 dB is below 20 dB" in " ".join(drawn.split())
    assert "/last" in drawn
    assert "SQNR" not in words(status(scene.navigator, "", 80, UNICODE)), "of another node than the cursor's"


def test_an_apostrophe_is_no_name_to_be_cut(make_scene):
    scene = make_scene(failing=())
    said = f"Costliest nodes, each with the output's SQNR if only that node had an error: '{'x' * 90}' 17.6 dB."
    verdict = replace(scene.result.verdict, status=Status.ACCUMULATED, sentence=said, first_divergence=None)
    scene = replace(scene, result=replace(scene.result, verdict=verdict))
    drawn = " ".join(words(verdict_lines(verdict_on(scene), 80, 2, UNICODE)).split())
    assert "each with the output's SQNR if only that node had an error: '" in drawn
    assert f"…{'x' * 20}" in drawn


def test_a_reason_is_said_once(make_scene):
    scene = make_scene()
    first = scene.table.first_divergence()
    scene.navigator.go(first)
    assert "is below" not in words(status(scene.navigator, "", 80, UNICODE)), "the verdict says why"
    here = words(verdict_lines(verdict_on(scene), 40, 1, UNICODE, is_reason_shown=True))
    assert "diverges first here" in here
    assert "is below" not in here
    scene.navigator.go(10)
    assert "is below" in words(status(scene.navigator, "", 80, UNICODE))
    assert "is below" not in words(status(scene.navigator, "", 80, UNICODE, with_reason=False)), "the facts say it"


def test_aligning_counts_its_seconds(make_scene):
    facts = {"navigator": make_scene().navigator, "opened": None, "result": None, "failure": None}
    facts["stage"] = "pairing tensors 40%"
    drawn = [
        words(verdict_lines(SimpleNamespace(**facts, seconds_waited=seconds), 80, 1, UNICODE)) for seconds in (0, 7)
    ]
    assert drawn[0] == " READING pairing tensors 40%, 26 tensors .."
    assert drawn[1] == f"{drawn[0]} 7 s"


def test_there_is_no_verdict_while_a_recorder_is_at_work(make_scene):
    scene = make_scene(failing=())
    opened = replace(scene.opened, is_writing=True)
    now = SimpleNamespace(navigator=scene.navigator, opened=opened, result=scene.result, failure=None)
    assert words(verdict_lines(now, 80, 1, UNICODE)) == " SO FAR 24 of 24 compared, still being recorded, no divergence"


def test_a_long_message_takes_two_lines_and_loses_no_word():
    message = (
        "12 edges to the origin so far (93% its own): it introduces most of the failing nodes on the way, H goes back"
    )
    lines = status(None, message, 80, UNICODE, height=2)
    assert " ".join(words(lines).split()) == message
    assert all(len(words([line])) < 80 for line in lines)
    assert len(words(status(None, message, 80, UNICODE))) == 80


def test_a_row_that_only_the_reference_has_says_so(make_scene):
    scene = make_scene()
    scene.navigator.go(scene.table.size - 1)
    drawn = words(status(scene.navigator, "", 120, UNICODE))
    assert "folded: benign, reference only: computed inside QLinearConv" in drawn


def test_file_names_are_kept_whole_before_what_made_them(make_scene):
    opened = make_scene().opened
    wide = words(banner(("ref.h5", "npu.h5"), opened, 80, UNICODE))
    assert "ref.h5 (float)  vs  npu.h5 (npu)" in wide
    titles = ("rec.qdq.extended.h5", "rec.qoperator.all.h5")
    narrow = words(banner(titles, opened, 80, UNICODE, position_text="1/2"))
    assert "rec.qdq.extended.h5" in words(banner(titles, opened, 80, UNICODE))
    assert "(float)" not in narrow
    assert len(narrow) <= 80


@pytest.mark.parametrize(("width", "height"), [(40, 1), (30, 2), (24, 3)])
def test_a_verdict_that_is_cut_fills_its_lines_and_names_the_key_that_shows_all(make_scene, width, height):
    scene = make_scene(names=("x" * 90,), failing=(0,))
    now = SimpleNamespace(navigator=scene.navigator, opened=scene.opened, result=scene.result, failure=None)
    lines = words(verdict_lines(now, width, height, UNICODE)).splitlines()
    assert len(lines) == height
    assert lines[-1].endswith(" (1 v)")
    assert all(width - 14 <= len(line) <= width for line in lines)
    whole = words(verdict_text(now, width, UNICODE))
    assert "".join(whole.split()).count("x" * 90) >= 1
    assert "(1 v)" not in whole


def test_the_whole_verdict_says_what_it_rests_on(make_scene):
    scene = make_scene()
    now = SimpleNamespace(navigator=scene.navigator, opened=scene.opened, result=scene.result, failure=None)
    said = words(verdict_text(now, 80, UNICODE))
    for label in ("limits", "compared", "reference", "backend", "fidelity bit_equal"):
        assert label in said
    assert all(len(line) <= 80 for line in said.splitlines())
    failed = SimpleNamespace(
        navigator=None, opened=None, result=None, failure=UsageError("There is no file.", hint="Record it again.")
    )
    assert "Record it again." in words(verdict_text(failed, 80, UNICODE))


def test_the_place_of_a_node_is_counted_as_its_number_is(make_navigator):
    navigator = make_navigator(nodes=24)

    def place():
        return words(status(navigator, "", 120, UNICODE)).split("  ")[-1 if navigator.samples == 1 else -2].strip()

    navigator.samples = 1
    navigator.go(17)
    assert place() == "#17 of 0..23"
    navigator.reverse()
    assert "line 9 of 26" in words(status(navigator, "", 120, UNICODE))
    navigator.reverse()
    navigator.choose_filter("state=diverged")
    assert "line 3 of 3 shown of 26  filter" in words(status(navigator, "", 120, UNICODE))
    navigator.go(0)
    assert "hidden, 3 shown of 26  filter" in words(status(navigator, "", 120, UNICODE))


def test_on_a_screen_of_elements_the_sample_that_is_shown_is_named(make_navigator):
    navigator = make_navigator(24)
    navigator.go(9)
    assert words(status(navigator, "", 80, UNICODE)).endswith("all samples ")
    assert words(status(navigator, "", 80, UNICODE, shows_elements=True)).endswith("all, sample 2 shown ")
    said = words(status(navigator, "x" * 55, 80, UNICODE, shows_elements=True))
    assert said.endswith("  all, sample 2 shown "), "of what there is no room for, the number of the row goes first"


def test_below_the_headline_stand_why_and_what_to_try(make_scene):
    scene = make_scene()
    gain = (OutputGain(output="out", db=6.7),)
    remedy = Remedy(
        edit="per-channel n", what="per-channel weights", gains=gain, samples=8, cost="512 bytes", command=""
    )
    fault = Diagnosis(
        fault=FaultClass.QUANTIZATION, kind=None, node="n", op="Conv", tensor="t", model_node=None,
        why="one scale for 128 channels", share={"out": 0.43}, remedies=(remedy,),
    )  # fmt: skip
    now = SimpleNamespace(
        navigator=scene.navigator, opened=scene.opened, result=replace(scene.result, diagnosis=(fault,)), failure=None
    )
    *head, why, tried = (words([line]) for line in verdict_lines(now, 80, 4, UNICODE))
    assert head[0].startswith(" FAIL ")
    assert why.split(maxsplit=1) == ["why", "n: one scale for 128 channels"]
    assert tried.split(maxsplit=1)[0] == "try"
    *_, why, tried = (words([line]) for line in verdict_lines(now, 200, 3, UNICODE))
    assert [line.split(maxsplit=1)[0] for line in (why, tried)] == ["why", "try"], "also below a headline of one line"
    assert "per-channel weights" in tried
    assert len(verdict_lines(now, 80, 2, UNICODE)) <= 2, "the headline first"
    whole = " ".join(words(verdict_text(now, 80, UNICODE)).split())
    for said in ("43 % n: one scale for 128 channels", "TRY", "512 bytes"):
        assert said in whole


def test_the_sample_that_is_shown_is_named_in_a_narrow_terminal(make_scene):
    navigator = make_scene(row=9).navigator
    assert words(status(navigator, "", 80, UNICODE, shows_elements=True)).endswith("all, sample 2 shown ")
    narrow = words(status(navigator, "", 40, UNICODE, shows_elements=True))
    assert narrow.endswith("all, sample 2 ")
    assert cell_len(narrow) <= 40


def test_a_node_of_the_diagnosis_is_not_called_within(make_scene):
    scene = make_scene(row=9, failing=())
    assert "within" in words(status(scene.navigator, "", 80, UNICODE))
    fault = Diagnosis(
        fault=FaultClass.QUANTIZATION, kind=None, node="n", op="Conv", tensor=scene.plan_row.tensor, model_node=None,
        why="one scale", share={"out": 0.43},
    )  # fmt: skip
    for share, said in ((0.43, "43 % of the output's error"), (None, "in the diagnosis")):
        scene.table.conclude(replace(scene.result, diagnosis=(replace(fault, share={"out": share}),)))
        assert f": {said}" in words(status(scene.navigator, "", 80, UNICODE))
        assert said in words([heading(scene, 120)])
        assert "within" not in words([heading(scene, 120)])
    scene.table.state[9] = State.DIVERGED
    assert "diverged" in words(status(scene.navigator, "", 80, UNICODE)), "what fails itself keeps its status"


@pytest.mark.parametrize(
    ("outputs", "gain", "cost", "said"),
    [
        (("speech_probs", "hn"), 8.36, "36.1 % of the multiply-adds in float, 223 kB",
         "first 2 in float: speech_probs 0.2 -> 8.5 dB (< 20); 36 % of MACs, 223 kB"),
        (("y",), 24.3, "1.3 % of the multiply-adds in float, 456 B",
         "first 2 in float: 0.2 -> 24.5 dB; 1.3 % of MACs, 456 B"),
    ],
)  # fmt: skip
def test_what_to_try_fits_80_columns_with_its_cost(make_scene, outputs, gain, cost, said):
    scene = make_scene()
    gains = (OutputGain(output=outputs[0], db=gain),)
    remedy = Remedy(
        edit="float a, float b", what="the first 2 nodes in float", gains=gains, samples=8, cost=cost, command="",
        nodes=2,
    )  # fmt: skip
    fault = Diagnosis(
        fault=FaultClass.QUANTIZATION, kind=None, node="n", op="Conv", tensor="t", model_node=None,
        why="one scale", share={outputs[0]: 1.0}, remedies=(remedy,),
    )  # fmt: skip
    node = scene.result.nodes[9]
    output = replace(node, tensor=outputs[0], metrics=replace(node.metrics, sqnr_db=0.187))
    result = replace(
        scene.result,
        nodes=tuple(replace(output, tensor=name) for name in outputs),
        network_outputs=outputs,
        diagnosis=(fault,),
        limits={"min_output_sqnr": 20.0},
    )
    now = SimpleNamespace(navigator=scene.navigator, opened=scene.opened, result=result, failure=None)
    assert words(verdict_lines(now, 80, 4, UNICODE)[-1:]).split(maxsplit=1) == ["try", said]
    whole = words(verdict_lines(now, 160, 4, UNICODE)[-1:])
    assert "the first 2 nodes in float" in whole
    assert cost in whole


def test_what_to_try_names_the_node_unless_the_cursor_is_on_it(make_scene):
    """The line belongs to the row of the cursor, so an edit of another node must not read as one of this node."""
    scene = make_scene(row=9)
    rows = scene.table.rows
    tried = Remedy(
        edit="per-channel", what="per-channel weights", gains=(OutputGain(output="y", db=7.8),), samples=8,
        cost="512 bytes", command="", nodes=1,
    )  # fmt: skip
    faults = tuple(
        Diagnosis(
            fault=FaultClass.QUANTIZATION, kind=None, node=rows[at].node, op=rows[at].op, tensor=rows[at].tensor,
            model_node=None, why="one scale", share={"y": 0.5}, remedies=(tried,) if at == 7 else (),
        )
        for at in (7, 4)
    )  # fmt: skip
    result = replace(scene.result, diagnosis=faults)
    scene.table.conclude(result)
    now = SimpleNamespace(navigator=scene.navigator, opened=scene.opened, result=result, failure=None)

    def line_to_try(row):
        scene.navigator.go(row)
        return words(verdict_lines(now, 120, 5, UNICODE)[-1:]).split(maxsplit=1)[1]

    owner = rows[7].node
    assert line_to_try(7).startswith("per-channel weights")
    for row in (4, 9):
        assert line_to_try(row).startswith(f"{owner}: per-channel weights"), "the edit of another row"


def test_the_first_screen_has_the_line_of_outputs_of_the_report(make_scene):
    scene = make_scene()
    node = scene.result.nodes[9]
    nodes = tuple(replace(node, tensor=name, metrics=replace(node.metrics, sqnr_db=12.5)) for name in ("y", "h"))
    result = replace(
        scene.result, nodes=nodes, network_outputs=("y", "h"), coverage=replace(scene.result.coverage, samples=3),
        verdict=replace(scene.result.verdict, worst_sample=2),
    )  # fmt: skip
    now = SimpleNamespace(navigator=scene.navigator, opened=scene.opened, result=result, failure=None)
    assert " out  y 12.5 dB, h 12.5 dB; worst: sample 2" in words(verdict_lines(now, 80, 5, UNICODE))
    now.result = replace(result, nodes=nodes[:1], network_outputs=("y",))
    assert " out  12.5 dB; worst: sample 2" in words(verdict_lines(now, 80, 5, UNICODE))
    assert " out " not in words(verdict_lines(now, 80, 2, UNICODE)), "the headline first"
