"""qdebug scales: profiles, chooses and tries; says what comes next, and what it cannot do."""

import json
from importlib.resources import files

import jsonschema
import numpy as np
import pytest

import qdebug
from qdebug import data
from qdebug.cli.main import main
from qdebug.present.reports.schema import load_schema

FLOAT, INT8 = (str(files(data).joinpath(f"digits.{form}.h5")) for form in ("float", "int8"))


def test_a_profile_is_written_and_scales_are_chosen_from_it(capsys, tmp_path):
    calib = tmp_path / "calib.h5"
    assert main(["scales", "profile", FLOAT, FLOAT, "-o", str(calib)]) == 0
    out, err = capsys.readouterr()
    assert "15 tensors, 2 samples, 2 runs (interpreter)" in out
    assert f"next: qdebug scales choose {calib}" in err
    assert main(["scales", "choose", str(calib), "--calibrator", "mse"]) == 0
    out, err = capsys.readouterr()
    assert "~4" in out
    assert "estimated" in out
    assert main(["scales", "profile", FLOAT, "-o", str(calib)]) == 2
    assert "exists" in capsys.readouterr().err


def test_recorded_scales_stand_beside_better_ones(capsys):
    assert main(["scales", "choose", FLOAT, INT8]) == 0
    out, err = capsys.readouterr()
    assert "conv2_quantized" in out
    assert "nothing odd" in out  # the processor of the run has VNNI, which does not saturate sums of two products
    assert out.index("logits_quantized") < out.index("conv1_quantized") < out.index("x_quantized")  # by what is gained
    assert "--node conv2_quant" in err
    assert main(["scales", "choose", FLOAT, INT8, "--node", "conv2_quant"]) == 0
    out, err = capsys.readouterr()
    assert "mse *" in out
    assert "0.053851" in out
    assert "next: qdebug scales try" in err


def test_the_command_that_comes_next_runs(capsys):
    main(["scales", "choose", FLOAT, INT8, "--node", "conv2_quant"])
    words = capsys.readouterr().err.partition("next: qdebug ")[2].split()
    assert main(words) == 0
    out = capsys.readouterr().out
    assert "output logits rel L2" in out
    assert "compared with the reference outputs" in out


