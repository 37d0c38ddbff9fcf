"""demo, record, info, tui, help: each as a user types it."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from qdebug import __version__, data
from qdebug.cli.main import build_parser
from qdebug.present.reports.schema import load_schema

NET = Path(data.__file__).parent / "digits.float.h5"


def test_help_teaches_the_story_in_order(run):
    done = run("--help")
    assert done.code == 0
    places = [done.out.index(f"\n    {verb} ") for verb in ("demo", "record", "info", "diff", "tui")]
    assert places == sorted(places)
    assert "qdebug record net.onnx --backend onnxruntime:opt=none --inputs x.npz -o ref.h5" in done.out


@pytest.mark.parametrize("verb", ["demo", "record", "info", "diff", "tui"])
@pytest.mark.parametrize("whole", [False, True])
def test_each_verb_has_examples_that_parse(run, verb, whole):
    done = run("help", verb) if whole else run(verb, "--help")
    assert done.code == 0
    text = re.sub(r" *\\\n +", " ", done.out)
    lines = text.partition("examples:")[2].splitlines()
    examples = [line.strip() for line in lines if line.startswith("  qdebug ")]
    commands = [line.split("   ")[0].split(" | ")[0].split(" >>")[0] for line in examples]
    assert len(commands) >= 2
    for command in commands:
        words = command.split()[1:]
        if "--explain-metrics" not in words and "--list-backends" not in words:
            assert build_parser().parse_args(words).run


def test_without_a_verb_the_help_goes_to_stderr(run):
    done = run()
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("usage: qdebug")


def test_version(run):
    assert run("--version").out == f"qdebug {__version__}\n"


def test_info_prints_facts_and_valid_json(run, recordings):
    done = run("info", recordings.within)
    assert done.code == 0
    assert "samples    3" in done.out
    assert "3 Conv" in done.out
    plain = json.loads(run("info", recordings.within, "--json", "--tensors").out)
    jsonschema.Draft202012Validator(load_schema("info")).validate(plain)
    assert plain["bytes"] == recordings.within.stat().st_size
    assert {entry["name"] for entry in plain["tensor_list"]} == {"x", "conv1_out", "conv2_out", "head_out"}
    assert "conv1_out" in run("info", recordings.within, "--tensors").out
    assert "**backend**: numpy" in run("info", recordings.within, "-f", "markdown").out


def test_info_goes_to_a_file(run, recordings, tmp_path):
    run("info", recordings.within, "-o", "facts.json")
    assert json.loads((tmp_path / "facts.json").read_text())["format"] == "qdebug.info"


def test_the_demo_tells_the_story_and_its_commands_work(run):
    done = run("demo")
    assert done.code == 0
    assert "planted in node pwconv_quant" in done.out
    assert "FAIL  diverged: kernel at QLinearConv pwconv: 1123 of 3840 codes are wrong" in done.out
    typed = [line.split("   ")[0].split() for line in done.out.splitlines() if line.startswith("  qdebug ")]
    codes = {tuple(words[1:]): run(*words[1:]).code for words in typed}
    assert codes == {
        ("info", "qdebug-demo/int8.h5"): 0,
        ("diff", "qdebug-demo/float.h5", "qdebug-demo/int8.h5", "--node", "pwconv_quant"): 1,
        ("explain", "qdebug-demo/int8.h5", "--node", "pwconv_quant"): 1,
        ("tui", "qdebug-demo/float.h5", "qdebug-demo/int8.h5"): 1,
        ("record", "--help"): 0,
    }
    assert run("demo").code == 0


def test_the_demo_replaces_nothing_in_a_folder_of_the_user(run, tmp_path):
    (tmp_path / "mine").mkdir()
    shutil.copy(NET, tmp_path / "mine" / "int8.h5")
    again = run("demo", "mine")
    assert again.code == 2
    assert "--force" in again.err
    assert run("demo", "mine", "--force").code == 0
    assert (tmp_path / "mine" / "int8.h5").read_bytes() != NET.read_bytes()


def test_record_replays_a_recording_and_says_what_is_next(run, tmp_path):
    (tmp_path / "d").mkdir()
    shutil.copy(NET, tmp_path / "d" / "float.h5")
    x = np.random.default_rng(0).random((2, 1, 1, 8, 8), np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    words = (
        "record",
        "d/float.h5",
        "--backend",
        "interpreter",
        "--inputs",
        "x.npz",
        "--samples",
        "2",
        "-o",
        "again.h5",
    )
    done = run(*words)
    assert done.code == 0
    assert done.out.startswith("again.h5: ")
    assert "fidelity bit_equal" in done.out
    assert "next: qdebug info again.h5" in done.err
    assert json.loads(run("info", "again.h5", "--json").out)["samples"] == 2
    refused = run(*words)
    assert refused.code == 2
    assert "exists" in refused.err
    light = run(*words, "--force", "--no-weights", "--taps", "outputs")
    assert light.code == 0
    plain = json.loads(run("info", "again.h5", "--json").out)
    assert (plain["constants"], plain["taps"]) == (0, "outputs")


def test_backends_are_listed_with_their_options(run):
    done = run("record", "--list-backends")
    assert done.code == 0
    assert "interpreter   NumPy kernels" in done.out
    assert "arithmetic=onnx-spec: arithmetic of quantized operators" in done.out
    assert "onnxruntime " in done.out


def test_the_interface_prints_the_report_where_there_is_no_terminal(run, recordings):
    done = run("tui", recordings.reference, recordings.diverged, "--node", "conv2", "--sample", "1")
    assert done.code == 1
    assert done.out.startswith("FAIL  diverged")
    assert "#2 conv2  Conv  (sample 1)" in done.out
    assert "is not a terminal, so the report of qdebug diff is printed" in done.err


def test_as_a_module_and_as_a_script(spawn, recordings):
    done = spawn("diff", recordings.reference, recordings.diverged)
    assert done.returncode == 1
    assert done.stdout.startswith("FAIL  diverged")
    script = Path(sys.executable).with_name("qdebug")
    shown = subprocess.run([script, "--version"], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout) == (0, f"qdebug {__version__}\n")


def test_a_reader_that_has_seen_enough_is_no_error(recordings, tmp_path):
    command = [sys.executable, "-m", "qdebug", "info", str(recordings.within), "--tensors"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


def test_a_poor_locale_does_not_stop_a_report(spawn, tmp_path):
    from qdebug.recording.recorder import Recorder

    with Recorder(tmp_path / "a.h5", backend="nüm") as rec:
        rec.put("層/畳み込み", np.zeros(3, np.float32))
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = spawn("info", "a.h5", "--tensors", env=environment)
    assert done.returncode == 0
    assert r"n\xfcm" in done.stdout
    assert done.stderr == ""
