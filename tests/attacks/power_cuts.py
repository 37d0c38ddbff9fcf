"""Cut the power at every moment: replay what a disk may hold then, recover it, and compare it with what was promised.

Usage: power_cuts.py FOLDER STATES [SEED]        that many states over all runs, one JSON line a run
       power_cuts.py FOLDER --mutants [TEXT]     each sync whose place in the code has this text left out, and done too
                                                 late: is the loss noticed?

What a disk may hold then is in disk_model.py. After each such state everything that was due must come back, bit for
bit, and nothing else may break.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import traceback
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from disk_model import EXTREMES, TORN, Promise, Trace, disk_at, random_style

from qdebug.errors import QdebugError, RecordingError
from qdebug.model import Graph, Node
from qdebug.recording.reading import verify
from qdebug.recording.reading.opening import join, read_manifest
from qdebug.recording.reading.read import FileRecording
from qdebug.recording.reading.verify import VerifiedContents
from qdebug.recording.recorder import Recorder
from qdebug.recording.target import journal_of, part_of
from qdebug.recording.writing import pack as pack_module
from qdebug.recording.writing import recovery, write
from qdebug.recording.writing.pack import pack
from qdebug.recording.writing.recovery import recover
from qdebug.recording.writing.write import RecordingWriter

NAME = "run.h5"
_WRITE = os.write
NEVER = 1e9
"""Seconds between two syncs of the recorder's own thread: a run here says itself when one is due."""


# -- the runs ---------------------------------------------------------------------------------------------------------

SIZES = [3, 700, 0, 5000, 1, 2000, 17, 900, 1500, 40]


def array(number):
    """Return the array that is put as number so-and-so; no two are equal."""
    return np.arange(SIZES[number % len(SIZES)], dtype=np.int32) + 1000 * number


def put(rec, numbers):
    """Put some of the arrays, with what is said of them."""
    for number in numbers:
        rec.put(f"t{number}", array(number), node=f"n{number}", op="Relu", inputs=("t0",) if number else ())


def recording_of(path, backend="new", count=10, **options):
    """Make a finished recording."""
    with Recorder(path, backend=backend, **options) as rec:
        put(rec, range(count))


@contextlib.contextmanager
def after(trace, owner, name, promised):
    """Make a promise each time that a function has returned; `promised` says which, before it is called."""
    real = getattr(owner, name)

    def call(*args, **keys):
        changes = promised(*args)
        done = real(*args, **keys)
        trace.promised(**changes)
        return done

    setattr(owner, name, call)
    try:
        yield
    finally:
        setattr(owner, name, real)


def durable_run(folder, trace, *, close=True, bounds=(0, 4, 8, 10), **options):
    """Record with durable=True, and sync at some numbers of arrays; close, if wanted."""
    begun = after(trace, write, "create_files", lambda *_: {"known": True})
    with begun, after(trace, RecordingWriter, "sync", lambda writer: {"due": writer.events}):
        rec = Recorder(folder / NAME, backend="new", durable=NEVER, **options)
        for first, last in pairwise(bounds):
            put(rec, range(first, last))
            if last < bounds[-1]:
                with contextlib.suppress(RecordingError):  # as the recorder's own thread does
                    rec._sink.sync()
        rec.outputs("t9")
        if not close:
            rec._sink.leave()
            return
        rec.close()
    trace.finished(folder / NAME)


def fresh(folder, trace):
    """Record to a new name."""
    durable_run(folder, trace)


def many_arrays(folder, trace):
    """Record so many arrays that the journal has many pages, with a sync in the middle of some."""
    durable_run(folder, trace, bounds=(0, 37, 60, 61, 119, 120))


