"""Mutants that were written by hand still apply: their code stands once in the file that they name."""

import tomllib
from pathlib import Path

TESTS = Path(__file__).parents[1]
PACKAGE = TESTS.parent / "qdebug"


def test_each_mutant_by_hand_applies():
    mutants = tomllib.loads((TESTS / "mutation" / "by_hand.toml").read_text(encoding="utf-8"))["mutant"]
    assert len(mutants) > 20
    stale = [
        mutant["title"]
        for mutant in mutants
        if (PACKAGE / mutant["path"]).read_text(encoding="utf-8").count(mutant["old"]) != 1
    ]
    assert stale == []
    assert all(mutant["new"] != mutant["old"] for mutant in mutants)
