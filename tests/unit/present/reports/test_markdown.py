"""Markdown: names are shown literally, the size has a limit, and what is cut is said."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import drawn

from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.limits import Acknowledgement
from qdebug.compare.result.result import Status
from qdebug.model import TensorInfo
from qdebug.present.detail import NodeDetail
from qdebug.present.reports.comparison import MARKDOWN_LIMIT, diff_markdown
from qdebug.present.reports.markdown import code, markdown, markdown_text
from qdebug.present.reports.node import node_document

markdown_it = pytest.importorskip("markdown_it")


def html(text):
    return markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(text)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a|b", r"a\|b"),
        ("*x* _y_", r"\*x\* \_y\_"),
        ("@admin #12", "@<!-- -->admin #<!-- -->12"),
        ("<img src=x>", r"\<img src=x\>"),
        ("https://evil.example", "https:<!-- -->//evil.example"),
        ("two\nlines", r"two\\nlines"),
    ],
)
def test_text_is_shown_literally(raw, shown):
    assert markdown_text(raw) == shown


@pytest.mark.parametrize(
    ("raw", "shown"),
    [("conv_1", "`conv_1`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a|b", r"`a\|b`"), ("", ""), ("x\x1b", r"`x\x1b`")],
)
def test_names_are_code_spans(raw, shown):
    assert code(raw) == shown


@drawn(100)
@given(st.text(min_size=1, max_size=40))
def test_no_name_breaks_out_of_its_cell(name):
    rendered = html(f"| a | b |\n|---|---|\n| {code(name)} | {markdown_text(name)} |\n")
    assert rendered.count("<td>") == 2
    for tag in ("<a ", "<img", "<script", "<h1", "<em>", "<strong>", "<s>"):
        assert tag not in rendered


def test_a_comparison_is_told_in_full(made):
    nodes = [made.node(0), made.node(1, Status.DIVERGED, node="conv|1")]
    left_out = [made.unmatched("b"), made.unmatched("out*put", kind=UnmatchedKind.LOST, reason="no partner")]
    text = diff_markdown(made.result(nodes, left_out=left_out))
    assert text.startswith("## qdebug: FAIL\n")
    assert "- **limits**: default: SQNR at least 20 dB" in text
    assert r"| 1 | **diverged** | `conv\|1` |" in text
    assert r"  - LOST backend out\*put: no partner" in text
    assert html(text).count("<tr>") == 3


def test_a_long_comparison_keeps_the_worst_nodes_in_order_and_says_what_is_cut(made):
    nodes = [
        made.node(i, Status.DIVERGED if i % 7 == 0 else Status.WITHIN, metrics=made.stats(sqnr_db=float(i % 7)))
        for i in range(300)
    ]
    text = diff_markdown(made.result(nodes), limit=12_000)
    assert len(text.encode()) <= 12_000
    kept = [int(line.split("|")[1]) for line in text.splitlines() if line.startswith("| ") and "diverged" in line]
    assert kept == [i for i in range(300) if i % 7 == 0]
    rows = sum(line.count("`conv") for line in text.splitlines())
    assert f"{300 - rows} of 300 nodes are left out" in text


def test_the_default_limit_is_below_that_of_a_job_summary(made):
    left_out = [made.unmatched("t" * 250 + str(i), kind=UnmatchedKind.LOST, reason="r" * 250) for i in range(3000)]
    nodes = [made.node(i, node="名" * 200) for i in range(3000)]
    text = diff_markdown(made.result(nodes, left_out=left_out))
    assert len(text.encode()) <= MARKDOWN_LIMIT < 1024 * 1024
    assert "2500 more lost tensors; the JSON has them all" in text


def test_one_node_in_full(made):
    detail = NodeDetail(
        result=made.node(4, Status.DIVERGED),
        backend=TensorInfo(name="conv4_q", shape=(1, 2), dtype="int8"),
        worst=[made.worst()],
    )
    text = markdown(node_document(detail))
    assert text.startswith("## qdebug: DIVERGED\n")
    assert "| max LSB | 5.00 LSB |" in text
    assert "| 0,3,1 | 1 | 1.2500 | 0.75000 | -0.5000 | -10.0 | - | 12 |" in text
    assert "- sample 1: diverged" in text
    assert html(text).count("<table>") == 4


def test_the_agreement_on_the_winner_has_a_line_for_each_output(made):
    text = diff_markdown(made.result([made.node(0)], outputs=(made.ranking("a_b"),)))
    assert "- **outputs**: a\\_b, if these are scores: top-1 agreement 14 of 16" in text
    assert "**output**" not in diff_markdown(made.result([made.node(0)]))


def test_names_that_swell_when_they_are_escaped_do_not_break_the_limit(made):
    hostile = "@#" * 2000
    said = Acknowledgement(node="n", reason=hostile)
    left_out = [made.unmatched(hostile + str(i), kind=UnmatchedKind.LOST, reason=hostile) for i in range(600)]
    nodes = [made.node(i, Status.DIVERGED, acknowledged=said, node=hostile, tensor=f"{hostile}{i}") for i in range(600)]
    text = diff_markdown(made.result(nodes, left_out=left_out))
    assert len(text.encode()) <= MARKDOWN_LIMIT
    assert "lines are left out; the JSON has them all" in text
    assert text.count("diverged \\(ack") > 10


def test_the_first_divergence_is_in_bold_and_the_limits_are_not_cut(made):
    result = made.result([made.node(0), made.node(1, Status.DIVERGED), made.node(2, Status.DIVERGED)])
    lines = diff_markdown(result).splitlines()
    assert [line for line in lines if line.startswith("| 1 | **diverged** | `conv1`")]
    assert sum("**diverged**" in line for line in lines) == 1
    (limits,) = [line for line in lines if line.startswith("- **limits**")]
    assert "…" not in limits