def put_meanwhile(folder, trace):
    """Record while another thread syncs: an array is put between its two syncs, and is not due yet."""
    recorders, numbers, real = [], iter(range(len(SIZES))), write.sync_file

    def sync_file(fd):
        real(fd)
        if recorders and recorders[0]._is_open and fd == recorders[0]._sink._payloads.file.fd:
            put(recorders[0], [number for number in (next(numbers, None),) if number is not None])

    begun = after(trace, write, "create_files", lambda *_: {"known": True})
    write.sync_file = sync_file
    try:
        with begun, after(trace, RecordingWriter, "sync", lambda writer: {"due": writer.events}):
            recorders.append(Recorder(folder / NAME, backend="new", durable=NEVER))
            for _ in range(3):
                put(recorders[0], [next(numbers)])
                with contextlib.suppress(RecordingError):
                    recorders[0]._sink.sync()
            recorders[0].close()
    finally:
        write.sync_file = real
    trace.finished(folder / NAME)


def with_graph(folder, trace):
    """Record with a graph that is known beforehand, and leave without closing."""
    nodes = [
        Node(name=f"n{number}", op="Relu", inputs=("t0",) if number else (), outputs=(f"t{number}",))
        for number in range(len(SIZES))
    ]
    durable_run(folder, trace, close=False, graph=Graph(nodes, outputs=("t9",)))


def over_old(folder, trace):
    """Record over an older recording."""
    trace.promised(old=True)
    durable_run(folder, trace, force=True)


def over_left(folder, trace):
    """Record over what a run left that was killed."""
    durable_run(folder, trace, force=True)


def plain_over_old(folder, trace):
    """Record over an older recording, without durable=True: the new one may be lost, not both."""
    trace.promised(old=True)
    recording_of(folder / NAME, force=True)


def recovering(folder, trace):
    """Recover what a run left that was killed."""
    trace.promised(due=len(SIZES))
    with after(trace, write, "create_files", lambda *_: {"known": True}):
        recover(folder / NAME)
    trace.finished(folder / NAME)


def recovering_over_old(folder, trace):
    """Recover what a run left over an older recording."""
    trace.promised(due=len(SIZES), old=True)
    recover(folder / NAME, force=True)
    trace.finished(folder / NAME)


def naming_over_old(folder, trace):
    """Recover what a killed run left over an older recording that lacks but its name; no power cut was in between."""
    trace.promised(old=True)
    left_whole(folder)
    recover(folder / NAME, force=True)
    trace.finished(folder / NAME)


def packing(folder, trace):
    """Pack in place."""
    trace.promised(due=len(SIZES))
    with after(trace, pack_module, "sync_file", lambda *_: {"known": True}):
        pack(folder / NAME)
    trace.finished(folder / NAME)


def joining(folder, trace):
    """Write a manifest over an older one."""
    join([folder / "a.h5", folder / "b.h5"], folder / "run.json", force=True, prefixes=["a", "b"])
    trace.finished(folder / "run.json")


def old_there(folder):
    """Leave an older recording in the place."""
    recording_of(folder / NAME, "old", 2)


def left_there(folder):
    """Leave what a killed run leaves."""
    rec = Recorder(folder / NAME, backend="new", force=True)
    put(rec, range(len(SIZES)))
    rec._sink.leave()


def left_over_old(folder):
    """Leave an older recording, and what a killed run leaves that was to replace it."""
    old_there(folder)
    left_there(folder)


def left_whole(folder):
    """Leave a run that lacks but its name."""
    recording_of(folder / "new.h5")
    (folder / "new.h5").rename(part_of(folder / NAME))


def left_of_another(folder):
    """Leave what a killed run leaves that recorded something else."""
    rec = Recorder(folder / NAME, backend="other")
    rec.put("other", np.arange(3000.0))
    rec._sink.leave()


def manifest_there(folder):
    """Leave two recordings and a manifest of them."""
    for name in "ab":
        recording_of(folder / f"{name}.h5", count=2)
    join([folder / "a.h5", folder / "b.h5"], folder / "run.json", prefixes=["x", "y"])


RUNS = {
    "durable": (lambda _: None, fresh),
    "durable, many arrays": (lambda _: None, many_arrays),
    "durable, arrays put while it syncs": (lambda _: None, put_meanwhile),
    "durable, not closed": (lambda _: None, with_graph),
    "durable, forced over a recording": (old_there, over_old),
    "durable, forced over what a run left": (left_of_another, over_left),
    "forced over a recording": (old_there, plain_over_old),
    "recover": (left_there, recovering),
    "recover over a recording": (left_over_old, recovering_over_old),
    "recover a whole file": (left_whole, recovering),
    "recover a whole file over a recording": (old_there, naming_over_old),
    "pack": (lambda folder: recording_of(folder / NAME), packing),
    "join": (manifest_there, joining),
}


