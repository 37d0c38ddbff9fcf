"""The tables of a recording file as graph and run facts. Tables are checked before anything is made of them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from qdebug.model import AttrValue, Fidelity, Graph, Node, QuantParams, RunInfo, TensorInfo
from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.model.frozen import frozen_mapping
from qdebug.store.attributes import decode_attrs
from qdebug.store.check_tables import Tables, check_rows
from qdebug.store.layout import ROLES, UNKNOWN, Has

__all__ = [
    "checked_quants",
    "decode_graph",
    "decode_info",
    "decode_quant",
    "decode_quants",
    "decode_run",
    "rows_of",
]

_ROWS_AT_ONCE = 1000


def decode_run(tables: Tables) -> dict[str, Any]:
    """Give the JSON object of the run.

    Raises:
        ValueError: It is none, or lacks a key.
    """
    try:
        run = json.loads(tables["run"].tobytes())
        samples, steps, graph = run["samples"], run["steps"], run["graph"]
        rows = [*graph["inputs"], *graph["outputs"]]
        numbers = all(type(number) is int for number in (samples, steps, *rows, *graph["opset"].values()))
        if not (numbers and 1 <= samples <= 2**32 and 1 <= steps <= 2**32 and isinstance(graph["name"], str)):
            raise ValueError("the facts of the run have impossible values")
    except (KeyError, TypeError, AttributeError, RecursionError) as exc:
        raise ValueError(f"the facts of the run cannot be decoded: {exc!r}") from None
    check_rows("graph inputs and outputs", np.array(rows, dtype=object), len(tables["tensors"]))
    return dict(run)


def decode_info(run: Mapping[str, Any], *, complete: bool) -> RunInfo:
    """Give the run facts; unknown keys are ignored.

    Raises:
        ValueError: A fact has a wrong type.
    """
    try:
        plain = run["info"]
        return RunInfo(
            **{name: str(plain[name]) for name in ("backend", "model", "model_sha256", "taps", "created")},
            fidelity=Fidelity(plain["fidelity"]),
            fidelity_detail=str(plain["fidelity_detail"]),
            complete=complete and bool(plain["complete"]),
            versions={str(name): str(value) for name, value in plain["versions"].items()},
            cpu_flags=tuple(str(flag) for flag in plain["cpu_flags"]),
            options=dict(plain["options"]),
            skipped={str(name): str(reason) for name, reason in plain["skipped"].items()},
            doubts={str(name): str(doubt) for name, doubt in plain.get("doubts", {}).items()},
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"the facts of the run cannot be decoded: {exc!r}") from None


def decode_graph(tables: Tables, texts: Sequence[str], run: Mapping[str, Any]) -> Graph:
    """Make the graph out of checked tables, as objects.

    Raises:
        ValueError: A quantization, shape or attribute makes no sense.
        GraphError: The nodes form no graph.
    """
    tensors = _decode_tensors(tables, texts)
    names = [tensor.name for tensor in tensors]
    facts = run["graph"]
    return Graph(
        _decode_nodes(tables, texts, names),
        tensors=tensors,
        inputs=[names[row] for row in facts["inputs"]],
        outputs=[names[row] for row in facts["outputs"]],
        name=facts["name"],
        opset=facts["opset"],
    )


def rows_of(table: np.ndarray) -> Iterator[tuple[Any, ...]]:
    """Give the rows of a table as tuples, not all at once: that takes 60 ms in which no other thread can run."""
    for start in range(0, len(table), _ROWS_AT_ONCE):
        yield from table[start : start + _ROWS_AT_ONCE].tolist()


def _decode_tensors(tables: Tables, texts: Sequence[str]) -> list[TensorInfo]:
    quants = decode_quants(tables)
    dims = [None if extent < 0 else extent for extent in tables["dims"].tolist()]
    result = []
    shapes: dict[tuple[int | None, ...], tuple[int | None, ...]] = {}  # most tensors have the shape of others
    for name, stands_for, layout, quant, start, ndim, dtype, role, _ in rows_of(tables["tensors"]):
        shape = None
        if ndim != UNKNOWN:
            shape = tuple(dims[start : start + ndim])
            shape = shapes.setdefault(shape, shape)
        result.append(
            TensorInfo.decoded(
                texts[name],
                shape,
                None if dtype == UNKNOWN else LOGICAL_DTYPES[dtype],
                ROLES[role],
                None if layout < 0 else texts[layout],
                None if quant < 0 else quants[quant],
                None if stands_for < 0 else texts[stands_for],
            )
        )
    return result


def _decode_nodes(tables: Tables, texts: Sequence[str], names: Sequence[str]) -> list[Node]:
    operands = [names[row] if row >= 0 else "" for row in tables["operands"].tolist()]
    origins = [texts[row] for row in tables["origins"].tolist()]
    attributes = tables["attributes"].tobytes()
    alike: dict[bytes, Mapping[str, AttrValue]] = {}
    result = []
    for row in rows_of(tables["nodes"]):
        name, op, domain, n_inputs, n_outputs, n_origin, n_attrs, inputs, outputs, origin, attrs = row
        text = attributes[attrs : attrs + n_attrs]
        if text not in alike:
            alike[text] = frozen_mapping(decode_attrs(text))
        node = Node.sharing_attrs(
            alike[text],
            name=texts[name],
            op=texts[op],
            domain=texts[domain],
            inputs=tuple(operands[inputs : inputs + n_inputs]),
            outputs=tuple(operands[outputs : outputs + n_outputs]),
            origin=tuple(origins[origin : origin + n_origin]),
        )
        result.append(node)
    return result


def decode_quants(tables: Tables) -> list[QuantParams]:
    """Make the quantizations out of checked tables.

    Raises:
        ValueError: One makes no sense.
    """
    return list(checked_quants(tables))


def checked_quants(tables: Tables) -> Iterator[QuantParams]:
    """Make one quantization after the other out of checked tables.

    Raises:
        ValueError: One makes no sense.
    """
    used = 0
    for row in rows_of(tables["quants"]):
        quant = decode_quant(row, tables)
        used += sum(part.size for part in (quant.zero_point, quant.multiplier, quant.shift) if part is not None)
        if used > len(tables["integers"]):
            raise ValueError("quantizations are more than their pool together")
        yield quant


def decode_quant(row: tuple[Any, ...], tables: Tables) -> QuantParams:
    """Make a quantization out of its row in checked tables.

    Raises:
        ValueError: It makes no sense.
    """
    (code, bits, ndim, multiplier_ndim, shift_ndim, axis, block_size, qmin, qmax, zero_point) = row[:10]
    (scale_off, scale_dims, multiplier_off, multiplier_dims, shift_off, shift_dims) = row[10:]
    has, dtype = Has(bits), LOGICAL_DTYPES[code]
    scales = tables["scales64" if Has.SCALE64 in has else "scales32"]
    dims, integers = tables["dims"], tables["integers"]
    if dtype == "uint64":
        qmin, qmax = qmin % 2**64, qmax % 2**64
    return QuantParams(
        dtype=dtype,
        scale=_slice(scales, scale_off, dims[scale_dims : scale_dims + ndim]),
        zero_point=_slice(integers, zero_point, dims[scale_dims : scale_dims + ndim]),
        axis=axis if Has.AXIS in has else None,
        block_size=block_size if Has.BLOCK_SIZE in has else None,
        qmin=qmin if Has.QMIN in has else None,
        qmax=qmax if Has.QMAX in has else None,
        multiplier=_slice(integers, multiplier_off, dims[multiplier_dims : multiplier_dims + multiplier_ndim])
        if Has.MULTIPLIER in has
        else None,
        shift=_slice(integers, shift_off, dims[shift_dims : shift_dims + shift_ndim]) if Has.SHIFT in has else None,
    )


def _slice(pool: np.ndarray, offset: int, dims: np.ndarray) -> np.ndarray:
    """Give an array of a pool; the extents are those of an untrusted file."""
    shape = [int(extent) for extent in dims]
    count = 1
    for extent in shape:
        if extent < 0:
            raise ValueError("a quantization has a negative extent")
        count *= extent
    if offset + count > len(pool):
        raise ValueError("a quantization points outside its pool")
    return pool[offset : offset + count].reshape(shape)
