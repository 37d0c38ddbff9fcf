"""Read the recordings of several ranks as one. Each rank holds slices of the same tensors, which are joined on loading.

Rules state the axis along which each tensor is sliced (Shoeybi et al., "Megatron-LM", 2019, arXiv:1909.08053, section
3: the weights of one layer by columns, those of the next by rows). `parse_axes` defines their syntax. A tensor without
an axis is replicated: all ranks should hold the same values, and `replica_differences` finds values that differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from qdebug.errors import NotARecordingError, RecordingError, UsageError
from qdebug.model import Graph, Node, QuantParams, Recording, Role, RunInfo, TensorInfo
from qdebug.model.dtypes import is_integer
from qdebug.model.kept import Kept
from qdebug.model.recording import TOKEN_INDEX, Outline, no_values_error, not_in_full_error
from qdebug.recording.format.facts import join_infos
from qdebug.recording.reading.read import Closable, FileRecording, KnownGraphs

if TYPE_CHECKING:
    from qdebug.numerics.stats import ErrorStats

__all__ = ["Axes", "ReplicaDifference", "ShardAxis", "ShardedRecording", "open_part", "parse_axes"]

_MOST_RANKS = 64
"""Maximum number of ranks, since all files stay open and each takes two descriptors."""
_MOST_DIMENSIONS = 32
_MOST_BLOCKS = 1 << 20
_REPLICATED = "replicated"
_SYNTAX_HINT = "Write --axis 'PATTERN=AXIS,*=replicated', such as 'qkv_proj=0:1:1:1,o_proj=1,*=replicated'."
_EXTENT_ATTRIBUTES = frozenset(
    {
        "group",
        "groups",
        "hidden_size",
        "kv_num_heads",
        "normalized_shape",
        "num_groups",
        "num_heads",
        "num_outputs",
        "q_num_heads",
        "shape",
        "split",
        "v_hidden_size",
    }
)
"""Attributes that depend on the extents of a tensor, and so describe only the slice of one rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardAxis:
    """How the slices of a tensor are joined.

    Args:
        axis: The axis; negative axes count from the end.
        blocks: Relative sizes of the blocks that each slice consists of. The joined tensor has the first block of all
            ranks, then the second block of all ranks, and so on.
    """

    axis: int
    blocks: tuple[int, ...] = (1,)


Axes = Mapping[str, ShardAxis | None]
"""Axes by name pattern; None for replicated tensors. The first pattern that matches a tensor applies."""


def parse_axes(text: str) -> Axes:
    """Parse rules such as "qkv_proj=0:1:1:1,o_proj=1,*=replicated".

    A pattern (`*`, `?`, `[seq]`) matches a tensor if it matches the whole name, or consecutive parts of the name, which
    dots or slashes separate. Numbers after the axis, each preceded by `:`, are the relative sizes of the blocks that
    each slice consists of, such as queries, keys and values.

    Raises:
        UsageError: A rule is invalid.
    """
    axes: dict[str, ShardAxis | None] = {}
    if not isinstance(text, str):
        raise UsageError("The axes are not a string.", hint=_SYNTAX_HINT)
    for rule in text.split(","):
        pattern, equals, value = rule.strip().rpartition("=")
        if not equals or not pattern or pattern in axes:
            reason = "is given twice" if pattern in axes else "is not of the form PATTERN=AXIS"
            raise UsageError(f"The axis rule {rule.strip()!r} {reason}.", hint=_SYNTAX_HINT)
        axes[pattern] = None if value == _REPLICATED else _parse_axis(rule.strip(), value)
    return axes


