"""A pytest plugin that keeps the pairs that tests compare, align and explain, as files of a corpus.

    QDEBUG_HARVEST=CORPUS PYTHONPATH=tests/decisions python -m pytest -p harvest tests/unit/compare

The tests hold a made-up pair for each rule and a recording for each fault. What they compare becomes a case, whatever
they check of it. This reaches into the package, and is needed only where a corpus is made.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import pickle
import shutil
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

import numpy as np

import qdebug
import qdebug.compare.align.align as aligning
import qdebug.compare.explaining.explain as explaining
from qdebug.model import Fidelity
from qdebug.session import DiffSession

CORPUS = Path(os.environ["QDEBUG_HARVEST"])
MOST_BYTES, MOST_NODES = 40_000_000, 3000
MOST_OF_A_TEST = int(os.environ.get("QDEBUG_HARVEST_MOST", "12"))
FLAGS = {
    **{name: f"--{name.replace('_', '-')}" for name in ("min_sqnr", "max_lsb", "atol", "rtol")},
    **{name: f"--{name.replace('_', '-')}" for name in ("allow_partial", "allow_unfaithful", "allow_uncompared")},
}
seen: set[str] = set()
taken: Counter[str] = Counter()
refused: Counter[str] = Counter()


class NotKeptError(Exception):
    """A pair that no file and no command line can say."""


def stored(recording) -> str:
    """Store a recording under the hash of what it holds; return its path inside the corpus."""
    path = getattr(recording, "path", None)
    if isinstance(path, Path) and type(recording).__name__ == "FileRecording":
        if path.stat().st_size > MOST_BYTES:
            raise NotKeptError("too large")
        return kept(path, hashlib.sha256(path.read_bytes()).hexdigest())
    if not isinstance(recording, qdebug.MemoryRecording) and type(recording).__name__ != "Altered":
        raise NotKeptError(f"a {type(recording).__name__}")
    if len(recording.graph.nodes) > MOST_NODES:
        raise NotKeptError("too many nodes")
    digest = content(recording)
    if not (CORPUS / target(digest)).exists():
        made = CORPUS / f".harvest-{os.getpid()}.h5"
        try:
            save(recording, made)
            kept(made, digest)
        except qdebug.QdebugError as error:
            raise NotKeptError(f"no file can hold it ({type(error).__name__})") from error
        finally:
            made.unlink(missing_ok=True)
    return target(digest)


def target(digest: str) -> str:
    """Return where the recording of a hash lies in the corpus."""
    return f"files/{digest[:20]}.h5"


def kept(path: Path, digest: str) -> str:
    """Copy a file into the corpus once."""
    if not (CORPUS / target(digest)).exists():
        (CORPUS / "files").mkdir(exist_ok=True)
        shutil.copyfile(path, CORPUS / target(digest))
    return target(digest)


def content(recording) -> str:
    """Return a hash of all that a recording in memory holds."""
    if getattr(recording, "_partial_records", None):
        raise NotKeptError("kept in part")
    hashed = hashlib.sha256(pickle.dumps((recording.graph, str(recording.info.fidelity), recording.info.complete)))
    size = 0
    for name, sample, step in places(recording):
        array = recording.load(name, sample, step)
        size += array.nbytes
        if size > MOST_BYTES:
            raise NotKeptError("too large")
        own = getattr(recording, "event_quants", {}).get((name, sample, step))
        hashed.update(repr((name, sample, step, str(array.dtype), array.shape, own)).encode() + array.tobytes())
    return hashed.hexdigest()


def places(recording):
    """Go through what was recorded: constants first, then sample by sample."""
    constants = [name for name in recording.names if recording.graph.is_constant(name)]
    yield from ((name, 0, 0) for name in constants if recording.has(name))
    for sample in range(recording.samples):
        for step in range(recording.steps):
            for name in recording.names:
                if not recording.graph.is_constant(name) and recording.has(name, sample, step):
                    yield name, sample, step


def save(recording, path: Path) -> None:
    """Write a recording in memory to a file, with its fidelity."""
    info, graph = recording.info, recording.graph
    own = getattr(recording, "event_quants", {})
    recorder = qdebug.Recorder(
        path,
        backend=info.backend,
        graph=graph,
        force=True,
        model=info.model,
        taps=info.taps,
        cpu_flags=info.cpu_flags,
        options=dict(info.options),
    )
    checked: dict[tuple[int, int], dict[str, np.ndarray]] = {}
    for name, sample, step in places(recording):
        array = recording.load(name, sample, step)
        if graph.is_constant(name):
            recorder.constant(name, array)
            continue
        recorder.at(sample, step)
        quant = own.get((name, sample, step))
        facts = ("scale", "zero_point", "axis", "block_size", "qmin", "qmax")
        said = {} if quant is None else {key: getattr(quant, key) for key in facts}
        recorder.put(name, array, **said)
        if name in graph.outputs:
            checked.setdefault((sample, step), {})[name] = array
    for place, outputs in checked.items():
        if info.fidelity is not Fidelity.UNKNOWN:
            recorder.at(*place)
            other = info.fidelity is Fidelity.DIFFERS
            recorder.check({name: ~array if array.dtype == bool else array + other for name, array in outputs.items()})
    for tensor, reason in info.skipped.items():
        recorder.skip(tensor, reason)
    recorder.close(complete=info.complete)


def arguments(limits) -> list[str]:
    """Return limits as the command line says them."""
    said: list[str] = []
    for field in () if limits is None else fields(limits):
        value = getattr(limits, field.name)
        if value == field.default:
            continue
        if field.name not in FLAGS:
            raise NotKeptError(f"limits with {field.name}")
        if isinstance(value, bool):
            said.append(FLAGS[field.name])
        else:
            values = value if isinstance(value, tuple) else (value,)
            said += [word for each in values for word in (FLAGS[field.name], str(each))]
    return said


def keep(kind: str, recordings, limits=None) -> None:
    """Keep what a test hands over as a case, unless it was kept before."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").removesuffix(" (call)").removesuffix(" (setup)")
    if taken[test] >= MOST_OF_A_TEST:
        return
    try:
        args = arguments(limits)
        files = [stored(recording) for recording in recordings]
    except NotKeptError as reason:
        refused[str(reason)] += 1
        return
    except Exception as error:  # noqa: BLE001  the tests go on; it is counted and said at the end
        refused[f"{type(error).__name__}: {str(error)[:80]}"] += 1
        return
    key = repr((kind, files, args))
    if key in seen:
        return
    seen.add(key)
    taken[test] += 1
    case = {"name": f"{test} #{taken[test]} {kind}", "kind": kind, "files": files, "args": args}
    with (CORPUS / "harvest.jsonl").open("a", encoding="utf-8") as file:
        file.write(json.dumps(case) + "\n")


def _watched(kind: str, function):
    count = 2 if kind == "diff" else 1

    @functools.wraps(function)
    def call(*arguments, **named):
        keep(kind, arguments[:count])
        return function(*arguments, **named)

    return call


def _watched_session(start):
    @functools.wraps(start)
    def call(self, reference, backend, **named):
        keep("diff", (reference, backend), named.get("limits"))
        start(self, reference, backend, **named)

    return call


aligning.align = _watched("diff", aligning.align)
explaining.explain_recording = _watched("explain", explaining.explain_recording)
DiffSession.__init__ = _watched_session(DiffSession.__init__)


def pytest_sessionfinish() -> None:
    """Say what was not kept."""
    for reason, count in sorted(refused.items()):
        print(f"not kept: {count} x {reason}", file=sys.stderr)
