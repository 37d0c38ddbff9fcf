"""The recorder, which receives the tensors of a run from a test harness or an adapter."""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from operator import index
from threading import RLock
from types import MappingProxyType, TracebackType
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt

from qdebug.errors import QdebugError, RecordingError, UsageError
from qdebug.model import Fidelity, Graph, MemoryRecording, QuantParams, Role, RunInfo
from qdebug.model.dtypes import logical_name
from qdebug.model.kept import SKETCH_SIZE, Kept
from qdebug.model.recording import SkipCause
from qdebug.recording.arguments import (
    QuantFacts,
    as_array,
    check_types,
    find_doubt,
    parse_skip_cause,
    recording_path,
    tensor_facts,
)
from qdebug.recording.device_sketch import is_on_device, placeholder_of, take_device_record
from qdebug.recording.environment import run_facts
from qdebug.recording.fidelity import FidelityCheck
from qdebug.recording.format.payload import payload_hash, to_bytes
from qdebug.recording.format.specification import INDEX_DIMS
from qdebug.recording.graph_builder import (
    NO_FACTS,
    GraphBuilder,
    NodeFacts,
    check_texts,
    encode_put_note,
    node_facts,
)
from qdebug.recording.keep_policy import Keep, KeepPolicy, make_partial_record, policy_of
from qdebug.recording.writing.sinks import BackgroundSink, MemorySink, Sink, warn_stopped
from qdebug.recording.writing.tables import check_quants, encode_tables
from qdebug.recording.writing.write import Place, RecordingWriter

__all__ = ["Recorder"]

_FACTS_IN_EVENTS = frozenset(("dtype", "role"))
"""Facts of a tensor that are stored with the event of its values."""


