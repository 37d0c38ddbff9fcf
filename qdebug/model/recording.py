"""The protocol of recordings: run facts, a graph, and arrays by tensor, sample and step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from itertools import product
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from qdebug.errors import NotRecordedError
from qdebug.model.frozen import frozen_mapping, rebuild
from qdebug.model.graph import Graph
from qdebug.model.json_object import JsonObject
from qdebug.model.kept import Kept
from qdebug.model.quant import QuantParams

__all__ = [
    "TOKEN_INDEX",
    "ChangedRow",
    "Fidelity",
    "MemoryRecording",
    "Outline",
    "Recording",
    "RunInfo",
    "SkipCause",
    "either_places",
    "quant_of",
    "shape_of",
]

TOKEN_INDEX = "token_index"  # noqa: S105  not a password
"""Name of a recorded tensor that holds the request and the position of the token of each row.

"token_index:PATTERN" does so for the tensors that match the pattern.
"""


class SkipCause(StrEnum):
    """Why a tensor of the run was not recorded. With `FUSED`, `FOLDED` and `VIEW`, there is nothing to record.

    Examples:
        >>> recorder.skip("relu1", "fused into conv1", because="fused")
    """

    FUSED = "fused"
    """A fused node computes it internally."""
    FOLDED = "folded"
    """It was computed in advance and is part of a constant."""
    VIEW = "view"
    """It is a recorded tensor in a different shape."""
    UNSUPPORTED = "unsupported"
    """The runtime computes it but does not expose it."""
    NOT_DUMPED = "not_dumped"
    """The program that dumped the run left it out."""

    @property
    def is_benign(self) -> bool:
        """Whether no information is lost by leaving the tensor out."""
        return self in (SkipCause.FUSED, SkipCause.FOLDED, SkipCause.VIEW)


class Fidelity(StrEnum):
    """Whether the outputs of the recorded run equal those of a plain run, bit for bit.

    Examples:
        >>> qdebug.open_recording("int8.h5").info.fidelity
        <Fidelity.BIT_EQUAL: 'bit_equal'>
    """

    BIT_EQUAL = "bit_equal"
    DIFFERS = "differs"
    NONDETERMINISTIC = "nondeterministic"
    """Two plain runs on the same inputs differ, so recording is not the cause."""
    UNKNOWN = "unknown"


_MAPPINGS = ("versions", "options", "skipped", "skip_causes", "doubts", "disturbed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo(JsonObject):
    """Facts of a recorded run.

    Args:
        backend: Name of the software that ran the network.
        model: File name or title of the network; "" if unknown.
        model_sha256: Hash of the model file in hexadecimal; "" without a file.
        taps: How tensors were tapped ("faithful", "all", "outputs", "put" for a recorder in a harness).
        fidelity: Whether recording changed the result.
        fidelity_detail: One clause about how this was established, or how large the change is.
        complete: False if the run did not finish or the file was recovered.
        created: UTC time in ISO 8601.
        versions: Version of each package that was involved.
        cpu_flags: Instruction sets of the processor that affect arithmetic.
        options: Backend options in effect.
        skipped: Tensors that exist in the run but were not recorded, with the reason.
        skip_causes: The cause of each skipped tensor for which one was stated.
        doubts: Implausible facts by tensor, one clause each. The facts are kept as stated.
        disturbed: Tensors whose recorded values differ from a plain run because recording changed how they are
            computed, with the reason.
        borrowed_order: Whether the recording does not state a graph, and uses the other run's order, inputs and
            outputs.

    Examples:
        >>> qdebug.open_recording("int8.h5").info.options["arithmetic"]
        'glow-interpreter'
    """

    backend: str
    model: str = ""
    model_sha256: str = ""
    taps: str = "put"
    fidelity: Fidelity = Fidelity.UNKNOWN
    fidelity_detail: str = ""
    complete: bool = True
    created: str = ""
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cpu_flags: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    skipped: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    skip_causes: Mapping[str, SkipCause] = field(default_factory=lambda: MappingProxyType({}))
    doubts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    disturbed: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    borrowed_order: bool = False

    def __post_init__(self) -> None:
        for name in _MAPPINGS:
            object.__setattr__(self, name, frozen_mapping(getattr(self, name)))

    def __reduce__(self) -> tuple[Any, ...]:
        values_by_field = {entry.name: getattr(self, entry.name) for entry in fields(self)}
        return rebuild, (
            RunInfo,
            values_by_field | {name: dict(values_by_field[name]) for name in _MAPPINGS},
        )

    def not_dumped(self, tensor: str) -> bool:
        """Return whether a tensor is missing because the program that dumped the run left it out."""
        return self.skip_causes.get(tensor) is SkipCause.NOT_DUMPED

    def never_made(self) -> dict[str, str]:
        """Return the skipped tensors for which there is nothing to record, with the reason."""
        benign_names = (name for name, cause in self.skip_causes.items() if cause.is_benign)
        return {name: self.skipped[name] for name in benign_names if name in self.skipped}


class Outline(NamedTuple):
    """Facts about recorded values that are known without reading them.

    Within a recording, equal outlines mean equal values.

    Args:
        dtype: Logical dtype of the elements.
        shape: Their shape.
        digest: Hash of all elements.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: bytes


