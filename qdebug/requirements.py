"""Packages that qdebug requires according to its metadata, and detection of missing and outdated ones."""

from __future__ import annotations

import re
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import NamedTuple

from qdebug.errors import QdebugError

__all__ = ["Requirement", "missing_package", "outdated_packages"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)([^;]*)(?:;.*extra == '(\w+)')?")
_LOWER_BOUND = re.compile(r">=\s*([\w.]+)")
_NUMBER = re.compile(r"\d+")
_DEVELOPMENT_EXTRA = "dev"


class Requirement(NamedTuple):
    """A package that qdebug requires.

    Args:
        package: Name of the package on the package index.
        bounds: Bounds on its version, such as ">=1.23"; "" for any version.
        extra: The extra that requires it; "" for a core package.
    """

    package: str
    bounds: str
    extra: str

    @property
    def module(self) -> str:
        """Its import name."""
        return self.package.replace("-", "_").lower()

    @property
    def oldest_version(self) -> str:
        """The oldest allowed version; "" for any version."""
        match = _LOWER_BOUND.search(self.bounds)
        return match[1] if match else ""


def missing_package(error: ImportError) -> QdebugError | None:
    """Return the error for a third-party package that cannot be imported; None for a module of qdebug.

    Args:
        error: The error of the import.
    """
    module = (error.name or "").partition(".")[0]
    if not module or module == "qdebug":
        return None
    known_requirement = next(
        (requirement for requirement in _requirements() if requirement.module == module.lower()), None
    )
    missing = isinstance(error, ModuleNotFoundError) and error.name == module
    problem = "is not installed" if missing else f"cannot be loaded: {str(error).splitlines()[0].rstrip('.')}"
    if known_requirement is None:
        hint = "Check the installation: python -m pip check."
        return QdebugError(f"The Python package {module!r} {problem}.", hint=hint)
    install = "" if missing else "--force-reinstall "
    return QdebugError(
        f"The Python package {known_requirement.package!r}, which qdebug needs, {problem}.",
        hint=f"Install it: pip install {install}'{known_requirement.package}{known_requirement.bounds}'.",
    )


def outdated_packages() -> list[tuple[Requirement, str]]:
    """Return the imported packages that are too old, each with its installed version."""
    outdated: dict[str, tuple[Requirement, str]] = {}
    for requirement in _requirements():
        if requirement.module in sys.modules and requirement.oldest_version:
            try:
                installed = version(requirement.package)
            except PackageNotFoundError:  # installed under another name, such as onnxruntime-gpu
                installed = str(getattr(sys.modules[requirement.module], "__version__", requirement.oldest_version))
            if _numbers(installed) < _numbers(requirement.oldest_version):
                outdated.setdefault(requirement.module, (requirement, installed))
    return list(outdated.values())


def _requirements() -> list[Requirement]:
    """Return the requirements in the metadata of the installed package; empty if it is not installed."""
    try:
        lines = requires("qdebug") or []
    except PackageNotFoundError:
        return []
    matches = [_REQUIREMENT.match(line) for line in lines]
    parsed = [Requirement(match[1], match[2].strip(), match[3] or "") for match in matches if match is not None]
    return [requirement for requirement in parsed if requirement.extra != _DEVELOPMENT_EXTRA]


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version, which sort in release order."""
    return tuple(int(number) for number in _NUMBER.findall(text))
