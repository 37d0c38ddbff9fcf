"""Rebuild the recording of a run that did not finish, from its journal and its payloads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from qdebug.errors import GraphError, NotARecordingError, RecordingError
from qdebug.model import Fidelity, QuantParams, Role, RunInfo
from qdebug.record.graph_builder import GraphBuilder, NodeFacts
from qdebug.record.ledger import apply_put
from qdebug.record.quantization import doubt_of
from qdebug.store.container import damaged
from qdebug.store.journal import JournalEvent
from qdebug.store.journal_reader import Entry, JournalReader, journal_at
from qdebug.store.tables import decode_info, plain_facts
from qdebug.store.target import WriterLock, part_of
from qdebug.store.writer import RecordingWriter

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
    """What a journal says of a run, entry after entry: the graph and the facts so far.

    Args:
        reader: The journal.
    """

    def __init__(self, reader: JournalReader) -> None:
        self._reader = reader
        self._builder: GraphBuilder | None = None
        self.lost: dict[str, str] = {}
        """Tensors of which values are damaged or missing, with what is to be said of them."""
        self._skipped: dict[str, str] = {}
        self.names: dict[str, None] = {}
        self._doubts: dict[str, str] = {}
        self._fidelity: tuple[Fidelity, str] = (Fidelity.UNKNOWN, "the run did not finish")

    @property
    def builder(self) -> GraphBuilder:
        """What puts the graph together; the journal has been read at least up to its first tensor."""
        if self._builder is None:
            self._builder = GraphBuilder(self._reader.graph)
        return self._builder

    def take(self, entry: Entry) -> dict[str, Any]:
        """Take an entry into account; give what it says of the values that come next, for `RecordingWriter.append`.

        Raises:
            RecordingError: It contradicts earlier ones, or is something else.
        """
        try:
            if isinstance(entry, JournalEvent):
                role = Role.CONSTANT if entry.constant else None
                self.builder.note(entry.name, entry.shape, NodeFacts(), dtype=entry.dtype, role=role)
                self.names.setdefault(entry.name)
                self._skipped.pop(entry.name, None)  # the last word holds
                return {}
            return self._take_note(self.builder, entry)
        except (TypeError, ValueError, GraphError) as exc:
            raise damaged(self._reader.path, exc) from None

    def _take_note(self, builder: GraphBuilder, note: Mapping[str, Any]) -> dict[str, Any]:
        if "put" in note:
            noted = apply_put(builder, note)
            if doubt := doubt_of(noted.quant or builder.quant(str(note["put"]))):
                self._doubts.setdefault(str(note["put"]), doubt)
            return {"quant": noted.quant}
        if "outputs" in note:
            builder.outputs([str(name) for name in note["outputs"]])
        if "skip" in note:
            self._skipped[str(note["skip"])] = str(note.get("reason", ""))
        if "fidelity" in note:
            self._fidelity = Fidelity(note["fidelity"]), str(note.get("detail", ""))
        return {}

    def info(self, *, complete: bool) -> RunInfo:
        """Give the facts of the run.

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
            complete=complete,
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
        raise NotARecordingError(
            f"{str(target)!r} is finished; there is nothing to recover.", hint=f"Use it: {_info(target)}."
        )
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
        raise NotARecordingError(
            f"{str(target)!r} is finished; there is nothing to recover.", hint=f"Use it: {_info(target)}."
        )
    if part_of(target).is_file():
        raise NotARecordingError(
            f"{str(part_of(target))!r} lies there without its journal, and nothing can be read without it.",
            hint="Put the journal back beside it, or record the run again.",
        )


def _info(path: Path) -> str:
    return f"qdebug info {str(path)!r}"


def _rebuilt(journal: Path, out: Path, *, force: bool, progress: Callable[[int, int], None] | None) -> Recovered:
    reader = JournalReader(journal)
    try:
        entries = reader.refresh()
        total = sum(isinstance(entry, JournalEvent) for entry in entries)
        if not total:
            raise NotARecordingError(
                f"{str(journal)!r} tells of no tensor: the run did not get far.", hint="Record the run again."
            )
        work = _Rebuilding(reader, RecordingWriter(out, force=force))
        try:
            for done, _ in enumerate(work.steps(entries), start=1):
                if progress is not None:
                    progress(done, total)
            return work.finish(out)
        except BaseException:
            work.writer.discard()
            raise
    finally:
        reader.close()


class _Rebuilding:
    """A recording that is made of a journal."""

    def __init__(self, reader: JournalReader, writer: RecordingWriter) -> None:
        self.writer = writer
        self._reader = reader
        self._account = Account(reader)
        self._lost: list[tuple[str, int, int]] = []

    def steps(self, entries: Sequence[Entry]) -> Iterator[None]:
        """Take over all entries, one array a step."""
        last = {_place(entry): number for number, entry in enumerate(entries) if isinstance(entry, JournalEvent)}
        said: dict[str, Any] = {}
        for number, entry in enumerate(entries):
            said |= self._account.take(entry)
            if isinstance(entry, JournalEvent):
                if last[_place(entry)] == number:  # else it was interrupted, and put once more
                    self._take_over(entry, **said)
                said = {}
                yield

    def _take_over(self, event: JournalEvent, *, quant: QuantParams | None = None) -> None:
        name, sample, step = _place(event)
        if not self._reader.is_whole(event):
            self._lost.append((name, sample, step))
            self._account.lost[name] = "its values were damaged or missing when the run was recovered"
            return
        facts: dict[str, Any] = {"sample": sample, "step": step, "constant": event.constant, "quant": quant}
        kept = self._reader.kept(event)
        self.writer.append(name, self._reader.load(event) if kept is None else kept, **facts)

    def finish(self, out: Path) -> Recovered:
        """Write the recording."""
        if not self.writer.events:
            journal = self._reader.path
            part = journal.with_suffix(".part")
            gone = journal.suffix == ".journal" and not part.exists()
            why = f", since {str(part)!r}, which held the values, is gone" if gone else ""
            raise RecordingError(f"No tensor of {str(journal)!r} can be read{why}.", hint="Record the run again.")
        ended = self._reader.end
        info = self._account.info(complete=bool(ended and ended.get("complete")) and not self._lost)
        self.writer.close(self._account.builder.build(self._account.names, info.model), info)
        return Recovered(path=out, tensors=self.writer.events, complete=info.complete, lost=tuple(self._lost))


def _place(event: JournalEvent) -> tuple[str, int, int]:
    return event.name, int(event.row["sample"]), int(event.row["step"])
