"""qdebug diff: exit codes, forms of the result, what is allowed to be missing."""

import json
import shutil

import jsonschema
import numpy as np
import pytest
from referencing import Registry, Resource

from qdebug.present.reports.schema import SCHEMAS, load_schema
from qdebug.recording.recorder import Recorder

REGISTRY = Registry().with_resources(
    [(load_schema(name)["$id"], Resource.from_contents(load_schema(name))) for name in SCHEMAS]
)


def valid(name, text):
    plain = json.loads(text)
    jsonschema.Draft202012Validator(load_schema(name), registry=REGISTRY).validate(plain)
    return plain


@pytest.mark.parametrize(
    ("backend", "code", "word"),
    [
        ("identical", 0, "PASS  identical"),
        ("within", 0, "PASS  within"),
        ("unknown", 0, "PASS  identical"),
        ("diverged", 1, "FAIL  diverged"),
        ("unfaithful", 3, "INCOMPLETE"),
        ("lost", 3, "INCOMPLETE"),
    ],
)
def test_the_exit_code_says_how_it_came_out_and_the_verdict_is_always_printed(run, recordings, backend, code, word):
    done = run("diff", recordings.reference, getattr(recordings, backend))
    assert done.code == code
    assert done.out.startswith(word)


def test_the_highest_of_several_reasons_decides(run, recordings):
    done = run("diff", recordings.unfaithful, recordings.diverged)
    assert done.code == 3
    assert done.out.startswith("FAIL, INCOMPLETE  diverged")
    assert "exit code 3: recording changed the result of the reference run" in done.err
    assert "accept with --allow-unfaithful" in done.err
    assert run("diff", recordings.unfaithful, recordings.diverged, "--allow-unfaithful").code == 1


def test_unknown_fidelity_is_said_and_is_no_failure(run, recordings):
    done = run("diff", recordings.reference, recordings.unknown)
    assert "fidelity unknown: whether recording changed the result was not checked" in done.out
    assert done.code == 0


@pytest.mark.parametrize(
    ("allowed", "code"),
    [
        (["--allow-uncompared", "conv2*"], 0),
        (["--allow-uncompared", "head*", "--allow-uncompared", "*_out"], 0),
        (["--allow-uncompared", "1"], 0),
        (["--allow-uncompared", "head*"], 3),
        (["--allow-uncompared", "0"], 3),
    ],
)
def test_lost_tensors_are_accepted_by_pattern_or_number(run, recordings, allowed, code):
    done = run("diff", recordings.reference, recordings.lost, *allowed)
    assert done.code == code
    assert "LOST reference conv2_out" in done.out


def test_different_inputs_are_said_first_and_can_be_allowed(run, tmp_path):
    paths = [tmp_path / "a.h5", tmp_path / "b.h5"]
    for path, factor in zip(paths, (1.0, 1.08), strict=True):
        with Recorder(path, backend="npu") as rec:
            x = np.float32(factor) * np.random.default_rng(0).standard_normal((1, 64)).astype(np.float32)
            rec.put("x", x)
            rec.put("y", np.maximum(x, 0), node="relu", op="Relu", inputs=("x",))
            rec.outputs("y")
    done = run("diff", *paths)
    assert done.code == 3
    assert "incomplete: the two runs were given different inputs ('x' differs" in " ".join(done.out.split())
    assert "accept with --allow-different-inputs" in done.err
    plain = valid("diff", run("diff", *paths, "--json").out)
    assert (plain["verdict"]["status"], plain["verdict"]["first_divergence"]) == ("incomplete", None)
    assert run("diff", *paths, "--allow-different-inputs").code == 0


def test_what_was_judged_how_is_in_the_json(run, recordings):
    plain = valid("diff", run("diff", recordings.reference, recordings.within, "--json").out)
    judged = plain["judged"]
    assert judged["by_replay"] + judged["by_whole_error"] + judged["not_judged"] == plain["coverage"]["compared"]
    assert {node["judged_by"] for node in plain["nodes"]} <= {"replay", "whole_error", "none"}


