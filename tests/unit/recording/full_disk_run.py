"""Record on a disk that is full from some size on: print what became of each run, one JSON line a limit.

Usage: full_disk_run.py FOLDER LIMIT ... A forked child records under RLIMIT_FSIZE, as a host program does that knows
nothing of full disks. What it told of as recorded must be in a sealed file, or come back when it is recovered.
"""

import json
import os
import resource
import sys
import warnings
from pathlib import Path

import numpy as np

from qdebug.errors import NotARecordingError, RecordingError
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.recovery import recover

SIZES = [3, 700, 0, 5000, 1, 20_000, 17, 9000]


def host(path, limit):
    """Record and be disturbed by nothing; give how many arrays are said to be safe, or -1 if it could not begin."""
    sys.dont_write_bytecode = True  # the limit would cut off a .pyc, and later imports would fail
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            rec = Recorder(path, backend="b")
        except RecordingError as error:
            return -1 if error.hint else -2
        with rec:
            for number, size in enumerate(SIZES):
                rec.put(f"t{number}", np.full(size, number, np.int32), node=f"n{number}", op="Relu")
            rec.outputs("t7")
            rec.check({"t7": np.full(SIZES[7], 7, np.int32)})
    said = [str(each.message) for each in caught]
    if len(said) != (rec.failure is not None) or any("\n" in text for text in said):
        return -3
    return rec.kept


def run(path, limit):
    """Return what became of a run."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, str(host(path, limit)).encode())
        os._exit(0)
    os.close(writer)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    kept = int(os.read(reader, 100) or b"-9")
    os.close(reader)
    return {"limit": limit, "code": code, "kept": kept, **judge(path, kept)}


def judge(path, kept):
    """Open or recover what is there, compare it with what was put, and clean up."""
    if kept <= 0:
        left = sorted(entry.name for entry in path.parent.iterdir())
        return {"way": "nothing", "wrong": len(left)}
    way = "sealed" if path.exists() else "recovered"
    try:
        if way == "recovered":
            recover(path)
    except NotARecordingError:
        return {"way": "lost", "wrong": kept}
    with FileRecording(path) as recording:
        names = [f"t{number}" for number in range(kept)]
        wrong = set(recording.names) != set(names)
        for number, name in enumerate(names):
            wrong += not np.array_equal(recording.load(name), np.full(SIZES[number], number, np.int32))
        # A file that was whole but could not be closed is as complete as one that got its name.
        wrong += recording.info.complete and kept < len(SIZES)
        wrong += way == "sealed" and kept == len(SIZES) and not recording.info.complete
    path.unlink()
    return {"way": way, "wrong": int(wrong) + len(list(path.parent.iterdir()))}


def main():
    os.fsync = lambda _: None  # only a power cut would show, and it takes most of the time
    folder = Path(sys.argv[1])
    for limit in sys.argv[2:]:
        print(json.dumps(run(folder / "run.h5", int(limit))), flush=True)


if __name__ == "__main__":
    main()
