"""The public names of the package: light to import, complete, and the same objects as at home."""

import importlib
import subprocess
import sys

import pytest

import qdebug

CONTRACT = ["Recorder", "open_recording", "diff", "QdebugError", "Graph", "Node", "QuantParams", "TensorInfo"]


def loaded_by(code):
    """Return the top-level modules that a fresh interpreter has after running code."""
    program = f"{code}\nimport sys; print(' '.join({{name.partition('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_qdebug_loads_nothing_heavy():
    assert loaded_by("import qdebug").isdisjoint({"numpy", "h5py", "rich", "textual", "ml_dtypes", "onnx", "asyncio"})


def test_asking_for_an_error_class_does_not_load_numpy():
    assert "numpy" not in loaded_by("import qdebug; qdebug.QdebugError")


def test_the_probe_itself_sees_a_heavy_import():
    assert "numpy" in loaded_by("import qdebug; qdebug.Graph")


@pytest.mark.parametrize("name", qdebug.__all__)
def test_every_public_name_resolves(name):
    value = getattr(qdebug, name)
    assert value is getattr(qdebug, name)
    if name in qdebug._MODULE_OF_NAME:
        assert value is getattr(importlib.import_module(qdebug._MODULE_OF_NAME[name]), name)


@pytest.mark.parametrize("name", CONTRACT)
def test_the_promised_names_are_public(name):
    assert name in qdebug.__all__
    assert name in dir(qdebug)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = qdebug.nonsense


def test_the_version_is_a_literal_that_needs_no_metadata():
    assert [int(part) for part in qdebug.__version__.split(".")] >= [0, 1, 0]
    done = subprocess.run(
        [sys.executable, "-c", "import qdebug, sys; print('importlib.metadata' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "False"
