"""Write a recording to a file, from memory or from another file."""

from __future__ import annotations

import shutil
from pathlib import Path

from qdebug.model import Recording
from qdebug.recording.environment import recorded_facts
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import cannot_write_error, check_target, replacing_file

__all__ = ["save_recording"]


def save_recording(recording: Recording, path: Path, *, force: bool = False) -> None:
    """Write a recording to a file. After an error, there is no partial file.

    A recording in a file is copied. For a recording in memory, graph, values and facts of the run are written, but not
    its fidelity, because there is no plain run to confirm it.

    Args:
        recording: The recording.
        path: The file.
        force: Whether to overwrite an existing file.

    Raises:
        OutputExistsError: The file exists and may not be overwritten.
        RecordingError: The file cannot be written.
    """
    source = getattr(recording, "path", None)
    if isinstance(source, Path):
        check_target(path, force=force)
        try:
            with replacing_file(path) as temporary_file:
                shutil.copyfile(source, temporary_file)
        except OSError as error:
            raise cannot_write_error(path, error) from None
        return
    info = recording.info
    with Recorder(path, graph=recording.graph, force=force, **recorded_facts(info)) as recorder:
        for name in recording.names:
            if recording.graph.is_constant(name):
                recorder.constant(name, recording.load(name))
        for place in recording.places():
            recorder.at(*place)
            for name in recording.names:
                if not recording.graph.is_constant(name) and recording.has(name, *place):
                    recorder.put(name, recording.load(name, *place))
        for tensor, reason in info.skipped.items():
            recorder.skip(tensor, reason, because=info.skip_causes.get(tensor))
        for tensor, reason in info.disturbed.items():
            recorder.disturbed(tensor, reason)
