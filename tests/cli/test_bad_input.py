"""Bad input: one clear sentence and a hint, exit code 2, no traceback, nothing left behind."""

import shutil

import pytest

import qdebug
from qdebug import data
from qdebug.cli import demo
from qdebug.errors import QdebugError


def check(done, *parts, hint=True):
    assert done.code == 2
    assert done.out == ""
    message, *rest = done.err.splitlines()
    assert message.startswith("qdebug")
    assert "Traceback" not in done.err
    for part in parts:
        assert part in done.err
    assert bool(rest) == hint
    assert all(line.startswith("  hint: ") for line in rest)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("inputs_npz", "is a zip archive (such as .npz), not a recording"),
        ("array_npy", "is a single numpy array, not a recording"),
        ("result_json", "is JSON, not a recording"),
        ("empty_h5", "is an empty file, not a recording"),
        ("text_h5", "text.h5"),
        ("folder", "is a directory, not a recording"),
    ],
)
@pytest.mark.parametrize("verb", ["info", "diff", "tui"])
def test_what_is_no_recording_is_named(run, recordings, verb, name, what):
    path = getattr(recordings, name)
    check(run(verb, *((path,) if verb == "info" else (recordings.reference, path))), what)


def test_a_folder_of_dumps_is_to_be_imported(run, recordings, tmp_path):
    (tmp_path / "dump").mkdir()
    check(run("diff", recordings.reference, "dump"), "qdebug import dump --graph MODEL -o dump.h5")


def test_a_model_is_no_recording(run, tmp_path):
    (tmp_path / "net.onnx").write_bytes(b"\x08\x07model")
    check(run("info", "net.onnx"), "is a model, not a recording", "qdebug record net.onnx --backend")


@pytest.mark.parametrize("words", [["info", "missing.h5"], ["diff", "missing.h5", "missing.h5"]])
def test_a_missing_file_is_named(run, words):
    check(run(*words), "missing.h5")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["diff", "REF", "WITHIN", "--node", "conv"], ["'conv' matches 2 nodes", "'conv1'"]),
        (["diff", "REF", "WITHIN", "--sample", "3"], ["no sample 3", "0 to 2"]),
        (["diff", "REF", "WITHIN", "--sample", "-1"], ["'-1' is not an integer"]),
        (["diff", "REF", "WITHIN", "--sample", "x"], ["'x' is not an integer"]),
        (["diff", "REF", "WITHIN", "--min-sqnr", "nan"], ["'nan' is not a number of decibels"]),
        (["diff", "REF", "WITHIN", "--max-lsb", "-1"], ["'-1' is not a number of at least 0"]),
        (["diff", "REF", "WITHIN", "--atol", "much"], ["'much' is not a number"]),
        (
            ["diff", "REF", "WITHIN", "--allow-uncompared", "2", "--allow-uncompared", "a*"],
            ["not the number 2 and other values"],
        ),
        (["diff", "REF", "WITHIN", "-o", "no/such/folder.json"], ["does not exist", "mkdir"]),
        (["diff", "REF", "WITHIN", "-o", "."], ["is a directory"]),
        (["diff", "REF", "WITHIN", "-o", "a.pdf"], ["Unknown report format '.pdf'", ".json", "-f table"]),
        (["diff", "REF", "WITHIN", "--seed", "3"], ["--seed is for model files", "Leave out --seed"]),
        (["diff", "REF", "WITHIN", "-f", "pdf"], ["invalid choice: 'pdf'"]),
        (["diff", "REF"], ["required: BACKEND"]),
        (
            ["diff", "REF", "WITHIN", "--min-snr", "3"],
            ["unrecognized arguments: --min-snr", "Did you mean --min-sqnr?", "qdebug diff --help"],
        ),
        (["dif", "REF", "WITHIN"], ["invalid choice: 'dif'", "Did you mean diff?"]),
        (["info"], ["required: FILE"]),
        (["record", "net.onnx", "-o", "a.h5"], ["needs --inputs", "--example-inputs"]),
        (["record", "net.onnx", "--inputs", "x.npz", "-o", "a.h5"], ["There is no file 'net.onnx'"]),
        (["record", "m", "--backend", "b:opt", "--inputs", "x", "-o", "a"], ["'opt' is not an option", "b:key=value"]),
        (["record", "m", "--backend", "b:a=1,a=2", "--inputs", "x", "-o", "a"], ["'a' is given twice"]),
        (["record", "m", "--backend", ":a=1", "--inputs", "x", "-o", "a"], ["name of the backend is missing"]),
        (["record", "m", "--backend", "b", "--inputs", "x", "-o", "a", "--samples", "0"], ["at least 1"]),
        (["record", "REF", "--backend", "nope", "--inputs", "NPZ", "-o", "a.h5"], ["nope"]),
        (["record", "no.onnx", "--backend", "interpreter", "--inputs", "NPZ", "-o", "a.h5"], ["no.onnx"]),
        (["record", "REF", "--backend", "interpreter", "--inputs", "no.npz", "-o", "a.h5"], ["no.npz"]),
        (["record", "REF", "--backend", "interpreter", "--inputs", "NPZ", "-o", "REF"], ["overwrite"]),
        (["record", "REF", "--backend", "interpreter", "--inputs", "NPZ", "-o", "WITHIN"], ["exists", "--force"]),
    ],
)
def test_wrong_usage_is_said_in_one_sentence(run, recordings, tmp_path, words, parts):
    names = {"REF": recordings.reference, "WITHIN": recordings.within, "NPZ": recordings.inputs_npz}
    check(run(*(names.get(word, word) for word in words)), *parts)
    assert not list(tmp_path.iterdir())