def test_limits_of_the_user_replace_the_default_and_are_said(run, recordings):
    strict = run("diff", recordings.reference, recordings.within, "--max-lsb", "0.1")
    assert strict.code == 1
    assert "given: at most 0.1 LSB" in strict.out
    loose = run("diff", recordings.reference, recordings.diverged, "--min-sqnr", "-50")
    assert loose.code == 0
    assert "given: SQNR at least -50 dB" in loose.out
    assert run("diff", recordings.reference, recordings.within, "--atol", "0.03", "--rtol", "0").code == 0
    assert run("diff", recordings.reference, recordings.within, "--atol", "0.001").code == 1


def test_json_is_valid_and_alone_on_stdout(run, recordings):
    done = run("diff", recordings.reference, recordings.diverged, "--json")
    plain = valid("diff", done.out)
    assert done.code == 1
    assert plain["verdict"]["first_divergence"] == "conv2"
    assert [node["tensor"] for node in plain["nodes"]] == ["x", "conv1_out", "conv2_out", "head_out"]
    assert plain["nodes"][1]["quant"] == {
        "dtype": "int8",
        "scale": [pytest.approx(0.04)],
        "zero_point": [-3],
        "axis": None,
    }
    assert done.err == ""


def test_one_node_in_full(run, recordings):
    done = run("diff", recordings.reference, recordings.diverged, "--node", "conv2")
    assert done.code == 1
    assert done.out.startswith("DIVERGED  #2 conv2  Conv  (all samples)")
    for expected in ("scale / zero point", "0.04 / -3", "worst elements", "sample 2: diverged", "1x4x6"):
        assert expected in done.out
    plain = valid("diff", run("diff", recordings.reference, recordings.diverged, "--node", "conv2_out", "--json").out)
    (node,) = plain["nodes"]
    assert len(node["worst_elements"]) == 20
    assert node["inputs"][0]["tensor"] == "conv1_out"


def test_one_sample_alone_keeps_its_number(run, recordings):
    done = run("diff", recordings.reference, recordings.diverged, "--sample", "2", "--json")
    plain = valid("diff", done.out)
    assert all([sample["sample"] for sample in node["samples"]] == [2] for node in plain["nodes"])
    assert plain["nodes"][2]["metrics"]["worst_sample"] == 2
    whole = valid("diff", run("diff", recordings.reference, recordings.diverged, "--json").out)
    assert whole["nodes"][2]["samples"][2]["sqnr_db"] == plain["nodes"][2]["metrics"]["sqnr_db"]
    shown = run("diff", recordings.reference, recordings.diverged, "--sample", "2", "--node", "conv2").out
    assert "(sample 2)" in shown


def test_markdown(run, recordings):
    words = ("diff", recordings.reference, recordings.diverged, "-f", "markdown", "--min-output-sqnr", "30")
    done = run(*words)
    assert done.out.startswith("## :x: qdebug: FAIL\n")
    assert "| 2 | `conv2` | `Conv` |" in done.out
    assert f"Again: `qdebug {' '.join(map(str, words))}`" in done.out
    whole = run("diff", recordings.reference, recordings.diverged, "-f", "markdown", "--all").out
    assert "| 2 | **diverged** | `conv2` | `Conv` |" in whole
    assert len(done.out) < len(whole)
    one = run("diff", recordings.reference, recordings.diverged, "-f", "markdown", "--node", "conv2")
    assert one.out.startswith("## qdebug: DIVERGED\n\n#<!-- -->2 conv2")


def test_several_backends(run, recordings):
    paths = (recordings.reference, recordings.within, recordings.diverged)
    plain = valid("diffs", run("diff", *paths, "--json").out)
    assert [diff["verdict"]["status"] for diff in plain["diffs"]] == ["within", "diverged"]
    assert plain["matrix"]["backends"] == [str(path) for path in paths[1:]]
    assert len(plain["matrix"]["rows"]) == len(plain["matrix"]["nodes"]) == 4
    done = run("diff", *paths)
    assert done.code == 1
    assert done.out.index("PASS  within") < done.out.index("FAIL  diverged")
    assert f"==> {recordings.diverged}" in done.out
    assert (
        valid("diffs", run("diff", *paths, "--json", "--node", "conv1").out)["diffs"][0]["nodes"][0]["node"] == "conv1"
    )


