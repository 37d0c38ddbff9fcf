"""Graph and run facts as tables of a recording file, and back; tables are checked before anything is made of them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from sys import intern
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import AttrValue, Fidelity, Graph, Node, QuantParams, RunInfo, TensorInfo
from qdebug.model.dtypes import LOGICAL_DTYPES, logical_name
from qdebug.model.frozen import frozen_mapping
from qdebug.store.check_tables import Tables, check_rows, check_runs
from qdebug.store.layout import DTYPE_CODES, ROLES, TABLES, UNKNOWN, Has, physical_dtype
from qdebug.store.payload import from_physical, to_bytes

__all__ = [
    "check_storable",
    "decode_attrs",
    "decode_graph",
    "decode_info",
    "decode_quants",
    "decode_run",
    "decode_texts",
    "encode_attrs",
    "encode_tables",
    "plain_facts",
    "rows_of",
]


def encode_attrs(attrs: Mapping[str, AttrValue], node: str) -> bytes:
    """Give attributes as JSON in UTF-8; nothing at all for no attributes.

    Raises:
        RecordingError: An attribute's type cannot be stored; the message names node and attribute.
    """
    if not attrs:
        return b""
    plain = {}
    for name, value in attrs.items():
        try:
            plain[name] = _encode(value)
        except (TypeError, ValueError) as exc:
            raise RecordingError(f"Attribute {name!r} of node {node!r} cannot be recorded: {exc}.") from None
    return json.dumps(plain, allow_nan=False, separators=(",", ":")).encode("ascii")


def decode_attrs(text: bytes) -> dict[str, AttrValue]:
    """Give the attributes that `encode_attrs` wrote.

    Raises:
        ValueError: The text is no such JSON object.
    """
    if not text:
        return {}
    try:
        plain = json.loads(text)
        return {str(name): _DECODERS[kind](value) for name, (kind, value) in plain.items()}
    except (AttributeError, KeyError, TypeError, RecursionError) as exc:
        raise ValueError(f"attributes cannot be decoded: {exc!r}") from None


def _encode(value: Any) -> tuple[str, Any]:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return "a", _encode_array(value)
    if isinstance(value, list | tuple):
        return _encode_list(value)
    for kind, code in ((bool, "b"), (int, "i"), (str, "s")):
        if isinstance(value, kind):
            return code, value
    if isinstance(value, float):
        return "f", _encode_float(value)
    raise TypeError(f"its type {type(value).__name__} has no place in a recording")


def _encode_list(values: list[Any] | tuple[Any, ...]) -> tuple[str, Any]:
    kinds = {_encode(value)[0] for value in values}
    if kinds <= {"b", "i"}:
        return "is", [int(value) for value in values]
    if kinds <= {"b", "i", "f"}:
        return "fs", [_encode_float(float(value)) for value in values]
    if kinds == {"s"}:
        return "ss", list(values)
    raise TypeError("a list must hold numbers only or text only")


def _encode_float(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _encode_array(array: np.ndarray) -> dict[str, Any]:
    logical = logical_name(array.dtype)
    data = base64.b64encode(to_bytes(array, logical)).decode("ascii")
    return {"dtype": logical, "shape": list(array.shape), "data": data}


def _decode_array(plain: Mapping[str, Any]) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(plain["data"], validate=True), dtype=physical_dtype(plain["dtype"]))
    shape = [int(extent) for extent in plain["shape"]]
    if min(shape, default=0) < 0:
        raise ValueError("attributes hold an array with a negative extent")
    return from_physical(raw, plain["dtype"]).reshape(shape)


_DECODERS: dict[str, Callable[[Any], AttrValue]] = {
    "i": int,
    "f": float,
    "s": str,
    "b": bool,
    "is": lambda values: tuple(int(value) for value in values),
    "fs": lambda values: tuple(float(value) for value in values),
    "ss": lambda values: tuple(str(value) for value in values),
    "a": _decode_array,
}


def decode_texts(tables: Tables, rows: np.ndarray | None = None) -> list[str]:
    """Return strings of a recording or a journal; recordings of one net share those that are the same in both.

    Args:
        tables: The tables.
        rows: Rows of /strings; None for all of them in order.

    Raises:
        ValueError: A row lies outside the text, or is no UTF-8.
    """
    data = tables["names"].tobytes()
    starts, lengths = (np.ascontiguousarray(tables["strings"][field]) for field in ("offset", "length"))
    check_runs("strings", starts, lengths, len(data))
    if rows is not None:
        starts, lengths = starts[rows], lengths[rows]
    spans = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    if data.isascii():  # of all at once: one text is cut out of it in a third of the time
        text = data.decode("ascii")
        return [intern(text[start:stop]) for start, stop in spans]
    return [intern(data[start:stop].decode("utf-8", "surrogatepass")) for start, stop in spans]


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


def decode_graph(tables: Tables, run: Mapping[str, Any]) -> Graph:
    """Make the graph out of checked tables, as objects.

    Raises:
        ValueError: A text, quantization, shape or attribute makes no sense.
        GraphError: The nodes form no graph.
    """
    texts = decode_texts(tables)
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
    used, quants = 0, []
    for row in rows_of(tables["quants"]):
        quant = _decode_quant(row, tables)
        used += sum(part.size for part in (quant.zero_point, quant.multiplier, quant.shift) if part is not None)
        if used > len(tables["integers"]):
            raise ValueError("quantizations are more than their pool together")
        quants.append(quant)
    return quants


def _decode_quant(row: tuple[Any, ...], tables: Tables) -> QuantParams:
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