class ChangedRow(NamedTuple):
    """A row of a cache that a later step changed.

    Args:
        request: The request of the row's token.
        position: The token's position in the request.
        written: The step that wrote the row.
        changed: The first step in which the row differs.
    """

    request: int
    position: int
    written: int
    changed: int


class Recording(ABC):
    """A recorded run, independent of how it is stored. Analyses use this interface and never a file.

    A new kind of recording must implement only the abstract members. The others have defaults.

    Examples:
        >>> isinstance(qdebug.open_recording("int8.h5"), qdebug.Recording)
        True
    """

    @property
    @abstractmethod
    def info(self) -> RunInfo:
        """Facts of the run."""

    @property
    @abstractmethod
    def graph(self) -> Graph:
        """The graph that ran."""

    @property
    @abstractmethod
    def samples(self) -> int:
        """Number of samples."""

    @property
    @abstractmethod
    def steps(self) -> int:
        """Number of steps per sample of a stateful network; 1 for other networks."""

    @property
    @abstractmethod
    def names(self) -> Sequence[str]:
        """Names of the tensors with any record, including constants, in the order of their first values."""

    @property
    def event_quants(self) -> Mapping[tuple[str, int, int], QuantParams]:
        """Quantization of values that differs from their tensor's, by tensor, sample and step. Default: empty."""
        return {}

    @abstractmethod
    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether values of a tensor were recorded for a sample and step.

        A constant's values apply to all of them.
        """

    @abstractmethod
    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements (codes, if quantized), read-only, in the logical dtype.

        A very large array may be backed by a temporary file that is read on access.

        Raises:
            RecordingError: No values are recorded under this name, sample and step.
        """

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with any record, in order. Default: all samples and steps.

        Use this rather than count up to `samples`, since sample numbers may have gaps of any size.

        Args:
            tensor: The tensor; None for any tensor. A constant has only sample 0 and step 0.
        """
        if tensor is not None and self.graph.is_constant(tensor):
            return ((0, 0),)
        return tuple(product(range(self.samples), range(self.steps)))

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of values that were not recorded in full; None without one. Default: None."""
        del tensor, sample, step
        return None

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return the outline of values that were recorded in full; None if unknown. Default: None."""
        del tensor, sample, step
        return None

    def changed_rows(self, tensor: str) -> Sequence[ChangedRow]:
        """Return the rows of a cache that differ from the step that wrote them. Default: none."""
        del tensor
        return ()


def shape_of(recording: Recording, tensor: str, sample: int = 0, step: int = 0) -> tuple[int, ...]:
    """Return the shape of values. The values are read only if the recording does not have their outline.

    Raises:
        RecordingError: No values are recorded under this name, sample and step.
    """
    outline = recording.outline(tensor, sample, step)
    return recording.load(tensor, sample, step).shape if outline is None else outline.shape


def quant_of(recording: Recording, tensor: str, sample: int = 0, step: int = 0) -> QuantParams | None:
    """Return the quantization of values: their own if stated, else their tensor's."""
    if (own_quant := recording.event_quants.get((tensor, sample, step))) is not None:
        return own_quant
    info = recording.graph.tensors.get(tensor)
    return None if info is None else info.quant


def either_places(
    reference: Recording, reference_tensor: str, backend: Recording, backend_tensor: str
) -> Sequence[tuple[int, int]]:
    """Return the samples and steps at which either of two tensors has a record, in order.

    The values of a constant apply to all samples and steps of the other recording.

    Args:
        reference: The reference recording.
        reference_tensor: A tensor of it.
        backend: The backend's recording.
        backend_tensor: A tensor of it.
    """
    constant = reference.graph.is_constant(reference_tensor), backend.graph.is_constant(backend_tensor)
    if all(constant):
        return ((0, 0),)
    if any(constant):
        return (backend if constant[0] else reference).places()
    reference_places, backend_places = reference.places(reference_tensor), backend.places(backend_tensor)
    return reference_places if reference_places == backend_places else sorted({*reference_places, *backend_places})


