"""The format stays what it is: numbers that files hold never change their meaning."""

import re

import h5py
import numpy as np
import pytest

from qdebug.model import Role
from qdebug.model.dtypes import LOGICAL_DTYPES, logical_dtype
from qdebug.recording.format import specification as layout
from qdebug.recording.writing import tables as table_writing

ORDER = [
    *("bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128", "bfloat16"),
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"),
    *("int4", "uint4", "int2", "uint2"),
]


def test_numbers_of_dtypes_and_roles_are_only_added_to():
    assert list(LOGICAL_DTYPES[: len(ORDER)]) == ORDER
    assert [layout.DTYPE_CODES[name] for name in ORDER] == list(range(len(ORDER)))
    assert layout.ROLES[:4] == (Role.ACTIVATION, Role.INPUT, Role.OUTPUT, Role.CONSTANT)


def test_both_versions_have_these_tables_and_sizes():
    assert layout.FORMAT_VERSION == 2
    assert {name: dtype.itemsize for name, dtype in layout.TABLES.items()} == {
        "index": 224,
        "tensors": 28,
        "nodes": 60,
        "quants": 89,
        "strings": 12,
        "names": 1,
        "dims": 8,
        "operands": 4,
        "origins": 4,
        "integers": 8,
        "scales32": 4,
        "scales64": 8,
        "attributes": 1,
        "run": 1,
    }


def test_the_row_that_is_written_is_the_row_of_the_table():
    kinds = {"u4": "I", "i4": "i", "u2": "H", "u1": "B", "f4": "f", "u8": "Q", "f8": "d"}
    spelled = ""
    for name in layout.TABLES["index"].names:
        field = layout.TABLES["index"][name]
        kind = "16s" if name == "hash" else kinds[f"{field.base.kind}{field.base.itemsize}"]
        spelled += kind if name == "hash" else kind * (field.shape[0] if field.shape else 1)
    parts = table_writing._EVENT.format, table_writing._VALUES.format, "<16s", table_writing._NUMBERS.format
    whole = "".join(part.removeprefix("<") for part in parts)
    packed = re.sub(r"(?<!\d)(\d+)([A-Za-z])", lambda m: m[0] if m[2] == "s" else m[2] * int(m[1]), whole)
    assert packed == spelled


def test_the_specification_names_every_table_and_field():
    for name, dtype in (layout.TABLES | layout.OPTIONAL_TABLES | layout.LOCATION_TABLES).items():
        assert f"/{name}" in layout.__doc__
        for field in dtype.names or ():
            stem = re.sub(r"_(off|len|dims|ndim)$", "", field)
            assert stem == "reserved" or re.search(rf"\b{stem}\b", layout.__doc__), f"{name}.{field}"


@pytest.mark.parametrize("logical", LOGICAL_DTYPES)
def test_every_dtype_has_an_element_in_the_file(logical):
    physical = layout.physical_dtype(logical)
    assert physical.itemsize == logical_dtype(logical).itemsize == layout.hdf5_type(logical).get_size()
    assert physical.kind in "biufc"


def test_bfloat16_is_a_float_to_the_container():
    kind = layout.hdf5_type("bfloat16")
    assert kind.get_class() == h5py.h5t.FLOAT
    assert (kind.get_fields(), kind.get_ebias(), kind.get_precision()) == ((15, 7, 8, 0, 7), 127, 16)


def test_enums_carry_the_names_for_other_readers():
    names = h5py.check_enum_dtype(layout.TABLES["index"]["dtype"])
    assert names["float32"] == layout.DTYPE_CODES["float32"]
    assert names["unknown"] == layout.UNKNOWN
    assert np.iinfo(np.uint8).max == layout.UNKNOWN >= len(LOGICAL_DTYPES)
