"""List the candidates of a bisection, in order, for each value of `--over`: `list_candidates`."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version

from packaging.version import InvalidVersion, Version

from qdebug.backends import BACKENDS, installed_backends, load_backend
from qdebug.backends.protocol import Backend, check_options
from qdebug.errors import QdebugError, UsageError

__all__ = ["AXES", "Candidate", "Candidates", "list_candidates", "runtime_modules", "runtime_package"]

AXES = ("versions", "levels", "passes", "options", "kernels", "threads", "cpu")
"""Values of `--over`."""

_ENABLED_ALL, _ENABLED_NONE = "all", "none"
_OPTION_OF_AXIS = {"levels": "opt", "kernels": "kernels"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One way to run the model.

    Args:
        label: Name of the candidate: a version, a level, a pass or OPTION=VALUE.
        version: Version of the runtime to install; "" for the installed one.
        options: Options of the backend, besides those that all candidates share.
        variables: Environment variables of the child process.
    """

    label: str
    version: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    variables: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The candidates from the good to the bad one, and to the fixed one if there is one.

    Args:
        over: One of `AXES`.
        package: Distribution of the runtime; "" if it is unknown and does not vary.
        row: The candidates in order.
        anchors: Positions of good, bad and fixed.
        is_ordered: Whether the order is meaningful, so that halving finds a change. If not, each candidate is compared
            with the first one.
    """

    over: str
    package: str
    row: tuple[Candidate, ...]
    anchors: tuple[int, ...]
    is_ordered: bool = True


def runtime_package(backend: str) -> str:
    """Return the distribution that contains the runtime of a backend, or "" for the interpreter.

    Args:
        backend: Name of the backend.
    """
    if backend in BACKENDS:
        return BACKENDS[backend].runtime
    entry = installed_backends().get(backend)
    return entry.dist.name if entry is not None and entry.dist is not None else ""


def runtime_modules(backend: str) -> tuple[str, ...]:
    """Return the modules that must be importable to run a backend."""
    return BACKENDS[backend].packages if backend in BACKENDS else ()


def list_candidates(
    backend_name: str,
    over: str,
    *,
    good: str | None,
    bad: str | None,
    fixed: str | None = None,
    values: Sequence[str] = (),
    package: str = "",
    options: Mapping[str, str] | None = None,
) -> Candidates:
    """Return the candidates of a bisection.

    Args:
        backend_name: Name of the backend.
        over: One of `AXES`.
        good: Label of the good end; None for the first candidate.
        bad: Label of the bad end; None for the last candidate.
        fixed: Label of a candidate after the bad one that may be right again.
        values: Labels of the candidates; empty for all that are known.
        package: Distribution whose versions vary; "" for the backend's runtime.
        options: The user's options of the backend.

    Raises:
        UsageError: The backend has no candidates on this axis, an end is missing or unknown, or an option is wrong.
        QdebugError: The versions cannot be listed.
    """
    backend = load_backend(backend_name)
    package = package or runtime_package(backend_name)
    check_options(backend_name, backend.options, options or {})
    if over == "versions":
        row = tuple(_list_versions(package, good=good, bad=bad, fixed=fixed, values=values))
    elif over == "options":
        row = tuple(_list_option_values(backend, options or {}))
    else:
        row = tuple(_ROWS.get(over, _list_choices)(backend, over))
    if values and over != "versions":
        row = _select(row, values, over)
    if len(row) < 2:
        if over != "versions" and not values:
            raise _missing_error(backend, over)
        hint = "Give two versions: --good V --bad V." if over == "versions" else "Give at least two --values."
        raise UsageError(f"There is only one candidate for --over {over}: {row[0].label!r}.", hint=hint)
    labels = [candidate.label for candidate in row]
    good, bad = good or labels[0], bad or labels[-1]
    for label in (good, bad, *filter(None, [fixed])):
        if label not in labels:
            raise UsageError(f"{label!r} is not one of the {over}: {', '.join(labels)}.", hint="Give one of these.")
    if over in ("options", "kernels"):
        first = labels.index(good)
        row = (row[first], *row[:first], *row[first + 1 :])
        return Candidates(over=over, package=package, row=row, anchors=(0, len(row) - 1), is_ordered=False)
    if labels.index(good) > labels.index(bad):
        row, labels = row[::-1], labels[::-1]
    anchors = [labels.index(label) for label in (good, bad, *filter(None, [fixed]))]
    if anchors != sorted(set(anchors)):
        raise UsageError(
            f"{good!r}, {bad!r}{f' and {fixed!r}' if fixed else ''} are not in order.",
            hint="Give different ends, and for --fixed a value beyond --bad.",
        )
    return Candidates(over=over, package=package, row=row, anchors=tuple(anchors))


def _select(row: Sequence[Candidate], values: Sequence[str], over: str) -> tuple[Candidate, ...]:
    by_label = {candidate.label: candidate for candidate in row}
    if over == "threads":
        wrong = [value for value in values if not value.isdecimal()]
        if wrong:
            raise UsageError(f"{wrong[0]!r} is not a number of threads.", hint="Write --values 1,2,4.")
        return tuple(Candidate(label=value, options={"threads": value}) for value in values)
    unknown = [value for value in values if value not in by_label]
    if unknown:
        raise UsageError(f"{unknown[0]!r} is not one of the {over}: {', '.join(by_label)}.", hint="Give one of these.")
    return tuple(by_label[value] for value in values)


def _list_versions(
    package: str, *, good: str | None, bad: str | None, fixed: str | None, values: Sequence[str]
) -> Iterator[Candidate]:
    """Yield the versions from the lowest to the highest end, in order."""
    if not package:
        raise UsageError("The package whose versions vary is unknown.", hint="Name it: --package NAME.")
    ends = [end for end in (good, bad, fixed) if end]
    if good is None or bad is None:
        raise UsageError(
            "A bisection over versions needs both ends.",
            hint="Give a version with the right result and one with the wrong result: --good V --bad V.",
        )
    try:
        keys = {text: Version(text) for text in ends}
        low, high = min(keys.values()), max(keys.values())
        available = (
            list(values) if values else [text for text in _published_versions(package) if low <= Version(text) <= high]
        )
        keys |= {text: Version(text) for text in available if Version(text) not in keys.values()}
    except InvalidVersion as error:
        raise UsageError(f"{error}.", hint="Write it as on the package index, such as 1.20.1.") from error
    for text in sorted(keys, key=keys.__getitem__):
        yield Candidate(label=text, version=text)


def _published_versions(package: str) -> list[str]:
    """Return the versions of a package with a wheel for this Python, as pip lists them with the user's settings."""
    if importlib.util.find_spec("pip") is None:
        raise UsageError(
            "pip, which lists the versions, is not installed.",
            hint="Install it with python -m ensurepip, or give --versions A,B,C.",
        )
    words = [sys.executable, "-m", "pip", "index", "versions", package, "--only-binary=:all:", "--no-input"]
    done = subprocess.run(  # noqa: S603  the pip of this Python
        [*words, "--disable-pip-version-check"], capture_output=True, text=True, check=False
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("Available versions:")), "")
    if not line:
        reasons = [text for text in done.stderr.splitlines() if text.startswith("ERROR")] or ["no answer"]
        raise QdebugError(
            f"pip cannot list the versions of {package!r}: {reasons[-1].removeprefix('ERROR:').strip()}.",
            hint="Check pip's configuration and the network, or give --versions A,B,C.",
        )
    return [text.strip() for text in line.partition(":")[2].split(",")]


