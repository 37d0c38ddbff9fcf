"""Packages that are missing or too old end in one sentence."""

import shutil
import subprocess
import sys
import types
from importlib.resources import files

import pytest

from qdebug import requirements
from qdebug.cli.failures import report_failure

WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == {package!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name={package!r})

sys.meta_path.insert(0, Missing())
from qdebug.cli.start import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    "package",
    ["xxhash", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ml_dtypes", "threadpoolctl", "rich"))],
)
def test_a_core_package_that_is_missing_is_named_with_the_command_that_installs_it(package, tmp_path):
    file = shutil.copy(files("qdebug") / "data" / "digits.int8.h5", tmp_path)
    command = [sys.executable, "-c", WITHOUT.format(package=package), "explain", file]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    first, hint = done.stderr.splitlines()
    assert package.replace("_", "-") in first.replace("_", "-")
    assert "is not installed" in first
    assert "pip" in hint


def test_an_api_that_an_old_package_lacks_is_told_by_the_version_that_has_it(monkeypatch, capsys):
    monkeypatch.setattr(requirements, "requires", lambda _: ["onnxruntime>=1.23; extra == 'onnx'", "other>=9"])
    monkeypatch.setattr(requirements, "version", lambda _: "1.9.4")
    monkeypatch.setitem(sys.modules, "onnxruntime", types.ModuleType("onnxruntime"))
    report_failure(AttributeError("'OrtValue' object has no attribute 'tensor_size_in_bytes'"))
    said = capsys.readouterr().err
    assert "qdebug: onnxruntime 1.9.4 is too old: qdebug needs 1.23 or newer" in said
    assert "pip install --upgrade 'onnxruntime>=1.23'" in said
    report_failure(ZeroDivisionError())
    assert "internal error" in capsys.readouterr().err


def test_modules_of_this_package_and_recent_packages_are_a_bug(monkeypatch, capsys):
    monkeypatch.setattr(requirements, "requires", lambda _: ["onnxruntime>=1.23; extra == 'onnx'"])
    monkeypatch.setattr(requirements, "version", lambda _: "1.23.0")
    monkeypatch.setitem(sys.modules, "onnxruntime", types.ModuleType("onnxruntime"))
    report_failure(AttributeError("x"))
    report_failure(ModuleNotFoundError("No module named 'qdebug.lost'", name="qdebug.lost"))
    assert capsys.readouterr().err.count("internal error") == 2
