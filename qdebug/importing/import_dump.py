"""Convert a dump to a recording: find the tensor of each file, check it against the model's graph, and write it.

A tensor that does not match the graph is recorded as dumped, with a note. Nothing is transposed, cast or scaled unless
the dump itself confirms it bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from qdebug.backends import load_reader
from qdebug.backends.protocol import OnProgress
from qdebug.errors import QdebugError, RecordingError, UsageError
from qdebug.importing.arrangement import Arrangement, find_arrangement, has_channels_second, rank_of
from qdebug.importing.dump import Dump, DumpedTensor
from qdebug.importing.dumps import read_dump
from qdebug.importing.names import NameMatch, Rename, list_first, match_names
from qdebug.model import Graph, QuantParams, Role, RunInfo, TensorInfo
from qdebug.model.dtypes import is_float, is_integer, logical_dtype, logical_name
from qdebug.model.json_object import JsonObject
from qdebug.model.recording import SkipCause
from qdebug.numerics.affine import dequantize, quantize
from qdebug.recording.arguments import as_array
from qdebug.recording.format.payload import payload_hash
from qdebug.recording.reading.opening import is_manifest, opened_recording
from qdebug.recording.recorder import Recorder
from qdebug.recording.remote_url import check_local
from qdebug.recording.target import check_target, describe_cause
from qdebug.regular_file import open_binary

__all__ = ["ImportSummary", "import_dump"]

_HDF5 = b"\x89HDF\r\n\x1a\n"
_MAX_ROUNDINGS = 2
"""Maximum error, in ULP of float32, of a real value that another tool computed as scale * (code - zero_point)."""
_MAX_EXACT_CODE = 1 << 24
"""Maximum distance from the zero point at which float32 distinguishes codes."""
_ABSENT = "the dump has no values for it"


Prepare = Callable[[np.ndarray], np.ndarray]
"""Function that converts a dumped array to the array to record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSummary(JsonObject):
    """The result of an import.

    Args:
        path: The recording.
        form: The format of the dump.
        tensors: Number of tensors with values, including constants.
        files: Number of files or arrays that were read.
        samples: Number of samples.
        steps: Number of steps of each sample.
        matched: The tensor of the graph for each name of the dump.
        unmatched: Names in the dump that do not match a tensor of the graph, with the reason; recorded without a node.
        absent: Tensors of the graph without values in the dump, except constants.
        constants: Number of constants that came from the model.
        ignored: Files that were not read, with the reason.
        notes: How tensors differ from the graph, and what was done about it.
        said: How the dump was interpreted.
    """

    json_format = "import"
    json_keys = (
        "file=path source_format=form tensors files samples steps constants matched unmatched absent ignored notes said"
    )

    path: Path
    form: str
    tensors: int
    files: int
    samples: int
    steps: int
    matched: Sequence[NameMatch] = ()
    unmatched: Mapping[str, str]
    absent: Sequence[str] = ()
    constants: int = 0
    ignored: Mapping[str, str]
    notes: Mapping[str, str]
    said: Sequence[str] = ()


class _Model(NamedTuple):
    """A model file or recording, as needed for a dump.

    For a recording, `info` lists tensors that are never computed.
    """

    name: str
    sha256: str
    graph: Graph
    constants: Sequence[str]
    constant: Callable[[str], np.ndarray]
    info: RunInfo | None = None


class _Fit(NamedTuple):
    """How a tensor of the dump is recorded.

    Args:
        info: The tensor's facts.
        prepare: Converts a dumped array to the array to record.
        note: How the tensor differs from the graph; "" if it does not.
        facts: Facts from the dump, as arguments of `Recorder.put`, in the recorded order of dimensions.
    """

    info: TensorInfo
    prepare: Prepare
    note: str
    facts: Mapping[str, Any]


