"""qdebug budget: the table, its JSON, and what it refuses."""

import json
import shutil
from importlib.resources import files

import pytest

from qdebug import data
from qdebug.cli.main import main


@pytest.fixture
def runs(tmp_path):
    """Copies of the package's recordings, beside which results may be kept."""
    return [shutil.copy(files(data).joinpath(f"digits.{form}.h5"), tmp_path) for form in ("float", "int8")]


def test_the_table_names_the_node_that_makes_most_and_what_to_do_next(capsys, runs):
    assert main(["budget", *runs, "--least", "0.2"]) == 0
    out, err = capsys.readouterr()
    assert "QLinearConv 'conv2_quant' alone causes 46.1 % of that error" in out
    assert "5 other nodes with less than 20.0 % each make" in out
    assert "some errors cancel each other" in out
    words = err.partition("next: qdebug ")[2].split()
    assert main(words) in (0, 1)


def test_equal_runs_have_no_error_to_part(capsys, runs):
    assert main(["budget", runs[0], runs[0]]) == 0
    assert capsys.readouterr().out.startswith("NO ERROR")


def test_the_same_is_written_as_json(capsys, runs, tmp_path):
    target = tmp_path / "budget.json"
    assert main(["budget", *runs, "-o", str(target)]) == 0
    assert "next" not in capsys.readouterr().err
    plain = json.loads(target.read_text())
    assert [plain["format"], len(plain["outputs"])] == ["qdebug.budget", 1]


def test_a_share_beyond_one_is_refused(capsys, runs):
    assert main(["budget", *runs, "--least", "5"]) == 2
    assert "from 0 to 1" in capsys.readouterr().err


def test_a_report_has_the_budget_too(capsys, runs, tmp_path):
    assert main(["diff", *runs, "--budget"]) == 0
    assert "QLinearConv 'conv2_quant' alone causes 46.1 %" in capsys.readouterr().out
    page = tmp_path / "page.html"
    assert main(["diff", *runs, "--budget", "-o", str(page)]) == 0
    assert "some errors cancel each other" in page.read_text()
    assert main(["diff", *runs, "--budget", "--json"]) == 2
    assert "qdebug budget REF BACKEND" in capsys.readouterr().err
