"""The interpreter as ONNX Runtime's twin: whole nets, bit for bit, wherever the runtime's arithmetic is explained."""

import importlib.util
import itertools
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus
from qdebug.running.explain_file import arithmetic_text
from qdebug.running.record import record_run
from qdebug.session import open_recording

pytest.importorskip("onnxruntime")

SAMPLES = Path(__file__).parents[3] / "samples" / "digits"
FORMS = ("qdq.per_channel", "qdq.per_tensor", "qoperator.per_channel", "qoperator.per_tensor")
QUICK = {(FORMS[0], "model"), (FORMS[1], "recording"), (FORMS[2], "recording"), (FORMS[3], "model")}
"""Each form once, from either source."""
MEASURED = "avx512_vnni"
"""The processor flag with which the preset ort-mlas was measured."""


@pytest.fixture(scope="module")
def nets():
    """Import the script that fetches real nets, which lies beside this folder."""
    spec = importlib.util.spec_from_file_location("nets", Path(__file__).resolve().parents[1] / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recorded(path, feed, target, backend, samples=None, **options):
    record_run(path, backend=backend, options=options, inputs=feed, samples=samples, out=target)
    return open_recording(target)


def digits(count):
    with np.load(SAMPLES / "digits_test.npz") as arrays:
        return {"x": arrays["x"][:count]}


@pytest.fixture(scope="module")
def digits_runs(tmp_path_factory):
    """Return a function that records a form of the digits net on ONNX Runtime and explains it, once for each form."""
    folder = tmp_path_factory.mktemp("digits")

    @cache
    def run(form):
        target = folder / f"{form}.h5"
        runtime = recorded(SAMPLES / f"digits.{form}.onnx", digits(8), target, "onnxruntime", 8, opt="extended")
        return runtime, explain_recording(runtime), target

    return run


def check_twins(runtime, explained, twin, least):
    """Compare every explained node of the runtime's recording with the twin's."""
    if MEASURED not in runtime.info.cpu_flags:
        pytest.skip(f"the runtime's arithmetic was measured with {MEASURED} alone, which this processor lacks")
    seen = 0
    for node in explained.nodes:
        if node.status is ExplainStatus.EXPLAINED and twin.has(node.tensor):
            seen += 1
            for sample in range(runtime.samples):
                np.testing.assert_array_equal(
                    twin.load(node.tensor, sample), runtime.load(node.tensor, sample), err_msg=node.node
                )
    assert seen >= least


@pytest.mark.parametrize(
    ("form", "source"),
    [
        case if case in QUICK else pytest.param(*case, marks=pytest.mark.slow)
        for case in itertools.product(FORMS, ("model", "recording"))
    ],
)
def test_digits_equal_the_runtimes(form, source, digits_runs, tmp_path):
    runtime, explained, recording = digits_runs(form)
    path = SAMPLES / f"digits.{form}.onnx" if source == "model" else recording
    twin = recorded(path, digits(8), tmp_path / "twin.h5", "interpreter", 8, arithmetic="ort-mlas")
    check_twins(runtime, explained, twin, 8)
    for sample in range(8):
        np.testing.assert_array_equal(twin.load("logits", sample), runtime.load("logits", sample))


@pytest.mark.parametrize(
    "form",
    ["qdq.per_channel", *(pytest.param(form, marks=pytest.mark.slow) for form in FORMS if form != "qdq.per_channel")],
)
def test_what_explain_writes_makes_a_twin_of_the_model_itself(form, tmp_path):
    feed = digits(4)
    model, file = SAMPLES / f"digits.{form}.onnx", tmp_path / "found.toml"
    runtime = recorded(model, feed, tmp_path / "ort.h5", "onnxruntime", 4)
    file.write_text(arithmetic_text(explain_recording(runtime)))
    twin = recorded(model, feed, tmp_path / "twin.h5", "interpreter", 4, arithmetic=str(file))
    assert [node.op for node in twin.graph.nodes].count("DequantizeLinear") <= 1
    for sample in range(4):
        np.testing.assert_array_equal(twin.load("logits", sample), runtime.load("logits", sample))


@pytest.mark.slow
@pytest.mark.parametrize("form", ["qdq", "qoperator"])
@pytest.mark.parametrize("source", ["model", "recording"])
def test_a_real_net_equals_the_runtimes(form, source, nets, tmp_path):
    model, feed = nets.quantized("cls", form), {"x": nets.crops(1)}
    runtime = recorded(model, feed, tmp_path / "ort.h5", "onnxruntime", opt="extended")
    path = model if source == "model" else tmp_path / "ort.h5"
    twin = recorded(path, feed, tmp_path / "twin.h5", "interpreter", arithmetic="ort-mlas")
    check_twins(runtime, explain_recording(runtime), twin, 50)
