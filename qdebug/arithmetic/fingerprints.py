"""Reads fingerprints: the arithmetics of one version of a backend on one processor, by kind and types.

A fingerprint is the JSON that `qdebug probe -o FILE.json` writes. qdebug includes some that were measured.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, TypeVar

from qdebug.arithmetic.floats.search import Placement, parse_placement, placement_clauses
from qdebug.errors import UsageError
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.regular_file import read_regular
from qdebug.replay.variant import Variant, describe, parse_variant

__all__ = [
    "VERDICTS",
    "Fingerprint",
    "FingerprintComparison",
    "KindDifference",
    "describe_run",
    "find_fingerprint",
    "fingerprint_name",
    "packaged",
]

_Answer = TypeVar("_Answer")

FORMAT, VERSION = "qdebug.probe", 1
VERDICTS = ("differs", "first", "second", "same")
"""Verdicts of `KindDifference`, in the order in which differences are listed."""
_MAX_BYTES = 16 << 20
_HINT = "Let qdebug write the file: qdebug probe --backend NAME -o FILE.json."
_PROCESSOR_BY_FLAG: Mapping[str, str] = MappingProxyType(
    {
        "amx_int8": "amx",
        "avx512_vnni": "avx512-vnni",
        "avx_vnni": "avx-vnni",
        "avx512f": "avx512",
        "avx2": "avx2",
        "avx": "avx",
        "i8mm": "arm-i8mm",
        "asimddp": "arm-dotprod",
        "asimd": "arm",
    }
)
"""Names of processor classes by the best CPU flag for products of codes, best first."""
_PACKAGE_BY_BACKEND: Mapping[str, str] = MappingProxyType({"litert": "ai-edge-litert", "tflm": "tflite-micro"})
"""Names of the packages whose version counts, for backends with another name."""
_KERNEL_OPTIONS = ("kernels", "opt", "precision", "delegate", "compile", "enable")
"""Backend options that select different kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDifference(JsonObject):
    """The comparison of two fingerprints for one kind of node.

    Args:
        title: The kind with its types.
        verdict: "same" if an arithmetic fits both, "differs" if none does, "first" or "second" if only that one has an
            arithmetic for this kind.
        first: The arithmetic of the first in plain words, or None if it has none.
        second: The arithmetic of the second in plain words, or None if it has none.
    """

    title: str
    verdict: Annotated[str, SchemaPart(enum=[*VERDICTS])]
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fingerprint(JsonObject):
    """The arithmetics that probes found in a backend.

    Args:
        name: Its name.
        backend: The backend.
        about: Version, options and processor, as a clause.
        kinds: The variants that explain each kind, by keys as in `Arithmetic.variants`. Kinds that no variant explains
            are missing.
        titles: Title of each kind, by the same keys.
        roundings: The placements of roundings that explain float operators, by operator and format: `("Add",
            "float16")`. Empty if they were not probed.
    """

    json_keys = "name about"

    name: str
    backend: str
    about: str
    kinds: Mapping[str, tuple[Variant, ...]]
    titles: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    roundings: Mapping[tuple[str, str], tuple[Placement, ...]] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintComparison(JsonObject):
    """The comparison of two fingerprints, kind by kind."""

    json_format = "probe-comparison"
    json_keys = "first second summary kinds"

    first: Fingerprint
    second: Fingerprint

    @property
    def kinds(self) -> tuple[KindDifference, ...]:
        """The comparison of each kind of node and float operator that is explained in either, differences first."""
        first, second = self.first, self.second
        differences = [
            _compare_answers(
                first.titles.get(key) or second.titles.get(key) or key,
                first.kinds.get(key, ()),
                second.kinds.get(key, ()),
                lambda variants: describe(variants[0]),
            )
            for key in dict.fromkeys((*first.kinds, *second.kinds))
        ]
        differences += [
            _compare_answers(
                f"{op} {short}",
                first.roundings.get((op, short), ()),
                second.roundings.get((op, short), ()),
                partial(_describe_placements, short),
            )
            for op, short in dict.fromkeys((*first.roundings, *second.roundings))
        ]
        return tuple(sorted(differences, key=lambda difference: VERDICTS.index(difference.verdict)))

    def counted(self, verdict: str) -> int:
        """Return the number of kinds with a given verdict."""
        return sum(kind.verdict == verdict for kind in self.kinds)

    @property
    def summary(self) -> Annotated[Mapping[str, int], SchemaPart(required=[*VERDICTS])]:
        """Number of kinds with each verdict."""
        return {verdict: self.counted(verdict) for verdict in VERDICTS}

    @property
    def exit_code(self) -> int:
        """Exit code of `qdebug probe --compare`: 1 if a kind differs, 3 if no kind is in both, 0 in all other cases."""
        if self.counted("differs"):
            return 1
        return 0 if self.counted("same") else 3


