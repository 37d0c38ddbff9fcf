"""Open a recording: a finished file, a file that is still being written, or several files as one.

For several files, the graphs are joined, and each tensor comes from the file that has it.

A manifest is a small JSON file that names the files of the processes, ranks or workers of one run:

    {"format": "qdebug.manifest", "version": 1,
     "parts": [{"path": "rank0.h5", "prefix": "", "first_sample": 0}, ...]}

A path is relative to the manifest and must not lead outside its folder. `prefix` is put before the names of a part's
tensors and nodes, for ranks that use the same name for different tensors. `first_sample` is the number that a part's
first sample has in the joined recording, for workers that each ran some of the samples. Recordings cannot refer to each
other, since the reader refuses links in a recording. A manifest of version 2 has `axes` instead: its parts hold slices
of the same tensors (`shards`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from qdebug.errors import GraphError, NotARecordingError, RecordingError, UsageError
from qdebug.model import Graph, Node, QuantParams, Recording, Role, RunInfo, TensorInfo
from qdebug.model.kept import Kept
from qdebug.model.recording import Outline, no_values_error, not_in_full_error
from qdebug.recording.format.facts import join_infos
from qdebug.recording.reading.read import Closable, FileRecording, KnownGraphs
from qdebug.recording.reading.shards import Axes, ShardedRecording, open_part, parse_axes
from qdebug.recording.remote_url import check_local
from qdebug.recording.target import cannot_write_error, check_target, describe_cause, replacing_file
from qdebug.regular_file import open_binary, read_regular

if TYPE_CHECKING:
    from qdebug.recording.reading.follow import FollowedRecording

__all__ = [
    "JoinedRecording",
    "Part",
    "is_manifest",
    "join",
    "open_manifest",
    "open_recording",
    "opened_recording",
    "read_manifest",
]

FORMAT = "qdebug.manifest"
VERSION = 1
SHARDS_VERSION = 2
"""Version of manifests of shards, which an older qdebug must not read as recordings of different tensors."""
_MOST_BYTES = 16 << 20
_MOST_PARTS = 100_000
_MOST_OPEN = 64
"""Maximum number of files open at once: each takes two descriptors, and half a megabyte in HDF5."""
_SHARED_EVENT = np.dtype([*((name, np.int64) for name in ("tensor", "sample", "step", "part")), ("hash", "u1", (16,))])


def is_manifest(path: Path) -> bool:
    """Return whether a file is JSON rather than HDF5, judging by its first character."""
    try:
        with open_binary(path) as file:
            return file.read(64).lstrip()[:1] == b"{"
    except OSError:
        return False


def read_manifest(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        NotARecordingError: It is not a manifest.
        RecordingError: It names a file outside its folder, or has a newer version.
    """
    try:
        text = read_regular(path, _MOST_BYTES)
    except ValueError:
        raise NotARecordingError(f"{str(path)!r} is too large for a manifest.", hint="Give a recording.") from None
    except OSError as exc:
        raise NotARecordingError(
            f"{str(path)!r} cannot be read: {describe_cause(exc)}.", hint="Give a recording."
        ) from None
    try:
        manifest = json.loads(text)
        is_valid = isinstance(manifest, dict) and manifest.get("format") == FORMAT
    except (ValueError, RecursionError):
        is_valid = False
    if not is_valid:
        raise NotARecordingError(
            f"{str(path)!r} is a JSON file, but not a manifest of recordings.", hint="Give a recording."
        )
    if manifest.get("version") not in (VERSION, SHARDS_VERSION):
        raise RecordingError(
            f"{str(path)!r} is a manifest of version {manifest.get('version')!r}; this qdebug reads up to "
            f"{SHARDS_VERSION}.",
            hint="Upgrade qdebug: pip install --upgrade qdebug.",
        )
    try:
        parts = tuple(_parse_part(path, entry) for entry in manifest["parts"])
        axes = parse_axes(manifest["axes"]) if manifest["version"] == SHARDS_VERSION else None
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as exc:
        raise RecordingError(
            f"The manifest {str(path)!r} is damaged: {exc}.", hint="Create it again: qdebug file join."
        ) from None
    if not 0 < len(parts) <= _MOST_PARTS:
        raise RecordingError(
            f"The manifest {str(path)!r} lists {len(parts)} recordings.", hint="Create it again: qdebug file join."
        )
    return Manifest(parts=parts, axes=axes)


