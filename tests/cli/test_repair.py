"""qdebug repair: the report, its JSON, its exit codes, and what it refuses."""

import json
import shutil
from importlib.resources import files

import numpy as np
import pytest

from qdebug import data
from qdebug.cli.main import main


@pytest.fixture
def runs(tmp_path):
    """Copies of the package's recordings, beside which results may be kept."""
    return [shutil.copy(files(data).joinpath(f"digits.{form}.h5"), tmp_path) for form in ("float", "int8")]


def test_the_report_has_the_edits_and_what_they_bring(capsys, runs):
    assert main(["repair", *runs, "--within", "45", "--kinds", "float"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("REPAIRED")
    assert "output-sqnr from 40.43 dB to" in out
    assert "without edits the replay reproduces the recorded outputs of the first sample bit for bit" in out
    assert "every edit is needed: without any of them the goal is missed" in out
    assert main(err.partition("next: qdebug ")[2].split()) in (0, 1)


def test_a_goal_that_no_allowed_edit_reaches_is_code_1(capsys, runs, tmp_path):
    target = tmp_path / "repair.json"
    assert main(["repair", *runs, "--within", "90", "--kinds", "bias", "-o", str(target)]) == 1
    plain = json.loads(target.read_text())
    assert (plain["format"], plain["reached"]) == ("qdebug.repair", False)
    assert capsys.readouterr().out.startswith("NOT REACHED  ")  # the verdict, beside the file


def test_a_goal_that_is_reached_takes_nothing(capsys, runs):
    assert main(["repair", *runs]) == 0
    assert capsys.readouterr().out.startswith("NOTHING TO DO")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--kinds", "magic"], "Unknown kind of edit 'magic'"),
        (["--cost", "macs=much"], "is not a cost"),
        (["--metric", "bleu"], "Unknown metric 'bleu'"),
        (["--labels", "none.npy"], "contains no labels"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(capsys, runs, words, said):
    assert main(["repair", *runs, *words]) == 2
    assert said in capsys.readouterr().err


def test_labels_are_read_from_one_array(capsys, runs, tmp_path):
    labels = tmp_path / "labels.npy"
    np.save(labels, np.zeros(1, np.int64))
    assert main(["repair", *runs, "--metric", "top1", "--labels", str(labels)]) == 0
    assert "top1" in capsys.readouterr().out


def test_a_result_is_where_the_next_one_begins(capsys, runs, tmp_path):
    kept, wrong = tmp_path / "repair.json", tmp_path / "wrong.json"
    assert main(["repair", *runs, "--within", "45", "--kinds", "float", "-o", str(kept)]) == 0
    words = ["repair", *runs, "--within", "45", "--minutes", "0", "--json", "--resume"]
    capsys.readouterr()
    assert main([*words, str(kept)]) == 0
    assert json.loads(capsys.readouterr().out)["edits"] == json.loads(kept.read_text())["edits"]
    wrong.write_text('{"edits": [{"kind": "float"}]}')
    assert main([*words, str(wrong)]) == 2
    assert "is not the result of a repair" in capsys.readouterr().err


def test_a_sweep_is_a_curve_over_the_number_of_layers_in_float(capsys, runs, tmp_path):
    target = tmp_path / "sweep.json"
    assert main(["repair", *runs, "--sweep", "first:4", "--within", "45"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("REACHED  the first 4 layers in float bring output-sqnr to")
    assert "\u2588" in out
    assert "next: qdebug repair" in err
    assert main(["repair", *runs, "--sweep", "last:1", "--within", "45", "-o", str(target)]) == 1
    plain = json.loads(target.read_text())
    assert (plain["format"], plain["end"], plain["enough"], len(plain["counts"])) == ("qdebug.sweep", "last", None, 2)


def test_a_sweep_that_makes_no_sense_is_refused(capsys, runs):
    assert main(["repair", *runs, "--sweep", "first:2", "--kinds", "float"]) == 2
    assert "--kinds belongs to the search" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["repair", *runs, "--sweep", "first:0"])
    assert "invalid first:K or last:K" in capsys.readouterr().err