def traced(folder, run):
    """Do a run and return what happened, without the state it began with."""
    prepare, work = RUNS[run]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    prepare(folder)
    with Trace(folder) as trace:
        start = len(trace.ops)
        work(folder, trace)
    return trace.ops, start


# -- the judge --------------------------------------------------------------------------------------------------------


def verify_here(path):
    """Verify a file as `qdebug.recording.reading.verify` does, but in a fork, which starts a hundred times as fast."""
    said = in_child(lambda: _verified(path))
    if isinstance(said, str):
        raise RecordingError(said)
    if "error" in said:
        raise RecordingError(said["error"])
    return VerifiedContents(path=path, **said)


def prepare():
    """Make this process fast: no disk is waited for, since what one would hold is worked out."""
    recovery.verify = verify_here
    os.fsync = lambda _: None


def _verified(path):
    try:
        return verify._check_file(path)
    except RecordingError as error:
        return {"error": error.message}


def judge(folder, promise, run):
    """Look at a state as a user does, and return what is wrong with it; "" if all that was due is there."""
    if run == "join":
        return _judge_manifest(folder, promise)
    path = folder / NAME
    if promise.final is not None and (not path.exists() or path.read_bytes() != promise.final):
        return "it was finished, and is not there or is another one"
    backend = _backend(path)
    if promise.old and backend not in ("old", "new"):
        return "the older recording is lost, and the new one is not there"
    if backend != "new":
        if promise.due and "whole" not in run and not journal_of(path).exists():
            return "the journal is gone, and the file has no name yet"
        try:
            path = recover(path, folder / "recovered.h5" if backend == "old" else None).path
        except RecordingError as error:
            if promise.due and (promise.known or "no recorder wrote it" not in str(error)):
                return f"it could not be recovered: {error}"
            return _start_anew(path, promise)
    if run == "pack":
        try:
            pack(path)
        except RecordingError as error:
            return f"it cannot be packed again: {error}" if promise.known else ""
    return _compare(path, promise.due)


def _backend(path):
    """Return which recording has the name: "old", "new", or "" if there is none that can be read."""
    try:
        with FileRecording(path) as recording:
            for event in range(recording.event_count):
                recording.check_payload(event)
            return recording.info.backend
    except QdebugError:
        return ""


def _start_anew(path, promise):
    """Nothing was due: whoever records there again must be able to, or be told what is in the way."""
    try:
        Recorder(path, backend="again", force=True).discard()
    except RecordingError as error:
        if promise.known or not error.hint:
            return f"recording again is refused: {error}"
    return ""


def _compare(path, due):
    with FileRecording(path) as recording:
        if recording.info.backend == "other":
            return "the older run came back in place of the new one" if due else ""
        names = set(recording.names)
        if missing := [number for number in range(due) if f"t{number}" not in names]:
            return f"of {due} arrays that were due {len(missing)} are lost"
        for name in names:
            if not np.array_equal(recording.load(name), array(int(name[1:]))):
                return f"the values of {name} are wrong"
    return ""


def _judge_manifest(folder, promise):
    path = folder / "run.json"
    if promise.final is not None and path.read_bytes() != promise.final:
        return "it was finished, and is not there or is another one"
    try:
        prefixes = [part.prefix for part in read_manifest(path).parts]
    except (QdebugError, OSError) as error:
        return f"the manifest is lost: {error}"
    return "" if prefixes in (["x", "y"], ["a", "b"]) else f"the manifest is another one: {prefixes}"


def problem_at(folder, run, ops, style, rng):
    """Lay out a state and judge it."""
    promise = next((op.promise for op in reversed(ops) if op.kind == "promise"), Promise())
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name, content in disk_at(ops, style, rng).items():
        (folder / name).write_bytes(content)
    try:
        return judge(folder, promise, run)
    except BaseException:  # noqa: BLE001  whatever it is, it is what was looked for
        return traceback.format_exc(limit=-4)


