"""Encode results as JSON. The fields of a dataclass become the keys of an object."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import PurePath
from typing import Annotated, Any, ClassVar, NamedTuple

import numpy as np

__all__ = ["Count", "JsonKey", "JsonObject", "SchemaPart", "json_keys_of", "json_safe"]


class SchemaPart(dict[str, Any]):
    """Additions to the JSON Schema of an `Annotated` type."""

    __hash__ = object.__hash__  # type: ignore[assignment]  # typing caches types by their hash


Count = Annotated[int, SchemaPart(minimum=0)]
"""A count."""


class JsonObject:
    """A dataclass that becomes a JSON object.

    A subclass may set `json_keys`: the keys in the order of the JSON, separated by spaces. By default, the keys are the
    fields. A key is the name of a field or property, or `key=attribute` if the names differ. The attribute may be a
    path (`largest=witness.largest`). `key?` is left out if the value is None. `key|null` is null if the value is empty
    or 0. A subclass with a `json_format` is a complete document, which states its format and version.

    Examples:
        >>> @dataclass(frozen=True, slots=True)
        ... class Place(JsonObject):
        ...     json_keys = "name sample=index step|null"
        ...     name: str
        ...     index: int
        ...     step: int = 0
        >>> Place("conv1", 3).to_dict()
        {'name': 'conv1', 'sample': 3, 'step': None}
    """

    __slots__ = ()
    json_format: ClassVar[str] = ""
    json_keys: ClassVar[str] = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the object as JSON data. Non-finite numbers are the strings "NaN", "Infinity" and "-Infinity"."""
        header = {"format": f"qdebug.{self.json_format}", "version": 1} if self.json_format else {}
        return header | _to_object(self)

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the object as JSON text.

        Args:
            indent: Spaces per level; None for a single line.
        """
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)


class JsonKey(NamedTuple):
    """A key of a JSON object.

    Args:
        key: Its name.
        path: Attribute path to the value; null if an attribute along the path is None.
        optional: Whether the key is left out if the value is None.
        nullable: Whether it is null if the value is empty or 0.
    """

    key: str
    path: tuple[str, ...]
    optional: bool
    nullable: bool


@cache
def json_keys_of(cls: type) -> tuple[JsonKey, ...]:
    """Return the keys of a dataclass in the order of the JSON."""
    entries = str(getattr(cls, "json_keys", "")).split() or [entry.name for entry in fields(cls)]
    keys = []
    for entry in entries:
        text = entry.removesuffix("?").removesuffix("|null")
        key, _, path = text.partition("=")
        keys.append(JsonKey(key, tuple((path or key).split(".")), entry.endswith("?"), entry.endswith("|null")))
    return tuple(keys)


def _to_object(instance: Any) -> dict[str, Any]:
    json_object = {}
    for key, path, optional, nullable in json_keys_of(instance.__class__):
        value: Any = instance
        for name in path:
            value = None if value is None else getattr(value, name)
        if value is not None or not optional:
            json_object[key] = None if nullable and not value else json_safe(value)
    return json_object


def json_safe(value: Any) -> Any:
    """Convert a value to JSON data recursively.

    Non-finite numbers become strings, arrays become flat lists, and dataclasses become objects.
    """
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if value is None or isinstance(value, int | str | PurePath | Enum):
        return value.value if isinstance(value, Enum) else str(value) if isinstance(value, PurePath) else value
    if isinstance(value, JsonObject):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {json_safe(key): json_safe(entry) for key, entry in value.items()}
    if isinstance(value, Sequence | np.ndarray):
        return [json_safe(entry) for entry in (value.ravel().tolist() if isinstance(value, np.ndarray) else value)]
    return _to_object(value) if is_dataclass(value) else value
