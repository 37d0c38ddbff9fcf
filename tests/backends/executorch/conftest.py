"""Nets for ExecuTorch: the digits net in PyTorch, exported as it is and quantized, and a net with a state."""

from __future__ import annotations

import importlib.util
import logging
import warnings
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def quiet():
    """Let PyTorch and ExecuTorch warn of what is deprecated inside them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        yield
        logging.disable(logging.NOTSET)


@pytest.fixture(scope="session")
def digits(tmp_path_factory) -> dict[str, Path]:
    """The digits net as exported programs: "float" and "int8"."""
    pytest.importorskip("executorch", reason="needs the extra executorch")
    folder = tmp_path_factory.mktemp("executorch")
    spec = importlib.util.spec_from_file_location("nets", Path(__file__).resolve().parents[1] / "models.py")
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {form: models.digits_program(form, folder) for form in ("float", "int8")}
