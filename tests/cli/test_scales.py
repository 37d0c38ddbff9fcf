"""qdebug scales: profiles, chooses and tries; says what comes next, and what it cannot do."""

import json
from importlib.resources import files

import numpy as np
import pytest

from qdebug import data
from qdebug.cli.main import main

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
    assert "6 pairs_16" in out
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
    assert "against the reference ones" in out


def test_json_and_markdown(capsys, tmp_path):
    assert main(["scales", "choose", FLOAT, INT8, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["format"] == "qdebug.scales"
    row = next(row for row in plain["tensors"] if row["backend_tensor"] == "conv2_quantized")
    assert row["recorded"]["scale"] == [pytest.approx(0.05385121)]
    assert {choice["calibrator"] for choice in row["choices"]} == {"minmax", "percentile:99.99", "mse", "entropy"}
    assert main(["scales", "try", FLOAT, INT8, "--node", "conv2_quant", "--scale", "0.02", "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["outputs"][0]["trial"]["sqnr_db"] < plain["outputs"][0]["now"]["sqnr_db"]
    target = tmp_path / "scales.md"
    assert main(["scales", "choose", FLOAT, INT8, "-o", str(target)]) == 0
    assert "| `conv2_quantized` |" in target.read_text()
    assert main(["scales", "profile", FLOAT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "qdebug.profile"


def test_a_mistake_is_exit_code_1(capsys, tmp_path):
    import qdebug

    path = tmp_path / "bad.h5"
    with qdebug.Recorder(path, backend="npu") as rec:
        rec.put("x", np.zeros((2, 2), np.int8), node="n", op="Relu", inputs=("y",), scale=0.0)
    assert main(["scales", "choose", str(path)]) == 1
    assert "WRONG SCALES" in capsys.readouterr().out


def test_files_that_are_not_trusted_are_read_in_a_guarded_process(capfd, tmp_path):
    calib = tmp_path / "calib.h5"
    assert main(["scales", "profile", FLOAT, "-o", str(calib)]) == 0
    for words in ([FLOAT], [str(calib)]):
        assert main(["scales", "choose", *words, "--calibrator", "minmax", "--untrusted"]) == 0
        assert "SCALES" in capfd.readouterr().out
    (tmp_path / "no.h5").write_bytes(b"nothing")
    assert main(["scales", "choose", str(tmp_path / "no.h5"), "--untrusted"]) == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["choose", FLOAT, INT8, "--calibrator", "best"], "There is no calibrator 'best'"),
        (["choose", FLOAT, "--node", "conv9"], "no node or tensor 'conv9'"),
        (["choose", FLOAT, "--narrow"], "Add --dtype int8"),
        (["choose", FLOAT, "--rule", "tvm"], "has no scheme 'asymmetric'"),
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
