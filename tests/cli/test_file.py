"""qdebug file, and --untrusted on the verbs that read."""

import shutil

import h5py
import numpy as np
import pytest

from qdebug.recording.recorder import Recorder


@pytest.fixture
def rotten(recordings, tmp_path):
    """A recording with one wrong byte in a tensor, which opens without complaint."""
    path = tmp_path / "rotten.h5"
    shutil.copy(recordings.diverged, path)
    with h5py.File(path, "r") as file:
        at = file["graph"]["payloads"][0]
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"\x12\x34\x56\x78")
    return path


def test_verify_says_what_is_in_it(run, recordings):
    done = run("file", "verify", recordings.reference, recordings.diverged)
    assert (done.code, done.err) == (0, "")
    assert done.out.count("are as recorded") == 2
    assert "12 tensors" in done.out


def test_verify_finds_one_wrong_byte(run, rotten):
    done = run("file", "verify", rotten)
    assert done.code == 3
    assert "The bytes of tensor 'x' in" in done.err
    assert "differ from what was recorded" in done.err
    assert "hint:" in done.err


@pytest.mark.parametrize("options", [["--memory", "64"], ["--timeout", "0"], ["--memory", "x"]])
def test_verify_with_limits_that_do_not_do(run, recordings, options):
    assert run("file", "verify", recordings.reference, *options).code == 2


VERBS = {
    "info": ["info", "{}"],
    "diff": ["diff", "{reference}", "{}"],
    "diff reference": ["diff", "{}", "{reference}"],
    "explain": ["explain", "{}"],
    "tui": ["tui", "{reference}", "{}"],
    "export csv": ["export", "csv", "{reference}", "{}"],
    "export npz": ["export", "npz", "{}", "-o", "{folder}/out.npz"],
    "record": ["record", "{}", "--backend", "interpreter", "--inputs", "{inputs}", "-o", "{folder}/out.h5"],
}


QUICK = {"info", "diff reference", "record"}
"""One of each kind: it reads one file, it reads two, it runs a recording as a model."""


@pytest.mark.parametrize(
    "verb", [verb if verb in QUICK else pytest.param(verb, marks=pytest.mark.slow) for verb in VERBS]
)
def test_untrusted_checks_before_anything_is_read(run, recordings, rotten, tmp_path, verb):
    fill = {"reference": recordings.reference, "folder": tmp_path, "inputs": recordings.inputs_npz}
    words = [word.format(rotten, **fill) for word in VERBS[verb]]
    done = run(*words, "--untrusted")
    assert done.code == 3
    assert "differ from what was recorded" in done.err
    assert done.out == ""


def test_untrusted_lets_a_sound_one_pass(run, recordings):
    assert run("info", recordings.reference, "--untrusted").code == 0


def left_behind(path):
    rec = Recorder(path, backend="b")
    rec.put("a", np.full(3, 7.5))
    rec.put("b", np.arange(4.0))
    rec._sink.leave()
    return path


def test_recover_and_what_it_is_good_for_then(run, tmp_path):
    path = left_behind(tmp_path / "run.h5")
    for verb in (["info", path], ["diff", path, path], ["file", "verify", path]):
        done = run(*verb)
        assert done.code == 2
        assert f"qdebug file recover '{path}'" in done.err or f"qdebug file recover {path}" in done.err
    done = run("file", "recover", path)
    assert (done.code, done.err) == (0, "")
    assert "2 tensors recovered, marked as incomplete" in done.out
    assert run("diff", path, path).code == 3
    assert run("diff", path, path, "--allow-partial").code == 0
    assert run("file", "recover", path).code == 2


def test_recover_names_what_is_lost(run, tmp_path):
    path = left_behind(tmp_path / "run.h5")
    part = tmp_path / "run.h5.part"
    content = part.read_bytes().replace(np.full(3, 7.5).tobytes(), np.ones(3).tobytes())
    part.write_bytes(content)
    done = run("file", "recover", path, "-o", tmp_path / "out.h5")
    assert done.code == 0
    assert "1 tensor recovered" in done.out
    assert "lost: a, sample 0, step 0" in done.out


def test_an_action_is_needed(run):
    done = run("file")
    assert done.code == 2
    assert "an action is missing" in done.err


def test_join_of_shards_names_the_rank_that_differs(run, tmp_path):
    weight = np.arange(16, dtype=np.float32).reshape(4, 4)
    for rank in range(2):
        with Recorder(tmp_path / f"r{rank}.h5", backend="tp") as rec:
            rec.put("a.up", weight[:, 2 * rank : 2 * rank + 2])
            rec.put("norm", weight + (weight == 5) * rank)
    with Recorder(tmp_path / "ref.h5", backend="trainer") as rec:
        rec.put("a.up", weight)
        rec.put("norm", weight)
    files, out = [str(tmp_path / f"r{rank}.h5") for rank in range(2)], str(tmp_path / "run.json")
    done = run("file", "join", *files, "--by", "shards", "--axis", "up=1,*=replicated", "-o", out)
    assert done.code == 1
    assert "rank 1: norm of" in done.out
    assert "max_abs 1.00, rel_l2 0.0284, 1 of 16 elements, first at sample 0, step 0" in done.out
    assert run("diff", str(tmp_path / "ref.h5"), out).code == 0
    axes = ["--axis", "up=1", "--axis", "norm=0"]
    assert run("file", "join", *files, "--by", "shards", *axes, "-o", out, "--force").code == 0
    assert run("file", "join", *files, "--by", "shards", "-o", out, "--force").code == 2
    done = run("file", "join", *files, "--axis", "up=1", "-o", out, "--force")
    assert done.code == 2
    assert "hint: Write --by shards --axis" in done.err
