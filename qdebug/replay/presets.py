"""Arithmetics of known backends by name, each with where it is known from.

A preset says how a backend computes each kind of unit that is known of it. What it does not state is computed as ONNX
Runtime's x86 kernels do, and `Preset.states` tells the two apart. The same package may compute differently on another
processor; the names say so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType

from qdebug.errors import UsageError
from qdebug.replay.arithmetic import DEFAULTS, Arithmetic, keys_of
from qdebug.replay.preset_table import ROWS, Row
from qdebug.replay.variant import Variant, parse_variant

__all__ = ["ALIASES", "DEFAULT_PRESET", "PRESETS", "PROVENANCES", "Preset", "names_of", "preset"]

DEFAULT_PRESET = "onnx-spec"
"""The preset of a backend that says nothing of its arithmetic."""

PROVENANCES: Mapping[str, str] = MappingProxyType(
    {
        "measured": "every element of probes and nets was reproduced on the named version and processor",
        "source": "read in the backend's source, not run",
        "memory": "from general knowledge of the backend, neither run nor read",
        "file": "a file that was written by a search or by hand",
    }
)
"""How an arithmetic is known, and what the word means."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Preset:
    """A named arithmetic.

    Args:
        name: Its name.
        arithmetic: How each kind of unit is computed.
        fused: Whether the backend computes groups of a QDQ graph as one node on codes.
        provenance: How it is known: a key of `PROVENANCES`.
        about: What was measured or read, and where.
        apart: How kinds are known that are known otherwise than the rest.
    """

    name: str
    arithmetic: Arithmetic
    fused: bool
    provenance: str
    about: str
    apart: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def known(self, kind: str) -> str:
        """Say how the arithmetic of a kind of unit is known: a key of `PROVENANCES`."""
        return self.apart.get(kind, self.provenance)

    @property
    def states(self) -> tuple[str, ...]:
        """Kinds of unit that something is known of; the others take the default."""
        return tuple(self.arithmetic.variants)

    def variant(self, kind: str) -> Variant:
        """Give the variant for a kind of unit, whatever its dtypes are."""
        return self.arithmetic.variants.get(kind, DEFAULTS[kind])


def _made(row: Row) -> Preset:
    return Preset(
        name=row.name,
        arithmetic=Arithmetic(
            variants={kind: parse_variant(text) for kind, text in row.variants.items()}, name=row.name
        ),
        fused=row.fused,
        provenance=row.known,
        about=row.about,
        apart=row.apart,
    )


PRESETS: Mapping[str, Preset] = MappingProxyType({row.name: _made(row) for row in ROWS})
"""Presets by name."""

ALIASES: Mapping[str, str] = MappingProxyType({alias: row.name for row in ROWS for alias in row.aliases})
"""Other names that backends' arithmetics go by, and the preset that each stands for."""


def preset(name: str) -> Preset:
    """Give a preset by its name or another name that it goes by.

    Raises:
        UsageError: There is none of this name.
    """
    name = ALIASES.get(name, name)
    if name not in PRESETS:
        near = get_close_matches(name.lower().replace("_", "-"), PRESETS, n=3)
        meant = f" Near names: {', '.join(near)}." if near else ""
        raise UsageError(
            f"There is no arithmetic {name!r}.{meant} Known are {', '.join(PRESETS)}.",
            hint="Choose one, or give the path of a file that qdebug explain --write-arithmetic wrote.",
        )
    return PRESETS[name]


def names_of(variant: Variant, kind: str, dtypes: tuple[str, ...] = (), branch: str = "") -> tuple[str, ...]:
    """Name the presets that state a variant.

    Args:
        variant: The variant.
        kind: The kind of unit that it computes.
        dtypes: Dtypes of operands and output, where a preset tells them apart.
        branch: Its branch of the kind, where a preset tells them apart.
    """
    keys = keys_of(kind, branch, dtypes)
    stated = {name: found.arithmetic.variants for name, found in PRESETS.items()}
    return tuple(name for name, own in stated.items() if variant == next((own[k] for k in keys if k in own), None))