def open_manifest(path: Path) -> JoinedRecording | ShardedRecording:
    """Open the recordings of a manifest as one.

    Raises:
        RecordingError: The manifest or a recording cannot be read, or the recordings contradict each other.
    """
    manifest = read_manifest(path)
    if manifest.axes is None:
        return JoinedRecording(manifest.parts, path)
    return ShardedRecording([part.path for part in manifest.parts], manifest.axes, path)


def _parse_part(path: Path, entry: Mapping[str, Any]) -> Part:
    name, prefix, first_sample = entry["path"], entry.get("prefix", ""), entry.get("first_sample", 0)
    if (
        not isinstance(name, str)
        or not isinstance(prefix, str)
        or type(first_sample) is not int
        or not 0 <= first_sample < 2**32
    ):
        raise ValueError("a part has a path, prefix or first sample of the wrong type")
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts or "\0" in name:
        raise ValueError(f"{name!r} is outside its folder")
    part, folder = path.parent / relative, os.path.realpath(path.parent)
    if os.path.commonpath([folder, os.path.realpath(part)]) != folder:
        raise ValueError(f"{name!r} points outside its folder")
    return Part(path=part, prefix=prefix, first_sample=first_sample)


def join(
    paths: Sequence[Path],
    out: Path,
    *,
    by: str = "tensors",
    force: bool = False,
    prefixes: Sequence[str] | None = None,
    axes: str = "",
) -> None:
    """Write a manifest of recordings, after checking that they can be read as one.

    Args:
        paths: The recordings, below the folder of the manifest.
        out: The manifest.
        by: "tensors" if each file holds different tensors of the same samples, "samples" if each file holds further
            samples, "shards" if each file holds a slice of the same tensors.
        force: Replace `out` if it exists.
        prefixes: A prefix for the names of each recording; None adds no prefixes.
        axes: With "shards", the axis of each tensor, in the syntax of `parse_axes`.

    Raises:
        UsageError: The axes are invalid, or a recording is not below the manifest's folder, is the manifest itself, or
            is listed twice.
        OutputExistsError: The manifest exists and `force` is not set.
        RecordingError: Its folder is missing, it is a folder or a device, it cannot be written, a recording cannot be
            read, or they contradict each other.
    """
    check_target(out, force=force)
    parts: list[Part] = []
    first_sample = 0
    for number, path in enumerate(paths):
        prefix = prefixes[number] if prefixes else ""
        _check_part(path, prefix, parts, out)
        parts.append(Part(path=path, prefix=prefix, first_sample=first_sample))
        with FileRecording(path) as recording:
            first_sample += recording.samples if by == "samples" else 0
    manifest: dict[str, Any] = {"format": FORMAT, "version": VERSION}
    if by == "shards":
        with ShardedRecording(paths, parse_axes(axes), out) as recording:
            recording.check_shards()
        manifest |= {
            "version": SHARDS_VERSION,
            "axes": axes,
            "parts": [{"path": _relative_path(path, out)} for path in paths],
        }
    else:
        JoinedRecording(parts, out).close()
        manifest["parts"] = [
            {"path": _relative_path(part.path, out), "prefix": part.prefix, "first_sample": part.first_sample}
            for part in parts
        ]
    text = json.dumps(manifest, indent=1)
    try:
        with replacing_file(out) as temporary_file:
            temporary_file.write_text(text + "\n", encoding="utf-8")
    except OSError as exc:
        raise cannot_write_error(out, exc) from None


def _check_part(path: Path, prefix: str, parts_before: Sequence[Part], out: Path) -> None:
    check_local(path, "join")
    real_path = os.path.realpath(path)
    if real_path == os.path.realpath(out):
        raise UsageError(
            f"{str(path)!r} is one of the recordings; the manifest would replace it.",
            hint="Name another file for the manifest: -o run.json.",
        )
    if any(os.path.realpath(part.path) == real_path and part.prefix == prefix for part in parts_before):
        raise UsageError(f"The recording {str(path)!r} is given twice.", hint="Give each recording once.")