def test_recordings_of_two_networks_have_nothing_in_common(run, recordings, tmp_path):
    import numpy as np

    from qdebug.recording.recorder import Recorder

    with Recorder(tmp_path / "other.h5", backend="numpy") as rec:
        rec.put("something", np.zeros(3, np.float32), node="else", op="Relu")
    check(run("diff", recordings.reference, "other.h5"), "hint")


def test_a_message_cannot_steer_the_terminal(run):
    done = run("info", "evil\x1b[2J\u202e.h5")
    assert "\x1b" not in done.err
    assert "\u202e" not in done.err
    assert r"evil\x1b[2J\u202e.h5" in done.err or r"evil\\x1b" in done.err
    done = run("diff", "--\x1b[2J")
    assert "\x1b" not in done.err


@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (ZeroDivisionError("a\x1bb"), "internal error: ZeroDivisionError: a\\x1bb"),
        (PermissionError(13, "Permission denied", "/etc/x"), "Permission denied: '/etc/x'"),
        (OSError("disk on fire"), "disk on fire"),
        (MemoryError(), "not enough memory."),
        (QdebugError("No luck.", hint="Try again."), "qdebug: No luck.\n  hint: Try again."),
    ],
)
def test_whatever_goes_wrong_ends_in_one_sentence(run, monkeypatch, failure, said):
    def fail(*_, **__):
        raise failure

    monkeypatch.setattr("qdebug.running.demo.run_demo", fail)
    done = run("demo")
    assert done.code == 2
    assert said in done.err
    assert "Traceback" not in done.err
    assert ("--debug" in done.err) == isinstance(failure, ZeroDivisionError)


def test_values_that_are_not_what_was_recorded_end_with_code_3(run, tmp_path):
    path = shutil.copy(data.INT8_NET, tmp_path / "int8.h5")
    with qdebug.open_recording(path) as recording:
        at = path.read_bytes().index(recording.load("conv1_quantized").tobytes())
    with path.open("r+b") as file:
        file.seek(at + 3)
        file.write(bytes([path.read_bytes()[at + 3] ^ 0x40]))
    for words in (("diff", data.FLOAT_NET, path), ("file", "verify", path)):
        done = run(*map(str, words))
        assert done.code == 3
        assert "The bytes of tensor 'conv1_quantized'" in done.err
        assert "differ from what was recorded" in done.err
        assert "hint: Copy the file again" in done.err


def test_debug_shows_the_traceback(run, monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("qdebug.running.demo.run_demo", fail)
    with pytest.raises(ZeroDivisionError):
        run("demo", "--debug")


def test_ctrl_c_says_that_nothing_was_kept(run, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("qdebug.running.demo.run_demo", interrupt)
    done = run("demo")
    assert (done.code, done.err) == (130, "qdebug: interrupted; nothing was kept.\n")
    assert demo.DemoOptions.__doc__


def test_ctrl_c_during_a_recording_says_what_was_kept(run, monkeypatch, recordings, tmp_path):
    import numpy as np

    from qdebug.recording.recorder import Recorder

    def interrupt(*_, out, **__):
        with Recorder(out, backend="numpy") as rec:
            rec.put("x", np.zeros(3, np.float32))
            raise KeyboardInterrupt

    monkeypatch.setattr("qdebug.running.record.record_run", interrupt)
    words = ("record", "m.onnx", "--backend", "b", "--inputs", "x.npz", "-o", "part.h5")
    done = run(*words)
    assert done.code == 130
    assert "part.h5 contains the recording so far (incomplete): qdebug info part.h5" in done.err
    assert '"complete": false' in run("info", "part.h5", "--json").out
    partial = run("diff", "part.h5", "part.h5")
    assert partial.code == 3
    assert "--allow-partial" in partial.err
    assert run("diff", "part.h5", "part.h5", "--allow-partial").code == 0


@pytest.mark.parametrize("words", [["info"], ["explain"], ["diff", "int8.h5"], ["import", "-o", "a.h5"]])
def test_a_mistyped_file_has_a_near_name(words, run, recordings, tmp_path):
    shutil.copy(recordings.within, tmp_path / "int8.h5")
    done = run(words[0], *words[1:], "itn8.h5")
    assert done.code == 2
    assert "Did you mean 'int8.h5'?" in done.err


def test_record_chooses_the_backend_by_the_file(run, recordings, tmp_path):
    done = run("record", recordings.reference, "--inputs", recordings.inputs_npz, "-o", "a.h5")
    assert "backend interpreter, the first installed one that runs this file" in done.err
    (tmp_path / "net.unknown").write_text("text")
    done = run("record", "net.unknown", "--inputs", recordings.inputs_npz, "-o", "a.h5")
    assert done.code == 2
    assert "No installed backend runs the model file 'net.unknown'" in done.err
