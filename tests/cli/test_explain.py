"""qdebug explain: exit codes, forms of the result, one node, and the arithmetic that is written."""

import json
import re
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import qdebug
from qdebug.arithmetic.arithmetic_file import read_arithmetic
from qdebug.present.reports.schema import load_schema
from qdebug.recording.recorder import Recorder

DIGITS = Path(qdebug.__file__).parent / "data" / "digits.int8.h5"


@pytest.fixture(scope="session")
def broken(tmp_path_factory):
    """Record a sum on codes, the last channels of which are wrong in the second sample."""
    path = tmp_path_factory.mktemp("explain") / "broken.h5"
    rng = np.random.default_rng(4)
    with Recorder(path, backend="npu") as rec:
        for sample in range(2):
            rec.at(sample)
            a, b = (rng.integers(-128, 128, (1, 16, 6, 6), dtype=np.int8) for _ in range(2))
            real = (a.astype(np.float32) + b.astype(np.float32)) * np.float32(0.1)
            y = np.clip(np.rint(real / np.float32(0.15)), -128, 127).astype(np.int8)
            y[:, -4:] = 17 if sample else y[:, -4:]
            rec.put("a", a, scale=0.1, zero_point=0)
            rec.put("b", b, scale=0.1, zero_point=0)
            rec.put("y", y, node="sum\x1b[2J", op="Add", inputs=("a", "b"), scale=0.15, zero_point=0)
            rec.outputs("y")
            rec.check({"y": y})
    return path


def test_a_net_that_is_explained_exits_with_0(run):
    done = run("explain", DIGITS)
    assert done.code == 0
    assert done.out.startswith("EXPLAINED")
    assert "4 of 4" in done.out
    assert "float32 multiplier, ties to even" in done.out
    assert "next:" not in done.err


def test_an_unexplained_node_exits_with_1_and_is_led_to(run, broken):
    done = run("explain", broken)
    assert done.code == 1
    assert done.out.startswith("UNEXPLAINED")
    assert re.search(r"14\d of 1\D?152 codes wrong", done.out)
    assert "last 4 channels of 16" in done.out
    assert "\x1b" not in done.out
    assert "next: qdebug explain" in done.err


def test_one_node_in_full(run, broken):
    done = run("explain", broken, "--node", "y")
    assert done.code == 1
    assert "likely" in done.out
    assert "wrong" in done.out
    explained = run("explain", DIGITS, "--node", "conv1_quant")
    assert explained.code == 0
    assert "measured" in explained.out
    assert "witnesses 1 sum or code that the runner-up gets wrong" in " ".join(explained.out.split())
    unknown = run("explain", DIGITS, "--node", "conv9")
    assert unknown.code == 2
    assert "no computed tensor is called 'conv9'" in unknown.err


def test_the_json_validates_for_all_nodes_and_for_one(run, broken):
    for words in ((DIGITS,), (broken,), (DIGITS, "--node", "fc1_quant")):
        plain = json.loads(run("explain", *words, "--json").out)
        jsonschema.Draft202012Validator(load_schema("explain")).validate(plain)
        assert plain["nodes"]
    assert plain["summary"]["explained"] == 1


def test_no_answer_is_no_success(run, tmp_path):
    path = tmp_path / "lost.h5"
    with Recorder(path, backend="npu") as rec:
        rec.put("y", np.arange(6, dtype=np.int8), node="mystery\nop", op="Frobnicate", inputs=("x",), scale=0.5)
    done = run("explain", path)
    assert done.code == 3
    assert done.out.startswith("NO ANSWER")
    assert "exit code 3: no computed tensor could be examined" in done.err


def test_one_sample_alone(run, broken):
    assert run("explain", broken, "--sample", "0").code == 0
    wrong = run("explain", broken, "--sample", "1", "--json")
    assert wrong.code == 1
    assert {index[0] for index in json.loads(wrong.out)["nodes"][0]["residual"]["elements"]} == {1}
    assert run("explain", broken, "--sample", "2").code == 2


def test_an_accepted_node_is_no_failure(run, tmp_path, broken):
    assert run("explain", broken, "--max-lsb", "2").code == 1
    done = run("explain", broken, "--max-lsb", "200")
    assert done.code == 0
    assert "1 unexplained, 1 accepted" in done.out
    assert "its error is at most 200 LSB" in done.out
    assert "next:" not in done.err
    limits = tmp_path / "limits.toml"
    limits.write_text('[[acknowledged]]\nnode = "sum\\u001b[2J"\nreason = "ticket 7"\n')
    known = run("explain", broken, "--limits", limits)
    assert known.code == 0, known.err
    assert "acknowledged: ticket 7" in known.out


def test_markdown_and_every_node(run, broken):
    text = run("explain", broken, "-f", "markdown").out
    assert text.startswith("## qdebug: UNEXPLAINED\n\n0 of 1 node reproduced bit for bit; 1 unexplained")
    assert "\x1b" not in text
    listed = run("explain", DIGITS, "--all").out
    assert "logits_DequantizeLinear" in listed
    assert "logits_DequantizeLinear" not in run("explain", DIGITS).out


def test_the_arithmetic_is_written_and_read_back(run, tmp_path, broken):
    target = tmp_path / "found.toml"
    assert run("explain", DIGITS, "--write-arithmetic", target).code == 0
    found = read_arithmetic(target)
    assert "conv:uint8,int8,uint8" in found.arithmetic.variants
    assert run("explain", DIGITS, "--write-arithmetic", target).code == 2
    assert run("explain", DIGITS, "--write-arithmetic", target, "--force").code == 0
    none = run("explain", broken, "--write-arithmetic", tmp_path / "none.toml")
    assert none.code == 2
    assert "No node is explained by an arithmetic" in none.err


def test_the_facade_gives_the_same(broken):
    found = qdebug.explain(broken)
    assert [str(node.status) for node in found.nodes] == ["unexplained"]
    assert found.nodes[0].residual.pattern in ("tail", "unwritten")
    assert isinstance(found, qdebug.Explanation)


def test_nodes_on_codes_without_their_inputs_make_it_incomplete_unless_allowed(run, tmp_path):
    source = np.arange(-40, 40, dtype=np.int8).reshape(8, 10)
    with qdebug.Recorder(tmp_path / "a.h5", backend="npu") as rec:
        rec.put("x", source, scale=0.1)
        rec.put("y", np.maximum(source, 0), node="act", op="Relu", inputs=("x",), scale=0.1)
        rec.put("z", source, node="fc", op="Gemm", inputs=("lost", "w"), scale=0.5)
    done = run("explain", tmp_path / "a.h5")
    assert done.code == 3
    assert "1 of 2 quantized nodes were not examined (the first: 'z'" in done.err
    assert done.out.startswith("INCOMPLETE")
    assert run("explain", tmp_path / "a.h5", "--allow-uncompared", "z").code == 0
