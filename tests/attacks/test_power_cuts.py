"""A power cut at any moment loses nothing that was due, and a sync left out or done too late would be noticed.

No kill loses what was put, and no call that fails reaches the program that is recorded.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("power_cuts.py")
DURABILITY = Path(__file__).with_name("durability.py")


def lines_of(program, *arguments):
    command = [sys.executable, program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=3000, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def check_states(folder, states):
    found = lines_of(PROGRAM, folder, states)
    assert sum(each["states"] for each in found) == states
    assert all(each["operations"] > 3 for each in found)
    assert not [each for each in found if each["wrong"]]


def test_nothing_due_is_lost(tmp_path):
    check_states(tmp_path, 65)


@pytest.mark.slow
def test_nothing_due_is_lost_in_many_states(tmp_path):
    check_states(tmp_path, 2000)


def check_mutants(folder, text, least):
    found = lines_of(PROGRAM, folder, "--mutants", text)
    assert len(found) >= least
    assert not [each for each in found if not each["noticed"]]


def test_a_sync_that_is_missing_when_a_file_gets_its_name_would_be_noticed(tmp_path):
    check_mutants(tmp_path, "rename_finished", 6)


@pytest.mark.slow
def test_a_sync_that_is_missing_anywhere_would_be_noticed(tmp_path):
    check_mutants(tmp_path, "", 30)


def check_durability(folder, kills, failures):
    found = lines_of(DURABILITY, folder, "--states", 0, "--kills", kills, "--failures", failures, "--json")
    assert sum(each["tried"] for each in found) == kills + 10 * failures
    assert not [each for each in found if each["wrong"]]


def test_kills_and_calls_that_fail(tmp_path):
    check_durability(tmp_path, 6, 2)


@pytest.mark.slow
def test_many_kills_and_calls_that_fail(tmp_path):
    check_durability(tmp_path, 1000, 300)