def in_child(work):
    """Run a function in a fork and return what it returns; a crash is an answer too."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(600)
            _WRITE(writer, json.dumps(work()).encode())
            os._exit(0)
        finally:
            os._exit(1)
    os.close(writer)
    with open(reader, "rb") as file:  # noqa: PTH123  a descriptor has no path
        said = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return json.loads(said) if code == 0 else f"the process that looked at it ended with {code}"


def sweep(folder, run, states, seed):
    """Cut the power so many times in one run; return what was wrong."""
    ops, start = traced(folder / "work", run)
    rng = random.Random(f"{seed} {run}")  # noqa: S311  seeded on purpose

    def some(count):
        wrong = []
        for _ in range(count):
            cut = rng.randint(start, len(ops))
            style = rng.choice(EXTREMES) if rng.random() < 0.3 else random_style(rng)
            if problem := problem_at(folder / "state", run, ops[:cut], style, rng):
                wrong.append(f"after {cut}: {style}: {problem}")
        return wrong

    wrong = []
    for first in range(0, states, 50):
        rng.seed(f"{seed} {run} {first}")
        count = min(50, states - first)
        done = in_child(lambda count=count: some(count))
        wrong += [done] if isinstance(done, str) else done
    promises = [op.promise for op in ops if op.kind == "promise"]
    due = max((promise.due for promise in promises), default=0)
    return {"run": run, "states": states, "operations": len(ops) - start, "due": due, "wrong": wrong}


def without(ops, site):
    """Leave out the syncs of a line of code."""
    return [op for op in ops if op.site != site]


def too_late(ops, site):
    """Do each sync of a line of code only after the first thing that should have waited for it."""
    done, late = [], []
    told = Promise()
    for op in ops:
        if op.site == site:
            late.append(op)
            continue
        done.append(op)
        if op.kind == "promise":
            waited, told = replace(op.promise, known=told.known) != told, op.promise
        else:
            waited = (op.kind in ("rename", "unlink") and not op.name.endswith(".lock")) or (
                op.kind == "write" and op.file in {each.file for each in late}
            )
        if waited:
            done += late
            late = []
    return done + late


_NEAR = 12


def noticed(folder, run, ops, places):
    """Find a state in which something that was due is lost, near the places that were changed; "" if there is none."""
    promised = [at + 1 for at, op in enumerate(ops) if op.kind == "promise" and at + 1 >= places[0]]
    near = [at for place in places for at in range(place, min(place + _NEAR, len(ops)) + 1)]
    states = [(cut, style) for cut in dict.fromkeys((*promised, *near)) for style in (*EXTREMES, *TORN)]

    def first(some):
        for number, (cut, style) in enumerate(some):
            rng = random.Random(f"{cut} {number}")  # noqa: S311  seeded on purpose
            if problem := problem_at(folder / "state", run, ops[:cut], style, rng):
                return f"{run}, after {cut}: {problem}"
        return ""

    found = (in_child(lambda at=at: first(states[at : at + 20])) for at in range(0, len(states), 20))
    return next(filter(None, found), "")


def mutate(folder, text):
    """Change the syncs of each line of code whose name has some text; say of each what that costs in which run."""
    traces = {run: traced(folder / "work", run)[0] for run in RUNS}
    sites = dict.fromkeys(op.site for ops in traces.values() for op in ops if op.site and text in op.site)
    for site in sites:
        for change in (without, too_late):
            found = ""
            for run, ops in traces.items():
                places = [at for at, op in enumerate(ops) if op.site == site]
                if places and not found:
                    found = noticed(folder, run, change(ops, site), places)
            yield {"site": site, "mutant": change.__name__, "noticed": found}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(exist_ok=True)
    folder = folder.resolve()
    prepare()
    if sys.argv[2] == "--mutants":
        for each in mutate(folder, "".join(sys.argv[3:])):
            print(json.dumps(each), flush=True)
        return
    states, seed = int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else "0"
    for number, run in enumerate(RUNS):
        share = states // len(RUNS) + (number < states % len(RUNS))
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(sweep(folder, run, share, seed)), flush=True)


if __name__ == "__main__":
    main()
