"""Makes `draws` importable by the tests of this folder, which is no package."""

import importlib.util
import sys
from pathlib import Path

import pytest

NAME = "draws"

pytest.register_assert_rewrite(NAME)
if NAME not in sys.modules:
    spec = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name(f"{NAME}.py"))
    sys.modules[NAME] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[NAME])
