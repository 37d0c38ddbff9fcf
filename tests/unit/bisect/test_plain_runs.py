"""The scripts that run a model without qdebug give the outputs of the recording."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.bisect.plain_runs import plain_script, plain_settings
from qdebug.running.record import record_run

DIGITS = Path(qdebug.__file__).parents[1] / "samples" / "digits"


@pytest.mark.parametrize(
    ("backend", "module", "options"),
    [
        ("onnxruntime", "onnxruntime", {"opt": "basic", "threads": "1"}),
        pytest.param("litert", "ai_edge_litert", {"kernels": "builtin"}, marks=pytest.mark.slow),
        ("openvino", "openvino", {"precision": "f32", "mode": "accuracy", "hint": "throughput", "threads": "1"}),
        pytest.param(
            *("torch", "torch", {"compile": "inductor", "disable": "freezing", "enable": "emulate_precision_casts"}),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_script_gives_the_outputs_of_the_recording(tmp_path, backend, module, options):
    pytest.importorskip(module)
    model, inputs = model_of(backend, tmp_path)
    np.savez(tmp_path / "x.npz", **inputs)
    record_run(model, backend=backend, options=options, inputs=inputs, out=tmp_path / "a.h5", taps="outputs")
    recording = qdebug.open_recording(tmp_path / "a.h5")
    (name,) = recording.graph.outputs
    script = plain_script(backend, str(model), str(tmp_path / "x.npz"), plain_settings(backend, {}))
    (tmp_path / "run.py").write_text(script)
    command = [sys.executable, "run.py", json.dumps(plain_settings(backend, options))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert hashlib.sha256(recording.load(name).tobytes()).hexdigest()[:16] in done.stdout


def model_of(backend, folder):
    """Return a model of the backend and its inputs."""
    image = np.load(DIGITS / "digits_test.npz")["x"][:1]
    if backend == "litert":
        codes = image.astype(np.int8).reshape(1, 8, 8, 1)
        return DIGITS / "digits_int8.tflite", {"serving_default_keras_tensor:0": codes}
    if backend != "torch":
        return DIGITS / "digits.onnx", {"x": image}
    import torch

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.GELU(), torch.nn.Flatten(), torch.nn.Linear(144, 5))
    torch.export.save(torch.export.export(net.eval(), (torch.from_numpy(image),)), folder / "net.pt2")
    return folder / "net.pt2", {"input": image}


def test_a_backend_without_a_script_has_no_settings():
    assert plain_settings("tflm", {}) == {}
