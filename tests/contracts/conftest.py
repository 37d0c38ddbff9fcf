"""The project's own text as test data: every module parsed once, every text file read once."""

import ast
import gc
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IGNORED = {".git", ".site", ".venv", ".hypothesis", "qdebug-demo", "dist", "build", "__pycache__"}
BINARY = {".pt", ".safetensors", ".npz", ".onnx", ".tflite", ".h5", ".png", ".pyc", ".zip"}


@dataclass(frozen=True)
class Source:
    """One Python file of the project."""

    path: str  # relative to the root, with slashes
    module: str  # dotted name
    text: str
    tree: ast.Module

    @classmethod
    def of(cls, text: str, path: str = "qdebug/example.py") -> "Source":
        """Parse a text as if it stood in the project: the bad examples that checks are tried on."""
        module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        return cls(path, module, text, ast.parse(text))


def files_below(top: Path) -> list[Path]:
    """List the files below a folder, without caches, builds and virtual environments."""
    found = []
    for entry in sorted(top.iterdir()):
        if entry.name in IGNORED or entry.name.endswith(("_cache", "-cache", ".egg-info")):
            continue
        found += files_below(entry) if entry.is_dir() else [entry]
    return found


@pytest.fixture(scope="session")
def root() -> Path:
    return ROOT


@pytest.fixture(scope="session")
def package() -> list[Source]:
    """Every module of the package; looking for garbage among what stays would take three quarters of the time."""
    gc.disable()
    try:
        return [
            Source.of(path.read_text(encoding="utf-8"), path.relative_to(ROOT).as_posix())
            for path in files_below(ROOT / "qdebug")
            if path.suffix == ".py"
        ]
    finally:
        gc.enable()
        gc.freeze()


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """The text of every text file of the project by relative path."""
    return {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for path in files_below(ROOT)
        if path.suffix not in BINARY
    }


@pytest.fixture(scope="session")
def example():
    """Make a `Source` out of a text, to show that a check can fail."""
    return Source.of
