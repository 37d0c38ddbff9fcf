"""qdebug probe: names the arithmetic, in three forms, and says what it cannot do."""

import json

import pytest

from qdebug.cli.main import main

QUICK = ("--backend", "interpreter:arithmetic=onednn", "--kind", "quantize")


def test_the_table_names_the_arithmetic(capsys):
    assert main(["probe", *QUICK]) == 0
    out = capsys.readouterr().out
    assert "EXPLAINED" in out
    assert "quantize float32 -> uint8" in out
    assert "onednn" in out
    assert "on interpreter" in out


def test_json_and_markdown(capsys, tmp_path):
    assert main(["probe", *QUICK, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["format"] == "qdebug.probe"
    assert {entry["title"] for entry in plain["kinds"]} == {"quantize float32 -> uint8", "quantize float32 -> int8"}
    target = tmp_path / "probe.md"
    assert main(["probe", *QUICK, "--all", "-o", str(target)]) == 0
    assert "| ort-mlas |" in target.read_text()
    assert main(["probe", *QUICK, "-o", str(target)]) == 2
    assert "exists" in capsys.readouterr().err


def test_what_cannot_be_done_is_said(capsys):
    assert main(["probe", "--backend", "interpreter", "--kind", "cinema"]) == 2
    assert "known are conv, linear" in capsys.readouterr().err
    assert main(["probe", "--backend", "interpreter:arithmetic=none"]) == 2
    assert "no arithmetic 'none'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["probe"])


def test_help_teaches(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["probe", "--help"])
    out = capsys.readouterr().out
    assert "each sum is chosen next to a\ntie" in out
    assert "qdebug probe --backend onnxruntime" in out
