"""Names of version 0.1 that users rely on still exist: Python objects, parameters, keys of the JSON, options."""

import json
from pathlib import Path

import pytest
from public_names import json_keys, public_names

import qdebug
from qdebug.compare.budget import PARTS
from qdebug.running.demo import run_demo

OLD = json.loads((Path(__file__).parent / "public_names_0.1.json").read_text(encoding="utf-8"))
LIMITS = """
[[limit]]
tensor = "fc*"
op = "QGemm"
max_lsb = 2

[[acknowledged]]
node = "dwconv_quant"
reason = "a test"
"""


def key_paths(value, path=""):
    """Yield the path of each key in a document, as `public_names.schema_keys` writes it."""
    if isinstance(value, dict):
        for name, part in value.items():
            yield f"{path}.{name}".lstrip(".")
            yield from key_paths(part, f"{path}.{name}")
    elif isinstance(value, list):
        for part in value:
            yield from key_paths(part, f"{path}[]")


@pytest.fixture(scope="module")
def names():
    return public_names()


@pytest.fixture(scope="module")
def documents(tmp_path_factory):
    """Real documents. Schemas describe some objects without their keys, because their keys vary."""
    folder = tmp_path_factory.mktemp("documents")
    run_demo(folder)
    recordings = [folder / "float.h5", folder / "int8.h5"]
    (folder / "limits.toml").write_text(LIMITS)
    return {
        "diff.schema.json": qdebug.diff(*recordings, limits=qdebug.load_limits(folder / "limits.toml")).to_dict(),
        "explain.schema.json": qdebug.explain(recordings[1]).to_dict(),
        "budget.schema.json": qdebug.budget(*recordings).to_dict(),
    }


def missing_python(old, new):
    """Return the objects, members and parameters that only the old names have."""
    gone = [name for name in old if name not in new]
    for name in old.keys() & new.keys():
        for member, parameters in old[name].items():
            if member not in new[name]:
                gone.append(f"{name}.{member}")
            else:
                gone += [f"{name}.{member}({one})" for one in parameters if one not in new[name][member]]
    return gone


def test_python_names_and_parameters_stay(names):
    assert not missing_python(OLD["python"], names["python"])


def test_options_stay(names):
    gone = {verb: set(options) - set(names["options"].get(verb, ())) for verb, options in OLD["options"].items()}
    assert not {verb: options for verb, options in gone.items() if options}


def test_json_keys_stay(documents):
    new = json_keys()
    new["budget.schema.json"] += [f"outputs[].nodes[].parts.{part}" for part in PARTS]  # nodes list only parts above 0
    gone = {
        name: set(keys) - set(new.get(name, ())) - set(key_paths(documents.get(name, {})))
        for name, keys in OLD["json"].items()
    }
    assert not {name: keys for name, keys in gone.items() if keys}


def test_a_lost_name_is_noticed(names):
    changed = {name: dict(members) for name, members in names["python"].items()}
    del changed["qdebug.diff"]
    changed["qdebug.Recorder"]["put"] = ["name"]
    assert {"qdebug.diff", "qdebug.Recorder.put(array)"} <= set(missing_python(OLD["python"], changed))
