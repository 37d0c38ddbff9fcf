"""Wrong kernels of single operators: their causes are named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnxruntime")


@pytest.mark.parametrize(
    ("options", "total"),
    [
        (("--every", "5"), "of 53"),
        (("--codes", "--every", "9"), "of 23"),
        (("--fused", "--every", "9"), "of 22"),
        (("--tiles", "--every", "9"), "of 16"),
        pytest.param(("--tiles",), "of 139", marks=pytest.mark.slow),
        pytest.param(("--steps",), "of 80", marks=pytest.mark.slow),
        pytest.param((), "of 261", marks=pytest.mark.slow),
        pytest.param(("--codes",), "of 208", marks=pytest.mark.slow),
        pytest.param(("--fused",), "of 203", marks=pytest.mark.slow),
        pytest.param(("--further",), "of 435", marks=pytest.mark.slow),
    ],
)
def test_nearly_all_causes_are_named(options, total):
    script = Path(__file__).with_name("operator_bugs.py")
    run = subprocess.run([sys.executable, script, *options], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert total in run.stdout