def import_dump(
    source: str | Path,
    out: str | Path,
    *,
    graph: str | Path | None = None,
    form: str | None = None,
    layout: str | None = None,
    rename: Rename = str,
    force: bool = False,
    on_progress: OnProgress | None = None,
) -> ImportSummary:
    """Create a recording from a dump. If an error or interrupt occurs, nothing is left behind.

    Args:
        source: A folder or a file, in a format of `qdebug.importing.dumps.SOURCES`.
        out: The recording to write.
        graph: A model file or recording whose graph, constants and quantization apply to tensors with the same names.
        form: The format of the dump; None to recognize it.
        layout: Order of dimensions, if the dump does not state it, for tensors with that many dimensions: "NHWC".
        rename: Changes the names of the dump, see `qdebug.importing.names.make_renamer`.
        force: Whether `out` may be replaced.
        on_progress: Called with (done, total, label).

    Raises:
        UsageError: The dump is missing, damaged, of unknown format, or does not share a tensor with the graph; or the
            layout is unknown.
        MissingExtraError: A package that reads the model file is not installed.
        OutputExistsError: `out` exists and `force` is not set.
        RecordingError: `out` cannot be written, or the dump contradicts itself.
    """
    source, out = Path(source), Path(out)
    if layout is not None:
        rank_of(layout)
    check_local(source, "import")
    check_target(out, force=force)
    _check_paths_differ(source, graph, out)
    with (
        _open_model(graph) as model,
        read_dump(source, form, None if model is None else model.graph, rename=rename) as (source_form, dump),
    ):
        return _import(source, out, source_form, dump, model, layout=layout, force=force, on_progress=on_progress)


def _import(
    source: Path,
    out: Path,
    form: str,
    dump: Dump,
    model: _Model | None,
    *,
    layout: str | None,
    force: bool,
    on_progress: OnProgress | None,
) -> ImportSummary:
    """Write the recording of an open dump."""
    known_graph = Graph() if model is None else dump.graph or model.graph
    names = list(dict.fromkeys(entry.name for entry in dump.tensors))
    matches, unmatched_reasons = match_names(names, known_graph) if model is not None else ([], {})
    ignored_reasons = dict(dump.ignored)
    for entry in dump.tensors:
        if entry.is_raw and entry.name in unmatched_reasons:
            ignored_reasons[entry.location] = f"a raw file of unknown type: {unmatched_reasons[entry.name]}"
    unmatched_reasons = {
        name: reason
        for name, reason in unmatched_reasons.items()
        if not all(entry_of_name.is_raw for entry_of_name in dump.tensors if entry_of_name.name == name)
    }
    if model is not None and not matches:
        raise UsageError(
            f"None of the {len(names)} names of {str(source)!r} is a tensor of {model.name!r}; the dump has "
            f"{list_first(names)}, the model {list_first(list(known_graph.tensors))}.",
            hint="Name the files after the model's tensors (`qdebug info FILE --tensors`), or leave --graph out.",
        )
    tensors = {match.name: match.tensor for match in matches}
    entries = [
        _assign_layout(
            _assign_type(replace(entry, name=tensors.get(entry.name, entry.name)), known_graph), known_graph, layout
        )
        for entry in dump.tensors
        if entry.location not in ignored_reasons
    ]
    fits = _match_graph(entries, known_graph)
    job = _ImportJob(entries, fits, known_graph=known_graph, model=model, dump=dump)
    facts = _run_facts(source, form, dump, model, has_unmatched=bool(unmatched_reasons))
    job.write(Recorder(out, graph=job.graph, force=force, **facts), on_progress)
    with opened_recording(out) as recording:
        tensor_count, samples, steps = len(recording.names), recording.samples, recording.steps
    return ImportSummary(
        path=out,
        form=form,
        tensors=tensor_count,
        files=len(entries),
        samples=samples,
        steps=steps,
        matched=matches,
        unmatched=unmatched_reasons,
        absent=job.absent,
        constants=len(job.from_model),
        ignored=ignored_reasons,
        notes=_collect_notes(entries, fits),
        said=dump.remarks,
    )


def _collect_notes(entries: Sequence[DumpedTensor], fits: Mapping[str, _Fit]) -> dict[str, str]:
    """Return notes about tensors: how they differ from the graph, and where values are missing."""
    places: dict[str, set[tuple[int, int]]] = {}
    for entry in entries:
        if fits[entry.name].info.role is not Role.CONSTANT:
            places.setdefault(entry.name, set()).add(entry.place)
    all_places = set().union(*places.values())
    notes = {name: fit.note for name, fit in fits.items() if fit.note}
    for name, known_places in places.items():
        if known_places != all_places:
            sample, step = min(all_places - known_places)
            note = (
                f"it has values for {len(known_places)} of {len(all_places)} samples and steps; none for "
                f"sample {sample}, step {step}"
            )
            notes[name] = "; ".join(filter(None, (notes.get(name), note)))
    return notes