def printed(capsys, *words):
    """Return the JSON that an action prints, which its schema knows."""
    assert main(["scales", *words, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    schema = load_schema(plain["format"].removeprefix("qdebug."))
    assert [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(plain)] == []
    return plain, jsonschema.Draft202012Validator(schema)


def test_json_is_what_its_schema_says_and_a_schema_can_fail(capsys, tmp_path):
    plain, schema = printed(capsys, "choose", FLOAT, INT8, "--node", "conv2_quant")
    row = next(row for row in plain["tensors"] if row["backend_tensor"] == "conv2_quantized")
    assert row["recorded"]["scale"] == [pytest.approx(0.05385121)]
    assert {choice["calibrator"] for choice in row["choices"]} == {"minmax", "percentile:99.99", "mse", "entropy"}
    row["granularity"] = "row"
    assert not schema.is_valid(plain)
    plain, schema = printed(capsys, "try", FLOAT, INT8, "--node", "conv2_quant", "--scale", "0.02")
    assert plain["outputs"][0]["trial"]["sqnr_db"] < plain["outputs"][0]["now"]["sqnr_db"]
    del plain["tensor_error"]["trial"]["used_codes"]
    assert not schema.is_valid(plain)
    with qdebug.Recorder(tmp_path / "small.h5", backend="b") as rec:
        rec.put("x", np.arange(24, dtype=np.float32).reshape(1, 4, 6))
    plain, schema = printed(capsys, "profile", str(tmp_path / "small.h5"), "--per-channel")
    plain["tensors"][0]["histogram"]["counts"][0] = -1
    assert not schema.is_valid(plain)


def test_other_tensors_and_trials_have_the_same_schemas(capsys, tmp_path):
    with qdebug.Recorder(tmp_path / "odd.h5", backend="npu") as rec:
        rec.put("nan", np.array([1, np.nan], np.float32), node="n", op="Relu", inputs=("zeros",))
        rec.put("zeros", np.zeros(3, np.float32))
    plain, _ = printed(capsys, "choose", str(tmp_path / "odd.h5"), "--calibrator", "entropy")
    assert plain["tensors"][0]["choices"][0]["scale"] is None
    plain, _ = printed(capsys, "profile", str(tmp_path / "odd.h5"))
    assert plain["tensors"][0]["histogram"]["nan"] == 1
    plain, _ = printed(capsys, "try", str(tmp_path / "odd.h5"), "--node", "zeros", "--scale", "1")
    assert plain["tensor_error"] == {"now": None, "trial": plain["tensor_error"]["trial"]}
    assert plain["tensor_error"]["trial"]["sqnr_db"] == "Infinity"


def test_a_report_is_written_in_the_form_of_its_ending(capsys, tmp_path):
    target = tmp_path / "scales.md"
    assert main(["scales", "choose", FLOAT, INT8, "-o", str(target)]) == 0
    assert "| `conv2_quantized` |" in target.read_text()


def test_a_mistake_is_exit_code_1(capsys, tmp_path):
    path = tmp_path / "bad.h5"
    with qdebug.Recorder(path, backend="npu") as rec:
        rec.put("x", np.zeros((2, 2), np.int8), node="n", op="Relu", inputs=("y",), scale=0.0)
    assert main(["scales", "choose", str(path)]) == 1
    assert "WRONG SCALES" in capsys.readouterr().out


def test_branches_of_unlike_range_in_one_scale_are_named(capsys, tmp_path):
    rng = np.random.default_rng(0)
    wide, narrow = (rng.normal(size=(1, 200), scale=scale).astype(np.float32) for scale in (20, 0.5))
    both = {"a": wide, "b": narrow, "cat": np.concatenate([wide, narrow], axis=1)}
    for name, facts in (("float", {}), ("int8", {"scale": 0.6})):
        with qdebug.Recorder(tmp_path / f"{name}.h5", backend=name) as rec:
            for tensor, values in both.items():
                stored = np.clip(np.rint(values / 0.6), -128, 127).astype(np.int8) if facts else values
                node = {"node": "join", "op": "Concat", "inputs": ("a", "b")} if tensor == "cat" else {}
                rec.put(tensor, stored, **node, **facts)
    assert main(["scales", "choose", str(tmp_path / "float.h5"), str(tmp_path / "int8.h5")]) == 0
    said = capsys.readouterr().out
    assert "shared_range  join: Concat joins ranges of" in said
    assert "in its own scale" in said


def test_files_that_are_not_trusted_are_read_in_a_guarded_process(capfd, tmp_path):
    calib = tmp_path / "calib.h5"
    assert main(["scales", "profile", FLOAT, "-o", str(calib)]) == 0
    assert main(["scales", "choose", str(calib), "--calibrator", "minmax", "--untrusted"]) == 0
    assert "SCALES" in capfd.readouterr().out
    (tmp_path / "no.h5").write_bytes(b"nothing")
    assert main(["scales", "choose", str(tmp_path / "no.h5"), "--untrusted"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["choose", FLOAT, INT8, "--calibrator", "best"], "Unknown calibrator 'best'"),
        (["choose", FLOAT, "--node", "conv9"], "values to choose a scale for is called 'conv9'"),
        (["choose", FLOAT, "--narrow"], "Add --dtype int8"),
        (["choose", FLOAT, "--rule", "tvm", "--scheme", "asymmetric"], "has no scheme 'asymmetric'"),
        (["choose", "none.h5"], "none.h5"),
        (["try", FLOAT, INT8, "--node", "conv2_quant", "--scale", "0"], "above 0"),
        (["try", FLOAT, INT8, "--node", "conv2_quant", "--scale", "1", "--arithmetic", "none"], "no arithmetic 'none'"),
        (["profile", FLOAT, "--inputs", "x.npz"], "with --backend"),
        (["profile", FLOAT, "--backend", "interpreter"], "--inputs FILE.npz"),
        (["profile", "none.h5"], "none.h5"),
    ],
)
def test_what_cannot_be_done_is_said_with_a_hint(capsys, words, said):
    assert main(["scales", *words]) == 2
    err = capsys.readouterr().err
    assert said in err
    assert "hint:" in err


def test_help_teaches(capsys):
    for words in ([], ["profile"], ["choose"], ["try"]):
        with pytest.raises(SystemExit, match="0"):
            main(["scales", *words, "--help"])
        assert "qdebug scales" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        main(["scales"])


def test_a_rule_implies_its_scheme(capsys):
    plain, _ = printed(capsys, "choose", FLOAT, "--rule", "tvm", "--scheme", "op:Gemm=power_of_two")
    assert plain["scheme"]["kind"] == "symmetric"
    assert {row["scheme"] for row in plain["tensors"] if row["op"] == "Gemm" and not row["weight"]} == {"power_of_two"}
    assert main(["scales", "choose", FLOAT, "--scheme", "op:Gemm=odd"]) == 2
    assert "Unknown scheme 'odd'" in capsys.readouterr().err