def _relative_path(path: Path, out: Path) -> str:
    folder = Path(os.path.realpath(out.parent))
    try:
        return Path(os.path.realpath(path)).relative_to(folder).as_posix()
    except ValueError:
        raise UsageError(
            f"The recording {str(path)!r} is not in or below the folder of {str(out)!r}.",
            hint="Put the manifest into the folder of the recordings, or above it.",
        ) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A list of recordings that are read as one.

    Args:
        parts: The recordings.
        axes: For recordings of shards, how to join the slices of their tensors; None for other recordings.
    """

    parts: tuple[Part, ...]
    axes: Axes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One recording of a joined recording.

    Args:
        path: Its file.
        prefix: Added before the names of its tensors and nodes.
        first_sample: The number of its first sample in the joined recording.
    """

    path: Path
    prefix: str = ""
    first_sample: int = 0


class JoinedRecording(Recording, Closable):
    """Several recordings as one.

    Args:
        parts: The joined recordings.
        path: The path of the joined recording.

    Raises:
        RecordingError: A recording cannot be read, or two of them state contradictory facts about a node or tensor, or
            have different values for the same sample and step.
    """

    graph: Graph = Graph()

    def __init__(self, parts: Iterable[Part], path: Path) -> None:
        self.path = path
        self._parts: list[tuple[Part, FileRecording]] = []
        self._open: dict[FileRecording, None] | None = {}
        """The open files, the most recently read last; None once all are closed."""
        self._opening = RLock()
        file_of_path: dict[Path, FileRecording] = {}
        graphs = KnownGraphs()
        try:
            for part in parts:  # several parts may name the same file, with different prefixes
                if part.path not in file_of_path:
                    file_of_path[part.path] = open_part(part.path, path, graphs)
                    self._keep_open(file_of_path[part.path])
                self._parts.append((part, file_of_path[part.path]))
            self.graph = _join_graphs(self._parts)
            self._check_overlaps()
        except BaseException:
            self.close()
            raise

    @cached_property
    def info(self) -> RunInfo:
        """Facts of the run, taken from the first part; complete and faithful only if every part is."""
        return join_infos([(part.prefix, file.info) for part, file in self._parts])

    @cached_property
    def samples(self) -> int:
        """Number of samples of all parts together."""
        return max(part.first_sample + file.samples for part, file in self._parts)

    @cached_property
    def steps(self) -> int:
        """Number of steps of a sample."""
        return max(file.steps for _, file in self._parts)

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the tensors with any record."""
        return tuple(self._holders)

    @cached_property
    def _holders(self) -> dict[str, list[tuple[Part, FileRecording, str]]]:
        """The parts that have each tensor, with the tensor's name in the part."""
        holders: dict[str, list[tuple[Part, FileRecording, str]]] = {}
        for part, file in self._parts:
            for name in file.names:
                holders.setdefault(part.prefix + name, []).append((part, file, name))
        return holders

    def _check_overlaps(self) -> None:
        """Refuse parts with different values of a tensor for a sample and step, since the correct ones are unknown."""
        shared_tensors = [tensor for tensor, holders in self._holders.items() if len(holders) > 1]
        parts_by_names: dict[tuple[int, str], list[int]] = {}  # parts with the same graph and prefix share tensor names
        for number, (part, file) in enumerate(self._parts if shared_tensors else ()):
            parts_by_names.setdefault((id(file.index_rows()[0]), part.prefix), []).append(number)
        if not parts_by_names:
            return
        events = np.concatenate([self._shared_events(numbers, shared_tensors) for numbers in parts_by_names.values()])
        events = events[np.lexsort((events["part"], events["step"], events["sample"], events["tensor"]))]
        events_before, events_after = events[:-1], events[1:]
        is_different = (events_before["hash"] != events_after["hash"]).any(axis=1)
        for column in ("tensor", "sample", "step"):
            is_different &= events_before[column] == events_after[column]
        for position in is_different.nonzero()[0].tolist():
            first_path, second_path = (
                str(self._parts[number][0].path) for number in events["part"][position : position + 2].tolist()
            )
            raise RecordingError(
                f"{first_path!r} and {second_path!r} have different values for tensor "
                f"{shared_tensors[events['tensor'][position]]!r}, sample {events['sample'][position]}, "
                f"step {events['step'][position]}.",
                hint=_PREFIX,
            )

    def _shared_events(self, numbers: Sequence[int], shared_tensors: Sequence[str]) -> np.ndarray:
        """Return the events of tensors that several parts have: tensor, sample, step, part and hash of the values.

        Args:
            numbers: The parts.
            shared_tensors: The tensors, which `tensor` of the result indexes.
        """
        names = self._parts[numbers[0]][1].index_rows()[0]
        tables = [self._parts[number][1].index_rows()[1] for number in numbers]
        prefix, counts = self._parts[numbers[0]][0].prefix, [len(table) for table in tables]
        tensor_numbers = {tensor: number for number, tensor in enumerate(shared_tensors)}
        tensors = np.array([tensor_numbers.get(prefix + name, -1) for name in names])
        constant = np.array([self.graph.is_constant(prefix + name) for name in names])
        rows = np.concatenate(tables)
        first_samples = np.repeat([self._parts[number][0].first_sample for number in numbers], counts)
        events = np.empty(len(rows), _SHARED_EVENT)
        events["tensor"], events["part"] = tensors[rows["tensor"]], np.repeat(numbers, counts)
        events["sample"] = rows["sample"] + np.where(constant[rows["tensor"]], 0, first_samples)
        events["step"], events["hash"] = rows["step"], rows["hash"]
        return events[events["tensor"] >= 0]

    def _keep_open(self, file: FileRecording) -> None:
        """Open a file if it is closed. If that makes too many open files, close the least recently read one."""
        with self._opening:
            if self._open is None:
                raise RecordingError(f"The recording {str(self.path)!r} is closed.", hint="Open it again.")
            file.reopen()
            self._open.pop(file, None)
            self._open[file] = None
            if len(self._open) > _MOST_OPEN:
                least_recent = next(iter(self._open))
                del self._open[least_recent]
                least_recent.close()

    def _files_with_sample(self, tensor: str, sample: int) -> Iterable[tuple[FileRecording, str, int]]:
        constant = self.graph.is_constant(tensor)
        for part, file, name in self._holders.get(tensor, ()):
            number = 0 if constant else sample - part.first_sample
            if number >= 0:
                yield file, name, number

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with a record of the tensor (by default of any tensor), in order."""
        if tensor is not None and self.graph.is_constant(tensor):
            return ((0, 0),) if tensor in self._holders else ()
        if tensor is None:
            places_of_parts = ((part, file.places()) for part, file in self._parts)
        else:
            places_of_parts = ((part, file.places(name)) for part, file, name in self._holders.get(tensor, ()))
        return tuple(
            sorted({(part.first_sample + sample, step) for part, places in places_of_parts for sample, step in places})
        )

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether values of a tensor were recorded for a sample and step.

        A constant's values apply to all of them.
        """
        return any(file.has(name, number, step) for file, name, number in self._files_with_sample(tensor, sample))

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements, read-only.

        Raises:
            RecordingError: No values are recorded under this name, sample and step.
        """
        for file, name, number in self._files_with_sample(tensor, sample):
            if file.has(name, number, step):
                with self._opening:  # so that no other thread closes the file in the meantime
                    self._keep_open(file)
                    return file.load(name, number, step)
        if self.kept(tensor, sample, step) is not None:
            raise not_in_full_error(tensor, sample, step)
        raise no_values_error(tensor, sample, step, self.names)

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return dtype, shape and hash of recorded values without reading them; None if unknown."""
        for file, name, number in self._files_with_sample(tensor, sample):
            if file.has(name, number, step):
                return file.outline(name, number, step)
        return None

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of values; None if they were recorded in full, or not at all."""
        for file, name, number in self._files_with_sample(tensor, sample):
            if file.has_partial_record(name, number, step):
                with self._opening:
                    self._keep_open(file)
                    return file.kept(name, number, step)
        return None

    @cached_property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that differs from their tensor's, by tensor, sample and step."""
        return {
            (part.prefix + name, sample + part.first_sample, step): quant
            for part, file in self._parts
            for (name, sample, step), quant in file.event_quants.items()
        }

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        with self._opening:
            for file in self._open or ():
                file.close()
            self._open = None

    def __reduce__(self) -> tuple[Any, ...]:
        return JoinedRecording, ([part for part, _ in self._parts], self.path.absolute())


