"""The report that fits a screen: verdict, failing nodes with their reasons, outputs, coverage, what is unusual."""

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.result import Contributor, Status
from qdebug.model import Fidelity, RunInfo
from qdebug.present.reports.document import Grid
from qdebug.present.reports.markdown import markdown
from qdebug.present.reports.short import short_document
from qdebug.present.reports.terminal import terminal
from qdebug.present.rows import RowChoice

SOUND = RunInfo(backend="x", fidelity=Fidelity.BIT_EQUAL)


def shown(result, width=80, **options):
    console = Console(file=StringIO(), width=width, highlight=False)
    console.print(terminal(short_document(result, **options), width=width))
    return console.file.getvalue()


def listed(result, **options):
    (grid,) = [block for block in short_document(result, **options) if isinstance(block, Grid)]
    return [row[0] for row in grid.rows]


@pytest.fixture
def failing(made):
    nodes = [
        made.node(
            at,
            Status.DIVERGED if at in (3, 5, 8) else Status.WITHIN,
            reason=f"reason {at}" if at in (3, 5, 8) else None,
            metrics=made.stats(sqnr_db=40.0 - 4 * at),
        )
        for at in range(10)
    ]
    return replace(made.result(nodes, reference=SOUND, backend=SOUND), network_outputs=("conv9_q",))


def test_the_failing_nodes_stand_with_their_reasons_and_no_other(failing):
    text = shown(failing)
    assert listed(failing) == [">3", "5", "8"]
    reasons = [line.strip() for line in text.splitlines() if line.strip().startswith("reason")]
    assert reasons == ["reason 5", "reason 8"], "the verdict says that of the first"
    assert "limits" not in text.replace("default: ", "")[: text.index("outputs")]


def test_what_does_not_fit_is_counted_and_the_first_divergence_and_the_worst_stay(failing):
    assert listed(failing, max_rows=2) == [">3", "8"]
    assert "1 more like these: --only-failing" in shown(failing, max_rows=2)
    assert "more like these" not in shown(failing)


def test_rows_can_be_asked_for(failing):
    assert listed(failing, choice=RowChoice(top=1)) == [">3"]
    assert listed(failing, choice=RowChoice(top=5)) == [">3", "5", "7", "8", "9"]
    assert listed(failing, choice=RowChoice(only_failing=True)) == [">3", "5", "8"]
    assert listed(failing, choice=RowChoice(only_failing=True), max_rows=1) == [">3", "5", "8"]


def test_outputs_and_coverage_are_said_in_a_line_each(failing):
    text = shown(failing, 120)
    assert "outputs   conv9_q: SQNR 4.00 dB" in text
    assert "coverage  10 tensors compared (7 within, 3 diverged), " in text


def test_sound_runs_are_not_spoken_of_and_others_are(failing):
    assert "runs " not in shown(failing)
    unknown = replace(failing, reference=RunInfo(backend="x"), backend=RunInfo(backend="x", complete=False))
    text = shown(unknown, 140)
    assert "reference and backend: fidelity unknown: whether recording changed the result was not checked" in text
    assert "backend: INCOMPLETE" in text


def test_random_inputs_are_said(failing):
    random = replace(failing, backend=replace(SOUND, options={"inputs": "random, seed 0", "inputs_random": True}))
    assert "inputs    random, seed 0: random inputs hide errors that real inputs show" in shown(random)


def test_lost_tensors_are_named_and_counted(made):
    lost = [made.unmatched(f"t{at}", kind=UnmatchedKind.LOST, reason="no partner") for at in range(5)]
    text = shown(made.result([made.node(0)], left_out=[*lost, made.unmatched("b")]), 120)
    assert "1 unmatched for a known reason, 5 LOST" in text
    assert ("LOST backend t2: no partner" in text, "t3" in text, "2 more lost: --verbose" in text) == (
        True,
        False,
        True,
    )


def test_where_no_node_fails_those_that_the_verdict_names_are_shown(made):
    nodes = [made.node(at) for at in range(6)]
    result = made.result(nodes, status=Status.ACCUMULATED)
    assert listed(result) == []
    named = Contributor(node="conv2", tensor="conv2_q", output="conv5_q", sqnr_db=12.0, how="exact")
    assert listed(replace(result, verdict=replace(result.verdict, contributors=(named,)))) == ["2"]


def test_names_are_shortened_until_a_row_fits(made):
    result = made.result([made.node(0, Status.DIVERGED, node="scope/" * 30 + "conv", reason="r")])
    lines = shown(result).splitlines()
    assert max(map(len, lines)) <= 80
    assert any("scope/conv" in line and line.startswith(">0") for line in lines)


def test_markdown_says_the_same(failing):
    text = markdown(short_document(failing))
    assert text.count("| diverged |") == 3
    assert "reason 8 |" in text
    assert "- **coverage**: 10 tensors compared" in text
