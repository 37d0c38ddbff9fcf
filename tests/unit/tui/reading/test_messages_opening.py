"""Whoever stands in for a session answers all that the interface asks of one."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest

import qdebug.tui
from qdebug.session import DiffSession

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "bench_tui.py"
UNASKED = {"acknowledge", "constants", "folded_in", "budget"}  # of the benchmark's comparison nobody asks these


def asked():
    """Return the names that the interface asks a session for."""
    public = {name for name in vars(DiffSession) if not name.startswith("_")} | {"reference", "backend", "limits"}
    text = "\n".join(path.read_text(encoding="utf-8") for path in Path(qdebug.tui.__file__).parent.rglob("*.py"))
    return public & set(re.findall(r"(?:source|session)\.(\w+)", text))


def test_the_comparison_of_the_benchmark_has_what_a_session_has(monkeypatch):
    spec = importlib.util.spec_from_file_location("bench_tui", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_tui", module)  # where its dataclasses look
    spec.loader.exec_module(module)
    made = module.made_up([f"block0/layer0/relu_{number}" for number in range(8)])
    assert len(asked()) > 8
    assert not {name for name in asked() - UNASKED if not hasattr(made, name)}


@pytest.mark.parametrize("name", sorted(asked()))
def test_the_session_of_the_tests_has_what_a_session_has(make_session, name):
    assert hasattr(make_session, name) or hasattr(make_session(), name)