def _join_graphs(parts: Sequence[tuple[Part, FileRecording]]) -> Graph:
    nodes: dict[str, Node] = {}
    tensors: dict[str, TensorInfo] = {}
    input_and_output_names: tuple[dict[str, None], dict[str, None]] = ({}, {})
    graphs_added: set[tuple[int, str]] = set()
    for part, file in parts:
        graph, prefix = file.graph, part.prefix
        if (id(graph), prefix) in graphs_added:  # files of the same network share one graph object
            continue
        graphs_added.add((id(graph), prefix))
        for node in graph.nodes:
            _add_node(nodes, _rename_node(node, prefix), part)
        for info in graph.tensors.values():
            _add_tensor(tensors, replace(info, name=prefix + info.name), part)
        for joined_names, names in zip(input_and_output_names, (graph.inputs, graph.outputs), strict=True):
            joined_names.update(dict.fromkeys(prefix + name for name in names))
    first_graph = parts[0][1].graph
    computed_names = {name for node in nodes.values() for name in node.outputs}
    for name in computed_names & tensors.keys():
        if tensors[name].role is Role.INPUT:  # an input of one rank is the output of another
            tensors[name] = replace(tensors[name], role=Role.ACTIVATION)
    try:
        return Graph(
            nodes.values(),
            tensors=tensors.values(),
            inputs=[name for name in input_and_output_names[0] if name not in computed_names],
            outputs=input_and_output_names[1],
            name=first_graph.name,
            opset=first_graph.opset,
        )
    except GraphError as exc:
        raise RecordingError(
            f"The graphs of the recordings cannot be joined: {exc.message}", hint=exc.hint or _PREFIX
        ) from None


