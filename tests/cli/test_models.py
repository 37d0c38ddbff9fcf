"""Model files in place of recordings: recorded once, used again, said loudly; an interrupted run leaves nothing."""

import json
import warnings

import numpy as np
import pytest

import qdebug
from qdebug.errors import UsageError
from qdebug.recording.reading.opening import open_recording
from qdebug.running import model_runs

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")


def net(path, *, shift=0.0, name="x"):
    """Write a net of a Gemm and a Relu, whose weight is off by `shift`."""
    weight = np.random.default_rng(1).normal(size=(6, 4)).astype(np.float32) + np.float32(shift)
    nodes = [
        onnx.helper.make_node("MatMul", [name, "w"], ["fc_out"], name="fc"),
        onnx.helper.make_node("Relu", ["fc_out"], ["y"], name="relu"),
    ]
    value = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "net",
        [value(name, onnx.TensorProto.FLOAT, [None, 6])],
        [value("y", onnx.TensorProto.FLOAT, [None, 4])],
        [onnx.numpy_helper.from_array(weight, "w")],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


@pytest.fixture
def nets(tmp_path):
    return net(tmp_path / "net.onnx"), net(tmp_path / "bad.onnx", shift=0.5)


def made(folder):
    return sorted(path.name for path in (folder / "qdebug-runs").glob("*.h5"))


def test_two_models_are_recorded_compared_and_recorded_only_once(run, nets, tmp_path):
    done = run("diff", *nets)
    assert done.code == 1
    assert done.out.startswith("FAIL  diverged")
    assert "random inputs hide errors that real inputs show" in done.out
    assert done.err.count("INPUTS ARE RANDOM") == 1
    assert "onnxruntime:opt=none: recorded in" in done.err
    first = made(tmp_path)
    assert len(first) == 2
    assert all(f"qdebug-runs/{name}" in done.err for name in first)
    files = json.loads(run("diff", *nets, "--json", "--top", "1").out)["files"]
    assert {files["reference"], files["backend"]} == {f"qdebug-runs/{name}" for name in first}
    again = run("diff", *nets)
    assert (again.out, again.err.count("used again"), made(tmp_path)) == (done.out, 2, first)


@pytest.mark.parametrize(
    "change",
    [
        ["--seed", "3"],
        ["--samples", "2"],
        pytest.param(["--ref-backend", "onnxruntime"], marks=pytest.mark.slow),
        pytest.param(["--ref-backend", "interpreter"], marks=pytest.mark.slow),
        ["--inputs", "x.npz"],
    ],
)
def test_what_is_not_equal_is_recorded_anew(change, run, nets, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((1, 6), np.float32))
    run("diff", *nets)
    done = run("diff", *nets, *change)
    assert done.code == 1
    assert done.err.count("recorded in") >= 1
    assert ("random" in done.out) == (change[0] != "--inputs")
    assert len(made(tmp_path)) >= 3


def test_another_model_of_the_same_name_is_another_run(run, nets, tmp_path):
    run("diff", *nets)
    net(nets[1], shift=0.25)
    done = run("diff", *nets)
    assert done.err.count("used again") == 1
    assert len(made(tmp_path)) == 3


def test_weights_beside_a_model_are_a_part_of_it(run, nets, tmp_path):
    model = onnx.load(nets[1])
    onnx.save(model, nets[1], save_as_external_data=True, location="bad.weights", size_threshold=0)
    run("diff", *nets)
    weights = tmp_path / "bad.weights"
    weights.write_bytes(bytes(len(weights.read_bytes())))
    done = run("diff", *nets)
    assert done.err.count("used again") == 1
    assert len(made(tmp_path)) == 3


def test_one_side_may_be_a_recording_whose_inputs_the_model_gets(run, nets, tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones((3, 1, 6), np.float32))
    run("record", nets[0], "--backend", "onnxruntime", "--inputs", "x.npz", "--samples", "3", "-o", "ref.h5")
    other = net(tmp_path / "other.onnx", name="input_1")
    done = run("diff", "ref.h5", other)
    assert done.code == 0
    assert "'input_1' gets 'x', the only input without a partner" in done.err
    (name,) = made(tmp_path)
    recorded = open_recording(tmp_path / "qdebug-runs" / name)
    assert recorded.samples == 3
    assert (recorded.load("input_1", 2) == 1).all()
    assert "random" not in done.out
    refused = run("diff", "ref.h5", other, "--samples", "3")
    assert (refused.code, "'ref.h5' is a recording with its own inputs" in refused.err) == (2, True)


