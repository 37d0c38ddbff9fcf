"""Rebuild the recording of an unfinished run from its journal and payloads."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from qdebug.errors import NotARecordingError, QdebugError, RecordingError
from qdebug.recording.journal import PayloadLocation
from qdebug.recording.reading.journal_reader import JournaledRun, JournalReader, journal_at
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.reading.verify import VerifiedContents, verify
from qdebug.recording.target import (
    WriterLock,
    cannot_write_error,
    check_target,
    is_complete_part,
    is_recorder_file,
    journal_of,
    part_of,
    rename_durably,
    replacing_file,
    target_of,
)
from qdebug.recording.writing.write import RecordingWriter

__all__ = ["RecoveryResult", "recover"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryResult:
    """The result of a recovery.

    Args:
        path: The recording.
        tensors: Number of its arrays.
        complete: Whether the run itself finished and nothing was lost.
        lost: Damaged or missing arrays of the journal, by tensor, sample and step.
    """

    path: Path
    tensors: int
    complete: bool
    lost: tuple[tuple[str, int, int], ...]


def recover(
    path: Path,
    out: Path | None = None,
    *,
    force: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> RecoveryResult:
    """Rebuild the recording of an unfinished run.

    Only values that match their hash are recovered. The recording is marked as incomplete, unless the run itself had
    finished and nothing was lost. Once the recording is finished, durable, and at the output path of the run, the
    journal and the unfinished file are removed. An unfinished file that is completely written does not need its journal
    and is only renamed.

    Args:
        path: The output path of the run, its unfinished file, or its journal.
        out: The recording to write; by default at the output path of the run.
        force: Replace that file if it exists.
        progress: Called with the number of recovered arrays and their total.

    Raises:
        NotARecordingError: There is nothing to recover.
        OutputExistsError: The file exists and `force` is not set.
        RecordingError: The run is still going on, the journal is damaged, or the recording cannot be written.
    """
    journal, complete_part = journal_at(path), _find_complete_part(path)
    if complete_part is not None:
        try:
            contents = verify(complete_part)
        except RecordingError:
            if journal is None:
                raise
        else:
            return _rename_complete_part(contents, out, force=force)
    if journal is None:
        _check_unfinished(path)
        raise NotARecordingError(
            f"There is no unfinished run at {str(path)!r}.",
            hint="Give the output path of the run, or the path of its journal.",
        )
    target = target_of(journal) if journal.name.endswith(".journal") else None
    if out is None and target is None:
        raise RecordingError(f"{str(journal)!r} does not say where to put the recording.", hint="Add -o OUT.h5.")
    is_in_place = target is not None and (out is None or out.resolve() == target.resolve())
    if target is None or not is_in_place:
        return _rebuild(journal, out or path, force=force, progress=progress)[0]
    if target.exists() and not part_of(target).exists():
        raise _finished_error(target)
    return _rebuild_in_place(journal, target, force=force, progress=progress)


def _rebuild_in_place(
    journal: Path, target: Path, *, force: bool, progress: Callable[[int, int], None] | None
) -> RecoveryResult:
    """Write the recording at the output path of the run, and remove the files that it was rebuilt from."""
    lock = WriterLock(target)  # raises while the run is still recording
    try:
        if target.exists() and not force:
            raise _exists_error(target)
        recovered, sources = _rebuild(journal, target, force=force, progress=progress, source=part_of(target))
        for source in sources:
            source.unlink(missing_ok=True)
    except OSError as exc:
        raise exc if isinstance(exc, QdebugError) else cannot_write_error(target, exc) from None
    finally:
        lock.release()
    return recovered


def _exists_error(target: Path) -> RecordingError:
    return RecordingError(
        f"{str(target)!r} already exists.", hint="Add --force to replace it, or name another file: -o OUT.h5."
    )


def _find_complete_part(path: Path) -> Path | None:
    """Return the unfinished file for a path, if it is completely written."""
    if not path.name:
        return None  # "." or the root, which have no name
    part = part_of(target_of(path))
    return part if is_complete_part(part) else None


def _rename_complete_part(contents: VerifiedContents, out: Path | None, *, force: bool) -> RecoveryResult:
    """Rename a completely written unfinished file.

    Args:
        contents: Its contents.
        out: The new path; by default the output path of the run.
        force: Replace that file if it exists.

    Raises:
        OutputExistsError: `out` exists and `force` is not set.
        RecordingError: The recording exists and `force` is not set, it cannot be written, or the run is still going on.
    """
    part = contents.path
    target = target_of(part)
    lock = WriterLock(target)  # raises while the run is still recording
    try:
        if out is not None and out.resolve() != target.resolve():
            check_target(out, force=force)
            with replacing_file(out) as temporary_file:
                shutil.copyfile(part, temporary_file)
        else:
            try:
                rename_durably(part, target, force=force)
            except FileExistsError:
                raise _exists_error(target) from None
            if is_recorder_file(journal_of(target)):
                journal_of(target).unlink()
    except OSError as exc:
        raise exc if isinstance(exc, QdebugError) else cannot_write_error(out or target, exc) from None
    finally:
        lock.release()
    return RecoveryResult(path=out or target, tensors=contents.tensors, complete=contents.complete, lost=())


def _check_unfinished(path: Path) -> None:
    """Refuse the path of a finished recording, or of a file that cannot be recovered."""
    if not path.name:
        return  # "." or the root, which have no name
    target = target_of(path)
    if target.is_file() and not part_of(target).exists():
        with FileRecording(target):  # raises if the file is truncated or is not a recording
            raise _finished_error(target)
    if part_of(target).is_file():
        raise NotARecordingError(
            f"The journal of {str(part_of(target))!r} is missing, and the file cannot be read without it.",
            hint="Put the journal back beside it, or record the run again.",
        )


def _finished_error(path: Path) -> NotARecordingError:
    hint = f"Use it: qdebug info {str(path)!r}."
    return NotARecordingError(f"{str(path)!r} is finished; there is nothing to recover.", hint=hint)


def _rebuild(
    journal: Path,
    out: Path,
    *,
    force: bool,
    progress: Callable[[int, int], None] | None,
    source: Path | None = None,
) -> tuple[RecoveryResult, list[Path]]:
    """Rebuild the recording of a journal. Return the result, and the files that the recording makes unnecessary."""
    reader = JournalReader(journal)
    try:
        run = JournaledRun(reader)
        for entry in reader.refresh():
            run.add(entry)
        if not run.events:
            raise NotARecordingError(
                f"{str(journal)!r} lists no tensor; the run ended before it recorded any.", hint="Record the run again."
            )
        writer = RecordingWriter(out, force=force, sync_every=math.inf, source=source)
        try:
            lost_places = _copy_events(reader, run, writer, progress)
            if not writer.events:
                part = journal.with_suffix(".part")
                is_part_gone = journal.suffix == ".journal" and not part.exists()
                reason = f", because {str(part)!r}, which held the values, is missing" if is_part_gone else ""
                raise RecordingError(
                    f"No tensor of {str(journal)!r} can be read{reason}.", hint="Record the run again."
                )
            journal_info = run.info()
            info = replace(journal_info, complete=journal_info.complete and not lost_places)
            writer.close(run.graph(info.model), info)
        except BaseException:
            writer.discard()
            raise
    finally:
        reader.close()
    sources, part = [journal], part_of(target_of(journal))
    copied_events = (event for place, event in run.events.items() if place not in lost_places)
    if is_recorder_file(part) or any(event.location is PayloadLocation.PART for event in copied_events):
        sources.insert(0, part)  # otherwise the file does not belong to this journal
    recovered = RecoveryResult(path=out, tensors=writer.events, complete=info.complete, lost=lost_places)
    return recovered, sources


def _copy_events(
    reader: JournalReader, run: JournaledRun, writer: RecordingWriter, progress: Callable[[int, int], None] | None
) -> tuple[tuple[str, int, int], ...]:
    """Write all values that match their hash. Return tensor, sample and step of the others."""
    lost_places = []
    for done_count, (place, event) in enumerate(run.events.items(), start=1):
        try:
            values = reader.read(event)
        except RecordingError:
            lost_places.append(place)
            run.lost_tensors[event.name] = "its values were damaged or missing when the run was recovered"
        else:
            writer.append(event.name, values, place[1:], constant=event.constant, quant=run.quants.get(place))
        if progress is not None:
            progress(done_count, len(run.events))
    return tuple(lost_places)
