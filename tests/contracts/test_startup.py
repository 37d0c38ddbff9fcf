"""`qdebug --help` answers before anything heavy is loaded."""

import subprocess
import sys

import pytest

HEAVY = {"numpy", "h5py", "rich", "textual", "ml_dtypes", "onnx", "onnxruntime", "threadpoolctl", "asyncio"}
PROGRAM = """
import sys
from qdebug.cli.main import main
sys.argv[0] = "qdebug"
try:
    code = main({arguments!r})
except SystemExit as stop:
    code = stop.code
print("code", code, *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""


def loaded_by(arguments, program=PROGRAM):
    done = subprocess.run(
        [sys.executable, "-c", program.format(arguments=arguments)], capture_output=True, text=True, check=True
    )
    *shown, last = done.stdout.splitlines()
    _, code, *modules = last.split()
    return code, set(modules), "\n".join(shown)


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["diff", "--help"], ["record", "--help"]])
def test_help_and_version_load_nothing_heavy(arguments):
    code, modules, shown = loaded_by(arguments)
    assert code in ("0", "None")
    assert "qdebug" in shown
    assert modules & HEAVY == set()


def test_the_check_can_fail():
    _, modules, _ = loaded_by(["--help"], "import numpy\n" + PROGRAM)
    assert "numpy" in modules