class MemoryRecording(Recording):
    """A recording held in memory: dicts of arrays, for recorders without a path and for tests.

    Args:
        graph: The graph that ran.
        arrays: Values by (tensor, sample, step); constants under sample 0 and step 0. Copied if writable.
        info: Facts of the run.
        quants: Quantization of values that differs from their tensor's.
        partly: Partial records of values that were not kept in full.

    Examples:
        >>> relu = qdebug.Node(name="n", op="Relu", inputs=("x",), outputs=("y",))
        >>> graph = qdebug.Graph([relu], inputs=["x"], outputs=["y"])
        >>> arrays = {"x": np.float32([-1, 2]), "y": np.float32([0, 2])}
        >>> qdebug.MemoryRecording.single(graph, arrays).load("y").tolist()
        [0.0, 2.0]
    """

    info: RunInfo = RunInfo(backend="memory")
    graph: Graph = Graph()
    samples: int = 1
    steps: int = 1
    names: Sequence[str] = ()
    event_quants: Mapping[tuple[str, int, int], QuantParams] = MappingProxyType({})

    def __init__(
        self,
        graph: Graph,
        arrays: Mapping[tuple[str, int, int], np.ndarray],
        info: RunInfo | None = None,
        *,
        quants: Mapping[tuple[str, int, int], QuantParams] | None = None,
        partly: Mapping[tuple[str, int, int], Kept] | None = None,
    ) -> None:
        self.info = info or self.info
        self.graph = graph
        self.event_quants = MappingProxyType(dict(quants or {}))
        self._arrays = {key: _readonly(array) for key, array in arrays.items()}
        self._partial_records = dict(partly or {})
        places = [*self._arrays, *self._partial_records]
        self.names = tuple(dict.fromkeys(name for name, _, _ in places))
        self._by_tensor: Mapping[str | None, Sequence[tuple[int, int]]] | None = None
        self._varying = varying_places = [key for key in places if not graph.is_constant(key[0])]
        self.samples = max((sample for _, sample, _ in varying_places), default=0) + 1
        self.steps = max((step for _, _, step in varying_places), default=0) + 1

    @classmethod
    def single(cls, graph: Graph, arrays: Mapping[str, np.ndarray], info: RunInfo | None = None) -> MemoryRecording:
        """Create a recording with one sample and one step."""
        return cls(graph, {(name, 0, 0): array for name, array in arrays.items()}, info)

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps with a record of the tensor (by default of any tensor), in order."""
        if self._by_tensor is None:
            places_of: dict[str | None, set[tuple[int, int]]] = {None: {(0, 0)} if not self._varying else set()}
            for name, *place in self._varying:
                for key in (name, None):
                    places_of.setdefault(key, set()).add((place[0], place[1]))
            self._by_tensor = {name: tuple(sorted(places_of_tensor)) for name, places_of_tensor in places_of.items()}
        if tensor is not None and tensor in self.names and self.graph.is_constant(tensor):
            return ((0, 0),)
        return self._by_tensor.get(tensor, ())

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether values of a tensor were recorded for a sample and step."""
        return self._key(tensor, sample, step) in self._arrays

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the stored elements, read-only.

        Raises:
            RecordingError: No values are recorded under this name, sample and step.
        """
        try:
            return self._arrays[self._key(tensor, sample, step)]
        except KeyError:
            if self.kept(tensor, sample, step) is not None:
                raise not_in_full_error(tensor, sample, step) from None
            raise no_values_error(tensor, sample, step, self.names) from None

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of values; None if they were recorded in full, or not at all."""
        return self._partial_records.get(self._key(tensor, sample, step))

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.graph, self._arrays, self.info, dict(self.event_quants), self._partial_records)

    def _key(self, tensor: str, sample: int, step: int) -> tuple[str, int, int]:
        return (tensor, 0, 0) if self.graph.is_constant(tensor) else (tensor, sample, step)


def _rebuild(
    graph: Graph,
    arrays: Mapping[tuple[str, int, int], np.ndarray],
    info: RunInfo,
    quants: Mapping[tuple[str, int, int], QuantParams],
    partly: Mapping[tuple[str, int, int], Kept],
) -> MemoryRecording:
    """Create a recording from its parts. Unpickling calls this."""
    return MemoryRecording(graph, arrays, info, quants=quants, partly=partly)


def no_values_error(tensor: str, sample: int, step: int, names: Iterable[str]) -> NotRecordedError:
    """Return the error for values that a recording does not have."""
    if tensor in names:
        return NotRecordedError(f"Tensor {tensor!r} has no values for sample {sample}, step {step}.")
    return NotRecordedError(
        f"The recording has no tensor {tensor!r}.", hint="List its tensors: qdebug info FILE --tensors."
    )


def not_in_full_error(tensor: str, sample: int, step: int) -> NotRecordedError:
    """Return the error for values that were recorded only in part."""
    return NotRecordedError(
        f"Only part of the values of tensor {tensor!r}, sample {sample}, step {step} was kept.",
        hint="Record the run again with all values: qdebug record --keep full.",
    )


def _readonly(array: np.ndarray) -> np.ndarray:
    if array.flags.writeable:
        array = array.copy()
        array.flags.writeable = False
    return array
