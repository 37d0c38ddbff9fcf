"""Nets for ExecuTorch: the digits net in PyTorch, exported as it is and quantized, and a net with a state."""

from __future__ import annotations

import logging
import warnings
from pathlib import Path

import numpy as np
import pytest

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"


@pytest.fixture(autouse=True)
def quiet():
    """Let PyTorch and ExecuTorch warn of what is deprecated inside them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        yield
        logging.disable(logging.NOTSET)


def digits_module():
    """Make the digits net with the weights of its ONNX form, whose names are the places in this row."""
    import onnx
    import torch
    from torch import nn

    net = nn.Sequential(
        *(nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.ReLU(), nn.Conv2d(16, 24, 1), nn.ReLU(), nn.AvgPool2d(2)),
        *(nn.Flatten(), nn.Linear(96, 32), nn.ReLU(), nn.Linear(32, 10)),
    )
    held = onnx.load(DIGITS / "digits.onnx").graph.initializer
    net.load_state_dict({each.name[1:]: torch.tensor(onnx.numpy_helper.to_array(each)) for each in held})
    return net.eval()


def images(count: int) -> np.ndarray:
    """Return digits, float32 [count, 1, 8, 8]."""
    with np.load(DIGITS / "digits_test.npz") as archive:
        return archive["x"][:count]


def symmetric_quantizer():
    """Make ExecuTorch's own quantizer: int8, weights per channel."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )

    return XNNPACKQuantizer().set_global(get_symmetric_quantization_config(is_per_channel=True))


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> dict[str, Path]:
    """The digits net as exported programs: "float" and "int8"."""
    pytest.importorskip("executorch", reason="needs the extra executorch")
    import torch
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

    folder = tmp_path_factory.mktemp("executorch")
    example = (torch.tensor(images(1)),)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(digits_module(), example, strict=True)
        torch.export.save(program, folder / "float.pt2")
        prepared = prepare_pt2e(program.module(), symmetric_quantizer())
        for image in images(64):
            prepared(torch.tensor(image[None]))
        torch.export.save(torch.export.export(convert_pt2e(prepared), example, strict=True), folder / "int8.pt2")
    return {form: folder / f"{form}.pt2" for form in ("float", "int8")}
