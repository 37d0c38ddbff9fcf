"""kill -9 at random moments: every tensor whose put had returned comes back, bit for bit, and no other array does."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("killed_run.py")


def outcomes(folder, workload, seed, runs):
    command = [sys.executable, PROGRAM, folder, workload, str(seed), str(runs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == runs
    assert not [each for each in found if each["wrong"]]
    assert all(each["back"] >= each["acknowledged"] for each in found)
    return found


@pytest.mark.parametrize(("workload", "runs"), [("few", 6), ("tiny", 1)])
def test_nothing_acknowledged_is_lost(tmp_path, workload, runs):
    found = outcomes(tmp_path, workload, 1, runs)
    assert any(each["acknowledged"] and not each["finished"] for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["large", "tiny"])
def test_nothing_acknowledged_is_lost_at_any_moment(tmp_path, workload):
    found = outcomes(tmp_path, workload, 2, 150)
    killed = [each["acknowledged"] for each in found if not each["finished"]]
    print(f"{workload}: {len(killed)} of {len(found)} runs killed, {sum(killed)} tensors acknowledged, all back")
    assert len(killed) > 60