def test_what_to_type_next_is_on_stderr_and_works(run, recordings):
    done = run("diff", recordings.reference, recordings.diverged)
    first, second = (line for line in done.err.splitlines() if not line.startswith("time: "))
    assert first == f"next: qdebug diff {recordings.reference} {recordings.diverged} --node conv2"
    assert second.strip() == f"qdebug tui {recordings.reference} {recordings.diverged}"
    assert run(*first.split()[2:]).code == 1
    passed = run("diff", recordings.reference, recordings.within).err
    assert f"next: qdebug diff {recordings.reference} {recordings.within} --suggest-limits limits.toml" in passed


def test_what_is_missing_is_shown_next(run, recordings):
    done = run("diff", recordings.reference, recordings.lost)
    assert done.code == 3
    assert f"next: qdebug diff {recordings.reference} {recordings.lost} --verbose" in done.err
    assert "--allow-uncompared GLOB" in done.err


@pytest.mark.parametrize(("backend", "is_offered"), [("openvino", True), ("onnxruntime", False)])
def test_what_differs_on_another_processor_is_bisected_over_instruction_sets(run, tmp_path, backend, is_offered):
    pytest.importorskip(backend)
    for name, flags, value in (("a", ("avx2",), 1.0), ("b", ("avx2", "amx_int8"), 2.0)):
        with Recorder(tmp_path / f"{name}.h5", backend=backend, model="net.onnx", cpu_flags=flags) as recorder:
            recorder.put("y", np.full(4, value, np.float32), node="n", op="Relu", inputs=("x",))
    done = run("diff", tmp_path / "a.h5", tmp_path / "b.h5")
    words = f"qdebug bisect net.onnx --inputs FILE.npz --backend {backend} --over cpu"
    assert (words in done.err) == is_offered


def test_where_the_time_went_is_on_stderr_and_never_in_the_result(run, recordings, tmp_path):
    pair = [shutil.copy(path, tmp_path) for path in (recordings.reference, recordings.diverged)]
    assert "time: " in run("diff", *pair, "--verbose").err
    kept = run("diff", *pair, "--verbose")
    assert "time: " not in kept.err
    plain = run("diff", *pair, "--json").out
    shutil.rmtree(f"{pair[1]}.qdebug-cache")
    fresh = run("diff", *pair, "--json")
    assert (fresh.out, fresh.err) == (plain, "")


def test_a_node_in_full_has_histograms_channels_and_where_it_is_wrong(run, recordings):
    shown = run("diff", recordings.reference, recordings.diverged, "--node", "conv2").out
    for part in ("abs(difference)/abs(reference)", "values", "channels along axis"):
        assert part in shown
    plain = valid("diff", run("diff", recordings.reference, recordings.diverged, "--node", "conv2", "--json").out)
    detail = plain["nodes"][0]["detail"]
    count = plain["nodes"][0]["metrics"]["count"]
    assert sum(detail["errors_by_exponent"]["counts"]) + detail["errors_by_exponent"]["zeros"] == count
    assert plain["shortcomings"] == []


def test_several_backends_stand_beside_each_other_first(run, recordings):
    paths = (recordings.reference, recordings.within, recordings.diverged)
    done = run("diff", *paths)
    head, *_ = done.out.partition("==> ")
    for part in ("A ", "B ", "wrong alike", "conv2", "all backends differ from the reference"):
        assert part in head
    assert run("diff", *paths, "-f", "markdown").out.startswith("### Several backends\n")
    plain = valid("diffs", run("diff", *paths, "--json").out)
    assert plain["matrix"]["agreement"][0]["elements"] > 0


def test_a_result_goes_to_a_file_whole_and_never_over_another(run, recordings, tmp_path):
    target = tmp_path / "result.json"
    done = run("diff", recordings.reference, recordings.diverged, "-o", target)
    assert (done.code, len(done.out.splitlines())) == (1, 1)
    assert done.out.startswith("FAIL  diverged: ")
    assert done.err == f"wrote {target}\n"
    assert valid("diff", target.read_text())["verdict"]["status"] == "diverged"
    before = target.read_bytes()
    again = run("diff", recordings.reference, recordings.within, "-o", target)
    assert again.code == 2
    assert "exists" in again.err
    assert "--force" in again.err
    assert target.read_bytes() == before
    assert run("diff", recordings.reference, recordings.within, "-o", target, "--force").code == 0
    assert target.read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]


