"""Graph and run facts as the tables of a recording file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import Graph, QuantParams, RunInfo, TensorInfo
from qdebug.store.attributes import encode_attrs
from qdebug.store.layout import DTYPE_CODES, ROLES, TABLES, UNKNOWN, Has

__all__ = ["check_storable", "encode_tables", "plain_facts"]


def encode_tables(
    graph: Graph,
    info: RunInfo,
    recorded: Iterable[TensorInfo],
    *,
    samples: int,
    steps: int,
    quants: Iterable[QuantParams] = (),
) -> tuple[dict[str, np.ndarray], dict[str, int], list[int]]:
    """Make every table but the index.

    Args:
        graph: The graph that ran.
        info: Facts of the run.
        recorded: Tensors that have values; those the graph does not know are added to the tensor table.
        samples: Number of samples.
        steps: Number of steps of each sample.
        quants: Quantizations of single events.

    Returns:
        The tables by name, the row of each tensor by its name, and the row of each of `quants`.

    Raises:
        RecordingError: An attribute or option cannot be stored; the message names it.
    """
    encoder = _Encoder()
    tensors = dict(graph.tensors)
    for tensor in recorded:
        tensors.setdefault(tensor.name, tensor)
    rows = {name: row for row, name in enumerate(tensors)}
    for tensor in tensors.values():
        encoder.add_tensor(tensor)
    for node in graph.nodes:
        encoder.add_node(node, rows)
    run = {
        "info": plain_facts(info),
        "graph": {
            "name": str(graph.name),
            "opset": {str(domain): int(version) for domain, version in graph.opset.items()},
            "inputs": [rows[name] for name in graph.inputs],
            "outputs": [rows[name] for name in graph.outputs],
        },
        "samples": samples,
        "steps": steps,
    }
    quant_rows = [encoder.add_quant(quant) for quant in quants]
    return encoder.tables(json.dumps(run, allow_nan=False).encode("ascii")), rows, quant_rows


def check_storable(graph: Graph) -> None:
    """Refuse a graph that no file can hold: better before a run than after it.

    Raises:
        RecordingError: An attribute or a tensor cannot be stored; the message names it.
    """
    encode_tables(graph, RunInfo(backend=""), (), samples=1, steps=1)


def plain_facts(info: RunInfo) -> dict[str, Any]:
    """Give the facts of a run as JSON can hold them."""
    plain = info.to_dict()
    plain["options"] = {str(name): _plain_option(value) for name, value in plain["options"].items()}
    return plain


def _plain_option(value: Any) -> Any:
    """Bring an option's value to JSON; what JSON cannot hold is kept as its text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _plain_option(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_option(item) for item in value]
    return str(value)


