"""Bugs of arithmetic planted into a recorded net: found, named, and proved by their reproducers."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason="needs the extra onnxruntime")


@pytest.fixture(scope="module")
def bench():
    """Import the script, which lies beside this file."""
    path = Path(__file__).with_name("arithmetic_bugs.py")
    spec = importlib.util.spec_from_file_location("qdebug_tests_faults_arithmetic_bugs", path)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_no_bug_of_the_digits_net_is_explained_away(bench, tmp_path, capsys):
    out = tmp_path / "cases.json"
    assert bench.main([str(tmp_path), "--nets", "digits int8 onnx@onnxruntime", "--json", str(out)]) == 0
    cases = json.loads(out.read_text())
    assert len({case["kind"] for case in cases}) >= 15
    assert f"| all | {len(cases)} | {len(cases)} |" in capsys.readouterr().out


def test_what_was_missed_is_counted(bench, capsys):
    case = {"kind": "bias dropped", "found": True, "cause": True, "others": [], "reproducer": ""}
    assert bench.summary([case] * 10) == 0
    for change in ({"found": False}, {"others": ["n"]}, {"reproducer": "fails"}):
        assert bench.summary([case] * 9 + [case | change]) == 1
    assert bench.summary([case] * 9 + [case | {"cause": False}]) == 0  # nine of ten causes are enough
    assert bench.summary([case] * 8 + [case | {"cause": False}] * 2) == 1
    assert "| bias dropped | 10 | 10 | 8 | 0 | 10 |" in capsys.readouterr().out
