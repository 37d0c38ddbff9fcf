"""Lists the names that users rely on: the Python API, keys of the JSON, verbs and options of the command line.

`python tests/contracts/public_names.py OUT.json` lists them. `public_names_0.1.json` holds those of version 0.1, which
must never disappear (`test_public_names.py`). A new release may add its own file.
"""

import argparse
import importlib
import inspect
import json
import sys
from pathlib import Path

import qdebug
from qdebug.cli.main import build_parser

MODULES = ("qdebug", "qdebug.testing", "qdebug.errors", "qdebug.backends.protocol")


def parameters(function):
    """Return the names of parameters that a caller can pass; [] if the signature is unknown."""
    try:
        return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]
    except (TypeError, ValueError):
        return []


def members(value):
    """Return the public members of a class, with parameters for methods and for the constructor."""
    listed = {"__init__": parameters(value)}
    own = {name for base in value.__mro__ if base.__module__.startswith("qdebug") for name in vars(base)}
    for name in sorted(own):
        if not name.startswith("_"):
            member = inspect.getattr_static(value, name)
            listed[name] = parameters(getattr(value, name)) if callable(getattr(member, "__func__", member)) else []
    return listed | {field: [] for field in getattr(value, "__dataclass_fields__", ()) if not field.startswith("_")}


def python_names():
    """Return the public objects of each module, by name: parameters of functions, members of classes."""
    listed = {}
    for title in MODULES:
        module = importlib.import_module(title)
        names = getattr(module, "__all__", None) or [name for name in dir(module) if not name.startswith("_")]
        for name in names:
            value = getattr(module, name)
            if inspect.ismodule(value):
                continue
            listed[f"{title}.{name}"] = (
                members(value) if inspect.isclass(value) else {"": parameters(value) if callable(value) else []}
            )
    return listed


def schema_keys(schema, root=None, path="", seen=()):
    """Yield the path of each key that a JSON schema describes, with `[]` for entries of a list."""
    root = schema if root is None else root
    reference = schema.get("$ref")
    if reference is not None:
        if reference in seen or not reference.startswith("#/"):  # a document inside another one has its own file
            return
        part = root
        for word in reference.removeprefix("#/").split("/"):
            part = part[word]
        yield from schema_keys(part, root, path, (*seen, reference))
    for name, part in schema.get("properties", {}).items():
        yield f"{path}.{name}".lstrip(".")
        yield from schema_keys(part, root, f"{path}.{name}", seen)
    for word, end in (("items", "[]"), ("additionalProperties", ".*")):
        if isinstance(schema.get(word), dict):
            yield from schema_keys(schema[word], root, path + end, seen)
    for word in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(word, ()):
            yield from schema_keys(part, root, path, seen)


def json_keys():
    """Return the keys of each JSON document, by the name of its schema."""
    files = sorted((Path(qdebug.__file__).parent / "present" / "reports" / "schemas").glob("*.schema.json"))
    return {file.name: sorted(set(schema_keys(json.loads(file.read_text(encoding="utf-8"))))) for file in files}


def options(parser, prefix=""):
    """Return the options of each verb, by the words of the verb."""
    parser = parser.with_arguments() if hasattr(parser, "with_arguments") else parser
    listed = {prefix: sorted(option for action in parser._actions for option in action.option_strings)}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, verb in action.choices.items():
                listed |= options(verb, f"{prefix} {name}".strip())
    return listed


def public_names():
    """Return all names that users rely on."""
    return {"python": python_names(), "json": json_keys(), "options": options(build_parser())}


def main():
    Path(sys.argv[1]).write_text(json.dumps(public_names(), indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