def _list_choices(backend: Backend, over: str) -> Iterator[Candidate]:
    """Yield the values of the option that an axis varies."""
    name = _OPTION_OF_AXIS[over]
    spec = next((spec for spec in backend.options if spec.name == name and spec.choices), None)
    if spec is None:
        raise _missing_error(backend, over)
    for choice in spec.choices or ():
        yield Candidate(label=choice, options={name: choice})


def _list_option_values(backend: Backend, options: Mapping[str, str]) -> Iterator[Candidate]:
    """Yield the options as given, and then each other value of a single option."""
    yield Candidate(label="as given")
    for spec in backend.options:
        for choice in spec.choices or ():
            if choice != options.get(spec.name, spec.default):
                yield Candidate(label=f"{spec.name}={choice}", options={spec.name: choice})


def _list_passes(backend: Backend, over: str) -> Iterator[Candidate]:
    """Yield candidates that each enable one more pass than the one before, in the order of the runtime."""
    names: tuple[str, ...] = getattr(backend, "passes", ())
    if not names:
        raise _missing_error(backend, over)
    labels = [_ENABLED_NONE, *names[:-1], _ENABLED_ALL]
    for position, label in enumerate(labels):
        disabled = "+".join(names[position:])
        yield Candidate(label=label, options={"disable": disabled} if disabled else {})


def _list_thread_counts(backend: Backend, over: str) -> Iterator[Candidate]:
    if all(spec.name != "threads" for spec in backend.options):
        raise _missing_error(backend, over)
    cores = os.cpu_count() or 1
    counts = {1, max(cores, 2), *(2**power for power in range(1, cores.bit_length()) if 2**power <= cores)}
    for count in sorted(counts):
        yield Candidate(label=str(count), options={"threads": str(count)})


def _list_instruction_sets(backend: Backend, _over: str) -> Iterator[Candidate]:
    """Yield limits on the instruction set, from the oldest set to the processor's, as variables of the runtime."""
    limits: Mapping[str, Sequence[tuple[str, str]]] = getattr(backend, "cpu_limits", {})
    if not limits or shutil.which("env") is None:
        raise UsageError(
            f"Backend {backend.name!r} cannot be limited to an instruction set.",
            hint="Record on both machines, and compare the recordings with qdebug diff A.h5 B.h5 -v.",
        )
    for label, variables in limits.items():
        yield Candidate(label=label, variables=tuple(variables))
    yield Candidate(label="processor")


_ROWS = {"passes": _list_passes, "threads": _list_thread_counts, "cpu": _list_instruction_sets}


def _missing_error(backend: Backend, over: str) -> UsageError:
    return UsageError(
        f"Backend {backend.name!r} has no {over} to choose from.",
        hint="See which --over each runtime supports: qdebug help bisect.",
    )


def installed_version(package: str) -> str:
    """Return the installed version of a package, or ""."""
    try:
        return version(package) if package else ""
    except PackageNotFoundError:
        return ""
