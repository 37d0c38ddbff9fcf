"""Rebuild the recording of a run that did not finish, from its journal and its payloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qdebug.errors import GraphError, NotARecordingError, RecordingError
from qdebug.model import Fidelity, Graph, QuantParams, Role, RunInfo
from qdebug.recording.arguments import doubt_of
from qdebug.recording.container import damaged
from qdebug.recording.facts import decode_info, plain_facts
from qdebug.recording.graph_builder import GraphBuilder, NodeFacts, apply_put
from qdebug.recording.journal import JournalEvent
from qdebug.recording.journal_reader import Entry, JournalReader, journal_at
from qdebug.recording.target import WriterLock, part_of
from qdebug.recording.write import RecordingWriter

__all__ = ["Account", "Recovered", "recover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What came of a recovery.

    Args:
        path: The recording.
        tensors: Number of arrays that are in it.
        complete: Whether the run had finished, and only the recording had not.
        lost: Arrays that the journal tells of and that are damaged or missing, by tensor, sample and step.
    """

    path: Path
    tensors: int
    complete: bool
    lost: tuple[tuple[str, int, int], ...]


class Account:
    """What a journal says of a run, entry after entry: the values, the graph and the facts so far.

    Args:
        reader: The journal.

    Attributes:
        events: Where values are, by tensor, sample and step; those put last come last.
        quants: Quantization of values that do not have their tensor's.
        extent: The last sample and the last step.
        names: Tensors that have values, in the order of recording.
        lost: Tensors of which values are damaged or missing, with what is to be said of them.
    """

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._builder: GraphBuilder | None = None
        self.events: dict[tuple[str, int, int], JournalEvent] = {}
        self.quants: dict[tuple[str, int, int], QuantParams] = {}
        self.names: dict[str, None] = {}
        self._places: dict[str | None, dict[tuple[int, int], None]] = {None: {}}
        self.lost: dict[str, str] = {}
        self.extent = (0, 0)
        self._quant: QuantParams | None = None
        self._skipped: dict[str, str] = {}
        self._doubts: dict[str, str] = {}
        self._fidelity: tuple[Fidelity, str] = (Fidelity.UNKNOWN, "the run did not finish")

    @property
    def builder(self) -> GraphBuilder:
        """What puts the graph together; the journal has been read at least up to its first tensor."""
        if self._builder is None:
            self._builder = GraphBuilder(self._reader.graph)
        return self._builder

    def places(self, tensor: str | None = None) -> Sequence[tuple[int, int]]:
        """Return the samples and steps of which there is anything of a tensor, or of any that varies; in order."""
        held = self._places.get(tensor, {})
        return tuple(sorted(held)) if held or tensor is not None else ((0, 0),)

    def graph(self, model: str) -> Graph:
        """Put the graph together."""
        return self.builder.build(self.names, model)

    def take(self, entry: Entry) -> None:
        """Take an entry into account.

        Raises:
            RecordingError: It contradicts earlier ones, or is something else.
        """
        try:
            if isinstance(entry, JournalEvent):
                self._take_event(entry)
            else:
                self._take_note(entry)
        except (TypeError, ValueError, GraphError) as exc:
            raise damaged(self._reader.path, exc) from None

    def _take_event(self, event: JournalEvent) -> None:
        role = Role.CONSTANT if event.constant else None
        self.builder.note(event.name, event.shape, NodeFacts(), dtype=event.dtype, role=role)
        self.names.setdefault(event.name)
        self._skipped.pop(event.name, None)  # the last word holds
        place = event.name, int(event.row["sample"]), int(event.row["step"])
        self.events.pop(place, None)  # putting it was interrupted, and it is put once more
        self.events[place] = event
        for tensor in (event.name, *(() if event.constant else (None,))):
            self._places.setdefault(tensor, {})[place[1:]] = None
        self.extent = max(self.extent[0], place[1]), max(self.extent[1], place[2])
        quant, self._quant = self._quant, None
        if quant is not None:
            self.quants[place] = quant

    def _take_note(self, note: Mapping[str, Any]) -> None:
        if "put" in note:
            noted = apply_put(self.builder, note)
            if doubt := doubt_of(noted.quant or self.builder.quant(str(note["put"]))):
                self._doubts.setdefault(str(note["put"]), doubt)
            self._quant = noted.quant
        if "outputs" in note:
            self.builder.outputs([str(name) for name in note["outputs"]])
        if "skip" in note:
            self._skipped[str(note["skip"])] = str(note.get("reason", ""))
        if "fidelity" in note:
            self._fidelity = Fidelity(note["fidelity"]), str(note.get("detail", ""))

    def info(self) -> RunInfo:
        """Return the facts of the run; it is complete if the journal ends so.

        Raises:
            RecordingError: They make no sense.
        """
        try:
            plain = self._reader.head.get("info", {})
            known = decode_info({"info": {**plain_facts(RunInfo(backend="")), **plain}}, complete=True)
        except (TypeError, ValueError) as exc:
            raise damaged(self._reader.path, exc) from None
        fidelity, detail = self._fidelity
        return replace(
            known,
            complete=bool(self._reader.end and self._reader.end.get("complete")),
            fidelity=fidelity,
            fidelity_detail=detail,
            skipped={**self._skipped, **self.lost},
            doubts=self._doubts,
        )


