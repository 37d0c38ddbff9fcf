"""The report in a terminal: verdict first, facts, nodes in order, what was left out."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from qdebug.compare.align.pairs import Side, UnmatchedKind
from qdebug.compare.result.result import Compounding, Status
from qdebug.model import Fidelity, RunInfo
from qdebug.present.reports.comparison import diff_markdown
from qdebug.present.reports.diff_table import diff_report, fitting_width
from qdebug.present.reports.document import Grid
from qdebug.present.reports.terminal import figure_lines, terminal


def shown(renderable, width=100, **options):
    console = Console(file=io.StringIO(), width=width, highlight=False, **options)
    console.print(renderable)
    return console.file.getvalue()


@pytest.fixture
def diverged(made):
    nodes = [
        made.node(0),
        made.node(1, Status.DIVERGED, metrics=made.stats(sqnr_db=8.0)),
        made.node(2, Status.DIVERGED, metrics=made.stats(sqnr_db=2.0)),
        made.node(3, Status.INCOMPARABLE, reason="shape 1x2 against 1x3"),
    ]
    left_out = [made.unmatched("b1"), made.unmatched("head\x1b[31m", kind=UnmatchedKind.LOST, reason="no partner")]
    return made.result(nodes, left_out=left_out, sentence="The backend diverges first at conv1.")


def test_the_parts_come_in_order(diverged):
    text = shown(diff_report(diverged, width=100))
    assert text.startswith("FAIL  diverged: 2 of 4 tensors beyond the limit\nThe backend diverges first at conv1.")
    landmarks = [
        "reference",
        "fidelity bit_equal",
        "backend",
        "fidelity unknown",
        "limits",
        "nodes",
        "SQNR dB",
        "coverage",
    ]
    places = [text.index(landmark, text.index("conv1.")) for landmark in landmarks]
    assert places == sorted(places)
    assert "default: SQNR at least 20 dB; --min-sqnr" in text


def test_nodes_keep_their_order_and_the_first_divergence_is_marked(diverged):
    lines = shown(diff_report(diverged, width=100)).splitlines()
    rows = [line.split()[:3] for line in lines if re.match(r"\s*>?\d+  ", line)]
    assert rows == [
        ["0", "within", "conv0"],
        [">1", "diverged", "conv1"],
        ["2", "diverged", "conv2"],
        ["3", "incomparable", "conv3"],
    ]


def test_what_was_not_compared_is_listed_with_its_reason(diverged):
    text = shown(diff_report(diverged, width=100))
    assert "incomparable #3 conv3: shape 1x2 against 1x3" in text
    assert "1 backend: folded into its node" in text
    assert r"LOST backend head\x1b[31m: no partner" in text
    assert "benign backend b1" not in text
    assert "benign backend b1: folded into its node" in shown(diff_report(diverged, width=100, everything=True))


def test_colours_mark_states_and_no_name_adds_any(made):
    evil = made.result([made.node(0, Status.DIVERGED, node="[bold]x[/bold]\x1b[5m")], sentence="[red]no[/red]")
    text = shown(diff_report(evil, width=120), width=120, force_terminal=True, color_system="standard", height=50)
    assert "\x1b[1;31mFAIL" in text
    assert "\x1b[5m" not in text
    assert r"[bold]x[/bold]\x1b[5m" in re.sub(r"\x1b\[[0-9;]*m", "", text)
    assert "[red]no[/red]" in text


def test_no_line_is_longer_than_the_terminal(made):
    nodes = [made.node(i, node="scope/" * 30 + str(i)) for i in range(60)]
    text = shown(diff_report(made.result(nodes), width=80), width=80)
    assert max(map(len, text.splitlines())) <= 80
    assert "hidden; --all shows every one" in text


def test_names_are_whole_where_no_terminal_limits_them(made):
    name = "scope/" * 25 + "conv"
    result = made.result([made.node(0, node=name)])
    width = fitting_width(result)
    assert name in shown(diff_report(result, width=width), width=width)
    assert fitting_width(made.result([])) == 100


def test_two_outputs_of_one_node_are_told_apart(made):
    result = made.result([made.node(0, node="split", tensor="a"), made.node(1, node="split", tensor="b"), made.node(2)])
    text = shown(diff_report(result, width=140), width=140)
    assert "split > a" in text
    assert "split > b" in text
    assert "conv2 >" not in text


def test_a_comparison_of_nothing_says_so(made):
    text = shown(diff_report(made.result([], status=Status.INCOMPLETE), width=80))
    assert "No node was compared." in text
    assert text.startswith("INCOMPLETE")


def test_bad_fidelity_and_unfinished_runs_stand_out(made):
    info = RunInfo(backend="x", fidelity=Fidelity.DIFFERS, complete=False)
    text = shown(diff_report(made.result([made.node(0)], backend=info), width=100))
    assert "on x, taps put, INCOMPLETE" in text
    assert "fidelity DIFFERS: recording changed the result" in text


def test_many_reasons_are_cut_and_counted(made):
    nodes = [made.node(i, Status.INCOMPARABLE, reason="shape") for i in range(25)]
    text = shown(diff_report(made.result(nodes, status=Status.INCOMPLETE), width=100))
    assert "5 more with a reason" in text


def test_lost_tensors_of_both_sides_are_named(made):
    left_out = [made.unmatched(f"t{i}", kind=UnmatchedKind.LOST, side=side) for i, side in enumerate(Side)]
    text = shown(diff_report(made.result([made.node(0)], left_out=left_out), width=100))
    assert "LOST reference t0" in text
    assert "LOST backend t1" in text


def test_a_grid_is_text_and_never_markup():
    text = shown(terminal([Grid(titles=("a", "b"), rows=[("[red]x[/red]", "1")], right=frozenset({1}))]))
    assert "[red]x[/red]" in text


def test_the_agreement_on_the_winner_has_a_line_for_each_output(made):
    text = shown(
        diff_report(made.result([made.node(0)], outputs=(made.ranking(), made.ranking("aux"))), width=200), 200
    )
    lines = [line.strip() for line in text.splitlines() if "if these are scores" in line]
    assert lines[0].startswith("outputs    logits, if these are scores: top-1 agreement 14 of 16")
    assert lines[1].startswith("aux, if these are scores")
    assert "scores" not in shown(diff_report(made.result([made.node(0)]), width=100))


def test_nodes_where_error_compounds_are_listed(made):
    result = made.result([made.node(0)])
    found = Compounding(node="conv0", op="Conv", tensor="t", gain=8.0, usual=1.1, nodes=24)
    listed = replace(result, verdict=replace(result.verdict, compounding=(found,)))
    said = "Conv conv0 amplifies the error of its input 8.00 times"
    text = shown(diff_report(listed, width=160), 160)
    assert "compounding" in text
    assert said in text
    assert said in diff_markdown(listed)
    assert "compounding" not in shown(diff_report(result, width=160), 160)


def test_lines_of_figures_stand_under_their_headings():
    lines = figure_lines([("n", "what"), ("12", "a long text"), ("3", "-")], right=(0,))
    assert lines == [" n  what", "12  a long text", " 3  -"]