_PREFIX = "Distinguish them by prefixes: qdebug file join --prefix."


def _rename_node(node: Node, prefix: str) -> Node:
    if not prefix:
        return node
    return replace(
        node,
        name=prefix + node.name,
        inputs=tuple(name and prefix + name for name in node.inputs),
        outputs=tuple(name and prefix + name for name in node.outputs),
    )


def _add_node(nodes: dict[str, Node], node: Node, part: Part) -> None:
    if nodes.setdefault(node.name, node) != node:
        raise RecordingError(
            f"Node {node.name!r} is described differently in {str(part.path)!r} than in the recordings before it.",
            hint=_PREFIX,
        )


def _add_tensor(tensors: dict[str, TensorInfo], info: TensorInfo, part: Part) -> None:
    existing = tensors.get(info.name)
    if existing is None:
        tensors[info.name] = info
        return
    if (existing.quant, existing.dtype, existing.layout) != (info.quant, info.dtype, info.layout) and None not in (
        existing.dtype,
        info.dtype,
    ):
        raise RecordingError(
            f"Tensor {info.name!r} is described differently in {str(part.path)!r} than in the recordings before it.",
            hint=_PREFIX,
        )
    typed_info = info if existing.dtype is None else existing
    shape = (
        existing.shape
        if existing.shape == info.shape
        else typed_info.shape
        if None in (existing.dtype, info.dtype)
        else None
    )
    tensors[info.name] = replace(typed_info, shape=shape)


@contextmanager
def opened_recording(side: str | Path | Recording) -> Iterator[Recording]:
    """Open a recording for a `with` block, and close it at the end. A recording that is already open stays open.

    Args:
        side: A path, or an open recording.

    Raises:
        RecordingError: The file cannot be read.
    """
    if not isinstance(side, str | Path):
        yield side
        return
    recording = open_recording(side)
    try:
        yield recording
    finally:
        recording.close()  # type: ignore[attr-defined]  # a recording opened from a path has it


@overload
def open_recording(path: str | Path, *, follow: Literal[False] = False) -> Recording: ...
@overload
def open_recording(path: str | Path, *, follow: Literal[True]) -> FollowedRecording: ...
def open_recording(path: str | Path, *, follow: bool = False) -> Recording:
    """Open a recording file for reading.

    Args:
        path: A file that a recorder wrote, or a manifest of several files.
        follow: Read it while another process still writes it; `refresh()` reads new tensors.

    Raises:
        RecordingError: The file is missing, not a recording, damaged, of a newer format, or not finished.

    Examples:
        >>> recording = qdebug.open_recording("int8.h5")
        >>> recording.samples, recording.load("logits_quantized", sample=3).shape
        (10, (1, 10))
    """
    path = Path(path)
    if is_manifest(path):
        return open_manifest(path)
    if follow:
        from qdebug.recording.reading.follow import FollowedRecording

        return FollowedRecording(path)
    return FileRecording(path)