def _parse_axis(rule: str, value: str) -> ShardAxis:
    try:
        axis, *blocks = map(int, value.split(":"))
    except ValueError:
        raise UsageError(f"The axis rule {rule!r} has neither an axis nor 'replicated'.", hint=_SYNTAX_HINT) from None
    if abs(axis) > _MOST_DIMENSIONS or not all(0 < block <= _MOST_BLOCKS for block in blocks):
        raise UsageError(f"The axis rule {rule!r} has a number that is too small or too large.", hint=_SYNTAX_HINT)
    return ShardAxis(axis=axis, blocks=tuple(blocks) or (1,))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaDifference:
    """A replicated tensor whose values on one rank differ from the values on most ranks.

    Args:
        tensor: The tensor.
        rank: The number of the rank.
        path: Its recording.
        reference: The recording of the first rank with the most common values.
        places: The samples and steps at which the values differ.
        stats: The error at these places, except where the values were recorded only in part.
    """

    tensor: str
    rank: int
    path: Path
    reference: Path
    places: tuple[tuple[int, int], ...]
    stats: ErrorStats


class ShardedRecording(Recording, Closable):
    """Recordings of several ranks as one. The slices of a tensor are joined when it is loaded.

    A replicated tensor has the first rank's values.

    Args:
        paths: The recordings, in the order of the ranks.
        axes: How the slices of their tensors are joined.
        path: The manifest.

    Raises:
        RecordingError: A recording cannot be read, the ranks have different graphs or tensors, or no rule matches a
            tensor.
        UsageError: There are too many ranks.
    """

    graph: Graph = Graph()

    def __init__(self, paths: Sequence[Path], axes: Axes, path: Path) -> None:
        if len(paths) > _MOST_RANKS:
            raise UsageError(
                f"There are {len(paths)} ranks, but at most {_MOST_RANKS} can be read as one.",
                hint="Join fewer of them: qdebug file join.",
            )
        self.path = path
        self._axes, self._ranks = axes, list[FileRecording]()
        graphs = KnownGraphs()
        try:
            for part in paths:
                self._ranks.append(open_part(part, path, graphs))
            self._check_ranks()
            self._axis_of = {name: self._find_axis(name) for name in {*self.names, *self._ranks[0].graph.tensors}}
            self.graph = self._join_graph()
        except BaseException:
            self.close()
            raise

    def _check_ranks(self) -> None:
        """Refuse ranks that do not have the same nodes and tensors."""
        first = self._ranks[0]
        for rank, file in enumerate(self._ranks[1:], 1):
            if file.graph is not first.graph:
                _check_graph(first, file, rank)
            for holder, other in ((first, file), (file, first)):
                names = set(other.names)
                lacking = [name for name in holder.names if name not in names]
                if lacking:
                    raise RecordingError(
                        f"{str(other.path)!r} has no tensor {lacking[0]!r}, but {str(holder.path)!r} does.",
                        hint="Join ranks that recorded the same tensors, or ranks with different ones: --by tensors.",
                    )

    def _find_axis(self, name: str) -> ShardAxis | None:
        if name.startswith(TOKEN_INDEX):
            return None
        parts = f".{name.replace('/', '.')}."
        for pattern, axis in self._axes.items():
            if fnmatchcase(name, pattern) or fnmatchcase(parts, f"*.{pattern.replace('/', '.')}.*"):
                return axis
        raise RecordingError(f"No axis rule matches tensor {name!r}.", hint="Add a last rule for it: *=replicated.")

    def _join_graph(self) -> Graph:
        graphs = [file.graph for file in self._ranks]
        constants = {
            name
            for name, info in graphs[0].tensors.items()
            if info.role is Role.CONSTANT and is_integer(info.dtype or "")
        }
        try:
            return Graph(
                [self._join_node(node, constants) for node in graphs[0].nodes],
                tensors=[self._join_info([graph.tensors[name] for graph in graphs]) for name in graphs[0].tensors],
                inputs=graphs[0].inputs,
                outputs=graphs[0].outputs,
                name=graphs[0].name,
                opset=graphs[0].opset,
            )
        except ValueError as exc:
            raise RecordingError(f"The ranks cannot be joined: {exc}.", hint=_SYNTAX_HINT) from None

    def _join_node(self, node: Node, integer_constants: set[str]) -> Node:
        """Return a node, without its operator if attributes or integer constants describe only one rank's slice."""
        if not any(self._axis_of.get(name) for name in (*node.inputs, *node.outputs)):
            return node
        has_share = not _EXTENT_ATTRIBUTES.isdisjoint(node.attrs) or not integer_constants.isdisjoint(node.inputs)
        return replace(node, op="", domain="", attrs={}) if has_share else node

    def _join_info(self, infos: Sequence[TensorInfo]) -> TensorInfo:
        first, axis = infos[0], self._axis_of[infos[0].name]
        if any(info.dtype != first.dtype for info in infos):
            raise RecordingError(
                f"Tensor {first.name!r} is {first.dtype} in rank 0, but not in all ranks.",
                hint="Join the ranks of one run.",
            )
        if axis is None:
            if any(info.quant != first.quant for info in infos):
                raise _quant_error(first.name)
            return first
        shapes = [info.shape for info in infos]
        dimension = None if shapes[0] is None else _positive_axis(axis, len(shapes[0]), first.name)
        shape: tuple[int | None, ...] | None = None
        if dimension is not None and shapes[0] is not None:
            extents = [None if shape is None or len(shape) <= dimension else shape[dimension] for shape in shapes]
            total = None if None in extents else sum(extent or 0 for extent in extents)
            shape = (*shapes[0][:dimension], total, *shapes[0][dimension + 1 :])
        return replace(first, shape=shape, quant=_join_quants(infos, axis, dimension))

    @cached_property
    def info(self) -> RunInfo:
        """Facts of the run, taken from the first rank; complete and faithful only if every rank is."""
        return join_infos([("", file.info) for file in self._ranks])

    @cached_property
    def samples(self) -> int:
        """Number of samples."""
        return max(file.samples for file in self._ranks)

    @cached_property
    def steps(self) -> int:
        """Number of steps of a sample."""
        return max(file.steps for file in self._ranks)

    @property
    def names(self) -> Sequence[str]:
        """Names of the tensors with any record."""
        return self._ranks[0].names

    @cached_property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that differs from their tensor's, by tensor, sample and step."""
        quants = self._ranks[0].event_quants
        for file in self._ranks[1:]:
            if file.event_quants != quants:
                raise _quant_error(next(iter({**quants, **file.event_quants}))[0])
        return quants

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with a record of the tensor (by default of any tensor), in order."""
        return self._ranks[0].places(tensor)

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether all ranks recorded values of a tensor for a sample and step."""
        return all(file.has(tensor, sample, step) for file in self._holders(tensor))

    def _holders(self, tensor: str) -> Sequence[FileRecording]:
        """Return the ranks whose values make up a tensor."""
        return self._ranks if self._axis_of.get(tensor) else self._ranks[:1]

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements, read-only.

        Raises:
            RecordingError: A rank has no values under this name, sample and step, or the slices cannot be joined.
        """
        axis = self._axis_of.get(tensor)
        if axis is None:
            return self._ranks[0].load(tensor, sample, step)
        if not self.has(tensor, sample, step):
            if any(file.has_partial_record(tensor, sample, step) for file in self._ranks):
                raise not_in_full_error(tensor, sample, step)
            raise no_values_error(tensor, sample, step, self.names)
        slices = [file.load(tensor, sample, step) for file in self._ranks]
        joined = _join_slices(tensor, slices, axis)
        joined.flags.writeable = False
        return joined

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return dtype, shape and a hash of recorded values without reading them; None if unknown."""
        outlines = [file.outline(tensor, sample, step) for file in self._holders(tensor)]
        axis, known_outlines = self._axis_of.get(tensor), [outline for outline in outlines if outline is not None]
        if len(known_outlines) < len(outlines):
            return None
        if axis is None:
            return outlines[0]
        digest = xxhash.xxh3_128_digest(b"".join(outline.digest for outline in known_outlines))
        first, shapes = known_outlines[0], [outline.shape for outline in known_outlines]
        return Outline(first.dtype, _joined_shape(tensor, shapes, axis), digest)

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of replicated values; None if they were recorded in full, or not at all."""
        return None if self._axis_of.get(tensor) else self._ranks[0].kept(tensor, sample, step)

    def check_shards(self) -> None:
        """Check, without reading values, that the slices of all tensors can be joined at every sample and step.

        Raises:
            RecordingError: Shapes or types do not match, or a rank lacks values that another rank has.
        """
        for tensor in self.names:
            axis = self._axis_of[tensor]
            for file in self._ranks[1:]:
                unshared_places = set(file.places(tensor)) ^ set(self.places(tensor))
                if unshared_places:
                    sample, step = min(unshared_places)
                    holders = [self._ranks[0].path, file.path]
                    lacking, holder = holders if (sample, step) in file.places(tensor) else holders[::-1]
                    raise RecordingError(
                        f"{str(lacking)!r} has no values for tensor {tensor!r} in sample {sample}, step {step}, but "
                        f"{str(holder)!r} does.",
                        hint="Join ranks that recorded the same samples and steps.",
                    )
            for sample, step in self.places(tensor):
                outlines = [file.outline(tensor, sample, step) for file in self._ranks]
                known_outlines = [(rank, outline) for rank, outline in enumerate(outlines) if outline is not None]
                _check_types(tensor, known_outlines)
                if axis is None:
                    _check_replicated_shapes(tensor, known_outlines)
                else:
                    _joined_shape(tensor, [outline.shape for _, outline in known_outlines], axis)

    def partial_tensors(self) -> list[str]:
        """Return the sliced tensors that cannot be joined, because some rank recorded them only in part."""
        sliced = (name for name in self.names if self._axis_of[name])
        return [name for name in sliced if any(not self.has(name, *place) for place in self.places(name))]

    def replica_differences(self, *, progress: Callable[[int, int], None] | None = None) -> Iterator[ReplicaDifference]:
        """Yield the replicated tensors whose values differ between ranks. Only values with different hashes are read.

        Args:
            progress: Called with the number of compared tensors and their total.
        """
        for number, tensor in enumerate(self.names, 1):
            if progress is not None:
                progress(number, len(self.names))
            if self._axis_of[tensor] is None:
                yield from self._compare_replicas(tensor)

    def _compare_replicas(self, tensor: str) -> Iterator[ReplicaDifference]:
        places = self.places(tensor)
        digests = [tuple(_digest(file, tensor, place) for place in places) for file in self._ranks]
        reference = max(
            range(len(digests)), key=lambda rank: digests.count(digests[rank])
        )  # the first rank with the most common values
        for rank, digest in enumerate(digests):
            differing = [
                place
                for place, own_digest, common_digest in zip(places, digest, digests[reference], strict=True)
                if own_digest != common_digest
            ]
            if not differing:
                continue
            stats, unequal_places = self._replica_error(tensor, rank, reference, differing)
            if unequal_places:  # hashes may differ although values are equal: -0.0 and 0.0
                yield ReplicaDifference(
                    tensor=tensor,
                    rank=rank,
                    path=self._ranks[rank].path,
                    reference=self._ranks[reference].path,
                    places=tuple(unequal_places),
                    stats=stats,
                )

    def _replica_error(
        self, tensor: str, rank: int, reference: int, places: Sequence[tuple[int, int]]
    ) -> tuple[ErrorStats, list[tuple[int, int]]]:
        """Return the error of a rank at the given places, and the places at which its values differ."""
        quant = self.graph.tensors[tensor].quant if tensor in self.graph.tensors else None
        from qdebug.numerics.accumulate import ErrorAccumulator  # not needed to open a recording

        total_error = ErrorAccumulator(reference_quant=quant, backend_quant=quant)
        unequal_places: list[tuple[int, int]] = []
        for sample, step in places:
            files = self._ranks[reference], self._ranks[rank]
            if not all(file.has(tensor, sample, step) for file in files):
                unequal_places.append((sample, step))  # recorded in part, and the hashes differ
                continue
            values = [file.load(tensor, sample, step) for file in files]
            error = total_error.compare_separately(values[0], values[1], sample=sample)
            if error.stats().mismatches:
                unequal_places.append((sample, step))
                total_error.merge(error)
        return total_error.stats(), unequal_places

    def close(self) -> None:
        """Close the files. A second call does nothing."""
        for file in self._ranks:
            file.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardedRecording, ([file.path for file in self._ranks], dict(self._axes), self.path.absolute())


def _check_graph(first: FileRecording, other: FileRecording, rank: int) -> None:
    """Refuse a rank whose nodes or tensors differ from those of the first rank, except in attributes."""
    hint = "Join ranks of one model, or stages of a pipeline: --by tensors."
    for node, first_node in zip(other.graph.nodes, first.graph.nodes, strict=False):
        if any(getattr(node, fact) != getattr(first_node, fact) for fact in ("name", "op", "inputs", "outputs")):
            raise RecordingError(
                f"Rank {rank} ran a different graph: {str(other.path)!r} has node {node.name!r} ({node.op}) where "
                f"{str(first.path)!r} has {first_node.name!r} ({first_node.op}).",
                hint=hint,
            )
    counts = len(other.graph.nodes), len(first.graph.nodes)
    if counts[0] != counts[1]:
        raise RecordingError(
            f"Rank {rank} ran a different graph: {str(other.path)!r} has {counts[0]} nodes, and {str(first.path)!r} "
            f"has {counts[1]}.",
            hint=hint,
        )
    unshared_names = sorted(other.graph.tensors.keys() ^ first.graph.tensors.keys())
    if unshared_names:
        holder, lacking = (other, first) if unshared_names[0] in other.graph.tensors else (first, other)
        raise RecordingError(
            f"{str(lacking.path)!r} has no tensor {unshared_names[0]!r}, but {str(holder.path)!r} does.", hint=hint
        )


def _digest(file: FileRecording, tensor: str, place: tuple[int, int]) -> tuple[object, ...] | None:
    """Return dtype, shape and hash of values that were recorded in full or in part; None if none were recorded."""
    if (outline := file.outline(tensor, *place)) is not None:
        return tuple(outline)
    record = file.kept(tensor, *place) if file.has_partial_record(tensor, *place) else None
    return None if record is None else (record.dtype, record.shape, record.digest)


def _positive_axis(axis: ShardAxis, rank: int, tensor: str) -> int:
    if not -rank <= axis.axis < rank:
        raise RecordingError(
            f"Tensor {tensor!r} has {rank} dimensions, but is to be joined along axis {axis.axis}.",
            hint="Give its own rule before the others: --axis 'NAME=AXIS,...' or 'NAME=replicated,...'.",
        )
    return axis.axis % rank


def _check_types(tensor: str, outlines: Sequence[tuple[int, Outline]]) -> None:
    for rank, outline in outlines[1:]:
        if outline.dtype != outlines[0][1].dtype:
            raise RecordingError(
                f"Tensor {tensor!r} is {outlines[0][1].dtype} in rank {outlines[0][0]}, and {outline.dtype} in rank "
                f"{rank}.",
                hint="Join the ranks of one run.",
            )


def _check_replicated_shapes(tensor: str, outlines: Sequence[tuple[int, Outline]]) -> None:
    for rank, outline in outlines[1:]:
        if outline.shape != outlines[0][1].shape:
            raise RecordingError(
                f"Replicated tensor {tensor!r} has shape {outlines[0][1].shape} in rank {outlines[0][0]}, and "
                f"{outline.shape} in rank {rank}.",
                hint="Give its axis before the rule that matches it now: --axis 'NAME=AXIS,*=replicated'.",
            )


def _joined_shape(tensor: str, shapes: Sequence[tuple[int, ...]], axis: ShardAxis) -> tuple[int, ...]:
    """Return the shape of the joined tensor.

    Raises:
        RecordingError: Slices of these shapes cannot be joined.
    """
    if not shapes:
        return ()
    dimension = _positive_axis(axis, len(shapes[0]), tensor)
    other_extents = [(*shape[:dimension], *shape[dimension + 1 :]) for shape in shapes]
    for rank, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]) or other_extents[rank] != other_extents[0]:
            raise RecordingError(
                f"Tensor {tensor!r} cannot be joined along axis {axis.axis}: its shape is {shapes[0]} in rank 0, and "
                f"{shape} in rank {rank}.",
                hint="Name the axis along which its slices differ: --axis 'NAME=AXIS,...'.",
            )
        if shape[dimension] % sum(axis.blocks):
            raise RecordingError(
                f"Tensor {tensor!r} has {shape[dimension]} entries along axis {axis.axis} in rank {rank}, which do "
                f"not divide into blocks of {':'.join(map(str, axis.blocks))}.",
                hint="Correct the sizes of its blocks: --axis 'NAME=AXIS:SIZE:SIZE,...'.",
            )
    return (*shapes[0][:dimension], sum(shape[dimension] for shape in shapes), *shapes[0][dimension + 1 :])


def _join_slices(tensor: str, slices: Sequence[np.ndarray], axis: ShardAxis) -> np.ndarray:
    """Concatenate the slices of a tensor, block by block."""
    _joined_shape(tensor, [rank_slice.shape for rank_slice in slices], axis)
    dimension = axis.axis % slices[0].ndim
    starts = list(accumulate(axis.blocks, initial=0))
    pieces = []
    for start, stop in pairwise(starts):
        for rank_slice in slices:
            unit = rank_slice.shape[dimension] // starts[-1]
            pieces.append(rank_slice[(slice(None),) * dimension + (slice(start * unit, stop * unit),)])
    return np.concatenate(pieces, axis=dimension)


def _quant_error(tensor: str) -> RecordingError:
    return RecordingError(
        f"The ranks have different quantizations of tensor {tensor!r}, so they cannot be joined into one tensor.",
        hint="Compare the ranks one by one: qdebug diff REF RANK.",
    )


def _join_quants(infos: Sequence[TensorInfo], axis: ShardAxis, dimension: int | None) -> QuantParams | None:
    """Return the quantization of the joined tensor. Per-channel scales are joined if the channels are sliced."""
    tensor, quants = infos[0].name, [info.quant for info in infos]
    first = quants[0]
    if first is None or first.axis is None or not first.per_channel:
        if any(quant != first for quant in quants):
            raise _quant_error(tensor)
        return first
    rank = len(infos[0].shape or ())
    channel_axis = first.axis if first.axis >= 0 or not rank else first.axis % rank
    if channel_axis != (axis.axis if dimension is None else dimension):
        if any(quant != first for quant in quants):
            raise _quant_error(tensor)
        return first
    matching_quants = [
        quant for quant in quants if quant is not None and (quant.axis, quant.block_size) == (first.axis, None)
    ]
    joinable_quants = [
        quant for quant in matching_quants if quant.scale.ndim == 1 and quant.multiplier is None and quant.shift is None
    ]
    if len(joinable_quants) < len(quants):
        raise _quant_error(tensor)
    joined = (
        _join_slices(tensor, arrays, replace(axis, axis=0)) for arrays in _scales_and_zero_points(joinable_quants)
    )
    return replace(first, scale=next(joined), zero_point=next(joined))


def _scales_and_zero_points(quants: Sequence[QuantParams]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    return [quant.scale for quant in quants], [quant.zero_point for quant in quants]


def open_part(part: Path, path: Path, graphs: KnownGraphs) -> FileRecording:
    """Open one of the recordings that a manifest joins.

    Args:
        part: The recording.
        path: The manifest.
        graphs: Graphs of the recordings that were opened before; this recording's graph is added.

    Raises:
        RecordingError: It cannot be read.
    """
    try:
        return FileRecording(part, graphs=graphs)
    except NotARecordingError as exc:
        raise RecordingError(
            f"{str(path)!r} includes {str(part)!r}, which cannot be read: {exc.message}",
            hint="Put that recording back, or join the others again: qdebug file join.",
        ) from None
