"""Reads and writes arithmetic files: TOML files that people edit and the interpreter computes with.

format = "qdebug.arithmetic"
version = 1
name = "my-npu"
base = "glow-cpu"           # the preset for everything that the file omits; "onnx-spec" by default
fused = true                # whether groups of a QDQ graph are computed as one node; as in the base by default

[variants]                  # by kind of unit, optionally with a branch, and with the dtypes of operands and output
conv = "m=q31 steps=shl,mulhi.up,shr.away,zp,sat"
"add:uint8,uint8,uint8" = "form=fold-fma steps=even,sat"
"lookup.HardSwish" = "form=hswish16 steps=shr.away,zp,sat"

[roundings]                 # for float nodes, by operator or node, with the format of its results
"Add:bfloat16" = "result=zero"
"RMSNormalization:bfloat16" = "the inverse root=even;result=even"
"node:bfloat16:layers.0.add" = "result=even"
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from qdebug.arithmetic.floats.recipes import RECIPES
from qdebug.arithmetic.floats.rounded import NODE_KEY
from qdebug.arithmetic.floats.search import Placement, parse_placement
from qdebug.arithmetic.presets import ALIASES, DEFAULT_PRESET, Preset, known_presets, preset
from qdebug.errors import UsageError
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.regular_file import read_regular
from qdebug.replay.unit import KINDS
from qdebug.replay.variant import Variant, kind_of, parse_variant
from qdebug.toml_text import parse_toml

__all__ = ["arithmetic_text", "complete_from_preset", "find_arithmetic", "read_arithmetic"]

T = TypeVar("T")

_FORMAT, _VERSION = "qdebug.arithmetic", 1
_MAX_BYTES = 1 << 20
_KEYS = {"format": str, "version": int, "name": str, "base": str, "fused": bool, "variants": dict, "roundings": dict}
_HINT = "Let qdebug write the file: qdebug explain BACKEND --write-arithmetic FILE."


def find_arithmetic(text: str) -> Preset:
    """Return the preset that a user names, or read the arithmetic file at a path.

    Args:
        text: The name or an alias of a preset, or a path.

    Raises:
        UsageError: There is no such preset, or the file is not an arithmetic file.
    """
    if text in known_presets() or text in ALIASES or not ("." in text or "/" in text or Path(text).is_file()):
        return preset(text)
    return read_arithmetic(text)


def read_arithmetic(path: str | Path) -> Preset:
    """Read an arithmetic file.

    Args:
        path: The file.

    Returns:
        The arithmetic of the file on top of its base, with provenance "file".

    Raises:
        UsageError: The file cannot be read, is not valid TOML, or does not describe an arithmetic.
    """
    path = Path(path)
    tables = _read_tables(path)
    base = preset(tables.get("base", DEFAULT_PRESET))
    file_variants = {key: _parse_variant(path, key, text) for key, text in tables.get("variants", {}).items()}
    return Preset(
        name=tables.get("name", path.stem),
        variants=complete_from_preset(base, file_variants),
        fused=tables.get("fused", base.fused),
        provenance="file",
        about=path.name,
        roundings={key: _parse_rounding(path, key, text) for key, text in tables.get("roundings", {}).items()},
    )


def complete_from_preset(base: Preset, variants: Mapping[str, Variant]) -> dict[str, Variant]:
    """Complete the variants of a file with those of a preset.

    A variant that the file states for a whole kind also replaces the preset's variants of this kind for specific types.

    Args:
        base: The preset.
        variants: The variants of the file, by kind, or by kind and dtypes.
    """
    return {key: variant for key, variant in base.variants.items() if kind_of(key) not in variants} | dict(variants)


def _parse_variant(path: Path, key: str, text: object) -> Variant:
    kind, (_, colon, types) = kind_of(key), key.partition(":")
    if kind not in KINDS:
        raise _format_error(path, f"unknown kind of unit {kind!r}; known kinds are {', '.join(KINDS)}")
    for dtype in types.split(",") if colon else ():
        if dtype not in LOGICAL_DTYPES:
            raise _format_error(path, f"{key!r} names an unknown type {dtype!r}")
    return _parse_entry(path, f"the variant of {key!r}", text, parse_variant)


def _parse_rounding(path: Path, key: str, text: object) -> Placement:
    op, _, short = key.partition(":")
    if key.startswith(NODE_KEY):
        short = short.partition(":")[0]
    elif op not in RECIPES:
        raise _format_error(path, f"no roundings are known for {op!r}, only for {', '.join(RECIPES)}")
    if short not in (formats := [short_format.name for short_format in SHORT_FORMATS]):
        raise _format_error(path, f"the key {key!r} has no format; write {op}:FORMAT, with one of {', '.join(formats)}")
    return _parse_entry(path, f"the rounding of {key!r}", text, parse_placement)


def _parse_entry(path: Path, entry: str, text: object, parse: Callable[[str], T]) -> T:
    if not isinstance(text, str):
        raise _format_error(path, f"{entry} must be a string, but is {text!r}")
    try:
        return parse(text)
    except UsageError as error:
        raise _format_error(path, f"{entry}: {error.message}") from error


def _read_tables(path: Path) -> dict[str, Any]:
    try:
        content = read_regular(path, _MAX_BYTES)
    except OSError as error:
        raise _format_error(path, error.strerror or "it cannot be read") from error
    except ValueError as error:
        raise _format_error(path, str(error)) from error
    try:
        tables = parse_toml(content.decode("utf-8"))
    except ValueError as error:  # from tomllib, the decoder, or a number with thousands of digits
        raise _format_error(path, f"it is not valid TOML: {error}") from error
    except RecursionError as error:
        raise _format_error(path, "it is nested too deeply") from error
    if tables.get("format") != _FORMAT:
        raise _format_error(path, f"its format is {tables.get('format')!r}, not {_FORMAT!r}")
    for key, value in tables.items():
        if key not in _KEYS:
            raise _format_error(path, f"it has an unknown key {key!r}; known keys are {', '.join(_KEYS)}")
        if not isinstance(value, _KEYS[key]):
            raise _format_error(path, f"{key} is {value!r}")
    if tables.get("version", _VERSION) != _VERSION:
        raise _format_error(path, f"it has version {tables['version']}; this qdebug reads version {_VERSION}")
    return tables


def _format_error(path: Path, reason: str) -> UsageError:
    return UsageError(f"{str(path)!r} is not an arithmetic file: {reason.rstrip('.')}.", hint=_HINT)


def arithmetic_text(
    variants: Mapping[str, Variant],
    *,
    name: str,
    base: str = DEFAULT_PRESET,
    fused: bool | None = None,
    comments: Mapping[str, str] | None = None,
    roundings: Mapping[str, str] | None = None,
) -> str:
    """Return the text of an arithmetic file.

    Args:
        variants: Variants by kind, or by kind and dtypes.
        name: Name of the arithmetic.
        base: Name of the preset for everything that the file omits.
        fused: Whether groups of a QDQ graph are computed as one node. None to follow the base.
        comments: Comment lines to write above variants, by key.
        roundings: Texts of the placements of float nodes, by key.
    """
    lines = ["# Which arithmetic reproduces a backend, node by node: --backend interpreter:arithmetic=THIS FILE"]
    lines += [f"format = {json.dumps(_FORMAT)}", f"version = {_VERSION}", f"name = {_quote_string(name)}"]
    if base != DEFAULT_PRESET:
        lines.append(f"base = {_quote_string(base)}")
    if fused is not None:
        lines.append(f"fused = {str(fused).lower()}")
    if variants:
        lines += ["", "[variants]"]
    for key, variant in variants.items():
        if comments and key in comments:
            lines.append(f"# {' '.join(comments[key].split())}")
        lines.append(f"{key if key.replace('_', '').isalnum() else _quote_string(key)} = {_quote_string(str(variant))}")
    if roundings:
        lines += [
            "",
            "[roundings]",
            *(f"{_quote_string(key)} = {_quote_string(text)}" for key, text in roundings.items()),
        ]
    return "\n".join(lines) + "\n"


def _quote_string(text: str) -> str:
    """Quote a text as a basic string of TOML. JSON's escapes are valid in TOML, but DEL must be escaped as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
