"""Fingerprints: what probes find of a backend, by kind of node and its types, in one version on one processor.

A fingerprint is the JSON that `qdebug probe -o FILE.json` writes. Those that came with the package were measured.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from qdebug.errors import UsageError
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.regular_file import read_regular
from qdebug.replay.variant import Variant, describe, parse_variant

__all__ = [
    "VERDICTS",
    "Fingerprint",
    "FingerprintComparison",
    "KindDifference",
    "find_fingerprint",
    "fingerprint_name",
    "packaged",
]

FORMAT, VERSION = "qdebug.probe", 1
VERDICTS = ("differs", "first", "second", "same")
"""How two fingerprints compare in a kind of node, see `KindDifference.verdict`; what is looked at first comes first."""
_MOST_BYTES = 16 << 20
_HINT = "Let qdebug write the file: qdebug probe --backend NAME -o FILE.json."
_LEVELS: Mapping[str, str] = MappingProxyType(
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
"""What a processor is called by the best of its flags that matters to products of codes, the best first."""
_PACKAGES: Mapping[str, str] = MappingProxyType({"litert": "ai-edge-litert", "tflm": "tflite-micro"})
"""The package whose version counts, where it is not called like the backend."""
_CHOICES = ("kernels", "opt", "precision", "delegate", "compile")
"""Options of backends that choose other kernels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindDifference(JsonObject):
    """How two fingerprints compare in one kind of node.

    Args:
        title: The kind with its types.
        verdict: "same" if an arithmetic fits both; "differs" if none does; "first" or "second" if only that one has an
            arithmetic for it.
        first: In plain words how the first computes; None where it has no arithmetic.
        second: How the second does; None likewise.
    """

    title: str
    verdict: Annotated[str, SchemaPart(enum=[*VERDICTS])]
    first: str | None
    second: str | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fingerprint(JsonObject):
    """The arithmetics of a backend that probes have found.

    Args:
        name: What it goes by.
        backend: The backend.
        about: Version, options and processor, in a clause.
        kinds: The class of variants of each kind with branch and types, as `Arithmetic.variants` has its keys; those
            that no single arithmetic explains are left out.
        titles: What each key is called.
    """

    json_keys = "name about"

    name: str
    backend: str
    about: str
    kinds: Mapping[str, tuple[Variant, ...]]
    titles: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


@dataclass(frozen=True, slots=True, kw_only=True)
class FingerprintComparison(JsonObject):
    """What differs between two fingerprints.

    Args:
        first: One.
        second: The other.
    """

    json_format = "probe-comparison"
    json_keys = "first second summary kinds"

    first: Fingerprint
    second: Fingerprint

    @property
    def kinds(self) -> tuple[KindDifference, ...]:
        """Each kind of node that either has an arithmetic for: what differs comes first."""
        found = [self._difference(key) for key in dict.fromkeys((*self.first.kinds, *self.second.kinds))]
        return tuple(sorted(found, key=lambda difference: VERDICTS.index(difference.verdict)))

    def _difference(self, key: str) -> KindDifference:
        ours, theirs = (side.kinds.get(key, ()) for side in (self.first, self.second))
        shared = tuple(variant for variant in ours if variant in theirs)
        verdict = "same" if shared else "differs" if ours and theirs else "first" if ours else "second"
        mine, yours = (describe((shared or own)[0]) if own else None for own in (ours, theirs))
        title = self.first.titles.get(key) or self.second.titles.get(key) or key
        return KindDifference(title=title, verdict=verdict, first=mine, second=yours)

    def counted(self, verdict: str) -> int:
        """Return how many kinds have a verdict."""
        return sum(kind.verdict == verdict for kind in self.kinds)

    @property
    def summary(self) -> Annotated[Mapping[str, int], SchemaPart(required=[*VERDICTS])]:
        """How many kinds have each verdict."""
        return {verdict: self.counted(verdict) for verdict in VERDICTS}

    @property
    def exit_code(self) -> int:
        """What `qdebug probe --compare` exits with: 1 if a kind differs, 3 if no kind is in both, else 0."""
        if self.counted("differs"):
            return 1
        return 0 if self.counted("same") else 3


