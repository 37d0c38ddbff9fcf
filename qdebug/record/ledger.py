"""What a recorder knows of the run so far: the tensors, the graph, the comparisons. It writes them down and sums up."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import fields
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import QuantParams, Role, RunInfo
from qdebug.model.dtypes import logical_name
from qdebug.record.arrays import as_array
from qdebug.record.fidelity import FidelityCheck
from qdebug.record.graph_builder import GraphBuilder, NodeFacts, Noted
from qdebug.record.policy import Keep, KeepPolicy, keep_partly
from qdebug.record.quantization import doubt_of
from qdebug.record.sinks import Sink, warn_stopped
from qdebug.store.layout import INDEX_DIMS
from qdebug.store.payload import payload_hash, to_bytes
from qdebug.store.tables import decode_attrs, encode_attrs

__all__ = ["Ledger", "apply_put", "put_note"]


def put_note(name: str, shape: tuple[int, ...], facts: NodeFacts, said: Mapping[str, Any]) -> dict[str, Any]:
    """Give what was said with a tensor's values as a JSON object.

    Args:
        name: The tensor.
        shape: Shape of the values.
        facts: The node that makes it.
        said: Fields of `TensorInfo`, None for what was not said.
    """
    note: dict[str, Any] = {"put": name, "shape": [int(extent) for extent in shape]}
    note |= {key: value for key, value in said.items() if isinstance(value, str)}
    if said.get("quant") is not None:
        note["quant"] = _quant_text(said["quant"])
    if facts:
        note["node"] = {
            "name": facts.name,
            "op": facts.op,
            "domain": facts.domain,
            "inputs": facts.inputs,
            "origin": facts.origin,
            "attrs": encode_attrs(facts.attrs, facts.name or name).decode("ascii"),
        }
    return note


def apply_put(builder: GraphBuilder, note: Mapping[str, Any]) -> Noted:
    """Tell a builder what a note of `put_note` says.

    Raises:
        RecordingError, GraphError: It contradicts earlier ones.
        ValueError: It is something else.
    """
    try:
        said = {key: str(note[key]) for key in ("layout", "stands_for", "dtype") if key in note}
        facts = _node(str(note["put"]), note["node"]) if "node" in note else NodeFacts()
        quant = _quant(note["quant"]) if "quant" in note else None
        role = Role(note["role"]) if "role" in note else None
        shape = tuple(int(extent) for extent in note["shape"])
        return builder.note(str(note["put"]), shape, facts, quant=quant, role=role, **said)
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"a note cannot be decoded: {exc!r}") from None


def _node(tensor: str, plain: Mapping[str, Any]) -> NodeFacts:
    return NodeFacts(
        name=None if plain["name"] is None else str(plain["name"]),
        op=str(plain["op"]),
        domain=str(plain["domain"]),
        inputs=tuple(str(name) for name in plain["inputs"]),
        origin=tuple(str(name) for name in plain["origin"]),
        attrs=decode_attrs(str(plain["attrs"]).encode()),
        outputs=(tensor,),
    )


def _quant_text(quant: QuantParams) -> str:
    plain = {entry.name: getattr(quant, entry.name) for entry in fields(quant)}
    return encode_attrs({name: value for name, value in plain.items() if value is not None}, "").decode("ascii")


def _quant(text: Any) -> QuantParams:
    known = {entry.name for entry in fields(QuantParams)}
    plain: dict[str, Any] = {name: value for name, value in decode_attrs(str(text).encode()).items() if name in known}
    return QuantParams(**plain)


Place = tuple[int, int]
"""Sample and step; (0, 0) for a constant."""
_TOLD = frozenset(("dtype", "role"))
"""Facts of a tensor that the event of its values tells."""


class Ledger:
    """Keeps tensors and facts of one run, and finishes its recording.

    Args:
        sink: Where the arrays go.
        builder: What puts the graph together.
        facts: Facts of the run known beforehand, fields of `RunInfo`.
        policy: How much of each tensor is kept; all of it if None.
    """

    def __init__(
        self, sink: Sink, builder: GraphBuilder, facts: Mapping[str, Any], policy: KeepPolicy | None = None
    ) -> None:
        self.sink = sink
        self.builder = builder
        self.checked = FidelityCheck()
        self.open = True
        self._discarded = False
        self._facts = facts
        self._policy = policy or KeepPolicy()
        self._used = 0
        self._any = False
        self._doubts: dict[str, str] = {}
        self._partly: dict[tuple[str, int, int], bytes] = {}
        self._places: dict[Place, set[str]] = {}
        self._names: dict[str, str | None] = {}
        self._skipped: dict[str, str] = {}
        self._warned = False

    @property
    def failure(self) -> str | None:
        """Why nothing can be written any more; None while all is well."""
        return self.sink.failure

    @property
    def kept(self) -> int:
        """How many arrays are safe so far."""
        return self.sink.events

    @property
    def holds_anything(self) -> bool:
        """Whether values were put for a sample, and not discarded."""
        return bool(self._places) and not self._discarded

    def has(self, name: str, place: Place) -> bool:
        """Tell whether values of a tensor were kept for a sample and step."""
        return name in self._places.get(place, ())

    def knows(self, name: str) -> bool:
        """Tell whether values of a tensor were kept at all."""
        return name in self._names

    def keep(
        self,
        name: str,
        data: np.ndarray,
        place: Place | None,
        *,
        facts: NodeFacts,
        said: Mapping[str, Any],
        dtype: str | None,
    ) -> None:
        """Keep values and what was said of them; nothing happens once recording has stopped.

        Args:
            name: The tensor.
            data: Its values.
            place: Sample and step; None for a constant.
            facts: The node that makes it.
            said: Fields of `TensorInfo`, those that were said.
            dtype: Logical dtype as the caller gave it.

        Raises:
            RecordingError: The facts contradict earlier ones, or the array cannot be stored.
            GraphError: The node would read what is made of its own output.
        """
        if self._has_stopped():
            return
        sample = None if place is None else place[0]
        wanted = self._policy.decide(name, facts.op, data.nbytes, sample=sample)
        keep = self._policy.without_room(wanted, self._used, data.nbytes)
        new, quant = self.builder.note(name, data.shape, facts, **said)
        if new and "quant" in said and (doubt := doubt_of(said["quant"])):
            self._doubts.setdefault(name, doubt)
        try:
            if new and (facts or not keep.anything or not said.keys() <= _TOLD):
                self.sink.note(put_note(name, data.shape, facts, said), now=not keep.anything)
            if keep.anything:
                self._keep(name, data, place, keep, quant, truncated=keep is not wanted)
                self._skipped.pop(name, None)
            self._names.setdefault(name, dtype)
            if place is not None:
                if place not in self._places:
                    self._places[place] = set()
                self._places[place].add(name)
        except RecordingError as error:
            self._stop_at(error)

    def _keep(
        self,
        name: str,
        data: np.ndarray,
        place: Place | None,
        keep: Keep,
        quant: QuantParams | None,
        *,
        truncated: bool,
    ) -> None:
        """Write as much of an array as is to be kept."""
        where, constant, self._any = place or (0, 0), place is None, True
        # The index has no room for further extents, and without values nothing else would tell them.
        if keep.values or 0 < data.size <= keep.elements or data.ndim > INDEX_DIMS:
            self.sink.append(name, data, *where, constant=constant, quant=quant)
            self._used += data.nbytes
            return
        info = self.builder.quant(name) if quant is None else quant
        kept = keep_partly(data, info, elements=keep.elements, truncated=truncated)
        self._partly[name, *where] = _identity(data)
        self.sink.append(name, kept, *where, constant=constant, quant=quant)
        self._used += 0 if kept.values is None else kept.values.nbytes

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Let a disk that is full or broken be no concern of the program that is being recorded: warn it, once."""
        try:
            yield
        except RecordingError as error:
            self._stop_at(error)

    def _stop_at(self, error: RecordingError) -> None:
        """Warn of an error if it is the disk's, else raise it."""
        if self.failure is None:
            raise error
        warn_stopped(error, warned=self._warned)
        self._warned = True

    def _has_stopped(self) -> bool:
        """Tell whether recording has stopped, and warn of it if nobody did."""
        if self.failure is None:
            return False
        warn_stopped(RecordingError(self.failure), warned=self._warned)
        self._warned = True
        return True

    def note(self, plain: Mapping[str, Any]) -> None:
        """Write down what was said of the run."""
        if not self._has_stopped():
            with self._stopping():
                self.sink.note(plain)

    def skip(self, tensor: str, reason: str) -> None:
        """Note that a tensor is not recorded, and why."""
        self._skipped[tensor] = reason
        self.note({"skip": tensor, "reason": reason})

    def outputs(self, names: Sequence[str]) -> None:
        """Note which tensors are outputs, beside those noted before."""
        self.builder.outputs(names)
        self.note({"outputs": list(names)})

    def check(self, outputs: Mapping[str, Any], place: Place) -> None:
        """Compare outputs of a plain run with what was kept at a sample and step.

        Raises:
            RecordingError: One of them was not kept.
        """
        for name, value in outputs.items():
            key = (name, *((0, 0) if self.builder.is_constant(name) else place))
            recorded = self.sink.read_back(*key)
            if recorded is None and self.failure is not None:
                return  # it came after recording had stopped
            if recorded is None and key in self._partly:
                given = as_array(name, value, self._names[name])
                self.checked.compare_hash(name, self._partly[key], _identity(given), place)
                continue
            if recorded is None and self.has(name, place):
                continue  # nothing of it was to be kept
            if recorded is None:
                raise RecordingError(
                    f"Output {name!r} was not recorded for sample {place[0]}, step {place[1]}.",
                    hint="Put it before check(), under the same name.",
                )
            self.checked.compare(name, recorded, as_array(name, value, self._names[name]), place)
        self.note({"fidelity": str(self.checked.fidelity), "detail": self._detail()})

    def _detail(self) -> str:
        return self.checked.detail(len(self._places), self.builder.output_names)

    def close(self, *, complete: bool) -> None:
        """Finish the recording.

        Raises:
            RecordingError: Nothing was kept, or the recording cannot be finished.
        """
        if self._has_stopped() and not self.kept:
            self.discard()
            return
        if not self._places and self.failure is None:
            self.discard()
            raise RecordingError(
                "Nothing was recorded: no tensor was put.",
                hint="Call put() for each tensor before the recorder closes.",
            )
        if not self._any and self.failure is None:
            self.discard()
            raise RecordingError(
                "Nothing was kept: what was said about how much to keep leaves out every tensor.",
                hint="Keep something of one, such as keep='stats' (qdebug record --keep stats).",
            )
        self.open = False
        try:
            with self._stopping():
                graph = self.builder.build(self._names, self._facts["model"])
                self.sink.close(graph, self._info(complete=complete))
        finally:
            with suppress(RecordingError):
                self.sink.leave()

    def _info(self, *, complete: bool) -> RunInfo:
        missing = [name for name in self.builder.output_names if name not in self._names]
        return RunInfo(
            **self._facts,
            complete=complete,
            fidelity=self.checked.fidelity,
            fidelity_detail=self._detail(),
            doubts=self._doubts,
            skipped={**dict.fromkeys(missing, "said to be an output and never put"), **self._skipped},
        )

    def discard(self) -> None:
        """Leave nothing behind. Again, or after `close`, does nothing."""
        if self.open:
            self.open, self._discarded = False, True
            self.sink.discard()


def _identity(array: np.ndarray) -> bytes:
    """Give a hash of an array's dtype, shape and bits."""
    dtype = logical_name(array.dtype)
    return payload_hash(f"{dtype} {array.shape}".encode() + payload_hash(to_bytes(array, dtype)))
