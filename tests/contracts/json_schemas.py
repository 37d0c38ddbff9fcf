"""Makes the JSON Schemas from the annotations and docstrings of the result types.

`python tests/contracts/json_schemas.py` writes them anew; `test_json_schemas.py` holds the committed ones to it.
"""

import inspect
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import numpy as np

from qdebug.accuracy.report import AccuracyReport
from qdebug.accuracy.track import History
from qdebug.arithmetic.fingerprints import FingerprintComparison
from qdebug.bisect.report import BisectReport
from qdebug.compare.budget import ErrorBudget
from qdebug.compare.explaining.explanation import ExplainedRun
from qdebug.compare.result.node_result import NodeResult
from qdebug.compare.result.result import RunComparison
from qdebug.importing.import_dump import ImportSummary
from qdebug.lint.rewrites import LintReport
from qdebug.model.json_object import json_keys_of
from qdebug.present.contents import Contents
from qdebug.present.detail import NodeDetail
from qdebug.present.reports.matrix import Diffs
from qdebug.probe.run import ProbeResult
from qdebug.pytest_plugin.gather import PytestReport
from qdebug.recording.scale_profile import ProfileHeader
from qdebug.repair.find import Repair
from qdebug.repair.sweep import FloatSweep
from qdebug.scales.choose import ChosenScales
from qdebug.scales.trial import ScaleTrial

FOLDER = Path(__file__).parents[2] / "qdebug" / "present" / "reports" / "schemas"

RESULTS = (
    *(
        AccuracyReport,
        BisectReport,
        ChosenScales,
        Contents,
        Diffs,
        ErrorBudget,
        ExplainedRun,
        FingerprintComparison,
        FloatSweep,
        History,
    ),
    *(ImportSummary, LintReport, ProbeResult, Repair, RunComparison, ScaleTrial),
)
DOCUMENTS = {cls.json_format: cls for cls in RESULTS} | {"profile": ProfileHeader, "pytest": PytestReport}

TEXT = {"type": "string"}
ADDED = {
    RunComparison: {
        "files": {
            "description": "Where the recordings are; only `qdebug diff` knows.",
            "type": "object",
            "properties": {"reference": TEXT, "backend": TEXT},
        },
        "left_out": {
            "description": "With --top or --only-failing: how many entries of each list are not listed.",
            "type": "object",
            "additionalProperties": {"type": "integer", "minimum": 1},
        },
        "notes": {
            "description": "Marks and notes of `qdebug tui`; the text of a mark is empty.",
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"node": TEXT, "tensor": TEXT, "text": TEXT},
                "required": ["node", "tensor", "text"],
            },
        },
    }
}
"""Keys that a document gets on its way out."""
MORE = {NodeResult: NodeDetail}
"""Types whose keys stand in another's object where the user asks for them."""

NUMBER = {
    "description": "A finite number, or a non-finite one by name.",
    "anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}],
}
PLAIN = {bool: "boolean", int: "integer", str: "string", Path: "string", NoneType: "null"}


def make_schema(name):
    """Return the JSON Schema (draft 2020-12) of a document."""
    cls, defs = DOCUMENTS[name], {}
    whole = object_schema(cls, defs)
    head = {"format": {"const": f"qdebug.{name}"}, "version": {"const": 1}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:qdebug:{name}:1",
        "title": f"qdebug.{name}, version 1",
        **whole,
        "description": f"{whole['description']} Keys may be added; none is renamed or dropped.",
        "properties": head | whole["properties"] | head,
        "required": list(dict.fromkeys([*head, *whole["required"]])),
        "$defs": dict(sorted(defs.items())),
    }


def schema_text(schema):
    """Return a schema as JSON, with a line for each property of the document and for each type."""

    def lines(plain, indent):
        for key, value in plain.items():
            inner = ",\n".join(lines(value, indent + " ")) if key in ("properties", "$defs") and indent == " " else ""
            yield f"{indent}{json.dumps(key)}: " + (f"{{\n{inner}\n{indent}}}" if inner else json.dumps(value))

    return "{\n" + ",\n".join(lines(schema, " ")) + "\n}\n"


