"""Real nets, for the adapters of all runtimes."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def nets() -> ModuleType:
    """Import the script that fetches real nets."""
    spec = importlib.util.spec_from_file_location("nets", Path(__file__).with_name("models.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
