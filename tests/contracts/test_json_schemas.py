"""The committed JSON Schemas are those of the result types, and each of them can fail."""

import jsonschema
import pytest
from json_schemas import DOCUMENTS, make_schema, schema_text

from qdebug.present.reports.schema import FOLDER, SCHEMAS, load_schema


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_committed_schema_is_that_of_the_types(name):
    committed = (FOLDER / f"{name}.schema.json").read_text(encoding="utf-8")
    assert committed == schema_text(make_schema(name)), "write them anew: python tests/contracts/json_schemas.py"


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_without_its_keys_or_of_another_kind_is_refused(name):
    schema = jsonschema.Draft202012Validator(load_schema(name))
    keys = load_schema(name)["required"]
    refused = {error.message for error in schema.iter_errors({"format": "other", "version": 1})}
    assert {f"{key!r} is a required property" for key in keys[2:]} < refused
    assert f"'qdebug.{name}' was expected" in refused


def test_every_document_has_a_schema_and_no_file_is_left_over():
    assert sorted(DOCUMENTS) == sorted(SCHEMAS)
