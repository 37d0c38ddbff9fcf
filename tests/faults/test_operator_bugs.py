"""Wrong kernels of single operators: their causes are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnxruntime")


def test_nearly_all_causes_are_named():
    script = Path(__file__).with_name("operator_bugs.py")
    run = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "of 149" in run.stdout