class _Encoder:
    """Rows and pools under construction."""

    def __init__(self) -> None:
        self._strings: dict[str, int] = {}
        self._quants: dict[QuantParams, int] = {}
        self._rows: dict[str, list[tuple[Any, ...]]] = {"tensors": [], "nodes": [], "quants": []}
        self._pools: dict[str, list[Any]] = {name: [] for name in ("dims", "operands", "origins", "integers")}
        self._scales: dict[str, list[np.ndarray]] = {"scales32": [], "scales64": []}
        self._scale_sizes = {"scales32": 0, "scales64": 0}
        self._attributes = bytearray()

    def _text(self, text: str | None) -> int:
        return -1 if text is None else self._strings.setdefault(text, len(self._strings))

    def _run(self, pool: str, values: Sequence[int]) -> tuple[int, int]:
        """Append values to a pool; give their offset and number."""
        items = self._pools[pool]
        offset = len(items)
        items += values
        return offset, len(values)

    def add_tensor(self, tensor: TensorInfo) -> None:
        """Append the row of a tensor."""
        shape = tensor.shape
        _check_described(tensor)
        dims, _ = self._run("dims", [-1 if extent is None else extent for extent in shape or ()])
        self._rows["tensors"].append(
            (
                self._text(tensor.name),
                self._text(tensor.stands_for),
                self._text(tensor.layout),
                self._quant(tensor.quant, tensor.name),
                dims,
                UNKNOWN if shape is None else len(shape),
                UNKNOWN if tensor.dtype is None else DTYPE_CODES[tensor.dtype],
                ROLES.index(tensor.role),
                0,
            )
        )

    def add_node(self, node: Any, rows: Mapping[str, int]) -> None:
        """Append the row of a node."""
        inputs, n_inputs = self._run("operands", [rows[name] if name else -1 for name in node.inputs])
        outputs, n_outputs = self._run("operands", [rows[name] if name else -1 for name in node.outputs])
        origin, n_origin = self._run("origins", [self._text(name) for name in node.origin])
        attrs = encode_attrs(node.attrs, node.name)
        heads = (self._text(node.name), self._text(node.op), self._text(node.domain))
        lengths = (n_inputs, n_outputs, n_origin, len(attrs))
        self._rows["nodes"].append((*heads, *lengths, inputs, outputs, origin, len(self._attributes)))
        self._attributes += attrs

    def add_quant(self, quant: QuantParams) -> int:
        """Append the row of a quantization, unless it is there; give its number."""
        return self._quant(quant, "of one sample")

    def _quant(self, quant: QuantParams | None, tensor: str) -> int:
        if quant is None:
            return -1
        if quant not in self._quants:
            self._rows["quants"].append(self._quant_row(quant, tensor))
            self._quants[quant] = len(self._quants)
        return self._quants[quant]

    def _quant_row(self, quant: QuantParams, tensor: str) -> tuple[Any, ...]:
        has = Has(0)
        for name, bit in _OPTIONAL.items():
            if getattr(quant, name) is not None:
                has |= bit
        pool = "scales32"
        if quant.scale.dtype == np.float64:
            has |= Has.SCALE64
            pool = "scales64"
        scale_dims, ndim = self._run("dims", quant.scale.shape)
        scale_off = self._scale_sizes[pool]
        self._scales[pool].append(quant.scale.ravel())
        self._scale_sizes[pool] += quant.scale.size
        zero_point, _ = self._run("integers", quant.zero_point.ravel().tolist())
        multiplier_ndim, *multiplier = self._whole(quant.multiplier)
        shift_ndim, *shift = self._whole(quant.shift)
        limits = (_signed(quant.qmin, quant.dtype, tensor), _signed(quant.qmax, quant.dtype, tensor))
        return (
            DTYPE_CODES[quant.dtype],
            int(has),
            *(ndim, multiplier_ndim, shift_ndim),
            quant.axis or 0,
            quant.block_size or 0,
            *limits,
            zero_point,
            *(scale_off, scale_dims),
            *(*multiplier, *shift),
        )

    def _whole(self, values: np.ndarray | None) -> tuple[int, int, int]:
        if values is None:
            return 0, 0, 0
        dims, ndim = self._run("dims", values.shape)
        offset, _ = self._run("integers", values.ravel().tolist())
        return ndim, offset, dims

    def tables(self, run: bytes) -> dict[str, np.ndarray]:
        """Give the finished tables."""
        texts = [text.encode("utf-8", "surrogatepass") for text in self._strings]
        lengths = np.array([len(text) for text in texts], dtype=np.uint64)
        strings = np.zeros(len(texts), dtype=TABLES["strings"])
        strings["length"] = lengths
        strings["offset"] = np.cumsum(lengths) - lengths
        tables = {name: np.array(rows, dtype=TABLES[name]) for name, rows in self._rows.items()}
        tables |= {name: np.array(values, dtype=TABLES[name]) for name, values in self._pools.items()}
        for name, parts in self._scales.items():
            tables[name] = np.concatenate([*parts, np.empty(0, dtype=TABLES[name])])
        for name, data in (("names", b"".join(texts)), ("attributes", bytes(self._attributes)), ("run", run)):
            tables[name] = np.frombuffer(data, dtype=np.uint8)
        return tables | {"strings": strings}


_OPTIONAL = {
    "axis": Has.AXIS,
    "block_size": Has.BLOCK_SIZE,
    "qmin": Has.QMIN,
    "qmax": Has.QMAX,
    "multiplier": Has.MULTIPLIER,
    "shift": Has.SHIFT,
}


def _check_described(tensor: TensorInfo) -> None:
    if tensor.dtype is not None and tensor.dtype not in DTYPE_CODES:
        raise RecordingError(
            f"Tensor {tensor.name!r} of the graph has dtype {tensor.dtype!r}, which a recording does not know.",
            hint="Leave its dtype out (None).",
        )
    shape = tensor.shape or ()
    if len(shape) >= UNKNOWN or not all(map(_is_extent, shape)):
        raise RecordingError(
            f"Tensor {tensor.name!r} of the graph has shape {str(shape)[:80]}; an extent is a number or None.",
            hint="Give None for an extent that varies.",
        )


def _is_extent(value: Any) -> bool:
    return value is None or (isinstance(value, (int, np.integer)) and 0 <= int(value) < 2**63)


def _signed(limit: int | None, dtype: str, tensor: str) -> int:
    """Give a code limit as a 64-bit two's complement number."""
    low, high = (0, 2**64 - 1) if dtype == "uint64" else (-(2**63), 2**63 - 1)
    if limit is None:
        return 0
    if not low <= limit <= high:
        raise RecordingError(f"Tensor {tensor!r} has a code limit {limit} that {dtype} codes cannot reach.")
    return limit - 2**64 if limit >= 2**63 else limit
