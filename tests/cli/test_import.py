"""qdebug import: what it prints, its JSON, bad input, and that info, diff and explain read what it makes."""

import json
import shutil
import signal
import subprocess
import sys
import time

import jsonschema
import numpy as np
import pytest

from qdebug.cli.importing import _SOURCE_FORMATS
from qdebug.cli.main import main
from qdebug.importing.dumps import SOURCES
from qdebug.present.reports.schema import load_schema


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The built-in nets, recorded, and one sample of the int8 one as .npz."""
    folder = tmp_path_factory.mktemp("demo")
    assert main(["demo", str(folder / "d")]) == 0
    assert main(["export", "npz", str(folder / "d" / "int8.h5"), "-o", str(folder / "dump.npz")]) == 0
    return folder


@pytest.fixture
def demo(tmp_path, made):
    """The same in the folder of a test."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def test_what_was_exported_comes_back_and_is_a_recording_like_any_other(run, demo):
    done = run("import", "dump.npz", "--graph", "d/int8.h5", "-o", "npu.h5")
    assert done.code == 0
    assert done.out.startswith("npu.h5: 52 tensors, 1 sample, ")
    assert "names      52 unchanged" in done.out
    assert "fidelity   unknown" in done.out
    assert "next: qdebug info npu.h5 --tensors" in done.err
    assert "QLinearConv" in run("info", "npu.h5").out
    same = run("diff", "d/int8.h5", "npu.h5", "--allow-partial", "--json")
    assert (same.code, json.loads(same.out)["verdict"]["status"]) == (0, "identical")
    assert "pwconv_quant" in run("explain", "npu.h5").out


def test_the_name_of_the_verb_is_that_of_no_module(run):
    assert run("import", "--help").code == 0


def test_the_json_has_every_name(run, demo):
    np.savez("part.npz", conv1_quantized=np.zeros((1, 8, 8, 8), np.uint8), **{"flat.quantized": np.zeros(96, np.uint8)})
    np.savez("other.npz", nothing=np.zeros(3))
    done = run("import", "part.npz", "--graph", "d/int8.h5", "-o", "npu.h5", "--json")
    plain = json.loads(done.out)
    jsonschema.Draft202012Validator(load_schema("import")).validate(plain)
    assert {entry["how"] for entry in plain["matched"]} == {"exact", "cleaned"}
    assert plain["notes"] == {"flat_quantized": "axes of size 1 as in the model"}
    assert {"x", "logits"} < set(plain["absent"])
    shown = run("import", "part.npz", "--graph", "d/int8.h5", "-o", "npu.h5", "--force").out
    assert "flat.quantized is flat_quantized" in shown
    assert "not in the dump: 10" in shown
    assert "2 more; --json has all" in shown
    wrong = run("import", "other.npz", "--graph", "d/int8.h5", "-o", "npu.h5", "--force")
    assert (wrong.code, "None of the 1 names" in wrong.err, "hint" in wrong.err) == (2, True, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gone", "-o", "a.h5"], "There is no file or folder 'gone'"),
        (["d/int8.h5", "-o", "a.h5"], "is not a known kind of dump"),
        (["d", "-o", "a.h5"], "contains no readable tensor"),
        (["dump.npz", "-o", "d/int8.h5"], "exists"),
        (["dump.npz", "-o", "d"], "is a folder"),
        (["dump.npz", "-o", "no/a.h5"], "does not exist"),
        (["dump.npz", "--graph", "gone.onnx", "-o", "a.h5"], "cannot be read"),
        (["dump.npz", "--graph", "dump.npz", "-o", "a.h5"], "Unknown kind of model file"),
        (["dump.npz", "--source-format", "litert-debugger", "-o", "a.h5"], "it has no shapes or types"),
        (["dump.npz", "--source-format", "qnn", "-o", "a.h5"], "invalid choice: 'qnn'"),
        (["dump.npz", "--source-format", "description", "-o", "a.h5"], "cannot be parsed"),
    ],
)
def test_bad_input_is_one_sentence_with_a_hint(run, demo, words, said):
    done = run("import", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err
    assert "hint:" in done.err
    assert "Traceback" not in done.err
    assert not (demo / "a.h5").exists()


def test_names_of_a_dump_cannot_steer_the_terminal(run, demo):
    (demo / "evil").mkdir()
    np.save(demo / "evil" / "a\x1b[31m\u202e.npy", np.zeros(3))
    np.save(demo / "evil" / "logits.npy", np.zeros((1, 10), np.float32))
    (demo / "evil" / "log\x1b]0;x\x07.txt").write_text("")
    done = run("import", "evil", "--graph", "d/int8.h5", "-o", "npu.h5")
    assert done.code == 0
    assert not {"\x1b", "\u202e", "\x07"} & set(done.out + done.err)
    assert r"a\x1b[31m\u202e" in done.out


def test_ctrl_c_leaves_nothing(demo):
    (demo / "many").mkdir()
    for number in range(400):
        np.save(demo / "many" / f"t{number}.npy", np.zeros((256, 256), np.float32))
    command = [sys.executable, "-m", "qdebug", "import", "many", "-o", "out.h5"]
    with subprocess.Popen(command, cwd=demo, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None and not list(demo.glob("out.h5*")):
            time.sleep(0.005)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert (process.returncode, "interrupted; nothing was kept." in said) in ((130, True), (0, False))
    if process.returncode:
        assert not [path for path in demo.iterdir() if path.name.startswith("out.h5") and "lock" not in path.name]


def test_an_untrusted_dump_is_read_in_a_guarded_process(spawn, demo):
    done = spawn("import", "dump.npz", "-o", "npu.h5", "--untrusted")
    assert (done.returncode, done.stdout.startswith("npu.h5: 52 tensors")) == (0, True), done.stderr


def test_the_forms_offered_are_those_there_are():
    assert tuple(SOURCES) == _SOURCE_FORMATS
