"""qdebug lint: the report, its JSON, the witness file, its exit codes, and what it refuses."""

import json
import shutil

import jsonschema
import numpy as np
import pytest

import qdebug
from qdebug import data
from qdebug.cli.main import main
from qdebug.present.reports.schema import load_schema


def record(path, factor, **put):
    weight = factor * np.ones((8, 3), np.float32)
    x = np.linspace(-3, 3, 8, dtype=np.float32)[np.newaxis]
    with qdebug.Recorder(path, backend="npu", model="net") as recorder:
        recorder.constant("w", weight)
        recorder.put("x\x1b[31m", x)
        recorder.put("y", x @ weight, node="m", op="MatMul", inputs=("x\x1b[31m", "w"), **put)
        recorder.outputs("y")
    return str(path)


@pytest.fixture
def forms(tmp_path):
    return [record(tmp_path / f"{factor}.h5", factor) for factor in (1, 2)]


def test_a_rewrite_is_shown_with_its_witness(capsys, tmp_path, forms):
    assert main(["lint", *forms]) == 1
    out, err = capsys.readouterr()
    assert out.startswith("FOUND")
    assert r"'x\x1b[31m'" in out
    assert "\x1b[31m" not in out
    assert f"next: qdebug diff {forms[0]} {forms[1]}" in err
    target, witness = tmp_path / "lint.json", tmp_path / "w.npz"
    assert main(["lint", *forms, "-o", str(target), "--write-witness", str(witness)]) == 1
    plain = json.loads(target.read_text())
    jsonschema.validate(plain, load_schema("lint"))
    shown = plain["findings"][0]["witness"]
    with np.load(witness) as held:
        (name,) = held.files
        x = held[name]
    # the witness file, multiplied by hand, gives what the report says
    row = tuple(shown["index"])
    assert (x @ np.ones((8, 3)))[row] == pytest.approx(shown["before"], rel=1e-5)
    assert (x @ (2 * np.ones((8, 3))))[row] == pytest.approx(shown["after"], rel=1e-5)


def test_two_forms_of_one_are_clean_and_so_is_the_net_of_the_package(capsys, tmp_path, forms):
    assert main(["lint", forms[0], forms[0]]) == 0
    assert capsys.readouterr().out.startswith("CLEAN")
    assert main(["lint", shutil.copy(data.INT8_NET, tmp_path), "-f", "markdown"]) == 0
    assert "CLEAN" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none.h5"], "There is no file 'none.h5'"),
        (["x.npz"], "is a zip archive (such as .npz), not a recording"),
        (["1.h5", "--for", "magic"], "The requirements of 'magic' are not known"),
        (["1.h5", "--inputs", "none.npz"], "There is no input file 'none.npz'"),
        (["1.h5", "-o", "1.h5"], "is also an input of this command"),
        (["bare.h5"], "has no graph"),
    ],
)
def test_what_it_cannot_do_is_said_in_a_sentence(capsys, tmp_path, forms, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    np.savez("x.npz", x=np.zeros(3))
    with qdebug.Recorder("bare.h5", backend="npu") as recorder:
        recorder.put("y", np.zeros(3, np.float32))
    assert main(["lint", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "hint:" in err