def test_one_model_runs_on_several_backends(run, nets):
    done = run("diff", nets[0], nets[1], "--backend", "onnxruntime", "--backend", "interpreter")
    assert done.code == 1
    assert done.out.count("==> qdebug-runs/bad-") == 2
    wrong = run("diff", *nets, nets[1], "--backend", "onnxruntime", "--backend", "interpreter", "--backend", "litert")
    assert (wrong.code, "3 --backend options for 2 model files" in wrong.err) == (2, True)


def test_the_terminal_interface_takes_models_too(run, nets):
    done = run("tui", *nets)  # there is no terminal here: the report
    assert done.code == 1
    assert done.out.startswith("FAIL  diverged")
    assert done.err.count("recorded in") == 2


def test_an_interrupted_run_leaves_nothing_and_the_next_one_works(run, nets, tmp_path, monkeypatch):
    def stopped(*_, **__):
        (tmp_path / "qdebug-runs" / model_runs._file_name(*_of(nets[0]))).write_bytes(b"part")
        raise KeyboardInterrupt

    def _of(model):
        chosen = model_runs.choose_backend(model, reference=True)
        return chosen, model_runs.GivenInputs(arrays=None, samples=None, origin_text="random, seed 0")

    with monkeypatch.context() as patch:
        patch.setattr(model_runs, "record_feeds", stopped)
        assert run("diff", *nets).code == 130
    assert made(tmp_path) == []
    assert run("diff", *nets).code == 1


def test_a_damaged_recording_is_made_anew(run, nets, tmp_path):
    run("diff", *nets)
    (tmp_path / "qdebug-runs" / made(tmp_path)[0]).write_bytes(b"no recording")
    done = run("diff", *nets)
    assert (done.code, done.err.count("recorded in"), done.err.count("used again")) == (1, 1, 1)


def test_models_are_not_run_untrusted(spawn, nets):
    done = spawn("diff", *nets, "--untrusted")
    assert done.returncode == 2
    assert "--untrusted supports only recordings" in done.stderr


def test_what_no_backend_runs_is_named(run, nets, tmp_path):
    (tmp_path / "net.pb").write_bytes(b"\x08\x07model")
    done = run("diff", nets[0], "net.pb")
    assert done.code == 2
    assert "No installed backend runs the model file 'net.pb'." in done.err
    assert "qdebug record --list-backends" in done.err


def test_a_template_of_inputs_can_be_fed(run, nets, tmp_path):
    done = run("record", nets[0], "--example-inputs", "x.npz", "--samples", "2")
    assert done.code == 0
    assert done.out == "x: float32 2x1x6\n"
    assert "random inputs hide errors that real inputs show" in done.err
    assert run("record", nets[0], "--example-inputs", "x.npz").code == 2
    with np.load(tmp_path / "x.npz") as held:
        assert held["x"].shape == (2, 1, 6)
    words = ("--backend", "onnxruntime", "--inputs", "x.npz", "--samples", "2", "-o", "ref.h5")
    assert run("record", nets[0], *words).code == 0


def test_a_budget_takes_models_too(run, nets):
    done = run("budget", *nets)
    assert done.code == 0
    assert done.err.count("recorded in") == 2
    assert "fc" in done.out
    assert run("repair", *nets, "--within", "5", "--minutes", "0.2").err.count("used again") == 2


