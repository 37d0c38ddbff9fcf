"""The recording file, format version 2. This page is its specification.

A recording is an HDF5 file that plain h5py, h5dump and HDFView can read (HDF5 1.10 and later). It has one dataset per
tensor, named after the tensor, with attributes that explain it. It holds only integers, IEEE floats, enums of these,
compounds of fixed fields, and fixed-length text in attributes. It never contains variable-length data, object,
reference or opaque types, soft or external links, external storage, or virtual datasets. All numbers are little-endian.
A payload is the elements of one array in C order. Equal payloads (same dtype, shape and xxh3-128 hash) are stored once,
so chunks of several datasets may share storage. Therefore, a recording must never be written to.

Root attributes
    format           fixed-length text "qdebug.recording"
    format_version   int32, 2; a reader refuses a higher one and reads every lower one
    complete         uint8, 0 if the run did not finish
    created_by       fixed-length text, such as "qdebug 0.2.0"
    backend, model, fidelity, taps, created     texts of /graph/run, for human readers; left out if empty
    samples, steps   uint64, the extents
    tables_hash      fixed-length text, hexadecimal xxh3-128 over all tables: for each table below that the file has,
                     in that order, its name in ASCII, a zero byte, and its bytes; files may lack it
    graph_hash       the same over only the tables that `GRAPH_TABLES` names. Files that are read together and have the
                     same hash have the same graph, which is read once; files may lack it
    file_end         int64, the end of the finished file. If the superblock states a different end, a program has
                     rewritten the file, /graph/payloads is invalid, and payloads are found through datasets

/tensors/NAME        the values of a tensor from the samples that were kept in full, in one of these forms
    one dataset      (samples, ...) and the tensor's shape, or (samples, steps, ...) if there are several steps; a
                     scalar tensor is (samples,). The leading extents are those of the recording. With several samples
                     or steps, each is one chunk, or several runs of the leading axes above 2 GiB. With only one, the
                     dataset is contiguous. Missing values have no chunk: readers return NaN, or 0 if the type is not a
                     float. `missing` counts them, and `recorded` lists the others. Compressed files use the filters
                     shuffle, deflate, fletcher32 and Zstandard (32015); a chunk may lack some of them.
    a group          for a tensor whose dtype or shape differs between samples, which has more than 32 dimensions
                     including the leading ones, or whose extents exceed HDF5's limits: one dataset "SAMPLE", or
                     "SAMPLE,STEP" if there are several steps, for each. The group has the attributes.
    no elements      a dataset whose first extent is 0, if no sample was kept in full, or (samples, ...) and the
                     tensor's shape, if that has no elements: contiguous, without storage
/constants/NAME      the values of a constant, in its own shape, contiguous or in compressed chunks
/elements/NAME       only in files with such tensors: the group of a tensor of which some elements were kept:
                     "SAMPLE.values" (or "SAMPLE,STEP.values") are the elements, and "SAMPLE.positions" their positions
                     in the tensor in C order, ascending, int64
/quant/...           only in files with such arrays: arrays too large for an attribute (16 KiB), which states their path
/graph/...           the tables below

NAME is the tensor's name in UTF-8, in which `%`, `/` and control characters are written as `%` and two hexadecimal
digits, as in a URL, and so are the bytes of lone surrogates and the names "." and "..". A tensor without a name is
"%". A name that takes more than 1024 bytes in this form is cut to at most 512, and ends with "%~" and its xxh3-128 in
hexadecimal (`qdebug.recording.format.link_names`).

Attributes of a tensor: fixed-length text or numbers; left out if unknown, or above 16 KiB
    name             the exact name in UTF-8
    row              row of /graph/tensors, to which /graph/index refers
    node, op         the node that produces it, and its operator
    role             activation, input, output or constant
    dtype            its logical dtype
    kept             full, elements, statistics, or mixed if it differs between samples
    layout, stands_for   as in /graph/tensors
    missing          number of samples (and steps) not recorded in full, if there are any
    recorded         those recorded in full: [n] samples, or [n, 2] samples and steps
    scale, zero_point, axis, block_size, qmin, qmax, multiplier, shift, quant_dtype     its quantization:
                     real = scale * (code - zero_point). A zero_point shared by all channels is one number. qmin and
                     qmax default to the dtype's limits, and quant_dtype is the dtype of the codes. For an array above
                     16 KiB, NAME_at has the path of its dataset.
    quant_varies     1 if some samples have a different quantization, which /graph/index states. scale_by_sample and
                     zero_point_by_sample are then [samples] or [samples, steps], if each is one number

    logical dtype                        element in the file
    bool                                 8-bit enum FALSE = 0, TRUE = 1
    int8 ... uint64                      the integer
    float16, float32, float64            the IEEE float
    complex64, complex128                compound (r, i)
    bfloat16                             16-bit float with 8 exponent and 7 mantissa bits, bias 127
    float8_*, float6_*, float4_*         uint8, the bit pattern in the low bits, one element a byte
    int4, int2                           int8, the value, one element a byte
    uint4, uint2                         uint8, the value, one element a byte

Tables: one-dimensional, contiguous, unfiltered datasets in /graph, named here relative to it. "Text" is a
row of /strings, or -1 for none; "run of X" is an offset and a length in X.

/index      one row per event: a tensor's values at one sample and step
    seq         number of the event in the order of recording
    tensor      row of /tensors
    sample, step    0 for a constant, whose values hold for all samples and steps
    payload     number of the payload; 4294967295 if not all values were kept
    quant       row of /quants if this event has a quantization other than its tensor's, else -1
    flags       bits, see `Flag`
    dtype       logical dtype, an enum in the order of `qdebug.model.dtypes.LOGICAL_DTYPES` (append only)
    ndim, shape shape; beyond 8 dimensions, /shapes has the shape
    nbytes      size of the values, even if they are not kept
    hash        xxh3-128 of their bytes in C order, big-endian digest
    count       number of elements
    nan, inf, zero, sat_lo, sat_hi      counts of elements; valid if their flag is set
    min, max    extremes of the elements that are not NaN, rounded to float64
    absmax, mean, std, l2       largest magnitude, mean, standard deviation and root of the sum of squares of the finite
                real values, scale * (element - zero_point) where it is quantized; valid if their flag is set
    t_start, duration       seconds since the start of the run; NaN if not measured
                A file lacks the columns from `nan` on, and `duration`, if they are not valid in any row
/tensors    one row per tensor of the graph or of the index
    name, stands_for, layout    text; names are unique
    quant       row of /quants or -1
    dtype       logical dtype, 255 if unknown
    role        activation 0, input 1, output 2, constant 3
    ndim, dims  declared shape: run of /dims, where -1 is an unknown extent; ndim 255 if unknown altogether
/nodes      one row per node, in topological order
    name, op, domain    text
    inputs, outputs     runs of /operands: rows of /tensors, -1 where an optional one is left out
    origin              run of /origins: text
    attrs               run of /attributes: a JSON object in UTF-8 that maps a name to [kind, value].
                        Kinds: i int, f float, s text, b bool; is, fs, ss lists of these (a float is a
                        number, or text for NaN and infinities); a array {"dtype", "shape", "data"}, data
                        being base64 of the elements as stored in a payload
/quants     one row per distinct quantization
    dtype       logical dtype of the codes
    has         bits: axis 1, block_size 2, qmin 4, qmax 8, multiplier 16, shift 32; scale is float64 64
    scale       run of /scales32 or /scales64 (bit exact), with shape `scale_dims` in /dims
    zero_point  run of /integers, of the scale's shape
    axis, block_size
    qmin, qmax  two's complement; unsigned if dtype is uint64
    multiplier, shift       runs of /integers, with shape in /dims
/strings    offset and length of each text in /names
/names      uint8: the texts in UTF-8 (lone surrogates encoded as such), one after another
/dims       int64    /operands int32    /origins int32    /integers int64
/scales32   float32  /scales64 float64  /attributes uint8
/samples    only in files that have such events: one row per event with the flag SAMPLED: the elements kept
    event       row of /index
    values      number of the payload with the elements, one-dimensional
    positions   number of the payload with their positions in the tensor in C order, ascending, int64
    count       number of elements
    hash, check     xxh3-128 of the elements, and of the positions
/exponents  only in files that have such events: one row per event with the flag HISTOGRAM
    event       row of /index
    counts      [2, 64]: finite real values by binary exponent, negative ones first. Entry k counts magnitudes from
                2^(k - 40) up to below 2^(k - 39); the first also counts smaller ones except 0, the last larger ones
/sketches   only in files that have such events: one row per event with the flag SKETCH
    event       row of /index
    projections [64], float32: random projections of the real values, as `qdebug/numerics/sketch.py` defines them
/run        uint8: a JSON object in ASCII:
            "info": facts of the run, with the keys of `qdebug.model.RunInfo`
            "graph": {"name", "opset": {domain: version}, "inputs": rows of /tensors, "outputs": same,
                      "placements": {where nodes ran: rows of /nodes}; files may lack it}
            "samples", "steps": extents
/payloads   uint64, by number: offset of the payload in the file; 2^64 - 1 if it has no bytes, or is in chunks
/packed     only in files with compressed payloads: one row for each
    payload     its number
    first, count    run of /chunks, in C order of the chunks
    chunk       extents of a chunk; chunks at the edges are padded
    filters     numbers of the HDF5 filters in the order in which they were applied, 0 for none
/chunks     offset and size in the file of each chunk, and in `mask` the filters that it lacks, one bit each
/shapes     only in files with payloads of more than 8 dimensions: number of the `payload`, and its `shape`

Later versions of qdebug may add attributes, groups, tables, table fields and JSON keys without raising
format_version; a reader ignores unknown ones. It refuses a file that lacks a table listed here without
"only".

Format version 1 has no groups of tensors: /t/00000000 ... are the payloads by number, each a dataset in its actual
shape, contiguous, or chunked with the filters above. The tables are in the root, without /payloads and the tables after
it. Beyond 8 dimensions, the shape of the dataset applies. The root has the attributes format, format_version 1,
complete, created_by, tables_hash and graph_hash.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntFlag
from functools import cache
from typing import Any

import h5py
import numpy as np
import xxhash

from qdebug.model.dtypes import LOGICAL_DTYPES, logical_dtype
from qdebug.model.kept import EXPONENT_BINS, SKETCH_SIZE
from qdebug.model.tensor import Role

__all__ = [
    "CONSTANTS",
    "DTYPE_CODES",
    "ELEMENTS",
    "FORMAT_NAME",
    "FORMAT_VERSION",
    "GRAPH",
    "GRAPH_TABLES",
    "HDF5_MAGIC",
    "INDEX_DIMS",
    "LOCATION_TABLES",
    "MAX_ATTRIBUTE",
    "MAX_FILTERS",
    "MAX_NDIM",
    "MAX_PIECE",
    "NOWHERE",
    "NO_PAYLOAD",
    "NUMBERED",
    "OPTIONAL_FACTS",
    "OPTIONAL_TABLES",
    "PARTIAL_FLAGS",
    "QUANT",
    "ROLES",
    "STATISTICS",
    "TABLES",
    "TENSORS",
    "TIMES",
    "UNKNOWN",
    "Flag",
    "QuantField",
    "columns_of_index",
    "hash_of_tables",
    "hdf5_type",
    "payload_key",
    "physical_dtype",
    "place_key",
    "row_type",
]

FORMAT_NAME = "qdebug.recording"
HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
FORMAT_VERSION = 2
TENSORS, CONSTANTS, GRAPH, QUANT, ELEMENTS = "tensors", "constants", "graph", "quant", "elements"
"""Groups of the root."""
NUMBERED = "t"
"""Group of the payloads in format 1, whose datasets are named by number."""
NOWHERE = (1 << 64) - 1
"""Offset of a payload that has no bytes, or lies in compressed chunks."""
MAX_ATTRIBUTE = 16 << 10
"""Maximum bytes of an attribute. A larger array is a dataset that an attribute names."""
MAX_PIECE = 1 << 31
"""Maximum bytes of a chunk of uncompressed values."""
NO_PAYLOAD = 0xFFFFFFFF
UNKNOWN = 255
"""Number of an unknown dtype, and the ndim of an unknown shape."""
INDEX_DIMS = 8
"""Number of extents that an index row can hold."""
MAX_NDIM = 32
"""Maximum number of dimensions that HDF5 can store."""
MAX_FILTERS = 4
"""Maximum number of filters of a compressed payload."""

# Files store roles and dtypes as indices into these, so only append.
ROLES: tuple[Role, ...] = (Role.ACTIVATION, Role.INPUT, Role.OUTPUT, Role.CONSTANT)
DTYPE_CODES: dict[str, int] = {name: code for code, name in enumerate(LOGICAL_DTYPES)}


class Flag(IntFlag):
    """Bits of the index column `flags`."""

    HAS_NAN = 1
    DEDUP = 2
    SAMPLED = 4
    STATS_ONLY = 8
    TRUNCATED = 16
    FAILED = 32
    HAS_INF = 64
    EXTREMES = 128  # min and max are valid, and so are HAS_NAN and HAS_INF
    COUNTS = 256  # nan, inf and zero are valid, and so are HAS_NAN and HAS_INF
    RAILS = 512  # sat_lo and sat_hi are valid
    SUMMARY = 1024  # absmax, mean, std and l2 are valid
    HISTOGRAM = 2048  # it has a row in /exponents
    SKETCH = 4096  # it has a row in /sketches


class QuantField(IntFlag):
    """Bits of the quantization column `has`."""

    AXIS = 1
    BLOCK_SIZE = 2
    QMIN = 4
    QMAX = 8
    MULTIPLIER = 16
    SHIFT = 32
    SCALE64 = 64


OPTIONAL_FACTS = {bit: str(bit.name).lower() for bit in QuantField if bit is not QuantField.SCALE64}
"""Optional fields of a quantization, by their bit."""
STATISTICS = {
    **{name: (name, Flag.COUNTS) for name in ("nan", "inf", "zero")},
    "sat_lo": ("at_qmin", Flag.RAILS),
    "sat_hi": ("at_qmax", Flag.RAILS),
    "min": ("low", Flag.EXTREMES),
    "max": ("high", Flag.EXTREMES),
    **{name: (name, Flag.SUMMARY) for name in ("absmax", "mean", "std", "l2")},
}
"""For each column of statistics in the index: the field of `qdebug.model.kept.Statistics`, and the flag of validity."""
TIMES = ("t_start", "duration")
"""Columns of the index with start and duration, NaN if not measured."""
PARTIAL_FLAGS = int(Flag.SAMPLED | Flag.STATS_ONLY)
"""Flags of events that were not kept in full."""

_DTYPE = h5py.enum_dtype({**DTYPE_CODES, "unknown": UNKNOWN}, basetype="u1")
_ROLE = h5py.enum_dtype({str(role): code for code, role in enumerate(ROLES)}, basetype="u1")

TABLES: dict[str, np.dtype[Any]] = {
    "index": np.dtype(
        [
            ("seq", "<u4"),
            ("tensor", "<u4"),
            ("sample", "<u4"),
            ("step", "<u4"),
            ("payload", "<u4"),
            ("quant", "<i4"),
            ("flags", "<u2"),
            ("dtype", _DTYPE),
            ("ndim", "u1"),
            ("duration", "<f4"),
            ("shape", "<u8", (INDEX_DIMS,)),
            ("nbytes", "<u8"),
            ("hash", "u1", (16,)),
            *((name, "<u8") for name in ("count", "nan", "inf", "zero", "sat_lo", "sat_hi")),
            *((name, "<f8") for name in ("min", "max", "absmax", "mean", "std", "l2", "t_start")),
        ]
    ),
    "tensors": np.dtype(
        [
            ("name", "<i4"),
            ("stands_for", "<i4"),
            ("layout", "<i4"),
            ("quant", "<i4"),
            ("dims", "<u8"),
            ("ndim", "u1"),
            ("dtype", _DTYPE),
            ("role", _ROLE),
            ("reserved", "u1"),
        ]
    ),
    "nodes": np.dtype(
        [
            ("name", "<i4"),
            ("op", "<i4"),
            ("domain", "<i4"),
            *((f"{run}_len", "<u4") for run in ("inputs", "outputs", "origin", "attrs")),
            *((f"{run}_off", "<u8") for run in ("inputs", "outputs", "origin", "attrs")),
        ]
    ),
    "quants": np.dtype(
        [
            ("dtype", _DTYPE),
            ("has", "u1"),
            *((f"{name}_ndim", "u1") for name in ("scale", "multiplier", "shift")),
            ("axis", "<i4"),
            ("block_size", "<i8"),
            ("qmin", "<i8"),
            ("qmax", "<i8"),
            ("zero_point_off", "<u8"),
            *((f"{name}_{part}", "<u8") for name in ("scale", "multiplier", "shift") for part in ("off", "dims")),
        ]
    ),
    "strings": np.dtype([("offset", "<u8"), ("length", "<u4")]),
    "names": np.dtype("u1"),
    "dims": np.dtype("<i8"),
    "operands": np.dtype("<i4"),
    "origins": np.dtype("<i4"),
    "integers": np.dtype("<i8"),
    "scales32": np.dtype("<f4"),
    "scales64": np.dtype("<f8"),
    "attributes": np.dtype("u1"),
    "run": np.dtype("u1"),
}
"""Row type of each table that every recording has, by name."""

GRAPH_TABLES = tuple(name for name in TABLES if name not in ("index", "run"))
"""Tables that are the same in all files of one network, independent of the recorded values."""

OPTIONAL_TABLES: dict[str, np.dtype[Any]] = {
    "samples": np.dtype(
        [
            *((name, "<u4") for name in ("event", "values", "positions")),
            ("count", "<u8"),
            *((name, "u1", (16,)) for name in ("hash", "check")),
        ]
    ),
    "exponents": np.dtype([("event", "<u4"), ("counts", "<u8", (2, EXPONENT_BINS))]),
    "sketches": np.dtype([("event", "<u4"), ("projections", "<f4", (SKETCH_SIZE,))]),
}
"""Row types of the optional tables."""

LOCATION_TABLES: dict[str, np.dtype[Any]] = {
    "payloads": np.dtype("<u8"),
    "packed": np.dtype(
        [
            *((name, "<u4") for name in ("payload", "first", "count")),
            ("chunk", "<u4", (INDEX_DIMS,)),
            ("filters", "<u2", (MAX_FILTERS,)),
        ]
    ),
    "chunks": np.dtype([("offset", "<u8"), ("size", "<u4"), ("mask", "<u4")]),
    "shapes": np.dtype([("payload", "<u4"), ("shape", "<u8", (MAX_NDIM,))]),
}
"""Row types of the tables of payload locations. All recordings of format 2 have the first, and some have the others."""


def hash_of_tables(tables: Iterable[tuple[str, np.ndarray]]) -> str:
    """Return the hash of a file's tables in hexadecimal.

    Args:
        tables: Name of each table, and its bytes as uint8, in the specified order.
    """
    digest = xxhash.xxh3_128()
    for name, raw in tables:
        digest.update(name.encode("ascii") + b"\0")
        digest.update(np.ascontiguousarray(raw).data)
    return str(digest.hexdigest())


def row_type(table: str) -> np.dtype[Any]:
    """Return the type of the rows of a table, by its name."""
    return (TABLES | OPTIONAL_TABLES | LOCATION_TABLES)[table]


def columns_of_index(index: np.ndarray) -> tuple[str, ...]:
    """Return the columns of /index that a file needs, without statistics and times that are not valid in any row."""
    flags = int(np.bitwise_or.reduce(index["flags"], initial=0))
    unused_columns = {column for column, (_, flag) in STATISTICS.items() if not flags & flag}
    unused_columns |= {column for column in TIMES if np.isnan(index[column]).all()}
    return tuple(name for name in TABLES["index"].names or () if name not in unused_columns)


def payload_key(number: int) -> bytes:
    """Return the name of a payload's dataset within the group /t of format 1."""
    return b"%08d" % number


