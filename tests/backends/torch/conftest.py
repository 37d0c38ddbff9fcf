"""Modules, inputs and programs for tests of PyTorch; every one of them is skipped without it."""

from __future__ import annotations

import importlib.util
import warnings
from pathlib import Path

import numpy as np
import pytest

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"


@pytest.fixture(scope="session")
def modules():
    """Import the small modules; PyTorch is needed for them."""
    pytest.importorskip("torch", reason="needs the extra torch")
    spec = importlib.util.spec_from_file_location("torch_nets", Path(__file__).with_name("nets.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def digits(modules):
    """The digits net with the weights of the samples, and eight digits."""
    onnx = pytest.importorskip("onnx", reason="the weights are read out of the ONNX file")
    import torch

    held = onnx.load(DIGITS / "digits.onnx").graph.initializer
    weights = {each.name: torch.from_numpy(onnx.numpy_helper.to_array(each).copy()) for each in held}
    model = modules.Digits().eval()
    for name, number in zip(("conv1", "conv2", "dwconv", "pwconv", "fc1", "logits"), (0, 2, 5, 7, 11, 13), strict=True):
        getattr(model, name).weight.data = weights[f"w{number}.weight"]
        getattr(model, name).bias.data = weights[f"w{number}.bias"]
    with np.load(DIGITS / "digits_test.npz") as arrays:
        return model, arrays["x"][:8]


@pytest.fixture
def seeded():
    """Return a function that makes a module with the same random weights each time."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")

    def made(kind, **facts):
        torch.manual_seed(0)
        return kind(**facts).eval()

    return made


@pytest.fixture
def overwriting(modules, seeded):
    """A net that overwrites tensors, the same net without, and an input."""
    import torch

    nets = [seeded(modules.Overwriting, inplace=inplace) for inplace in (True, False)]
    return (*nets, torch.randn(2, 4, 6, 6, generator=torch.Generator().manual_seed(1)))


@pytest.fixture
def transformer(modules, seeded):
    """Return a function that makes the transformer, and words for it."""
    import torch

    words = torch.randint(0, 50, (2, 16), generator=torch.Generator().manual_seed(1))
    return lambda: seeded(modules.Transformer), words


@pytest.fixture
def export(tmp_path):
    """Return a function that writes a module as a .pt2 file."""
    torch = pytest.importorskip("torch", reason="needs the extra torch")

    def write(model, *args, name="model", **options):
        path = tmp_path / f"{name}.pt2"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.export.save(torch.export.export(model, args, **options), path)
        return path

    return write
