"""qdebug probe: names the arithmetic, in three forms, and says what it cannot do."""

import json
import re

import jsonschema
import pytest

from qdebug.cli.main import main
from qdebug.present.reports.schema import load_schema

EMPTY = {"format": "qdebug.probe", "version": 1, "backend": {"backend": "x"}}
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
    assert "probed kinds are conv, linear" in capsys.readouterr().err
    assert main(["probe", "--backend", "interpreter:arithmetic=none"]) == 2
    assert "no arithmetic 'none'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        main(["probe"])


def test_help_teaches(capsys):
    assert main(["help", "probe"]) == 0
    out = capsys.readouterr().out
    assert "place every sum next to a tie" in " ".join(out.split())
    assert "qdebug probe --backend onnxruntime" in out


def test_two_fingerprints_are_compared(capsys, tmp_path):
    mine = tmp_path / "mine.json"
    assert main(["probe", *QUICK, "-o", str(mine)]) == 0
    assert main(["probe", "--compare", "litert-2.3.0-reference-avx2", str(mine)]) == 1
    out = capsys.readouterr().out
    assert re.search(r"2 of 2 kinds of node use different arithmetic; \d+ more are explained in one file only", out)
    assert "ai-edge-litert 2.3.0 (kernels=reference) on avx2" in out
    assert "differs quantize float32 -> uint8\n    divided by the output scale, ties away from zero" in out
    assert main(["probe", "--compare", str(mine), str(mine)]) == 0
    assert "SAME  0 of 2 kinds" in capsys.readouterr().out
    assert main(["probe", "--compare", str(mine), str(mine), "--all", "--format", "markdown"]) == 0
    assert r"- **same** quantize float32 -\> int8" in capsys.readouterr().out
    assert main(["probe", "--compare", "litert-2.3.0-reference-avx2", str(mine), "--json"]) == 1
    plain = json.loads(capsys.readouterr().out)
    jsonschema.validate(plain, load_schema("probe-comparison"))
    assert plain["summary"] == {"differs": 2, "first": 33, "second": 0, "same": 0}


PLANTED = {
    "Cast:bfloat16": "result=zero;sat",
    "Cast:float16": "result=away;flush;sat",
    "Add:float16": "result=zero",
    "Sub:float16": "result=away",
    "Mul:bfloat16": "result=even;flush",
    "Div:bfloat16": "result=down",
    "Tanh:float16": "result=out",
    "Erf:bfloat16": "result=zero",
    "Gelu:float16": "the erf=even;result=even",
    "MatMul:bfloat16": "result=zero",
    "Gemm:float16": "the sum before the bias=even;result=even",
    "Conv:bfloat16": "the sum before the bias=zero;result=even",
    "ReduceMean:float16": "result=zero",
    "Softmax:bfloat16": "the exponentials=even;result=even",
    "Softmax:float16": "the sum of exponentials=even;result=even",
    "LayerNormalization:bfloat16": "the mean=even;the normalized values=even;result=zero",
    "LayerNormalization:float16": "the inverse root=even;result=even",
    "RMSNormalization:bfloat16": "the squares=even;result=even",
    "RMSNormalization:float16": "the inverse root=zero;result=even",
}


