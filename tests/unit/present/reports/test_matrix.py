"""Several backends beside each other, for a terminal, for Markdown and as JSON."""

import io

import pytest
from rich.console import Console

from qdebug.compare.result.result import Status
from qdebug.numerics.agreement import Agreement
from qdebug.present.reports.markdown import markdown
from qdebug.present.reports.matrix import diffs_dict, matrix_document
from qdebug.present.reports.terminal import terminal

ALIKE = {"conv0_out": Agreement(elements=100, differ=80, same=60)}


@pytest.fixture
def results(made):
    nodes = [made.node(i, Status.DIVERGED if i == 4 else Status.WITHIN) for i in range(20)]
    return {"good.h5": made.result([made.node(0)]), "evil\x1b[0m|x.h5": made.result(nodes)}


def shown(renderable, width):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(renderable)
    return console.file.getvalue()


@pytest.mark.parametrize("width", [80, 120])
def test_verdicts_then_the_worst_tensors(results, width):
    text = shown(terminal(matrix_document(results, ALIKE)), width)
    lines = text.splitlines()
    assert lines[2].split()[:3] == ["A", "good.h5", "within"]
    assert r"B evil\x1b[0m|x.h5" in lines[3]
    assert "conv4" in lines[3]
    assert lines[6].split()[:3] == ["conv4", "-", "30.0"]
    assert "75.0 % of 80" in text
    assert "the 12 worst of 20 tensors; the JSON has all" in text
    assert max(map(len, lines)) <= width
    assert "\x1b" not in text


def test_without_agreement_there_is_no_such_column(results):
    assert "wrong alike" not in shown(terminal(matrix_document(results, {})), 100)


def test_equal_backends_are_said_to_be(made):
    equal = made.result([made.node(0, Status.IDENTICAL, metrics=made.stats(mismatches=0))])
    text = shown(terminal(matrix_document({"a": equal, "b": equal}, {})), 100)
    assert "Every backend equals the reference" in text


def test_many_backends_have_letters(made):
    many = {f"b{i}.h5": made.result([made.node(0)]) for i in range(28)}
    text = shown(terminal(matrix_document(many, {})), 300)
    assert "Z b25.h5" in text
    assert "A1 b26.h5" in text


def test_markdown(results):
    text = markdown(matrix_document(results, ALIKE))
    assert "| `A good.h5` | within |" in text
    assert "| `conv4` | \\- |" in text.replace("| - |", "| \\- |")
    assert "75.0 % of 80" in text
    assert "\x1b" not in text


def test_plain_values_line_up(results):
    matrix = diffs_dict(results, ALIKE)["matrix"]
    assert len(matrix["nodes"]) == len(matrix["rows"]) == len(matrix["agreement"]) == 20
    assert matrix["agreement"][:2] == [{"elements": 100, "differ": 80, "same": 60}, None]