def _compare_answers(
    title: str, first: Sequence[_Answer], second: Sequence[_Answer], words: Callable[[Sequence[_Answer]], str]
) -> KindDifference:
    """Compare the answers of two fingerprints for a kind of node or a float operator.

    Args:
        title: Its title.
        first: The answers of the first that cannot be told apart. Empty if it has none.
        second: The answers of the second.
        words: Describes answers that cannot be told apart.
    """
    shared = [answer for answer in first if answer in second]
    verdict = "same" if shared else "differs" if first and second else "first" if first else "second"
    first_text, second_text = (words(shared or answers) if answers else None for answers in (first, second))
    return KindDifference(title=title, verdict=verdict, first=first_text, second=second_text)


def _describe_placements(short: str, placements: Sequence[Placement]) -> str:
    """Describe the first of several placements, without the rounding of ties if they differ in it."""
    first = placements[0]
    ties = all(each.rounding == first.rounding for each in placements if each.edges == first.edges)
    return ", ".join(placement_clauses(first, short, ties=ties))


def describe_run(run: Mapping[str, Any]) -> str:
    """Describe a run in a clause: version, options that choose kernels, and processor.

    Args:
        run: Facts of a run, as returned by `RunInfo.to_dict`.
    """
    backend = str(run.get("backend", ""))
    package = _PACKAGE_BY_BACKEND.get(backend, backend)
    chosen = [f"{name}={run['options'][name]}" for name in _KERNEL_OPTIONS if name in run.get("options", {})]
    options = f" ({', '.join(chosen)})" if chosen else ""
    version = run.get("versions", {}).get(package)
    processor = _processor_name(run)
    return f"{package}{f' {version}' if version else ''}{options}{f' on {processor}' if processor else ''}"


def fingerprint_name(run: Mapping[str, Any]) -> str:
    """Return the name of a run's fingerprint: backend, version, options that choose kernels, and processor.

    Args:
        run: Facts of a run, as returned by `RunInfo.to_dict`.
    """
    backend = str(run.get("backend", ""))
    version = run.get("versions", {}).get(_PACKAGE_BY_BACKEND.get(backend, backend), "")
    chosen = [str(run["options"][name]) for name in _KERNEL_OPTIONS if name in run.get("options", {})]
    return "-".join(filter(None, (backend, str(version), *chosen, _processor_name(run))))


def _processor_name(run: Mapping[str, Any]) -> str:
    return next((word for flag, word in _PROCESSOR_BY_FLAG.items() if flag in run.get("cpu_flags", ())), "")


