"""Options of the plugin, on the command line or in the ini file."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["MARKER", "Settings", "add_options", "file_name", "settings"]

MARKER = (
    "qdebug(reference=None, limits=None, min_sqnr=None, max_lsb=None, atol=None, rtol=None, max_saturation=None, "
    "min_output_sqnr=None): "
    "compare the recording of qdebug_recorder with a reference recording; paths are relative to the test's folder"
)
"""Description of the marker in `pytest --markers`."""

_KEEP = ("failed", "always", "never")
_OPTIONS = (
    ("reference", "FILE", "reference recording for tests whose marker does not name a reference"),
    ("limits", "FILE", "limits file (TOML); default: [tool.qdebug] in pyproject.toml"),
    ("keep", "|".join(_KEEP), "which recordings of tests to keep; default: failed"),
    ("dir", "FOLDER", "folder for recordings of tests; default: qdebug-recordings"),
    ("report", "FILE", "write all comparisons, from all workers, to a JSON file"),
)
_MAX_CHARACTERS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The options of a run.

    Args:
        reference: Reference recording for markers that do not name one.
        limits: The limits file; None for the project's limits, if any.
        keep: "failed", "always" or "never".
        folder: Folder of the tests' recordings.
        report: File for the list of all comparisons; None to write no list.
        regen: Whether to write golden recordings instead of comparing with them.
        root: The project's folder.
    """

    reference: Path | None
    limits: Path | None
    keep: str
    folder: Path
    report: Path | None
    regen: bool
    root: Path


def add_options(parser: pytest.Parser) -> None:
    """Add all options, each of which is also available in the ini file."""
    group = parser.getgroup("qdebug", "qdebug: numerics of neural networks")
    for name, metavar, text in _OPTIONS:
        group.addoption(f"--qdebug-{name}", metavar=metavar, default=None, help=f"{text} (ini: qdebug_{name})")
        parser.addini(f"qdebug_{name}", text, default="")
    group.addoption(
        "--qdebug-regen", action="store_true", help="write the golden recordings of qdebug_regression without comparing"
    )


def settings(config: pytest.Config) -> Settings:
    """Return the options of a run; the command line overrides the ini file.

    Raises:
        pytest.UsageError: A value is invalid.
    """
    keep = config.getoption("qdebug_keep") or config.getini("qdebug_keep") or "failed"
    if keep not in _KEEP:
        raise pytest.UsageError(f"--qdebug-keep is {keep!r}; expected {', '.join(_KEEP)}")
    return Settings(
        reference=_path_option(config, "reference"),
        limits=_path_option(config, "limits"),
        keep=keep,
        folder=_path_option(config, "dir") or config.rootpath / "qdebug-recordings",
        report=_path_option(config, "report"),
        regen=bool(config.getoption("qdebug_regen")),
        root=config.rootpath,
    )


def _path_option(config: pytest.Config, name: str) -> Path | None:
    """Return a path option. It is relative to the current folder if given on the command line, else to the ini file."""
    from_command_line: str | None = config.getoption(f"qdebug_{name}")
    if from_command_line:
        return config.invocation_params.dir / from_command_line
    from_ini: str = config.getini(f"qdebug_{name}")
    start = config.rootpath if config.inipath is None else config.inipath.parent
    return start / from_ini if from_ini else None


def file_name(text: str, *, digest: bool = True) -> str:
    """Return a unique, safe file name for the name of a test.

    Args:
        text: A node id, or the name of a test.
        digest: Whether to always add a digest of the name. Otherwise, it is added only if characters are replaced, or
            if parameters contain capitals, since macOS treats `test[a]` and `test[A]` as the same file.
    """
    clean = re.sub(r"[^A-Za-z0-9_.\[\]=,+-]+", "-", text).strip("-. ") or "test"
    parameters = text[text.find("[") :] if "[" in text else ""
    if not digest and clean == text and len(text) <= _MAX_CHARACTERS and parameters == parameters.lower():
        return clean
    unique = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=5).hexdigest()
    return f"{clean[-_MAX_CHARACTERS:].strip('-. ')}-{unique}"