def _check_paths_differ(source: Path, graph: str | Path | None, out: Path) -> None:
    for path in (source, *(() if graph is None else (Path(graph),))):
        if out.exists() and path.exists() and out.samefile(path):
            raise UsageError(f"The recording would overwrite its source {str(path)!r}.", hint="Name another file.")


@contextmanager
def _open_model(graph: str | Path | None) -> Iterator[_Model | None]:
    """Open a model file or recording, whose constants can be read inside the block; None without a model."""
    if graph is None:
        yield None
        return
    path = Path(graph)
    try:
        with open_binary(path) as file:
            start = file.read(len(_HDF5))
    except OSError as error:
        raise UsageError(
            f"The model {str(path)!r} cannot be read: {describe_cause(error)}.",
            hint="Give a model file or a recording.",
        ) from error
    if start != _HDF5 and not is_manifest(path):
        source = load_reader(path).with_shapes()
        yield _Model(source.name, source.sha256, source.graph, source.constants, source.constant)
        return
    with opened_recording(path) as recording:
        names = [name for name in recording.names if recording.graph.is_constant(name)]
        info = recording.info
        yield _Model(info.model or path.name, info.model_sha256, recording.graph, names, recording.load, info)


def _run_facts(source: Path, form: str, dump: Dump, model: _Model | None, *, has_unmatched: bool) -> dict[str, Any]:
    """Return the facts of the run. The machine that ran it is unknown."""
    options = {"source": source.name, "source_format": form}
    if model is not None:
        options["graph"] = model.name
    if has_unmatched:
        options["note"] = "some tensors of the dump are not in the graph and have no node"
    return {
        "backend": str(dump.facts.get("backend", "import")),
        "model": str(dump.facts.get("model", "" if model is None else model.name)),
        "model_sha256": "" if model is None else model.sha256,
        "taps": "import",
        "options": options,
        "op_map": dump.facts.get("op_map", {}),
        "versions": {"platform": "unknown", "cpu": "unknown"},
        "cpu_flags": (),
    }


# -- checking values against the graph -------------------------------------------------------------------------------


def _match_graph(entries: Sequence[DumpedTensor], graph: Graph) -> dict[str, _Fit]:
    """Check each tensor of the dump against the graph, and return how to record it."""
    entries_by_name: dict[str, list[DumpedTensor]] = {}
    for entry in entries:
        entries_by_name.setdefault(entry.name, []).append(entry)
    converts_layout = any("layout" in entry.facts for entry in entries) and has_channels_second(graph)
    return {
        name: _fit_tensor(same_name, graph.tensors.get(name), converts_layout=converts_layout)
        for name, same_name in entries_by_name.items()
    }


def _assign_type(entry: DumpedTensor, graph: Graph) -> DumpedTensor:
    """Give untyped bytes the type of the model's tensor, or else float32, whichever matches the number of bytes.

    Raises:
        UsageError: The number of bytes matches neither.
    """
    if not entry.is_raw:
        return entry
    info = graph.tensors[entry.name]
    model_dtype = None if info.dtype is None else logical_dtype(info.dtype)
    count = None if info.shape is None or None in info.shape else math.prod(extent or 0 for extent in info.shape)
    element_count = math.prod(extent or 1 for extent in info.shape or ())
    (size,) = entry.shape
    for dtype in dict.fromkeys(filter(None, (model_dtype, np.dtype(np.float32)))):
        extents, remainder = divmod(size, dtype.itemsize)
        if not remainder and (extents == count or (count is None and not extents % (element_count or 1))):
            return _view_as_type(entry, dtype.newbyteorder("<") if dtype.isbuiltin == 1 else dtype)
    stated_type = f"{info.dtype or 'an unknown type'} of shape {'?' if info.shape is None else _shape_text(info.shape)}"
    raise UsageError(
        f"The file {entry.location!r} has {size} bytes; the model's tensor {entry.name!r} is {stated_type}, and "
        "float32 "
        "does not fit either.",
        hint="Give its dtype and shape in a description (see `qdebug help import`).",
    )