def find_fingerprint(text: str) -> Fingerprint:
    """Return the fingerprint that a user names.

    Args:
        text: The path of a file written by `qdebug probe`, or the name of a packaged fingerprint.

    Raises:
        UsageError: There is no such fingerprint, or the file does not contain one.
    """
    by_name = packaged()
    if text in by_name and not Path(text).is_file():
        return by_name[text]
    try:
        content = read_regular(Path(text), _MAX_BYTES)
    except ValueError:
        raise UsageError(f"{text!r} is too large for a fingerprint.", hint=_HINT) from None
    except OSError as error:
        raise UsageError(
            f"The fingerprint {text!r} cannot be read: {error.strerror or error}.",
            hint=f"{_HINT[:-1]}, or name a known fingerprint: {', '.join(by_name)}.",
        ) from None
    return _parse_probe(Path(text).name, content)


@cache
def packaged() -> Mapping[str, Fingerprint]:
    """Return the packaged fingerprints by name."""
    from importlib.resources import files

    folder = files("qdebug.data").joinpath("fingerprints")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    fingerprints = (_parse_probe(name.removesuffix(".json"), folder.joinpath(name).read_bytes()) for name in names)
    return MappingProxyType({fingerprint.name: fingerprint for fingerprint in fingerprints})


def _parse_probe(name: str, content: bytes) -> Fingerprint:
    """Parse the JSON of a probe.

    Raises:
        UsageError: It is not a fingerprint, or contains an invalid arithmetic.
    """
    try:
        document = json.loads(content)
        is_fingerprint = isinstance(document, dict) and document.get("format") == FORMAT
    except (ValueError, RecursionError):
        is_fingerprint = False
    if not is_fingerprint:
        raise UsageError(f"{name!r} is not a fingerprint.", hint=_HINT)
    if document.get("version") != VERSION:
        raise UsageError(
            f"{name!r} is a fingerprint of version {document.get('version')!r}; this qdebug reads {VERSION}.",
            hint="Upgrade qdebug: pip install --upgrade qdebug.",
        )
    try:
        run, entries = _checked_entry(document, "backend", dict), _checked_entry(document, "kinds", list)
        for key, kind in (("options", dict), ("versions", dict), ("cpu_flags", list)):
            _checked_entry(run, key, kind, kind())
        titles = {str(_checked_entry(entry, "key")): str(_checked_entry(entry, "title")) for entry in entries}
        backend, kinds = str(_checked_entry(run, "backend")), dict(_explained_kinds(entries))
        roundings = dict(_explained_roundings(_checked_entry(document, "roundings", list, [])))
    except ValueError as error:
        raise UsageError(f"The fingerprint {name!r} is damaged: {error}.", hint=_HINT) from None
    except UsageError as error:
        raise UsageError(f"The fingerprint {name!r} is damaged: {error.message}", hint=_HINT) from None
    about = describe_run(run)
    return Fingerprint(name=name, backend=backend, about=about, kinds=kinds, titles=titles, roundings=roundings)


def _checked_entry(holder: Any, key: str, kind: type = object, default: object = None) -> Any:
    """Return an entry of a JSON object.

    Raises:
        ValueError: It is not an object, lacks the entry, or the entry has the wrong type.
    """
    value = holder.get(key, default) if isinstance(holder, dict) else None
    if value is None:
        raise ValueError(f"it lacks {key!r}")
    if not isinstance(value, kind):
        raise ValueError(f"its {key!r} is {type(value).__name__}; expected {kind.__name__}")
    return value


def _explained_kinds(entries: list[Any]) -> Iterator[tuple[str, tuple[Variant, ...]]]:
    for entry in entries:
        if _checked_entry(entry, "status") == "explained":
            yield str(entry["key"]), tuple(parse_variant(str(text)) for text in _checked_entry(entry, "variants", list))


def _explained_roundings(entries: list[Any]) -> Iterator[tuple[tuple[str, str], tuple[Placement, ...]]]:
    for entry in entries:
        texts = _checked_entry(entry, "placements", list)
        if _checked_entry(entry, "status") == "explained" and texts:
            key = str(_checked_entry(entry, "op")), str(_checked_entry(entry, "format"))
            yield key, tuple(parse_placement(str(text)) for text in texts)