def test_planted_roundings_come_back(capsys, tmp_path):
    lines = [f'"{key}" = "{placement}"' for key, placement in PLANTED.items()]
    header = 'format = "qdebug.arithmetic"\nversion = 1\nname = "planted"\nbase = "onnx-spec"\n'
    path = tmp_path / "planted.toml"
    path.write_text(header + "\n[roundings]\n" + "\n".join(lines))
    kinds = ("--kind", "float16", "--kind", "bfloat16")
    mine, spec = tmp_path / "mine.json", tmp_path / "spec.json"
    assert main(["probe", "--backend", f"interpreter:rounding={path}", *kinds, "-o", str(mine)]) == 0
    plain = json.loads(mine.read_text())
    jsonschema.validate(plain, load_schema("probe"))
    assert plain["kinds"] == []
    entries = {f"{entry['op']}:{entry['format']}": entry for entry in plain["roundings"]}
    assert {key: entries[key]["placement"] for key in PLANTED} == PLANTED
    assert all(entry["confirmed"] for entry in entries.values())
    assert main(["probe", "--backend", "interpreter", "--kind", "float16", "-o", str(spec)]) == 0
    capsys.readouterr()
    assert main(["probe", "--compare", str(mine), str(spec), "--json"]) == 1
    differences = {kind["title"]: kind for kind in json.loads(capsys.readouterr().out)["kinds"]}
    assert differences["Add float16"]["verdict"] == "differs"
    assert differences["Add float16"]["first"] == "results truncated to float16"
    assert differences["Add float16"]["second"] == "results rounded to nearest, ties to even to float16"
    assert differences["Add bfloat16"]["verdict"] == "first"
    assert differences["Div float16"] == {
        "title": "Div float16",
        "verdict": "same",
        "first": "results rounded to nearest to float16",
        "second": "results rounded to nearest to float16",
    }


def test_onnxruntime_rounds_float16_once(capsys, tmp_path):
    pytest.importorskip("onnxruntime")
    target = tmp_path / "ort.json"
    assert main(["probe", "--backend", "onnxruntime", "--kind", "float16", "-o", str(target)]) == 0
    entries = {entry["op"]: entry for entry in json.loads(target.read_text())["roundings"]}
    assert {entry["format"] for entry in entries.values()} == {"float16"}
    for op in ("Cast", "Add", "Sub", "Mul", "Div", "Sqrt", "MatMul", "Gemm"):
        assert (entries[op]["status"], entries[op]["placement"]) == ("explained", "result=even")
    assert not [op for op, entry in entries.items() if entry["status"] == "unexplained"]


def test_what_a_backend_does_not_run_is_no_error(capsys):
    pytest.importorskip("onnxruntime")
    assert main(["probe", "--backend", "onnxruntime", "--kind", "bfloat16"]) == 0
    out = capsys.readouterr().out
    assert "float roundings" in out
    assert re.search(r"not run +Add +bfloat16\n    ONNX Runtime refused the model: Could not find", out)
    assert re.search(r"explained +Cast +bfloat16\n    results rounded to nearest, ties to even to bfloat16", out)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("{", "is not a fingerprint"),
        ('{"format": "qdebug.diff"}', "is not a fingerprint"),
        ('{"format": "qdebug.probe", "version": 9}', "version 9; this qdebug reads 1"),
        (json.dumps({**EMPTY, "backend": {}, "kinds": []}), "is damaged: it lacks 'backend'"),
        (json.dumps({**EMPTY, "backend": "ort", "kinds": []}), "is damaged: its 'backend' is str; expected dict"),
        (json.dumps({**EMPTY, "kinds": [7]}), "is damaged: it lacks 'key'"),
        (
            json.dumps(
                {**EMPTY, "kinds": [{"status": "explained", "key": "conv", "title": "t", "variants": ["form=no"]}]}
            ),
            "is damaged: The arithmetic has an unknown form 'no'",
        ),
        (json.dumps({**EMPTY, "kinds": [], "roundings": {}}), "is damaged: its 'roundings' is dict; expected list"),
        (
            json.dumps(
                {
                    **EMPTY,
                    "kinds": [],
                    "roundings": [
                        {"status": "explained", "op": "Add", "format": "float16", "placements": ["result=no"]}
                    ],
                }
            ),
            "is damaged: 'result=no' cannot be parsed as a placement",
        ),
    ],
)
def test_what_is_no_fingerprint_is_refused(content, said, tmp_path, capsys):
    path = tmp_path / "it.json"
    path.write_text(content)
    assert main(["probe", "--compare", str(path), str(path)]) == 2
    assert said in capsys.readouterr().err
    assert main(["probe", "--compare", str(tmp_path / "none.json"), str(path)]) == 2
    assert "cannot be read: No such file or directory" in capsys.readouterr().err
