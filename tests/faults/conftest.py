"""The benches that faults are seeded on: one float net each, with its quantized forms."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

HERE = Path(__file__).resolve().parent


def load(path: Path) -> ModuleType:
    """Import a test module that lies in no package, once."""
    name = f"qdebug_tests_{path.parent.name}_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


@pytest.fixture(scope="session")
def bench_module() -> ModuleType:
    pytest.importorskip("onnxruntime")
    return load(HERE / "bench.py")


@pytest.fixture(scope="session")
def digits(tmp_path_factory, bench_module):
    """Return the digits net and its four quantized forms, on two digits; an eighth is what stale memory holds."""
    folder = bench_module.DIGITS
    with np.load(folder / "digits_test.npz") as data:
        feeds = {"x": data["x"][:8, None]}
    forms = {"float": folder / "digits.onnx"}
    for form in ("qdq", "qoperator"):
        forms |= {f"{form}.{per}": folder / f"digits.{form}.per_{per}.onnx" for per in ("channel", "tensor")}
    return bench_module.Bench(tmp_path_factory.mktemp("digits"), forms["float"], forms, feeds, 2)


@pytest.fixture(scope="session")
def cls(tmp_path_factory, bench_module):
    """Return the text direction net and its two quantized forms, on one crop."""
    nets = load(HERE.parent / "backends" / "models.py")
    forms = {"float": nets.net("cls"), **{form: nets.quantized("cls", form) for form in ("qdq", "qoperator")}}
    folder = tmp_path_factory.mktemp("cls")
    return bench_module.Bench(folder, forms["float"], forms, {"x": nets.crops(3)[:, None]}, 1)


@pytest.fixture(scope="session")
def swift_f0(tmp_path_factory, bench_module):
    """Return the pitch net, on half a second of sound."""
    nets = load(HERE.parent / "backends" / "models.py")
    path = nets.net("swift-f0")
    feeds = {
        "audio": nets.sound(3, seconds=0.5)[:, None],
        "fmin": np.full(3, 50, np.float32),
        "fmax": np.full(3, 2000, np.float32),
    }
    return bench_module.Bench(tmp_path_factory.mktemp("swift-f0"), path, {"float": path}, feeds, 1)


@pytest.fixture(scope="session")
def planted() -> ModuleType:
    return load(HERE / "planted.py")


@pytest.fixture(scope="session")
def real_recording(tmp_path_factory, bench_module):
    """Return a function that records a real quantized net on ONNX Runtime, on two crops of text."""
    models = load(HERE.parent / "backends" / "models.py")
    folder = tmp_path_factory.mktemp("real")

    def recorded(name, form, opt, samples=2):
        from qdebug.running.record import record_run
        from qdebug.session import open_recording

        out = folder / f"{name}.{form}.{opt}.h5"
        if not out.exists():
            feeds = {"x": models.crops(samples)[:, None]}
            model = models.quantized(name, form)
            record_run(model, backend="onnxruntime", options={"opt": opt}, inputs=feeds, samples=samples, out=out)
        return open_recording(out)

    return recorded