def test_python_takes_models_as_the_command_line_does_and_uses_its_recordings(run, nets, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.warns(UserWarning, match="inputs are random"):
        result = qdebug.diff(*nets)
    first = made(tmp_path)
    assert result["fc"].status == "diverged"
    assert run("diff", *nets).err.count("used again") == 2
    assert made(tmp_path) == first
    np.savez(tmp_path / "x.npz", x=np.ones((2, 6), np.float32))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        given = qdebug.diff(nets[0], nets[1], inputs="x.npz")
        assert given.backend.model == "bad.onnx"
        reference = open_recording(next(path for path in (tmp_path / "qdebug-runs").glob("net-*.h5")))
        assert qdebug.diff(reference, nets[0]).status == "identical"
    with pytest.raises(UsageError, match="inputs= needs a model file"):
        qdebug.diff(reference, reference, inputs="x.npz")


@pytest.fixture
def images(tmp_path):
    """Two nets whose image has free dimensions."""

    def image_net(path):
        value, kind = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
        nodes = [onnx.helper.make_node("GlobalAveragePool", ["image"], ["y"], name="pool")]
        shape = ["N", 3, "H", "W"]
        graph = onnx.helper.make_graph(nodes, "net", [value("image", kind, shape)], [value("y", kind, None)])
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, path)
        return path

    return image_net(tmp_path / "a.onnx"), image_net(tmp_path / "b.onnx")


def test_free_dimensions_are_chosen_or_said(run, images, tmp_path):
    done = run("diff", *images)
    assert done.code == 0
    assert "'image' is 1x3x32x32: free dimensions (N, H, W) were filled in by default" in done.err
    assert "--shape image=1x3x32x32" in done.err
    (first, _) = made(tmp_path)
    options = open_recording(tmp_path / "qdebug-runs" / first).info.options
    assert "1x3x32x32" in options["inputs_changed"]
    assert options["inputs_random"] is True
    chosen = run("diff", *images, "--shape", "image=1x3x48x192")
    assert "filled in" not in chosen.err
    (path,) = [name for name in made(tmp_path) if name.startswith("a-") and name != first]
    assert open_recording(tmp_path / "qdebug-runs" / path).load("image").shape == (1, 3, 48, 192)
    template = run("record", images[0], "--example-inputs", "x.npz", "--shape", "image=2x3x5x7")
    assert "image: float32 2x3x5x7" in template.out
    for words in (("image=2x4x5x7",), ("image",), ("image=axb",)):
        assert run("diff", *images, "--shape", *words).code == 2


def test_free_dimensions_are_fixed_in_the_model_that_is_recorded(run, images, tmp_path):
    np.savez(tmp_path / "x.npz", image=np.ones((1, 3, 48, 192), np.float32))
    words = ("record", images[0], "--inputs", tmp_path / "x.npz", "--shape", "image=1x3x48x192", "-o", "fixed.h5")
    assert run(*words, "--backend", "onnxruntime").code == 0
    recording = open_recording(tmp_path / "fixed.h5")
    assert recording.graph.tensors["image"].shape == (1, 3, 48, 192)
    assert recording.info.options["shapes"] == "image=1x3x48x192"
    refused = run(*words, "--backend", "interpreter", "--force")
    assert refused.code == 2
    assert "cannot fix free dimensions" in refused.err


def test_an_error_about_one_of_two_models_names_it(run, images, nets, tmp_path):
    done = run("diff", images[0], nets[0])
    assert done.code == 2
    assert str(nets[0]) in done.err.splitlines()[-2]
    np.savez(tmp_path / "x.npz", other=np.zeros((1, 3, 4, 4), np.float32))
    wrong = run("diff", *images, "--inputs", "x.npz")
    assert "missing 'image', unknown 'other'; found 'other'" in wrong.err
    assert str(images[0]) in wrong.err


def test_rows_that_run_as_one_sample_are_said(run, nets, tmp_path):
    values = np.random.default_rng(2).normal(size=(5, 6)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=values)
    words = ("diff", *nets, "--inputs", tmp_path / "x.npz")
    clause = "inputs: their 5 rows are one sample; --samples 5"
    assert run(*words).err.count(clause) == 1
    assert clause in run("record", nets[0], "--inputs", tmp_path / "x.npz", "-o", tmp_path / "rows.h5").err
    np.savez(tmp_path / "x.npz", x=values[:, None])
    assert "rows are one sample" not in run(*words, "--samples", "5").err
