"""Packages that this one needs, as its own metadata states them: which are missing, and which are too old."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import NamedTuple

from qdebug.errors import QdebugError

__all__ = ["Requirement", "missing_package", "outdated_packages"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)([^;]*)(?:;.*extra == '(\w+)')?")
_LEAST = re.compile(r">=\s*([\w.]+)")
_NUMBER = re.compile(r"\d+")
_FOR_DEVELOPERS = "dev"


class Requirement(NamedTuple):
    """A package that this one needs.

    Args:
        package: Its name on the package index.
        bounds: Bounds of its version, such as ">=1.23"; "" if any will do.
        extra: The extra that needs it; "" for a core package.
    """

    package: str
    bounds: str
    extra: str

    @property
    def module(self) -> str:
        """Name that it is imported by."""
        return self.package.replace("-", "_").lower()

    @property
    def least(self) -> str:
        """The oldest version that will do; "" if any will."""
        found = _LEAST.search(self.bounds)
        return found[1] if found else ""


def missing_package(error: ImportError) -> QdebugError | None:
    """Make the error for a package of somebody else that cannot be imported; None if it is a module of this package.

    Args:
        error: What the import raised.
    """
    module = (error.name or "").partition(".")[0]
    if not module or module == "qdebug":
        return None
    needed = next((each for each in _requirements() if each.module == module.lower()), None)
    missing = isinstance(error, ModuleNotFoundError) and error.name == module
    why = "is not installed" if missing else f"cannot be loaded: {str(error).splitlines()[0].rstrip('.')}"
    if needed is None:
        hint = "Find out what is incomplete: python -m pip check."
        return QdebugError(f"The Python package {module!r} {why}.", hint=hint)
    install = "" if missing else "--force-reinstall "
    return QdebugError(
        f"The Python package {needed.package!r}, which qdebug needs, {why}.",
        hint=f"Install it: pip install {install}'{needed.package}{needed.bounds}'.",
    )


def outdated_packages() -> list[tuple[Requirement, str]]:
    """List packages in use that are older than this one needs, each with the version that is installed."""
    found: dict[str, tuple[Requirement, str]] = {}
    for needed in _requirements():
        if needed.module in sys.modules and needed.least:
            try:
                installed = version(needed.package)
            except PackageNotFoundError:  # under another name, such as onnxruntime-gpu
                installed = str(getattr(sys.modules[needed.module], "__version__", needed.least))
            if _numbers(installed) < _numbers(needed.least):
                found.setdefault(needed.module, (needed, installed))
    return list(found.values())


def _requirements() -> list[Requirement]:
    """List what the installed package says that it needs; nothing if it runs without being installed."""
    try:
        lines = requires("qdebug") or []
    except PackageNotFoundError:
        return []
    found = [_REQUIREMENT.match(line) for line in lines]
    parsed = [Requirement(each[1], each[2].strip(), each[3] or "") for each in found if each is not None]
    return [each for each in parsed if each.extra != _FOR_DEVELOPERS]


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, by which releases are ordered."""
    return tuple(int(number) for number in _NUMBER.findall(text))