def test_the_form_of_a_file_follows_its_ending_unless_given(run, recordings, tmp_path):
    for name, start in (("a.md", "## :white_check_mark: qdebug: PASS"), ("a.txt", "PASS"), ("a.json", "{")):
        run("diff", recordings.reference, recordings.within, "-o", tmp_path / name)
        assert (tmp_path / name).read_text().startswith(start)
    run("diff", recordings.reference, recordings.within, "-o", tmp_path / "b.json", "-f", "table")
    assert (tmp_path / "b.json").read_text().startswith("PASS")
    assert "\x1b" not in (tmp_path / "b.json").read_text()


def test_a_recording_that_is_read_is_never_written(run, recordings):
    before = recordings.reference.read_bytes()
    done = run("diff", recordings.reference, recordings.within, "-o", recordings.reference, "--force")
    assert done.code == 2
    assert "is also an input of this command" in done.err
    assert recordings.reference.read_bytes() == before


def test_metrics_are_explained_without_any_recording(run):
    done = run("diff", "--explain-metrics")
    assert done.code == 0
    assert "10 log10(sum reference^2 / sum difference^2)" in done.out
    assert json.loads(run("diff", "-f", "json", "--explain-metrics").out)["format"] == "qdebug.metrics"


def test_of_several_backends_the_one_of_another_network_is_named(recordings, run, tmp_path):
    with Recorder(tmp_path / "other.h5", backend="be") as rec:
        rec.put("something", np.eye(7))
    done = run("diff", recordings.reference, recordings.within, tmp_path / "other.h5")
    assert done.code == 2
    assert "other.h5': No tensor of" in done.err


def many_nodes(path, *, wrong):
    """Record a chain of 60 Relus; in the wrong one each from the tenth on adds 1 to 7 to what it reads."""
    with Recorder(path, backend="numpy", model="net") as rec:
        rec.put("x", np.ones((1, 8), np.float32))
        previous, values = "x", np.ones((1, 8), np.float32)
        for at in range(60):
            values = values + np.float32(1 + at % 7) if wrong and at >= 10 else values
            rec.put(f"t{at}", values, node=f"scope/block{at}/conv", op="Relu", inputs=(previous,))
            previous = f"t{at}"
        rec.outputs(previous)
        rec.check({previous: values})
    return path


@pytest.fixture(scope="module")
def long_pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("long")
    return many_nodes(folder / "ref.h5", wrong=False), many_nodes(folder / "bad.h5", wrong=True)


def test_a_report_fits_a_screen_unless_more_is_asked_for(run, long_pair):
    short = run("diff", *long_pair)
    assert short.out.startswith("FAIL  diverged")
    assert len((short.out + short.err).splitlines()) < 24
    assert "more faults: --only-failing" in short.out
    failing = run("diff", *long_pair, "--only-failing").out
    assert failing.count("diverged  ") == 50
    first, *_, last = failing.splitlines()
    assert last.startswith("FAIL")  # the verdict again, at the end of a long report
    assert first == last[: len(first)]
    whole = run("diff", *long_pair, "--all").out
    assert sum(" within " in line or " diverged " in line or " identical " in line for line in whole.splitlines()) >= 61
    assert "limits" in run("diff", *long_pair, "--verbose").out
    assert "limits" not in short.out


def test_the_verdict_alone(run, long_pair):
    done = run("diff", *long_pair, "-q")
    assert (done.code, done.err, len(done.out.splitlines())) == (1, "", 1)


