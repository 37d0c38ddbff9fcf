"""Backends of other packages are found by their entry point; what is wrong with one is said with its package."""

from __future__ import annotations

import re
import sys
from importlib import resources

import numpy as np
import pytest

import qdebug
from qdebug.backends import installed_backends, load_backend
from qdebug.cli.completion import list_completables
from qdebug.cli.main import build_parser
from qdebug.errors import BackendError, UsageError
from qdebug.running.record import record_run

GOOD = """
from qdebug.backends.protocol import RunFacts
from qdebug.model import Graph, Node, Role, TensorInfo

class Run:
    def __init__(self):
        self.inputs = (TensorInfo(name="x", shape=(2,), dtype="float32", role=Role.INPUT),)
        self.outputs = ("y",)
        self.graph = Graph([Node(name="n", op="Neg", inputs=("x",), outputs=("y",))], inputs=("x",), outputs=("y",))
        self.facts = RunFacts(backend="toy", model="net")
    def constants(self): return iter(())
    def plain(self, feed): return {"y": -feed["x"]}
    def record(self, feeds, recorder, on_progress=None):
        recorder.put("x", feeds.feed(0)["x"])
        recorder.put("y", -feeds.feed(0)["x"])
    def restart(self): pass
    def close(self): pass

class backend:
    name, options = "toy", ()
    def open(model, *, options, taps="faithful", weights=True): return Run()
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a package of one module that offers a backend: install("name", source)."""
    monkeypatch.syspath_prepend(tmp_path)

    def go(name, source, value="toy_module:backend"):
        folder = tmp_path / "toy_package-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: toy-package\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[qdebug.backends]\n{name} = {value}\n")
        (tmp_path / "toy_module.py").write_text(source)
        monkeypatch.delitem(sys.modules, "toy_module", raising=False)

    return go


def test_a_backend_of_another_package_records(install, tmp_path):
    install("toy", GOOD)
    model = tmp_path / "net.bin"
    model.write_bytes(b"net")
    summary = record_run(model, backend="toy", inputs={"x": np.array([1, -2], np.float32)}, out=tmp_path / "toy.h5")
    assert summary.fidelity == "bit_equal"
    assert qdebug.open_recording(tmp_path / "toy.h5").load("y").tolist() == [-1, 2]


def test_it_is_listed_named_in_errors_and_completed(install, capsys):
    install("toy", GOOD)
    with pytest.raises(SystemExit):
        build_parser().parse_args(["record", "--list-backends"])
    assert "toy           of the package toy-package" in capsys.readouterr().out
    with pytest.raises(UsageError, match="toy"):
        load_backend("tay")
    (record,) = [each for each in list_completables(build_parser()) if each.words == ("record",)]
    assert "toy" in record.choices["--backend"]


def test_a_backend_of_qdebug_is_not_replaced(install):
    install("interpreter", GOOD)
    assert installed_backends() == {}
    assert load_backend("interpreter").name == "interpreter"


@pytest.mark.parametrize(
    ("source", "value", "said"),
    [
        ("1 / 0", "toy_module:backend", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("", "toy_module:backend", "cannot be loaded: AttributeError"),
        ("", "toy_modul:backend", "cannot be loaded: ModuleNotFoundError"),
        ("class backend: name = 'toy'", "toy_module:backend", "has no options, open"),
    ],
)
def test_a_broken_one_is_named_with_its_package_and_the_others_go_on(install, capsys, source, value, said):
    install("toy", source, value)
    with pytest.raises(BackendError, match=f"'toy' of the package 'toy-package'.*{said}"):
        load_backend("toy")
    assert load_backend("interpreter").name == "interpreter"
    with pytest.raises(SystemExit):
        build_parser().parse_args(["record", "--list-backends"])
    assert "not usable" in capsys.readouterr().out


def test_the_adapter_of_the_guide_runs(install, tmp_path):
    page = resources.files("qdebug.guide").joinpath("extending.md").read_text(encoding="utf-8")
    section = page.partition("## A backend in a package of your own")[2]
    name, value = re.search(r'^(\S+) = "(\S+)"$', section, re.MULTILINE).groups()
    assert value == "my_package.qdebug_backend:backend"
    install(name, re.search(r"```python\n(.*?)```", section, re.DOTALL)[1])
    w = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "net.npz", w=w)
    x = np.ones((2, 1, 2), np.float32)
    out = tmp_path / "out.h5"
    summary = record_run(tmp_path / "net.npz", backend=name, inputs={"x": x}, samples=2, out=out)
    recording = qdebug.open_recording(out)
    assert (summary.fidelity, summary.samples, set(recording.names)) == ("bit_equal", 2, {"x", "w", "y"})
    assert np.array_equal(recording.load("y", 1), x[1] @ w)
    assert qdebug.diff(out, out).status == "identical"
