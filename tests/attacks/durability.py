"""Try what the guide promises of recordings, and print a table: promise, how often tried, how often broken.

Usage: durability.py FOLDER [--states N] [--kills N] [--failures N] [--mutants] [--seed TEXT] [--json]

Power cuts are those of power_cuts.py. A kill ends a process with SIGKILL before or after one of its calls that change
a file, or at any time. A failure is a call of one kind that the system refuses once, or from then on: the program that
is recorded must not notice, and what was put before must come back.
"""

import argparse
import contextlib
import errno
import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import power_cuts
from power_cuts import NAME, RUNS, Promise, after, in_child, judge, mutate, sweep

from qdebug.errors import QdebugError
from qdebug.recording import target
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.write import RecordingWriter

CALLS = {
    "write": ("pwrite", "write"),
    "sync": ("fsync",),
    "rename": ("replace", "rename", "_rename_exclusively"),
    "truncate": ("ftruncate",),
    "unlink": ("unlink",),
}
ERRORS = ("ENOSPC", "EIO")
_LONGEST = 0.2
"""Seconds after which a process is killed at the latest: longer than a run takes."""


class Watch:
    """Takes the place of a trace: hears what was promised to whoever outlives a process, and counts calls.

    Args:
        act: Called before and after each call that changes a file, with its kind; it may raise.
        half: Whether a write that is refused has written half of its bytes.
    """

    def __init__(self, act, *, half=False):
        self.promise = Promise()
        self.recording = False
        self._act, self._half = act, half

    def promised(self, **changes):
        """Take what outlives a process; what is known of half-written files is for power cuts alone."""
        changes.pop("known", None)
        if "due" in changes:
            changes["due"] = max(changes["due"], self.promise.due)
        self.promise = Promise(**{**vars(self.promise), **changes})

    def finished(self, path):
        """Take what a finished file holds; it may not have got its name if a call failed."""

    @contextlib.contextmanager
    def over(self, kinds):
        """Watch the calls of some kinds."""
        owner = {name: target if name == "_rename_exclusively" else os for kind in kinds for name in CALLS[kind]}
        real = {name: getattr(owner[name], name) for name in owner}

        def watched(kind, name):
            def call(*args, **keys):
                try:
                    self._act(kind, "before")
                except OSError:
                    if name == "pwrite" and self._half:
                        real[name](args[0], bytes(args[1])[: len(args[1]) // 2], *args[2:])
                    raise
                done = real[name](*args, **keys)
                self._act(kind, "after")
                return done

            return call

        for kind in kinds:
            for name in CALLS[kind]:
                setattr(owner[name], name, watched(kind, name))
        try:
            yield
        finally:
            for name, call in real.items():
                setattr(owner[name], name, call)


def work_of(folder, run, watch, kinds):
    """Do a run while it is watched; an array is due as soon as it was put."""

    def put(writer, *_, **__):
        return {"due": writer.events + 1} if watch.recording else {}

    watch.recording = "durable" in run or "forced" in run
    with watch.over(kinds), after(watch, RecordingWriter, "append", put):
        RUNS[run][1](folder, watch)


def prepared(folder, run):
    """Make the folder that a run begins with."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    RUNS[run][0](folder)


def calls_of(folder, run):
    """Count the calls of a run by kind."""
    count = Counter()
    prepared(folder, run)
    work_of(folder, run, Watch(lambda kind, when: count.update([(kind, when)])), CALLS)
    return Counter({kind: number for (kind, when), number in count.items() if when == "before"})


# -- kills ------------------------------------------------------------------------------------------------------------


def killed(folder, run, rng, calls):
    """Kill a run at one of its calls or at any time; return what is wrong with what it left."""
    prepared(folder, run)
    at = rng.randrange(2 * sum(calls.values())) if rng.random() < 0.5 else -1
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        seen = iter(range(1 << 30))
        watch = Watch(lambda *_: next(seen) == at and os.kill(os.getpid(), signal.SIGKILL))
        take, tell = watch.promised, os.write

        def promised(**changes):
            take(**changes)
            tell(writer, f"{watch.promise.due} {int(watch.promise.old)}\n".encode())

        watch.promised = promised
        with contextlib.suppress(BaseException):
            work_of(folder, run, watch, CALLS)
        os._exit(0)
    os.close(writer)
    if at < 0:
        time.sleep(rng.uniform(0, _LONGEST / 4))
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with open(reader, "rb") as file:  # noqa: PTH123  a descriptor has no path
        said = file.read().splitlines()
    due, old = map(int, said[-1].split()) if said else (0, 0)
    return judged(folder, Promise(due=due, old=bool(old)), run)


def judged(folder, promise, run):
    """Judge what a run left; whatever is raised is wrong."""
    try:
        return judge(folder, promise, run)
    except BaseException:  # noqa: BLE001  whatever it is, it is what was looked for
        return traceback.format_exc(limit=-4)


# -- calls that fail --------------------------------------------------------------------------------------------------


def failed(folder, run, kind, number, rng, calls):
    """Let a call fail in a run; return what is wrong with what the program saw, or with what is left."""
    prepared(folder, run)
    at, lasting = {kind: rng.randrange(calls[kind])}, rng.random() < 0.5
    if kind == "truncate" and rng.random() < 0.8:  # what a write left behind that was refused cannot be cut off
        at = {"write": rng.randrange(calls["write"]), kind: 1}
    seen = Counter()

    def act(of, when):
        if when == "before":
            place, seen[of] = seen[of], seen[of] + 1
            if of in at and (place == at[of] or (lasting and place > at[of])):
                raise OSError(number, os.strerror(number))

    watch = Watch(act, half=rng.random() < 0.5)
    opened = []
    with (
        warnings.catch_warnings(record=True) as caught,
        after(watch, Recorder, "__init__", lambda rec, *_: opened.append(rec) or {}),
    ):
        warnings.simplefilter("always")
        try:
            work_of(folder, run, watch, CALLS)
            raised = None
        except QdebugError as error:
            raised = error
        except BaseException:  # noqa: BLE001  a host, or a user, would see it
            return traceback.format_exc(limit=-4)
    reported = any(rec.failure for rec in opened if hasattr(rec, "_sink"))
    if watch.recording and opened and raised is not None and hasattr(opened[-1], "_sink"):
        return f"the program that was recorded saw {raised!r}"
    if raised is not None and not raised.hint:
        return f"no hint: {raised!r}"
    if reported and not caught and run != "durable, not closed":
        return "nobody was warned"
    done = watch.recording and not reported and raised is None and run != "durable, not closed"
    promise = watch.promise
    if done and power_cuts._backend(folder / NAME) != "new":
        return "no failure was reported, and there is no recording"
    return judged(folder, promise, run)


# -- the table --------------------------------------------------------------------------------------------------------


def many(work, times, seed, *, at_once=25):
    """Do something so many times, in forks; return what was wrong."""
    wrong = []
    for first in range(0, times, at_once):

        def some(first=first):
            rng = random.Random(f"{seed} {first}")  # noqa: S311  seeded on purpose
            return [said for _ in range(min(at_once, times - first)) if (said := work(rng))]

        found = in_child(some)
        wrong += [found] if isinstance(found, str) else found
    return wrong


def shares(times, count):
    """Divide so many times among so many."""
    return [times // count + (number < times % count) for number in range(count)]


def tried(folder, options):
    """Try each promise; list it, how often it was tried, and what was wrong."""
    for run, states in zip(RUNS, shares(options.states, len(RUNS)), strict=True):
        found = sweep(folder, run, states, options.seed)
        yield f"power cut: {run}", states, found["wrong"]
    runs = [run for run in RUNS if run != "recover a whole file over a recording"]  # which begins with a run of its own
    calls = {run: calls_of(folder / "work", run) for run in runs}
    for run, times in zip(runs, shares(options.kills, len(runs)), strict=True):
        wrong = many(lambda rng, run=run: killed(folder / "work", run, rng, calls[run]), times, f"{options.seed} {run}")
        yield f"kill: {run}", times, wrong
    for kind in CALLS:
        possible = [run for run in runs if calls[run][kind]]
        for name in ERRORS:

            def fail(rng, kind=kind, name=name, possible=possible):
                run = rng.choice(possible)
                said = failed(folder / "work", run, kind, getattr(errno, name), rng, calls[run])
                return f"{run}: {said}" if said else ""

            wrong = many(fail, options.failures, f"{options.seed} {kind} {name}")
            yield f"failed {kind} ({name}), in {len(possible)} kinds of run", options.failures, wrong
    if options.mutants:
        found = list(mutate(folder, ""))
        yield "a sync left out or too late is noticed", len(found), [str(each) for each in found if not each["noticed"]]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--states", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=1000)
    parser.add_argument("--failures", type=int, default=300, help="of each kind of call and error")
    parser.add_argument("--mutants", action="store_true")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.folder.mkdir(exist_ok=True)
    power_cuts.prepare()
    bad = 0
    for promise, times, wrong in tried(options.folder.resolve(), options):
        bad += len(wrong)
        if options.json:
            print(json.dumps({"promise": promise, "tried": times, "wrong": wrong}), flush=True)
            continue
        print(f"{promise:<60} {times:>6} {len(wrong) or 'none':>6} broken", flush=True)
        for said in wrong[:3]:
            print("    " + said.replace("\n", "\n    "), flush=True)
    sys.exit(bad > 0)


if __name__ == "__main__":
    main()