def test_the_json_of_the_worst_nodes_is_bounded_and_valid(run, long_pair):
    whole = valid("diff", run("diff", *long_pair, "--json").out)
    done = run("diff", *long_pair, "--json", "--top", "10")
    brief = valid("diff", done.out)
    together = [each["verdict"].pop("together") for each in (brief, whole)]  # numbers of the brief one have few digits
    assert brief["verdict"] == whole["verdict"]
    assert together[0]["nodes"] == together[1]["nodes"]
    assert together[0]["left"] == pytest.approx(together[1]["left"], rel=1e-4)
    assert [node["index"] for node in brief["nodes"]] == sorted(node["index"] for node in brief["nodes"])
    assert brief["nodes"][0]["node"] == whole["verdict"]["first_divergence"]
    assert brief["left_out"]["nodes"] == 51
    assert len(done.out) < 4_500 * 11
    failing = valid("diff", run("diff", *long_pair, "--json", "--only-failing").out)
    assert {node["status"] for node in failing["nodes"]} == {"diverged"}


@pytest.mark.parametrize("name", ["block33", "*block33/*", "BLOCK33"])
def test_a_node_is_found_by_a_part_of_its_name(run, long_pair, name):
    done = run("diff", *long_pair, "--node", name)
    assert done.out.startswith("DIVERGED  #34 scope/block33/conv")
    assert f"{name!r} is node 'scope/block33/conv'." in done.err


def test_several_nodes_that_fit_are_listed(run, long_pair):
    done = run("diff", *long_pair, "--node", "block1")
    assert done.code == 2
    assert "'block1' matches 11 nodes: 'scope/block1/conv', 'scope/block10/conv'" in done.err
    assert "and 3 more" in done.err


def test_colours_are_where_they_are_wanted(run, long_pair):
    assert "\x1b[1;31mFAIL" in run("diff", *long_pair, "--color", "always").out
    assert "\x1b" not in run("diff", *long_pair, "--color", "never").out
    assert "\x1b" not in run("diff", *long_pair).out


def test_digits_are_ascii_where_no_terminal_shows_them(run, tmp_path):
    paths = []
    for name, off in (("ref", 0), ("bad", 1)):
        with Recorder(tmp_path / f"{name}.h5", backend="numpy") as rec:
            rec.put("x", np.arange(4321, dtype=np.float32))
            rec.put("y", np.arange(4321, dtype=np.float32) + off, node="n", op="Relu", inputs=("x",))
            rec.outputs("y")
        paths.append(tmp_path / f"{name}.h5")
    for words in ([], ["--all"], ["-f", "markdown", "--all"], ["--node", "n"], ["-f", "junit"]):
        done = run("diff", *paths, *words)
        assert "\u202f" not in done.out + done.err, words
    assert "4,321" in run("diff", *paths, "--node", "n").out
    run("diff", *paths, "-o", "page.html")
    assert "\u202f" not in (tmp_path / "page.html").read_text()


def test_names_are_whole_in_a_pipe(run, tmp_path):
    name = "scope/" * 30 + "relu"
    for file, off in (("ref.h5", 0), ("bad.h5", 9)):
        with Recorder(tmp_path / file, backend="numpy") as rec:
            rec.put("x", np.arange(8, dtype=np.float32))
            rec.put("y", np.arange(8, dtype=np.float32) + off, node=name, op="Relu", inputs=("x",))
            rec.outputs("y")
    lines = run("diff", "ref.h5", "bad.h5").out.splitlines()
    assert any("equal -> " in line and name in line for line in lines)


def test_a_net_with_states_is_not_sent_to_repair(run, tmp_path):
    """Its outputs lose too much by rounding to codes: `repair` refuses several steps, `budget` takes them."""
    for name in ("ref", "be"):
        with Recorder(tmp_path / f"{name}.h5", backend=name) as recorder:
            for step in range(2):
                if step:
                    recorder.next_step()
                x = np.random.default_rng(step).standard_normal((1, 16)).astype(np.float32)
                recorder.put("x", x)
                y = np.tanh(x)
                coded = {"array": np.rint(y / 0.8).astype(np.int8), "scale": 0.8, "zero_point": 0}
                recorder.put("y", node="tanh", op="Tanh", inputs=["x"], **({"array": y} if name == "ref" else coded))
    done = run("diff", tmp_path / "ref.h5", tmp_path / "be.h5")
    assert done.code == 1, done.out
    assert "qdebug repair" not in done.err
    assert "qdebug budget" in done.err