def object_schema(cls, defs):
    said = arguments(cls)
    properties, required = {}, []
    if is_typeddict(cls):
        for key, hint in get_type_hints(cls, include_extras=True).items():
            properties[key] = described(schema_of(hint, defs), said.get(key))
        required = sorted(cls.__required_keys__, key=list(properties).index)
    else:
        for key in json_keys_of(cls):
            hint, doc = attribute(cls, key.path)
            schema = schema_of(Union[hint, None] if key.nullable else hint, defs)  # noqa: UP007
            properties[key.key] = described(schema, doc)
            required += [] if key.optional else [key.key]
    if cls in MORE:
        properties |= object_schema(MORE[cls], defs)["properties"]
    properties |= ADDED.get(cls, {})
    summary = " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
    return {"description": summary, "type": "object", "properties": properties, "required": required}


def attribute(cls, path):
    """Return the annotation of the attribute at a path, with None if a part of it may be None, and its text."""
    name, *rest = path
    member = inspect.getattr_static(cls, name, None)
    if isinstance(member, property):
        hint = get_type_hints(member.fget, include_extras=True)["return"]
        doc = (inspect.getdoc(member) or "").split("\n\n")[0].replace("\n", " ")
    else:
        hint, doc = get_type_hints(cls, include_extras=True)[name], arguments(cls).get(name)
    if not rest:
        return hint, doc
    given = (
        [each for each in get_args(hint) if each is not NoneType] if get_origin(hint) in (Union, UnionType) else [hint]
    )
    inner, doc = attribute(given[0], rest)
    return (Union[inner, None] if given != [hint] else inner), doc  # noqa: UP007


def arguments(cls):
    """Return what the docstrings of a class, and of those that it inherits from, say of each argument."""
    said = {}
    for each in reversed(cls.__mro__):
        section = inspect.cleandoc(each.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        found = re.findall(r"^    (\w[\w, ]*): (.*(?:\n      .*)*)", section, re.MULTILINE)
        said |= {name: " ".join(text.split()) for names, text in found for name in names.split(", ")}
    return said


def described(schema, text):
    return {"description": text, **schema} if text else schema


def schema_of(hint, defs):
    """Return the schema of a type; those of objects go to `defs`."""
    origin, parts = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return schema_of(parts[0], defs) | {key: value for extra in parts[1:] for key, value in extra.items()}
    if origin is NotRequired:
        return schema_of(parts[0], defs)
    if hint is Any or hint is object:
        return {}
    if hint in PLAIN:
        return {"type": PLAIN[hint]}
    if hint is float:
        defs["number"] = NUMBER
        return {"$ref": "#/$defs/number"}
    if origin in (Union, UnionType):
        options = [schema_of(part, defs) for part in parts]
        simple = all(set(option) == {"type"} for option in options)
        return {"type": [option["type"] for option in options]} if simple else {"anyOf": options}
    if origin is Literal:
        return {"enum": list(parts)}
    return container_schema(hint, origin, parts, defs)


def container_schema(hint, origin, parts, defs):
    kind = origin or hint
    if kind is np.ndarray:
        integer = parts and np.issubdtype(get_args(parts[1])[0], np.integer)
        return {"type": "array", "items": schema_of(int if integer else float, defs)}
    if is_dataclass(kind) or is_typeddict(kind):
        if getattr(kind, "json_format", "") and kind in DOCUMENTS.values():
            return {"$ref": f"urn:qdebug:{kind.json_format}:1"}
        if kind.__name__ not in defs:
            defs[kind.__name__] = {}
            defs[kind.__name__] = object_schema(kind, defs)
        return {"$ref": f"#/$defs/{kind.__name__}"}
    if issubclass(kind, Enum):
        return {"enum": [member.value for member in kind]}
    if issubclass(kind, Mapping):
        values = schema_of(parts[1], defs) if parts else {}
        return {"type": "object", "additionalProperties": values} if values else {"type": "object"}
    if kind is tuple and parts[-1] is not ...:
        return {"type": "array", "items": schema_of(parts[0], defs), "minItems": len(parts), "maxItems": len(parts)}
    if issubclass(kind, Sequence):
        return {"type": "array", "items": schema_of(parts[0], defs)}
    raise TypeError(hint)


if __name__ == "__main__":
    for name in DOCUMENTS:
        (FOLDER / f"{name}.schema.json").write_text(schema_text(make_schema(name)), encoding="utf-8")
