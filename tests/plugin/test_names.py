"""Names of files made from names of tests, and the list of comparisons."""

import json

import pytest

from qdebug.pytest_plugin.gather import ComparisonLedger
from qdebug.pytest_plugin.options import file_name

HOSTILE = ["../../x", "/etc/passwd", "a\x00b", "x" * 5000, "\x1b[31m", "..", "con|aux", "\ud800", "", "a\nb", "\u202e"]


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("digest", [True, False])
def test_no_name_leaves_the_folder(name, digest, tmp_path):
    made = file_name(name, digest=digest)
    (tmp_path / f"{made}.h5").touch()
    assert (tmp_path / f"{made}.h5").resolve().parent == tmp_path
    assert made.isascii()
    assert made.isprintable()
    assert len(made) <= 120


def test_different_names_have_different_files():
    names = [*HOSTILE, "a b", "a-b", "a/b", "A/B", "x" * 4999, "y" + "x" * 4999, "test[a]", "test[A]", "test[B-a]"]
    for digest in (True, False):
        made = [file_name(name, digest=digest).lower() for name in names]
        assert len(set(made)) == len(made)


def test_plain_names_stay_as_they_are_where_that_tells_them_apart():
    assert file_name("test_net[plain]", digest=False) == "test_net[plain]"
    assert file_name("test_net[plain]") != "test_net[plain]"


def entry(test, *, failed=False):
    return {"test": test, "outcome": "diverged" if failed else "within", "failed": failed, "first_divergence": "a\x1bb"}


def test_two_workers_share_a_folder_and_their_lists_are_read_as_one(tmp_path):
    for worker in ("gw1", "gw0"):
        ledger = ComparisonLedger(str(tmp_path), worker=worker)
        ledger.note(entry("t.py::same"))
        ledger.note(entry("t.py::same", failed=True))
    reader = ComparisonLedger(str(tmp_path))
    assert [(e["worker"], e["outcome"]) for e in reader.entries()].count(("gw0", "diverged")) == 1
    assert len(reader.entries()) == 4
    reader.write_report(tmp_path / "new" / "report.json")
    assert len(json.loads((tmp_path / "new" / "report.json").read_text())["comparisons"]) == 4
    reader.remove()
    assert not tmp_path.exists()


def test_a_list_that_nobody_wrote_to_makes_no_folder():
    ledger = ComparisonLedger()
    assert ledger.entries() == []
    ledger.remove()
