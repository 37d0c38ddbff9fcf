"""Find the limits file of a project, and read the tables in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from qdebug.errors import LimitsError
from qdebug.regular_file import read_regular
from qdebug.toml_text import parse_toml

__all__ = ["find_limits", "prefix_of", "read_text", "tables_of"]

_PROJECT_FILE = "pyproject.toml"
_MAX_BYTES = 16 << 20


def find_limits(folder: str | Path = ".") -> Path | None:
    """Find the limits of a project: the nearest pyproject.toml with a table `tool.qdebug`.

    Args:
        folder: The folder to start in; its parents follow.

    Returns:
        A path for `load_limits`; None if no project file has the table.

    Raises:
        LimitsError: A pyproject.toml that mentions qdebug is not valid TOML.
    """
    start = Path(folder).absolute()
    for directory in (start, *start.parents):
        path = directory / _PROJECT_FILE
        text = _read_project(path)
        if "qdebug" in text and (tables_and_file := tables_of(path, text)) != ({}, None):
            return tables_and_file[1] or path
    return None


def _read_project(path: Path) -> str:
    """Return the text of a project file; "" if it is missing, or unreadable, which other tools report."""
    try:
        return read_text(path)
    except (OSError, LimitsError):
        return ""


def prefix_of(path: Path) -> str:
    """Return the prefix of table names in a file: "tool.qdebug." in a pyproject.toml, else ""."""
    return "tool.qdebug." if path.name == _PROJECT_FILE else ""


def read_text(path: Path) -> str:
    """Read a file with limits.

    Raises:
        LimitsError: The file is missing, too large, unreadable, or not text.
    """
    try:
        return read_regular(path, _MAX_BYTES).decode("utf-8")
    except FileNotFoundError as error:
        raise LimitsError(
            f"There is no limits file {str(path)!r}.", hint="Create one; `qdebug help tolerance` shows how."
        ) from error
    except OSError as error:
        raise LimitsError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError as error:
        raise LimitsError(f"{str(path)!r} is not text in UTF-8.", hint="Save it as UTF-8.") from error
    except ValueError as error:
        raise LimitsError(
            f"{str(path)!r} is too large for a limits file.", hint="Give the right file: --limits FILE."
        ) from error


def tables_of(path: Path, text: str) -> tuple[dict[str, Any], Path | None]:
    """Return the tables of limits in a file, or no tables and the path of the file that has them instead.

    Raises:
        LimitsError: The file is not valid TOML, or its reference to the other file is invalid.
    """
    try:
        tables: Any = parse_toml(text)
    except ValueError as error:  # raised by tomllib, also for a number with thousands of digits
        raise LimitsError(f"{str(path)!r} is not valid TOML: {error}.", hint="Correct that line.") from error
    except RecursionError as error:
        raise LimitsError(f"{str(path)!r} is nested too deeply.", hint="Flatten it.") from error
    if not prefix_of(path):
        return tables, None
    tool = tables.get("tool")
    tables = tool.get("qdebug", {}) if isinstance(tool, dict) else {}
    if not isinstance(tables, dict):
        raise LimitsError(f"{str(path)!r}: tool.qdebug is not a table.", hint="Write [tool.qdebug].")
    limits_file = tables.get("limits")
    if limits_file is None:
        return tables, None
    if not isinstance(limits_file, str) or len(tables) > 1 or Path(limits_file).name == _PROJECT_FILE:
        raise LimitsError(
            f"{str(path)!r}: tool.qdebug.limits must name a file and be the only entry of tool.qdebug.",
            hint='Write limits = "limits.toml", and move all limits into that file.',
        )
    return {}, path.parent / limits_file
