"""Whoever stands in for a session answers all that the interface asks of one."""

import importlib.util
import sys
from pathlib import Path

import pytest

from qdebug.tui.reading.source import DiffSource

BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "bench_tui.py"
UNASKED = {"acknowledge"}  # of the made-up comparison that the benchmark draws nobody accepts an error


def asked():
    """Give the names that the interface may ask a session for."""
    return {name for name in vars(DiffSource) if not name.startswith("_")}


def test_the_comparison_of_the_benchmark_has_what_a_session_has(monkeypatch):
    spec = importlib.util.spec_from_file_location("bench_tui", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "bench_tui", module)  # where its dataclasses look
    spec.loader.exec_module(module)
    made = module.made_up([f"block0/layer0/relu_{number}" for number in range(8)])
    assert asked()
    assert not {name for name in asked() - UNASKED if not hasattr(made, name)}


@pytest.mark.parametrize("name", sorted(asked()))
def test_the_session_of_the_tests_has_what_a_session_has(make_session, name):
    assert hasattr(make_session, name) or hasattr(make_session(), name)