def _view_as_type(entry: DumpedTensor, dtype: np.dtype[Any]) -> DumpedTensor:
    """Reinterpret untyped bytes as elements of a type."""
    load = entry.load
    extents = (entry.shape[0] // dtype.itemsize,)
    return replace(entry, dtype=dtype, shape=extents, load=lambda: load().view(dtype), is_raw=False)


def _assign_layout(entry: DumpedTensor, graph: Graph, layout: str | None) -> DumpedTensor:
    """Set the user's layout on a tensor with as many dimensions, unless the dump states one or it is a constant."""
    if layout is None or "layout" in entry.facts or entry.is_constant:
        return entry
    info = graph.tensors.get(entry.name)
    if info is not None and info.role is Role.CONSTANT:
        return entry
    dimension_count = None if info is None or info.shape is None else len(info.shape)
    rank = dimension_count if dimension_count is not None else None if entry.is_flat else len(entry.shape)
    return replace(entry, facts={**entry.facts, "layout": layout}) if rank == rank_of(layout) else entry


def _fit_tensor(entries: Sequence[DumpedTensor], graph_info: TensorInfo | None, *, converts_layout: bool) -> _Fit:
    """Check a tensor, at all its samples and steps, against the graph.

    Args:
        entries: The tensor's values at each sample and step.
        graph_info: The graph's facts about the tensor; None if it is not in the graph.
        converts_layout: Whether values with a different stated order are transposed to the graph's order.

    Raises:
        UsageError: The files of the tensor have several types, or no known type.
    """
    first_entry = entries[0]
    differing_entry = next(
        (entry for entry in entries if entry.dtype != first_entry.dtype or entry.facts != first_entry.facts), None
    )
    if differing_entry is not None:
        raise UsageError(
            f"{first_entry.location!r} and {differing_entry.location!r} both contain tensor {first_entry.name!r}, but "
            f"as {first_entry.dtype} and {differing_entry.dtype}, or are described differently.",
            hint="Give all samples of a tensor with the same type and description.",
        )
    info = graph_info or TensorInfo(
        name=first_entry.name, role=Role.CONSTANT if first_entry.is_constant else Role.ACTIVATION
    )
    facts = dict(first_entry.facts)
    conversion = _layout_conversion(entries, info) if converts_layout and "layout" in facts else None
    if conversion is None:
        info, prepare_shape, notes = _fit_shape(entries, info, graph_info)
    else:
        prepare_shape, notes = conversion
        facts = _facts_in_model_order(facts, _arrangement_of(first_entry, info))
        info = replace(info, shape=None if info.shape is None or None in info.shape else info.shape)
    stated_dtype = str(facts["dtype"]) if "dtype" in facts else None
    dtype = stated_dtype or _dtype_name(first_entry, info)
    if "scale" in facts and info.quant is not None:
        notes.append("its quantization comes from the description, not from the model")
        info = replace(info, quant=None)
    info = replace(
        info,
        layout=None if "layout" in facts else info.layout,
        stands_for=None if "stands_for" in facts else info.stands_for,
    )
    fit = _Fit(info, prepare_shape, "; ".join(notes), facts)
    if stated_dtype is not None or graph_info is None or graph_info.dtype is None:
        return fit._replace(
            info=replace(info, dtype=dtype), prepare=_cast_after(first_entry.name, prepare_shape, stated_dtype)
        )
    if dtype == graph_info.dtype:
        return fit._replace(prepare=_cast_after(first_entry.name, prepare_shape, dtype))
    return _resolve_type(entries, fit, dtype)


def _arrangement_of(entry: DumpedTensor, info: TensorInfo) -> Arrangement | None:
    """Return the arrangement of dumped values according to their stated layout; None if they do not match it."""
    if info.shape is None:
        return None
    arrangement = find_arrangement(str(entry.facts["layout"]), info.shape, None if entry.is_flat else entry.shape)
    return None if arrangement is None or _resolve_shape(entry, arrangement.shape) is None else arrangement


def _layout_conversion(entries: Sequence[DumpedTensor], info: TensorInfo) -> tuple[Prepare, list[str]] | None:
    """Return the conversion from a stated layout to the model's order; None if a file does not match the layout."""
    extents: dict[tuple[int, ...], tuple[int, ...]] = {}
    arrangements = [_arrangement_of(entry, info) for entry in entries]
    for entry, arrangement in zip(entries, arrangements, strict=True):
        resolved_shape = None if arrangement is None else _resolve_shape(entry, arrangement.shape)
        if resolved_shape is None:
            return None
        extents[entry.shape] = resolved_shape
    first_arrangement = arrangements[0]
    if first_arrangement is None:
        return None
    restore_order = first_arrangement.restore_order
    note = f"{first_arrangement.layout}, transposed to the model's order"
    return lambda array: np.ascontiguousarray(restore_order(array.reshape(extents[array.shape]))), [note]


def _facts_in_model_order(facts: Mapping[str, Any], arrangement: Arrangement | None) -> dict[str, Any]:
    """Return the facts of a tensor, converted to the model's order of dimensions."""
    converted_facts = {key: value for key, value in facts.items() if key != "layout"}
    if arrangement is not None and arrangement.axes is not None and isinstance(converted_facts.get("axis"), int):
        axis = converted_facts["axis"] % len(arrangement.axes)
        converted_facts["axis"] = arrangement.axes.index(axis)
    return converted_facts


def _dtype_name(entry: DumpedTensor, info: TensorInfo) -> str:
    """Return the logical dtype of dumped elements. Untyped bytes get the graph's dtype if the size matches.

    Raises:
        UsageError: The type of the elements is unknown.
    """
    if entry.dtype.kind == "V" and info.dtype is not None:
        model_dtype = logical_dtype(info.dtype)
        if model_dtype.isbuiltin != 1 and model_dtype.itemsize == entry.dtype.itemsize:
            return info.dtype
    try:
        return logical_name(entry.dtype)
    except ValueError:
        raise UsageError(
            f"{entry.location!r} has {entry.dtype.itemsize}-byte elements of type {entry.dtype}, which a tensor "
            "cannot have.",
            hint="Give the dtype in a JSON description (see `qdebug help import`).",
        ) from None


def _cast_after(name: str, prepare_shape: Prepare, dtype: str | None) -> Prepare:
    def prepare(array: np.ndarray) -> np.ndarray:
        return _as_dtype(name, prepare_shape(array), dtype)

    return prepare


def _as_dtype(name: str, array: np.ndarray, dtype: str | None) -> np.ndarray:
    """Return elements in a dtype that holds all of them exactly. Untyped bytes are reinterpreted.

    Raises:
        RecordingError: The dtype cannot hold them.
    """
    if array.dtype.kind == "V" and dtype is not None:
        target = logical_dtype(dtype)
        if target.isbuiltin != 1 and target.itemsize == array.dtype.itemsize:
            return array.view(target)
    return as_array(name, array, dtype)


def _resolve_type(entries: Sequence[DumpedTensor], fit: _Fit, dtype: str) -> _Fit:
    """Choose the type of a tensor whose dumped type differs from the graph's.

    A type that NumPy files cannot name is taken from the graph. Codes that were dumped as real values also get the
    graph's type, if all values agree with it. Otherwise, the dump's type and values are kept.
    """
    info, prepare_shape = fit.info, fit.prepare
    name, graph_dtype, quant = info.name, str(info.dtype), info.quant

    def with_note(note: str) -> str:
        return "; ".join(filter(None, (fit.note, note)))

    if logical_dtype(graph_dtype).isbuiltin != 1 and all(_can_hold(name, entry, graph_dtype) for entry in entries):
        note = f"{dtype} values all fit {graph_dtype}"
        return fit._replace(prepare=_cast_after(name, prepare_shape, graph_dtype), note=with_note(note))
    if quant is not None and is_integer(graph_dtype) and is_float(dtype):
        if all(_to_codes(prepare_shape(entry.load()), quant) is not None for entry in entries):
            note = f"real values that all lie on the grid of the codes; recorded as {graph_dtype} codes"
            return fit._replace(
                prepare=lambda array: _require_codes(_to_codes(prepare_shape(array), quant)), note=with_note(note)
            )
        note = (
            f"the model has {graph_dtype} codes, but the dump has {dtype} values off their grid; "
            "recorded as real values"
        )
        return fit._replace(info=replace(info, dtype=dtype, quant=None), note=with_note(note))
    note = f"the type is {graph_dtype} in the model, but {dtype} in the dump" + (
        "; its scale does not apply" if quant else ""
    )
    return fit._replace(info=replace(info, dtype=dtype, quant=None), note=with_note(note))


def _can_hold(name: str, entry: DumpedTensor, dtype: str) -> bool:
    """Return whether a dtype holds all dumped values exactly."""
    with suppress(RecordingError):
        as_array(name, entry.load(), dtype)
        return True
    return False


def _to_codes(values: np.ndarray, quant: QuantParams) -> np.ndarray | None:
    """Return the codes of real values; None if a value does not correspond to a code."""
    try:
        codes = quantize(values, quant)
        real_values = dequantize(codes, quant, double=True)
    except QdebugError:
        return None
    float64_values = values.astype(np.float64)
    steps = np.abs(dequantize(codes, replace(quant, scale=np.ones_like(quant.scale)), double=True))
    is_near = np.abs(real_values - float64_values) <= _MAX_ROUNDINGS * np.spacing(np.abs(values.astype(np.float32)))
    return codes if bool(np.all(is_near & (steps < _MAX_EXACT_CODE))) else None


def _require_codes(codes: np.ndarray | None) -> np.ndarray:
    if codes is None:
        raise UsageError("A file of the dump changed while it was being read.", hint="Import again.")
    return codes


def _fit_shape(
    entries: Sequence[DumpedTensor], info: TensorInfo, graph_info: TensorInfo | None
) -> tuple[TensorInfo, Prepare, list[str]]:
    """Check the shape of dumped values against the graph's, from which it may differ only in extents of 1.

    Return the facts to record, the conversion of the arrays, and notes. Values of any other shape stay as dumped.
    """
    first_entry, shape = entries[0], None if graph_info is None else graph_info.shape
    if shape is None:
        if first_entry.is_flat:
            raise UsageError(
                f"{first_entry.location!r} has no shape, and the model does not state the shape of "
                f"{first_entry.name!r}.",
                hint="Give the shape in the description.",
            )
        return info, _as_is, []
    shapes = [_resolve_shape(entry, shape) for entry in entries]
    if all(resolved_shape is not None for resolved_shape in shapes):
        # The size of the values determines the unknown extents.
        info = replace(info, shape=None if None in shape else shape)
        if all(entry.shape == resolved_shape for entry, resolved_shape in zip(entries, shapes, strict=True)):
            return info, _as_is, []
        change_notes = [] if first_entry.is_flat else ["axes of size 1 as in the model"]
        by_size = {entry.shape: resolved_shape for entry, resolved_shape in zip(entries, shapes, strict=True)}
        return info, lambda array: array.reshape(by_size[array.shape]), change_notes
    misfit_entry = next(entry for entry, resolved_shape in zip(entries, shapes, strict=True) if resolved_shape is None)
    if first_entry.is_flat:
        raise UsageError(
            f"{misfit_entry.location!r} has {misfit_entry.shape[0]} elements; the model's tensor "
            f"{misfit_entry.name!r} has shape "
            f"{_shape_text(shape)}.",
            hint="Give the shape in the description.",
        )
    is_permuted = None not in shape and sorted(misfit_entry.shape) == sorted(extent or 0 for extent in shape)
    count = [math.prod(extent or 0 for extent in extents) for extents in (misfit_entry.shape, shape)]
    has_same_count = None not in shape and count[0] == count[1]
    reason = (
        "the axes may be transposed"
        if is_permuted
        else "the same number of elements"
        if has_same_count
        else "a different size"
    )
    note = (
        f"the shape is {_shape_text(shape)} in the model, but {_shape_text(misfit_entry.shape)} in the dump ({reason})"
    )
    note += "; recorded as dumped"
    quant = info.quant if info.quant is not None and not info.quant.per_channel else None
    if info.quant is not None and quant is None:
        note += ", without the scales of its channels"
    return replace(info, shape=None, quant=quant), _as_is, [note]


def _as_is(array: np.ndarray) -> np.ndarray:
    return array


def _resolve_shape(entry: DumpedTensor, shape: tuple[int | None, ...]) -> tuple[int, ...] | None:
    """Return the graph's shape with its open extents filled in; None if the values do not match it."""
    if not entry.is_flat:
        if len(shape) == len(entry.shape) and all(e in (None, s) for s, e in zip(entry.shape, shape, strict=True)):
            return entry.shape
        closed_shape = tuple(1 if extent is None else extent for extent in shape)
        return closed_shape if [e for e in closed_shape if e != 1] == [e for e in entry.shape if e != 1] else None
    (count,), known_count = entry.shape, int(np.prod([e for e in shape if e is not None], dtype=np.int64))
    open_count = shape.count(None)
    if (
        open_count > 1
        or (not open_count and known_count != count)
        or (open_count and (not known_count or count % known_count))
    ):
        return None
    return tuple(count // known_count if extent is None else extent for extent in shape)


def _shape_text(shape: Sequence[int | None]) -> str:
    return "[" + ", ".join("?" if extent is None else str(extent) for extent in shape) + "]"


# -- writing --------------------------------------------------------------------------------------------------------


class _ImportJob:
    """Writes the recording of an import: the constants of the model, then the tensors in the order of the dump."""

    def __init__(
        self,
        entries: Sequence[DumpedTensor],
        fits: Mapping[str, _Fit],
        *,
        known_graph: Graph,
        model: _Model | None,
        dump: Dump,
    ) -> None:
        self._entries, self._fits, self._open_model, self._dump = entries, fits, model, dump
        tensors = [fits[name].info if name in fits else info for name, info in known_graph.tensors.items()]
        self.graph = (
            None
            if model is None
            else Graph(
                known_graph.nodes,
                tensors=tensors,
                inputs=known_graph.inputs,
                outputs=known_graph.outputs,
                name=known_graph.name,
                opset=known_graph.opset,
            )
        )
        constants = [] if model is None else model.constants
        self.from_model = [name for name in constants if name not in fits and known_graph.is_constant(name)]
        self.absent = [name for name in known_graph.tensors if name not in fits and not known_graph.is_constant(name)]

    def write(self, recorder: Recorder, on_progress: OnProgress | None) -> None:
        """Write the recording and close it. After an error, nothing is left behind."""
        try:
            if self._open_model is not None:
                for name in self.from_model:
                    recorder.constant(name, self._open_model.constant(name))
            info = None if self._open_model is None else self._open_model.info
            never_made = {} if info is None else info.never_made()
            for name in self.absent:
                cause = info.skip_causes[name] if info is not None and name in never_made else SkipCause.NOT_DUMPED
                recorder.skip(name, never_made.get(name, _ABSENT), because=cause)
            self._put_all(recorder, on_progress)
            recorder.outputs(*self._dump.facts.get("outputs", ()))
            recorder.close()
        except BaseException:
            recorder.discard()
            raise
        if recorder.failure is not None:
            raise RecordingError(recorder.failure, hint="Import to a disk with more space.")

    def _put_all(self, recorder: Recorder, on_progress: OnProgress | None) -> None:
        constants: dict[str, tuple[str, bytes]] = {}
        for done_count, entry in enumerate(self._entries):
            if on_progress is not None:
                on_progress(done_count, len(self._entries), entry.name)
            fit = self._fits[entry.name]
            array = fit.prepare(entry.load())
            facts = {key: value for key, value in fit.facts.items() if key != "dtype"}
            if fit.info.role is not Role.CONSTANT:
                recorder.at(*entry.place)
                recorder.put(entry.name, array, **facts)
                continue
            content = payload_hash(array.tobytes())
            location, first_hash = constants.setdefault(entry.name, (entry.location, content))
            if location is entry.location:
                recorder.constant(entry.name, array, **facts)
            elif first_hash != content:
                raise UsageError(
                    f"{location!r} and {entry.location!r} both contain the constant {entry.name!r}, "
                    "with different values.",
                    hint="Give the constant once, or leave out --graph if it is not a constant.",
                )