def recover(
    path: Path,
    out: Path | None = None,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Recovered:
    """Rebuild the recording of a run that did not finish.

    Only values whose hash is right are taken over. The recording is marked as incomplete. When it is finished, and is
    where the run would have put it, journal and unfinished file are removed.

    Args:
        path: The recording as the run was told to name it, its unfinished file, or its journal.
        out: The recording to make; where the run would have put it if None.
        force: Replace that file if it exists.
        progress: Called with the number of arrays that were taken over and their total.

    Raises:
        NotARecordingError: There is no run to recover.
        OutputExistsError: The file exists and `force` is not set.
        RecordingError: The run still goes on, the journal is damaged, or the recording cannot be written.
    """
    journal = journal_at(path)
    if journal is None:
        _check_unfinished(path)
        raise NotARecordingError(
            f"No unfinished run lies at {str(path)!r}.",
            hint="Give the name that the run was told, or that of its journal.",
        )
    named = journal.name.endswith(".journal")
    target = journal.with_name(journal.name.removesuffix(".journal")) if named else None
    if out is None and target is None:
        raise RecordingError(f"{str(journal)!r} does not say where to put the recording.", hint="Add -o OUT.h5.")
    in_place = target is not None and (out is None or out.resolve() == target.resolve())
    if target is None or not in_place:
        return _rebuilt(journal, out or path, force=force, progress=progress)
    if target.exists() and not part_of(target).exists():
        raise _finished(target)
    lock = WriterLock(target)  # refuses while the run goes on
    try:
        scratch = target.with_name(target.name + ".recovered")
        done = _rebuilt(journal, scratch, force=True, progress=progress)
        if target.exists() and not force:
            scratch.unlink()
            raise RecordingError(
                f"{str(target)!r} exists.", hint="Add --force to replace it, or name another file: -o OUT.h5."
            )
        scratch.replace(target)
        for left in (part_of(target), journal):
            left.unlink(missing_ok=True)
    finally:
        lock.release()
    return replace(done, path=target)


def _check_unfinished(path: Path) -> None:
    """Refuse the path of a recording that is finished, or of what cannot be recovered."""
    if not path.name:
        return  # a folder, or the root
    ending = next((ending for ending in (".part", ".journal") if path.name.endswith(ending)), "")
    target = path.with_name(path.name.removesuffix(ending))
    if target.is_file() and not part_of(target).exists():
        raise _finished(target)
    if part_of(target).is_file():
        raise NotARecordingError(
            f"{str(part_of(target))!r} lies there without its journal, and nothing can be read without it.",
            hint="Put the journal back beside it, or record the run again.",
        )


def _finished(path: Path) -> NotARecordingError:
    hint = f"Use it: qdebug info {str(path)!r}."
    return NotARecordingError(f"{str(path)!r} is finished; there is nothing to recover.", hint=hint)


def _rebuilt(journal: Path, out: Path, *, force: bool, progress: Callable[[int, int], None] | None) -> Recovered:
    reader = JournalReader(journal)
    try:
        account = Account(reader)
        for entry in reader.refresh():
            account.take(entry)
        if not account.events:
            raise NotARecordingError(
                f"{str(journal)!r} tells of no tensor: the run did not get far.", hint="Record the run again."
            )
        writer = RecordingWriter(out, force=force)
        try:
            lost = _take_over(reader, account, writer, progress)
            if not writer.events:
                part = journal.with_suffix(".part")
                gone = journal.suffix == ".journal" and not part.exists()
                why = f", since {str(part)!r}, which held the values, is gone" if gone else ""
                raise RecordingError(f"No tensor of {str(journal)!r} can be read{why}.", hint="Record the run again.")
            known = account.info()
            info = replace(known, complete=known.complete and not lost)
            writer.close(account.graph(info.model), info)
        except BaseException:
            writer.discard()
            raise
    finally:
        reader.close()
    return Recovered(path=out, tensors=writer.events, complete=info.complete, lost=lost)


def _take_over(
    reader: JournalReader, account: Account, writer: RecordingWriter, progress: Callable[[int, int], None] | None
) -> tuple[tuple[str, int, int], ...]:
    """Write all values that are there and are those that were written; return the places of the others."""
    lost = []
    for done, (place, event) in enumerate(account.events.items(), start=1):
        try:
            values = reader.read(event)
        except RecordingError:
            lost.append(place)
            account.lost[event.name] = "its values were damaged or missing when the run was recovered"
        else:
            writer.append(event.name, values, place[1:], constant=event.constant, quant=account.quants.get(place))
        if progress is not None:
            progress(done, len(account.events))
    return tuple(lost)
