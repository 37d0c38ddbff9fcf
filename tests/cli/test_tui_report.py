"""qdebug tui where there is no terminal: the report of qdebug diff, for all that was given."""

import pytest


def test_each_backend_has_its_report_and_the_worst_code_counts(run, recordings):
    done = run("tui", recordings.reference, recordings.within, recordings.diverged)
    assert done.code == 1
    assert "so the report of qdebug diff is printed" in done.err
    assert done.out.count("==>") == 2
    for path in (recordings.within, recordings.diverged):
        assert f"==> {path}" in done.out


def test_limits_are_those_of_diff(run, recordings, tmp_path):
    (tmp_path / "limits.toml").write_text("[default]\nmin_sqnr = 200\n")
    plain = run("tui", recordings.reference, recordings.within)
    for options in (("--min-sqnr", "200"), ("--limits", "limits.toml")):
        strict = run("tui", recordings.reference, recordings.within, *options)
        assert (plain.code, strict.code) == (0, 1), options
        assert strict.out == run("diff", recordings.reference, recordings.within, *options).out


@pytest.mark.parametrize("screen", ["nodes", "nonsense"])
def test_only_screens_that_exist_can_be_asked_for(run, recordings, screen):
    done = run("tui", recordings.reference, recordings.within, "--screen", screen)
    assert done.code == (0 if screen == "nodes" else 2)
    if screen == "nonsense":
        assert "answer" in done.err
