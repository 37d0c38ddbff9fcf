"""Adapters are loaded by name, and what is missing is named before anything runs."""

from __future__ import annotations

import importlib.util
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

from qdebug import backends
from qdebug.backends import BACKENDS, READERS, load_backend, load_reader
from qdebug.errors import MissingExtraError, UsageError

ROOT = Path(__file__).resolve().parents[3]


def test_every_row_names_a_module_that_exists_and_an_extra_that_is_declared():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for entry in (*BACKENDS.values(), *READERS.values()):
        assert importlib.util.find_spec(entry.module) is not None
        assert entry.summary
        assert bool(entry.extra) == bool(entry.packages)
        if entry.extra:
            required = " ".join(extras[entry.extra])
            assert all(package.partition(".")[0].replace("_", "-") in required for package in entry.packages)


def test_backends_carry_the_name_they_are_listed_under():
    assert load_backend("interpreter").name == "interpreter"
    pytest.importorskip("onnxruntime")
    assert load_backend("onnxruntime").name == "onnxruntime"


def test_an_unknown_backend_is_answered_with_those_there_are():
    with pytest.raises(UsageError, match="interpreter, onnxruntime") as caught:
        load_backend("onnxrt")
    assert "'onnxrt'" in str(caught.value)
    assert "--backend" in caught.value.hint


def test_a_missing_package_is_named_with_the_line_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="Backend 'onnxruntime' needs the package 'onnx'") as caught:
        load_backend("onnxruntime")
    assert "pip install 'qdebug[onnx]'" in caught.value.hint
    model = tmp_path / "net.onnx"
    model.write_bytes(b"")
    with pytest.raises(ImportError, match=r"Reading \.onnx files"):
        load_reader(model)


@pytest.mark.parametrize("package", ["runtime_of_mine", "runtime_of_mine.inner", "runtime_of_mine.inner.deep"])
def test_a_folder_of_its_name_is_no_package(monkeypatch, tmp_path, package):
    (tmp_path / "runtime_of_mine" / "inner").mkdir(parents=True)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(backends, "BACKENDS", {"mine": replace(BACKENDS["openvino"], packages=(package,))})
    with pytest.raises(MissingExtraError, match="needs the package 'runtime_of_mine'"):
        load_backend("mine")


def test_a_backend_of_core_packages_needs_no_extra(monkeypatch):
    monkeypatch.setattr(backends.importlib.util, "find_spec", lambda name: None)
    assert load_backend("interpreter").name == "interpreter"


@pytest.mark.parametrize(
    ("name", "message"), [("gone.onnx", "There is no model file"), ("net.pb", r"known extensions: \.onnx")]
)
def test_files_that_nothing_reads_are_refused(tmp_path, name, message):
    (tmp_path / "net.pb").write_bytes(b"")
    with pytest.raises(UsageError, match=message) as caught:
        load_reader(tmp_path / name)
    assert caught.value.hint


def test_the_ending_of_a_model_file_may_be_in_capitals(tmp_path):
    pytest.importorskip("onnx")
    capital = tmp_path / "NET.ONNX"
    capital.write_bytes((ROOT / "samples" / "digits" / "digits.onnx").read_bytes())
    assert load_reader(str(capital)).graph.outputs == ("logits",)