class Recorder:
    """Records the tensors of a run.

    Use it as a context manager. If the `with` block raises, the tensors so far are kept and the recording is marked
    incomplete. When `put` returns, the tensor is safe: if the process is killed, `qdebug file recover` restores it. If
    the disk is full or breaks, recording stops with one warning, `failure` says why, and the host program goes on. The
    same happens if the finished file cannot be renamed to `path`. Several threads may put tensors. All of them record
    the current sample and step.

    Args:
        path: The file to write; None keeps the recording in memory, as `recording`.
        backend: Name of the backend.
        graph: The graph, if it is known beforehand; otherwise it is built from the arguments of `put`.
        force: Replace the file if it exists.
        model: File name or title of the network.
        model_sha256: Hash of the model file in hexadecimal.
        taps: How tensors are tapped; "put" for a recorder in a harness.
        versions: Versions of further packages involved.
        options: Backend options in force.
        cpu_flags: Relevant instruction sets; by default those of this machine.
        keep: How much of each tensor is kept: "full", "stats" (statistics and a histogram, no values), "sketch"
            (statistics and 64 random projections, which estimate the error between two runs), "elements:1000"
            (statistics, elements at fixed random positions, and the largest ones) or "none"; or several rules, of which
            the last that matches a tensor applies: "conv*=stats" by name, "op:Conv=stats", ">1M=elements:4096" by size.
        every: Keep every n-th sample.
        max_bytes: Bytes of values, a number or a text like "2G", after which only statistics and some elements are
            kept.
        background: Copy arrays and write them in a thread, so that `put` blocks only when 256 MB are queued. Queued
            arrays are lost if the process is killed or ends abruptly (os._exit, a crash), if the disk is full or
            breaks, and in a power cut.
        durable: Sync tensors to the disk in a thread, every second or at the given interval in seconds; on closing,
            also sync the finished file and its name, so that both survive a power cut.
        op_map: Operator names of the harness, mapped to names in ONNX, TensorFlow Lite or PyTorch: {"MUL_MAT":
            "MatMul"}.
        sink: Storage other than a file or memory, see `qdebug.recording.writing.sinks`.

    Raises:
        OutputExistsError: The file exists and `force` is not set.
        UsageError: An argument has a wrong type, `durable` is negative or not finite, or `keep` or `max_bytes` is
            invalid.
        RecordingError: The file cannot be made, another process is writing it, an unfinished run left values there and
            `force` is not set, or an attribute or a tensor of the graph cannot be stored.

    Examples:
        >>> with qdebug.Recorder("npu.h5", backend="my-npu") as recorder:
        ...     recorder.put("x", np.zeros((1, 8), np.int8), scale=0.1)
        ...     recorder.put("y", np.zeros((1, 4), np.int8), node="fc", op="Gemm", inputs=("x",), scale=0.02)
        ...     recorder.outputs("y")
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | None,
        *,
        backend: str,
        graph: Graph | None = None,
        force: bool = False,
        model: str = "",
        model_sha256: str = "",
        taps: str = "put",
        versions: Mapping[str, str] | None = None,
        options: Mapping[str, Any] | None = None,
        cpu_flags: Sequence[str] | None = None,
        keep: str | Iterable[str] | KeepPolicy | None = None,
        every: int = 1,
        max_bytes: int | str | None = None,
        durable: bool | float = False,
        background: bool = False,
        op_map: Mapping[str, str] | None = None,
        sink: Sink | None = None,
    ) -> None:
        policy = policy_of(keep, every=every, max_bytes=max_bytes)
        texts = {"backend": backend, "model": model, "model_sha256": model_sha256, "taps": taps}
        check_types(texts, (str,), "text")
        mappings = {"versions": versions or {}, "options": options or {}, "op_map": op_map or {}}
        check_types(mappings, (Mapping,), "values by name")
        check_types(op_map or {}, (str,), "the name of an operator")
        check_types({"graph": Graph() if graph is None else graph}, (Graph,), "a qdebug.Graph")
        check_types({"durable": durable}, (int, float), "True or a number of seconds")
        if not 0 <= durable < float("inf"):
            raise UsageError(
                f"durable={durable!r} is invalid; expected a positive number of seconds.",
                hint="Use durable=True for once per second.",
            )
        if graph is not None:
            check_quants(graph)
        self.path = None if path is None else recording_path(path)
        facts = {**texts, **run_facts(versions, options, cpu_flags)}
        sink = sink or self._make_sink(facts, graph, force=force, durable=durable)
        if background:
            sink = BackgroundSink(sink)
            weakref.finalize(self, sink.leave)  # also runs when the interpreter exits, before the thread is stopped
        self._sink, self._facts, self._policy = sink, facts, policy
        self._builder, self._fidelity_check = GraphBuilder(graph), FidelityCheck()
        self._op_map = dict(op_map or {})
        self._sample = self._step = self._used_bytes = 0
        self._owner_pid = self._pid = os.getpid()
        self._lock = RLock()
        self._is_open = True
        self._has_values = self._is_discarded = self._has_warned = False
        self._bare_layouts: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        """Dtype and shape of tensors that were last put without any facts."""
        self._stated_dtypes: dict[str, str | None] = {}
        """Tensors that were put, with the dtype that the caller stated."""
        self._places: dict[Place, set[str]] = {}
        self._partial_digests: dict[tuple[str, int, int], bytes] = {}
        """Digests of values that were not kept in full, by tensor, sample and step."""
        self._skipped: dict[str, str] = {}
        self._skip_causes: dict[str, SkipCause] = {}
        self._doubts: dict[str, str] = {}
        self._disturbed: dict[str, str] = {}

    def _make_sink(self, facts: Mapping[str, Any], graph: Graph | None, *, force: bool, durable: bool | float) -> Sink:
        if self.path is None:
            if graph is not None:
                # Refuse a graph that no file could store.
                encode_tables(graph, RunInfo(backend=""), (), samples=1, steps=1)
            return MemorySink()
        info = RunInfo(**facts, complete=False)
        sync_every = (1.0 if durable is True else float(durable)) if durable else None
        return RecordingWriter(self.path, force=force, info=info, graph=graph, sync_every=sync_every)

    # -- recording ---------------------------------------------------------------------------------------------------

    def put(
        self,
        name: str,
        array: Any,
        *,
        node: str | None = None,
        op: str | None = None,
        inputs: Sequence[str] | str = (),
        attrs: Mapping[str, Any] | None = None,
        domain: str = "",
        origin: Sequence[str] | str = (),
        placement: str = "",
        scale: npt.ArrayLike | None = None,
        zero_point: npt.ArrayLike | None = None,
        axis: int | None = None,
        block_size: int | None = None,
        qmin: int | None = None,
        qmax: int | None = None,
        multiplier: npt.ArrayLike | None = None,
        shift: npt.ArrayLike | None = None,
        dtype: str | None = None,
        layout: str | None = None,
        stands_for: str | None = None,
    ) -> None:
        """Record a tensor for the current sample and step. The caller may change the array once this returns.

        Args:
            name: The tensor.
            array: Its elements: codes, if it is quantized.
            node: The node that produces it; several tensors may name the same node.
            op: That node's operator.
            inputs: The node's inputs, in the operator's order; "" for an omitted one.
            attrs: The operator's attributes.
            domain: The operator's domain.
            origin: Nodes of the source model that the backend folded into this node.
            placement: Where it ran: a device or a delegate, optionally followed by ": " and facts about the kernel.
            scale: Real units per code; one, or one per channel along `axis`.
            zero_point: Code of real 0; 0 by default.
            axis: Channel axis of `scale`; a negative axis counts from the end.
            block_size: Elements along `axis` that share a scale, if the scale is block-wise.
            qmin: Lowest code in use, if it is not the dtype's lowest.
            qmax: Highest code in use, if it is not the dtype's highest.
            multiplier: Integer requantization multiplier, if the backend has one.
            shift: Its right shift in bits.
            dtype: Logical dtype, if it differs from the array's ("bfloat16" in uint16, "int4" in int8).
            layout: Order of the dimensions, such as "NHWC".
            stands_for: Tensor of the source model whose values this one holds in another form.

        Raises:
            RecordingError: The tensor was already put for this sample and step, facts contradict earlier ones, or the
                array cannot be stored. In that case nothing of this call is kept.
            GraphError: The node would read its own output, directly or through others.
        """
        self._check_open()
        is_bare = scale is zero_point is axis is block_size is qmin is qmax is multiplier is shift is None
        is_bare = is_bare and node is op is dtype is layout is stands_for is None
        is_bare = is_bare and not (attrs or inputs or domain or origin or placement)
        stated_facts: Mapping[str, Any] | None = None
        record: Kept | None = None
        if is_bare and type(array) is np.ndarray and self._bare_layouts.get(name) == (array.dtype, array.shape):
            data, facts = array, NO_FACTS  # the facts have not changed: nothing to check or note
        else:
            if is_on_device(array):
                record = self._record_on_device(name, array, op or "", has_facts=dtype is not None or scale is not None)
            data = as_array(name, array, dtype) if record is None else placeholder_of(record)
            quant = QuantFacts(scale, zero_point, axis, block_size, qmin, qmax, multiplier, shift).to_params(name, data)
            onnx_op = op if op is None else self._op_map.get(op, op)
            facts = node_facts(
                name,
                node=node,
                op=onnx_op,
                inputs=inputs,
                attrs=attrs,
                domain=domain,
                origin=origin,
                placement=placement,
            )
            stated_facts = tensor_facts(name, data, quant, layout, stands_for)
        with self._locked():
            place = self._sample, self._step
            self._check_new(name, place)
            self._put(name, data, place, facts=facts, stated_facts=stated_facts, dtype=dtype, record=record)
            if stated_facts is not None and is_bare:
                self._bare_layouts[name] = data.dtype, data.shape

    def _record_on_device(self, name: str, tensor: Any, op: str, *, has_facts: bool) -> Kept | None:
        """Return a partial record that is computed on the tensor's device; None if the values must be copied."""
        nbytes = tensor.numel() * tensor.element_size()
        amount = self._policy.decide(name, op, nbytes, sample=self._sample)
        is_small = nbytes <= 4 * SKETCH_SIZE or tensor.dim() > INDEX_DIMS
        if has_facts or is_small or amount.keeps_values or not amount.has_sketch or self._sink.counts:
            return None
        return take_device_record(tensor)

    def _check_new(self, name: str, place: tuple[int, int]) -> None:
        """Refuse a tensor that was already put for this sample and step, or that was recorded as a constant."""
        if name in self._places.get(place, ()):
            raise RecordingError(
                f"Tensor {name!r} was put twice for sample {place[0]}, step {place[1]}.",
                hint="Call next_sample() or next_step() in between, or give each tensor a unique name.",
            )
        if self._builder.is_constant(name):
            raise RecordingError(f"Tensor {name!r} is a constant.", hint="Record it once, with constant().")

    @property
    def failure(self) -> str | None:
        """Why recording stopped before the run did: a full or broken disk; None if it has not stopped."""
        return self._sink.failure

    @property
    def kept(self) -> int:
        """Number of arrays safely stored so far."""
        return self._sink.events

    def constant(
        self,
        name: str,
        array: Any,
        *,
        scale: npt.ArrayLike | None = None,
        zero_point: npt.ArrayLike | None = None,
        axis: int | None = None,
        block_size: int | None = None,
        qmin: int | None = None,
        qmax: int | None = None,
        dtype: str | None = None,
        layout: str | None = None,
        stands_for: str | None = None,
    ) -> None:
        """Record a weight or other constant, once for all samples. Arguments as in `put`.

        Raises:
            RecordingError: The constant was already recorded, or cannot be stored.
        """
        self._check_open()
        data = as_array(name, array, dtype)
        quant = QuantFacts(scale, zero_point, axis, block_size, qmin, qmax).to_params(name, data)
        stated_facts = tensor_facts(name, data, quant, layout, stands_for)
        stated_facts["role"] = Role.CONSTANT
        with self._locked():
            if name in self._stated_dtypes:
                raise RecordingError(f"Tensor {name!r} was recorded twice.", hint="Record each constant once.")
            self._put(name, data, None, facts=NO_FACTS, stated_facts=stated_facts, dtype=dtype)

    def next_sample(self) -> None:
        """Advance to the next sample, step 0."""
        self.at(self._sample + 1)

    def next_step(self) -> None:
        """Advance to the next step of a stateful network."""
        self.at(self._sample, self._step + 1)

    def at(self, sample: int, step: int = 0) -> None:
        """Move to any sample and step. They may be recorded in any order.

        Raises:
            UsageError: The sample or step is negative, or not a whole number.
        """
        self._check_open()
        try:
            place = index(sample), index(step)  # converts numpy integers to plain ints
        except TypeError:
            raise UsageError(f"Invalid sample {sample!r} or step {step!r}; both must be integers.") from None
        if min(place) < 0:
            raise UsageError(f"Invalid sample {sample} or step {step}; both count from 0.")
        self._sample, self._step = place

    def was_put(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether values of a varying tensor were put for a sample and step, even if nothing was recorded."""
        return tensor in self._places.get((sample, step), ())

    def skip(self, tensor: str, reason: str, *, because: str | None = None) -> None:
        """Note that a tensor is not recorded, and why. Values put later cancel the note; values put earlier are kept.

        Args:
            tensor: Its name.
            reason: One clause that explains it to the user.
            because: "fused", "folded" (into a constant) or "view" (of a recorded tensor) if nothing is lost by it;
                "unsupported" if the runtime does not expose the tensor. Comparisons then treat the tensor as missing,
                as they do without a cause.

        Raises:
            UsageError: `because` has a different value.
        """
        self._check_open()
        check_texts(str(tensor), "the name", (tensor,))
        cause = parse_skip_cause(because)
        with self._locked():
            self._skipped[tensor] = str(reason)
            self._skip_causes.pop(tensor, None)
            if cause is not None:
                self._skip_causes[tensor] = cause
            self._note({"skip": tensor, "reason": str(reason), **({} if cause is None else {"because": str(cause)})})

    def disturbed(self, tensor: str, reason: str) -> None:
        """Note that recording changed how a tensor is computed. Comparisons then do not blame its node for the error.

        Args:
            tensor: Its name.
            reason: One clause that explains it to the user.
        """
        self._check_open()
        check_texts(str(tensor), "the name", (tensor,))
        with self._locked():
            self._disturbed[tensor] = str(reason)
            self._note({"disturbed": tensor, "reason": str(reason)})

    def outputs(self, *names: str) -> None:
        """State the network's outputs. Further calls add outputs.

        Raises:
            UsageError: An output is not a name.
        """
        self._check_open()
        for name in names:
            if not isinstance(name, str) or not name:
                raise UsageError(
                    f"outputs() got the name {name!r}; expected a string.", hint="Write outputs('a', 'b')."
                )
        with self._locked():
            self._builder.add_outputs(names)
            self._note({"outputs": list(names)})

    def check(self, outputs: Mapping[str, Any], *, plain: bool = True) -> None:
        """Compare the outputs of a plain run, without a recorder, with the outputs recorded for the current sample.

        Further calls with outputs of more plain runs reveal a backend that is nondeterministic.

        Args:
            outputs: Arrays by tensor name.
            plain: False if the outputs come from another recorded run, such as a run that taps different tensors.

        Raises:
            UsageError: No outputs are given.
            RecordingError: An output was not recorded for this sample and step.
        """
        self._check_open()
        if not outputs or not isinstance(outputs, Mapping):
            raise UsageError(
                "check() needs a dict of outputs.",
                hint="Pass the outputs of a run without the recorder, as a dict of arrays by name.",
            )
        with self._locked():
            for name, value in outputs.items():
                if not self._check_output(name, value, (self._sample, self._step), is_plain=plain):
                    return
            self._note({"fidelity": str(self.fidelity), "detail": self._fidelity_text()})

    def remark(self, sentence: str) -> None:
        """Add a clause, without a period, to the recording's fidelity statement."""
        self._check_open()
        with self._locked():
            self._fidelity_check.remark(str(sentence))
            self._note({"fidelity": str(self.fidelity), "detail": self._fidelity_text()})

    @property
    def skipped(self) -> Mapping[str, str]:
        """Tensors that are not recorded, with the reason."""
        return MappingProxyType(self._skipped)

    @property
    def fidelity(self) -> Fidelity:
        """The result of the checks so far."""
        return self._fidelity_check.fidelity

    @property
    def differing(self) -> list[tuple[int, int]]:
        """Samples and steps with outputs that differ from a plain run, in order."""
        return self._fidelity_check.differing

    # -- the end -----------------------------------------------------------------------------------------------------

    @property
    def recording(self) -> MemoryRecording:
        """The finished recording of a recorder without a path.

        Raises:
            UsageError: The recorder has a path, or is not closed.
        """
        sink = self._sink.inner if isinstance(self._sink, BackgroundSink) else self._sink
        recording = sink.recording if isinstance(sink, MemorySink) else None
        if recording is None:
            state_text = "still open" if self.path is None else f"recording to {str(self.path)!r}"
            raise UsageError(
                f"The recorder is {state_text}; a recording in memory needs a closed recorder without a path.",
                hint="Close it first, or open its file: qdebug.open_recording(path).",
            )
        return recording

    @property
    def holds_anything(self) -> bool:
        """Whether a recording exists, or will exist after closing: something was put and not discarded."""
        return bool(self._places) and not self._is_discarded

    def close(self, *, complete: bool = True) -> None:
        """Finish the recording.

        A second call, or a call after `discard`, does nothing. A full or broken disk causes only a warning, and the
        tensors so far can be recovered.

        Args:
            complete: False marks the run as not finished.

        Raises:
            RecordingError: Nothing was recorded, or the file cannot be finished.
        """
        with self._locked():
            if self._is_open:
                self._finish(is_complete=complete)

    def discard(self) -> None:
        """Close and leave nothing behind. A second call, or a call after `close`, does nothing."""
        with self._locked():
            if self._is_open:
                self._is_open, self._is_discarded = False, True
                self._sink.discard()

    def __reduce__(self) -> NoReturn:
        raise RecordingError(
            "A recorder belongs to one process and cannot be copied or passed to another process.",
            hint="Open a recorder with its own file in each process, and join the files: "
            "qdebug file join FILE FILE -o RUN.json.",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not self._is_open or (self.path is not None and os.getpid() != self._owner_pid):
            return  # already closed, or owned by the parent process
        if error is None:
            self.close()
        elif not self.kept:
            self.discard()
        else:
            try:
                self.close(complete=False)
            except QdebugError as failure:
                error.add_note(f"Finishing the recording failed as well: {failure}")

    def _put(
        self,
        name: str,
        data: np.ndarray,
        place: Place | None,
        *,
        facts: NodeFacts,
        stated_facts: Mapping[str, Any] | None,
        dtype: str | None,
        record: Kept | None = None,
    ) -> None:
        """Record values and their stated facts. Does nothing once recording has stopped.

        Args:
            name: The tensor.
            data: Its values.
            place: Sample and step; None for a constant.
            facts: The node that produces it.
            stated_facts: Stated fields of `TensorInfo`; None if all are known already.
            dtype: Logical dtype as the caller stated it.
            record: Their partial record if it was made on a device; the values are then a placeholder.

        Raises:
            RecordingError: The facts contradict earlier ones, or the array cannot be stored.
            GraphError: The node would read its own output.
        """
        if self._has_stopped():
            return
        sample = None if place is None else place[0]
        requested_amount = self._policy.decide(name, facts.op, data.nbytes, sample=sample)
        amount = self._policy.limit_to_max_bytes(requested_amount, self._used_bytes, data.nbytes)
        quant = None
        try:
            if stated_facts is not None:
                quant = self._note_stated_facts(name, data.shape, facts, stated_facts, at_once=not amount.has_record)
            if amount.has_record:
                if record is None:
                    self._keep_values(name, data, place, amount, quant, is_truncated=amount is not requested_amount)
                else:
                    self._has_values = True
                    self._sink.append(name, record, place or (0, 0), constant=place is None, quant=quant)
                self._skipped.pop(name, None)
                self._skip_causes.pop(name, None)
            self._stated_dtypes.setdefault(name, dtype)
            if place is not None:
                if place not in self._places:
                    self._places[place] = set()
                self._places[place].add(name)
        except RecordingError as error:
            self._raise_unless_disk_failed(error)

    def _note_stated_facts(
        self, name: str, shape: tuple[int, ...], facts: NodeFacts, stated_facts: Mapping[str, Any], *, at_once: bool
    ) -> QuantParams | None:
        """Add the stated facts of a tensor. Return the quantization of these values if it differs from the tensor's.

        Args:
            name: The tensor.
            shape: Shape of its values.
            facts: The node that produces it.
            stated_facts: Stated fields of `TensorInfo`.
            at_once: Whether the note is written at once, because no values follow.
        """
        is_new, quant = self._builder.note(name, shape, facts, **stated_facts)
        if is_new and "quant" in stated_facts and (doubt := find_doubt(stated_facts["quant"])):
            self._doubts.setdefault(name, doubt)
        if is_new and (facts or at_once or not stated_facts.keys() <= _FACTS_IN_EVENTS):
            self._sink.note(encode_put_note(name, shape, facts, stated_facts), at_once=at_once)
        return quant

    def _keep_values(
        self,
        name: str,
        data: np.ndarray,
        place: Place | None,
        amount: Keep,
        quant: QuantParams | None,
        *,
        is_truncated: bool,
    ) -> None:
        """Write the part of an array that should be recorded."""
        event_place, constant, self._has_values = place or (0, 0), place is None, True
        if self._sink.counts:
            self._sink.append(name, data, event_place, constant=constant, quant=quant or self._builder.quant(name))
            return
        # Arrays of high rank are stored in full: an index row holds only INDEX_DIMS extents, and the other extents are
        # stored only along with the values.
        is_small = 0 < data.size <= amount.element_count or (amount.has_sketch and data.nbytes <= 4 * SKETCH_SIZE)
        if amount.keeps_values or is_small or data.ndim > INDEX_DIMS:
            self._sink.append(name, data, event_place, constant=constant, quant=quant)
            self._used_bytes += data.nbytes
            return
        record = make_partial_record(
            data,
            quant or self._builder.quant(name),
            element_count=amount.element_count,
            with_sketch=amount.has_sketch,
            is_truncated=is_truncated,
        )
        self._partial_digests[name, *event_place] = _array_digest(data)
        self._sink.append(name, record, event_place, constant=constant, quant=quant)
        self._used_bytes += 0 if record.values is None else record.values.nbytes

    def _note(self, note: Mapping[str, Any]) -> None:
        """Write a note on the run, unless recording has stopped."""
        if not self._has_stopped():
            try:
                self._sink.note(note)
            except RecordingError as error:
                self._raise_unless_disk_failed(error)

    def _raise_unless_disk_failed(self, error: RecordingError) -> None:
        """Raise an error, or only warn once if the disk failed, which must not stop the recorded program."""
        if self.failure is None:
            raise error
        if not self._has_warned:
            warn_stopped(error)
        self._has_warned = True

    def _has_stopped(self) -> bool:
        """Return whether recording has stopped, and warn about it once."""
        if self.failure is not None:
            self._raise_unless_disk_failed(RecordingError(self.failure))
        return self.failure is not None

    def _check_output(self, name: str, value: Any, place: Place, *, is_plain: bool) -> bool:
        """Compare an output of another run with the recorded one. Return False if recording had already stopped."""
        event_place = (0, 0) if self._builder.is_constant(name) else place
        key, recorded_array = (name, *event_place), self._sink.read_back(name, event_place)
        if recorded_array is not None:
            self._fidelity_check.compare(
                name, recorded_array, as_array(name, value, self._stated_dtypes[name]), place, is_plain=is_plain
            )
        elif self.failure is not None:
            return False
        elif key in self._partial_digests:
            output_digest = _array_digest(as_array(name, value, self._stated_dtypes[name]))
            self._fidelity_check.compare_hash(name, self._partial_digests[key], output_digest, place, is_plain=is_plain)
        elif name not in self._places.get(place, ()):  # otherwise it was put, but excluded by the keep rules
            raise RecordingError(
                f"Output {name!r} was not recorded for sample {place[0]}, step {place[1]}.",
                hint="Put it before check(), with the same name.",
            )
        return True

    def _fidelity_text(self) -> str:
        return self._fidelity_check.detail(len(self._places), self._builder.output_names)

    def _finish(self, *, is_complete: bool) -> None:
        if self._has_stopped() and not self.kept:
            self.discard()
            return
        if not self._places and self.failure is None:
            self.discard()
            raise RecordingError(
                "Nothing was recorded: no tensor was put.",
                hint="Call put() for each tensor before the recorder closes.",
            )
        if not self._has_values and self.failure is None:
            self.discard()
            raise RecordingError(
                "Nothing was kept, because the keep rules exclude every tensor.",
                hint="Keep at least statistics: keep='stats' (qdebug record --keep stats).",
            )
        self._is_open = False
        missing_outputs = [name for name in self._builder.output_names if name not in self._stated_dtypes]
        try:
            info = RunInfo(
                **self._facts,
                complete=is_complete,
                fidelity=self.fidelity,
                fidelity_detail=self._fidelity_text(),
                doubts=self._doubts,
                disturbed=self._disturbed,
                skipped={**dict.fromkeys(missing_outputs, "declared as an output, but never put"), **self._skipped},
                skip_causes=self._skip_causes,
            )
            self._sink.close(self._builder.build(self._stated_dtypes, info.model), info)
            self._has_stopped()  # warns about a disk failure that raised nothing, such as that of a background sync
        except RecordingError as error:
            self._raise_unless_disk_failed(error)
        finally:
            with suppress(RecordingError):
                self._sink.leave()

    def _locked(self) -> RLock:
        """Return the lock that excludes other threads.

        A forked child gets its own lock, since no thread there would release the inherited one.
        """
        if self._pid != os.getpid():
            self._pid, self._lock = os.getpid(), RLock()
        return self._lock

    def _check_open(self) -> None:
        if not self._is_open:
            raise RecordingError("The recorder is closed.", hint="Open a new one.")


def _array_digest(array: np.ndarray) -> bytes:
    """Return a hash of an array's dtype, shape and bits."""
    dtype = logical_name(array.dtype)
    return payload_hash(f"{dtype} {array.shape}".encode() + payload_hash(to_bytes(array, dtype)))