def _said_of_run(run: Mapping[str, Any]) -> str:
    """Say in a clause what a run was of: version, options that choose kernels, and processor.

    Args:
        run: Facts of a run, as `RunInfo.to_dict` gives them.
    """
    backend = str(run.get("backend", ""))
    package = _PACKAGES.get(backend, backend)
    chosen = [f"{name}={run['options'][name]}" for name in _CHOICES if name in run.get("options", {})]
    options = f" ({', '.join(chosen)})" if chosen else ""
    version = run.get("versions", {}).get(package)
    processor = _processor(run)
    return f"{package}{f' {version}' if version else ''}{options}{f' on {processor}' if processor else ''}"


def fingerprint_name(run: Mapping[str, Any]) -> str:
    """Return what a fingerprint goes by: backend, version, options that choose kernels, and processor."""
    backend = str(run.get("backend", ""))
    version = run.get("versions", {}).get(_PACKAGES.get(backend, backend), "")
    chosen = [str(run["options"][name]) for name in _CHOICES if name in run.get("options", {})]
    return "-".join(filter(None, (backend, str(version), *chosen, _processor(run))))


def _processor(run: Mapping[str, Any]) -> str:
    return next((word for flag, word in _LEVELS.items() if flag in run.get("cpu_flags", ())), "")


def find_fingerprint(text: str) -> Fingerprint:
    """Return the fingerprint that a user names.

    Args:
        text: The path of a file that `qdebug probe` wrote, or the name of one that came with the package.

    Raises:
        UsageError: There is none, or the file is none.
    """
    known = packaged()
    if text in known and not Path(text).is_file():
        return known[text]
    try:
        content = read_regular(Path(text), _MOST_BYTES)
    except ValueError:
        raise UsageError(f"{text!r} is too large for a fingerprint.", hint=_HINT) from None
    except OSError as error:
        raise UsageError(
            f"The fingerprint {text!r} cannot be read: {error.strerror or error}.",
            hint=f"{_HINT[:-1]}, or name one that is known: {', '.join(known)}.",
        ) from None
    return _decoded(Path(text).name, content)


@cache
def packaged() -> Mapping[str, Fingerprint]:
    """Return the fingerprints that came with the package, by name."""
    from importlib.resources import files

    folder = files("qdebug.data").joinpath("fingerprints")
    found = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".json"))
    read = (_decoded(name.removesuffix(".json"), folder.joinpath(name).read_bytes()) for name in found)
    return MappingProxyType({each.name: each for each in read})


def _decoded(name: str, content: bytes) -> Fingerprint:
    """Read the JSON of a probe.

    Raises:
        UsageError: It is none, or says something that is no arithmetic.
    """
    try:
        plain = json.loads(content)
        known = isinstance(plain, dict) and plain.get("format") == FORMAT
    except (ValueError, RecursionError):
        known = False
    if not known:
        raise UsageError(f"{name!r} is no fingerprint.", hint=_HINT)
    if plain.get("version") != VERSION:
        raise UsageError(
            f"{name!r} is a fingerprint of version {plain.get('version')!r}; this qdebug reads {VERSION}.",
            hint="Upgrade qdebug: pip install --upgrade qdebug.",
        )
    try:
        run, entries = _part(plain, "backend", dict), _part(plain, "kinds", list)
        for key, kind in (("options", dict), ("versions", dict), ("cpu_flags", list)):
            _part(run, key, kind, kind())
        titles = {str(_part(entry, "key")): str(_part(entry, "title")) for entry in entries}
        backend, kinds = str(_part(run, "backend")), dict(_kinds(entries))
    except ValueError as error:
        raise UsageError(f"The fingerprint {name!r} is damaged: {error}.", hint=_HINT) from None
    except UsageError as error:
        raise UsageError(f"The fingerprint {name!r} is damaged: {error.message}", hint=_HINT) from None
    return Fingerprint(name=name, backend=backend, about=_said_of_run(run), kinds=kinds, titles=titles)


def _part(holder: Any, key: str, kind: type = object, default: object = None) -> Any:
    """Return an entry of a JSON object.

    Raises:
        ValueError: It is no object, lacks the entry, or holds another kind of value there.
    """
    found = holder.get(key, default) if isinstance(holder, dict) else None
    if found is None:
        raise ValueError(f"it lacks {key!r}")
    if not isinstance(found, kind):
        raise ValueError(f"its {key!r} is {type(found).__name__}; expected {kind.__name__}")
    return found


def _kinds(entries: list[Any]) -> Iterator[tuple[str, tuple[Variant, ...]]]:
    for entry in entries:
        if _part(entry, "status") == "explained":
            yield str(entry["key"]), tuple(parse_variant(str(text)) for text in _part(entry, "variants", list))
