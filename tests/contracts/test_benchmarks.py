"""Every benchmark runs to its end and prints its table; how fast anything is, no test tells."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
SMALL = {
    "bench_align.py": ("--rounds", "1"),
    "bench_diff.py": ("--sizes", "0.05", "--tiny", "100", "--rounds", "1"),
    "bench_edits.py": ("--nodes", "3"),
    "bench_explain.py": ("--rounds", "1"),
    "bench_explain_net.py": ("--nets", "cls", "--rounds", "1"),
    "bench_follow.py": ("--count", "20", "--rate", "200"),
    "bench_jobs.py": ("--nodes", "3", "--side", "16", "--rounds", "1"),
    "bench_large.py": ("--nodes", "200", "--rounds", "1"),
    "bench_metrics.py": ("--sizes", "256", "--rounds", "1"),
    "bench_page.py": ("--nodes", "12", "--rounds", "1"),
    "bench_real.py": ("recordings", "--pairs", "1", "--only", "help", "chain100 "),
    "bench_repair.py": ("--nets", "digits", "--samples", "2", "--edits", "4"),
    "bench_scales.py": ("--bins", "601", "--rounds", "1", "--without-net"),
    "bench_store.py": ("--rounds", "1", "--scale", "0.01"),
    "bench_tui.py": ("--nodes", "200", "--rounds", "1"),
}


def test_all_are_here():
    assert {path.name for path in FOLDER.glob("bench_*.py")} == set(SMALL)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_it_prints_its_table(name, tmp_path):
    done = subprocess.run(
        [sys.executable, str(FOLDER / name), *SMALL[name]],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "200", "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"│.*\d.*│", done.stdout), "a row with a figure"
    assert "Traceback" not in done.stderr
