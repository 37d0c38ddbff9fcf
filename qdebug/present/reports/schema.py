"""The JSON Schemas of qdebug's output, which ship with the package."""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

from qdebug.errors import UsageError

__all__ = ["FOLDER", "SCHEMAS", "load_schema"]

FOLDER = resources.files("qdebug.present.reports") / "schemas"
_SUFFIX = ".schema.json"
SCHEMAS = tuple(sorted(path.name.removesuffix(_SUFFIX) for path in FOLDER.iterdir()))
"""Names of the schemas: the part of a document's "format" after "qdebug."."""


def load_schema(name: str) -> dict[str, Any]:
    """Return a JSON Schema (draft 2020-12) as plain values.

    Args:
        name: One of `SCHEMAS`.

    Raises:
        UsageError: There is no schema of this name.
    """
    if name not in SCHEMAS:
        raise UsageError(
            f"Unknown JSON schema {name!r}; known schemas are {', '.join(SCHEMAS)}.", hint="Give one of these names."
        )
    schema: dict[str, Any] = json.loads((FOLDER / f"{name}{_SUFFIX}").read_text(encoding="utf-8"))
    return schema