def place_key(sample: int, step: int, *, steps: int) -> bytes:
    """Return the name of the dataset of a sample, or of one of its steps if there are several."""
    return b"%d,%d" % (sample, step) if steps > 1 else b"%d" % sample


@cache
def physical_dtype(logical: str) -> np.dtype[Any]:
    """Return the numpy dtype of elements in the file, for a logical dtype.

    Raises:
        ValueError: The name is not in `LOGICAL_DTYPES`.
    """
    dtype = logical_dtype(logical)
    if logical == "bfloat16":
        return np.dtype("<u2")
    if logical in ("int4", "int2"):
        return np.dtype("i1")
    if logical.startswith(("float8_", "float6_", "float4_")) or logical in ("uint4", "uint2"):
        return np.dtype("u1")
    return dtype.newbyteorder("<")


@cache
def hdf5_type(logical: str) -> Any:
    """Return the HDF5 type of elements in the file, for a logical dtype (an h5py TypeID)."""
    if logical == "bfloat16":
        return _bfloat16()
    if logical.startswith("complex"):
        return _complex(physical_dtype(logical))
    return h5py.h5t.py_create(physical_dtype(logical), logical=True)


def _bfloat16() -> Any:
    """Return the 16-bit float type, which HDF5 1.10 and later convert correctly, including infinities and NaN."""
    kind = h5py.h5t.IEEE_F16LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)  # sign at bit 15, exponent at 7 (8 bits), mantissa at 0 (7 bits)
    kind.set_ebias(127)
    return kind


def _complex(dtype: np.dtype[Any]) -> Any:
    """Return a compound (r, i), since readers before HDF5 2.0 do not know the native complex class."""
    part = h5py.h5t.py_create(np.dtype(f"<f{dtype.itemsize // 2}"))
    kind = h5py.h5t.create(h5py.h5t.COMPOUND, dtype.itemsize)
    kind.insert(b"r", 0, part)
    kind.insert(b"i", dtype.itemsize // 2, part)
    return kind
