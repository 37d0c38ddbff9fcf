"""Facts about the machine and the packages that can affect a recorded result."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from qdebug.version import __version__

__all__ = ["cpu_flags", "cpu_model", "machine", "package_versions", "recorded_facts", "run_facts"]

_ARITHMETIC_FLAGS = (
    *("sse4_1", "sse4_2", "avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512vl", "avx512_vnni", "avx_vnni"),
    *("avx_vnni_int8", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
    *("asimd", "asimdhp", "asimddp", "asimdfhm", "bf16", "i8mm", "sve", "sve2", "sme", "svei8mm", "svebf16"),
)
"""Instruction sets that change how sums and products are computed, under their Linux names."""

_RECORDER_FACTS = ("backend", "model", "model_sha256", "taps", "versions", "options", "cpu_flags")
_PACKAGES = ("numpy", "h5py", "ml_dtypes")


def package_versions(*packages: str) -> dict[str, str]:
    """Return the versions of Python, qdebug, its numeric packages and the given packages.

    Missing packages are left out.
    """
    base_versions = {"python": platform.python_version(), "qdebug": __version__}
    versions = {package: _version(package) for package in (*_PACKAGES, *packages)}
    return base_versions | {package: version for package, version in versions.items() if version is not None}


@cache
def _version(package: str) -> str | None:
    """Return the version of a package, cached because the look-up reads files."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def run_facts(
    versions: Mapping[str, str] | None, options: Mapping[str, Any] | None, flags: Sequence[str] | None
) -> dict[str, Any]:
    """Return facts about the machine, the packages and the time of a run that starts now, as fields of `RunInfo`.

    Args:
        versions: Versions of further packages.
        options: Backend options in force.
        flags: Relevant instruction sets; read from this machine if None.
    """
    given_versions = {name: str(version) for name, version in (versions or {}).items()}
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {**package_versions(), **machine(), **given_versions},
        "cpu_flags": tuple(cpu_flags() if flags is None else flags),
        "options": dict(options or {}),
    }


def recorded_facts(run: object) -> dict[str, Any]:
    """Return the facts of a run as arguments of `Recorder`.

    Args:
        run: An object with these attributes: a `RunInfo`, or an adapter's facts about a run.
    """
    return {name: getattr(run, name) for name in _RECORDER_FACTS}


@cache
def machine() -> Mapping[str, str]:
    """Return the operating system and the processor, by the names under which recordings list them with versions."""
    return MappingProxyType({"platform": f"{platform.system()} {platform.machine()}", "cpu": cpu_model()})


@cache
def cpu_flags() -> tuple[str, ...]:
    """Return the instruction sets of this processor that affect arithmetic; empty if they cannot be read."""
    present_flags = set(_linux_flags() if sys.platform == "linux" else _macos_flags())
    return tuple(flag for flag in _ARITHMETIC_FLAGS if flag in present_flags)


@cache
def cpu_model() -> str:
    """Return the processor's name; the architecture if the name cannot be read."""
    for line in _cpuinfo():
        if line.lower().startswith(("model name", "hardware")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _cpuinfo() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _linux_flags() -> list[str]:
    for line in _cpuinfo():
        if line.lower().startswith(("flags", "features")):
            return line.partition(":")[2].split()
    return []


def _macos_flags() -> list[str]:
    """Read the features listed by sysctl and return them under their Linux names."""
    names = {
        "hw.optional.avx2_0": "avx2",
        "hw.optional.fma": "fma",
        "hw.optional.avx512f": "avx512f",
        "hw.optional.arm.FEAT_DotProd": "asimddp",
        "hw.optional.arm.FEAT_FP16": "asimdhp",
        "hw.optional.arm.FEAT_BF16": "bf16",
        "hw.optional.arm.FEAT_I8MM": "i8mm",
        "hw.optional.arm.FEAT_SME": "sme",
    }
    try:
        sysctl_text = subprocess.run(
            ["/usr/sbin/sysctl", "hw.optional"], capture_output=True, text=True, timeout=5, check=False
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    values = dict(line.split(": ", 1) for line in sysctl_text.splitlines() if ": " in line)
    return [flag for name, flag in names.items() if values.get(name, "0").strip() == "1"]
