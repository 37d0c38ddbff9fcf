"""Make hostile recordings, use them with every verb, and print what was promised, how often it was tried, and kept.

    python tests/attacks/hostile.py                     every file, every verb, with and without --untrusted
    python tests/attacks/hostile.py --share 0.1         a tenth of the runs
    python tests/attacks/hostile.py --part 1/8          every verb with an eighth of the files, the first of eight parts
    python tests/attacks/hostile.py --verbs diff node   these alone
    python tests/attacks/hostile.py --mutations 200000  so many spoiled files and journals, read in this program

It needs nothing but the core packages. Each run is a process of its own. The exit code is 1 if a promise was broken.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import pkgutil
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "contracts"))
from recording_parts import OpenedFile, rewrite_as_format_one

import qdebug
from qdebug.cli.main import main as run_command
from qdebug.errors import QdebugError
from qdebug.model import Graph, Node, QuantParams, RunInfo, TensorInfo
from qdebug.recording.reading.follow import FollowedRecording
from qdebug.recording.reading.opening import open_recording
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.recovery import recover
from qdebug.recording.writing.write import RecordingWriter

HERE = Path(__file__).parent
SECONDS = 30
MEMORY_MB = 1 << 10
ROOM = 12 << 30
"""Address space of a run without --untrusted: a command that takes all memory must not take this machine's."""

VERBS = {
    "info": ["info", "FILE", "--tensors"],
    "diff": ["diff", "FILE", "FILE"],
    "diff, a sound one": ["diff", "SOUND", "FILE"],
    "node": ["diff", "FILE", "FILE", "--node", "y"],
    "explain": ["explain", "FILE"],
    "scales": ["scales", "choose", "FILE", "FILE"],
    "profile": ["scales", "profile", "FILE", "-o", "profile.h5", "--force"],
    "budget": ["budget", "FILE", "FILE"],
    "repair": ["repair", "SOUND", "FILE", "--within", "200", "--minutes", "0.1"],
    "lint": ["lint", "FILE"],
    "lint, a sound one": ["lint", "SOUND", "FILE"],
    "accuracy": ["accuracy", "SOUND", "FILE", "--metric", "output-sqnr"],
    "html": ["diff", "FILE", "FILE", "-o", "out.html", "--force"],
    "csv": ["export", "csv", "FILE", "FILE", "-o", "out.csv", "--force"],
    "npz": ["export", "npz", "FILE", "-o", "out.npz", "--force"],
    "record": ["record", "FILE", "--backend", "interpreter", "--inputs", "INPUTS", "-o", "out.h5", "--force"],
    "pack": ["file", "pack", "FILE", "-o", "packed.h5", "--force"],
    "recover": ["file", "recover", "FILE", "-o", "rescued.h5", "--force"],
    "verify": ["file", "verify", "FILE"],
}
ATTACKS = ("test_hostile_tables", "test_hostile_container")
GUARDED = [name for name in VERBS if name != "verify"]
PROMISES = (
    "ends by itself, by no signal",
    f"ends within {SECONDS} s",
    "ends with a code of its own",
    "prints no traceback, and is no internal error",
    "says what is wrong in one sentence and a hint",
    "leaves the folder of the file as it was (--untrusted)",
    f"takes at most {MEMORY_MB} MB (--untrusted)",
)


def loaded(path):
    """Load a module of the tests by its path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def large_node(path, op, attrs, inputs, domain):
    """Write a recording of a node that asks for far more than was recorded."""
    names = tuple("" if array is None else f"x{at}" for at, array in enumerate(inputs))
    node = Node(name="n", op=op, domain=domain, inputs=names, outputs=("y",), attrs=attrs)
    writer = RecordingWriter(path)
    given = {name: array for name, array in zip(names, inputs, strict=True) if name}
    for name, array in given.items():
        writer.append(name, array, (0, 0))
    writer.append("y", np.zeros(4, np.float32), (0, 0))
    writer.close(Graph([node], inputs=tuple(given), outputs=("y",), opset={"": 20}), RunInfo(backend="b"))


def odd_codes(path, scale, op, **quant):
    """Write a recording of a node between codes of an odd scale."""
    params = QuantParams(dtype="int8", scale=scale, zero_point=0, **quant)
    infos = [TensorInfo(name=name, dtype="int8", quant=params) for name in "xy"]
    inputs = ("x", "x") if op in ("Add", "Mul") else ("x",)
    node = Node(name="n", op=op, inputs=inputs, outputs=("y",))
    writer = RecordingWriter(path)
    for name in "xy":
        writer.append(name, np.arange(16, dtype=np.int8).reshape(1, 4, 4), (0, 0))
    writer.close(Graph([node], tensors=infos, inputs=("x",), outputs=("y",)), RunInfo(backend="b"))


def spoiled(path, content, spoil, foreign):
    """Write a sound recording and spoil it."""
    path.write_bytes(content)
    with OpenedFile(path, "a") as file:
        spoil(file, foreign)


def one_place(path, place):
    """Write a recording of one array at a place."""
    writer = RecordingWriter(path)
    writer.append("y", np.ones(4, np.float32), place)
    writer.close(Graph([Node(name="n", op="Relu", inputs=("y",), outputs=("z",))]), RunInfo(backend="b"))


def sparse(path, content):
    """Write a recording that ends with a hole of a terabyte."""
    with path.open("wb") as file:
        file.write(content)
        file.truncate(1 << 40)


def ways(folder):
    """Return what writes a hostile recording to a path, by what is wrong with it."""
    loaded(HERE / "conftest.py").write_innocent(folder / "sound.h5")
    foreign = folder / "foreign"
    os.mkfifo(foreign)
    content = (folder / "sound.h5").read_bytes()
    (folder / "one.h5").write_bytes(content)
    formats = {"": content, " in format 1": rewrite_as_format_one(folder / "one.h5").read_bytes()}
    attacks = [attack for module in ATTACKS for attack in loaded(HERE / f"{module}.py").ATTACKS.items()]
    found = {}
    for form, whole in formats.items():
        for title, spoil in attacks:
            found[title + form] = partial(spoiled, content=whole, spoil=spoil, foreign=foreign)
    cases = loaded(HERE.parent / "unit" / "replay" / "test_extents.py").LARGE
    for title, (op, attrs, inputs, domain) in cases.items():
        if sum(array.nbytes for array in inputs if array is not None) < 1 << 24 and "nothing" not in title:
            found[title] = partial(large_node, op=op, attrs=attrs, inputs=inputs, domain=domain)
    for op in ("Relu", "Add", "Mul", "Softmax", "Sigmoid", "GlobalAveragePool", "QuantizeLinear", "DequantizeLinear"):
        for scale in (0, np.nan):
            found[f"{op}, scale {scale}"] = partial(odd_codes, scale=np.float32(scale), op=op)
        blocks = np.ones((1, 4, 4), np.float32)
        found[f"{op}, blocks"] = partial(odd_codes, scale=blocks, op=op, axis=2, block_size=0)
    for sample in (2**32 - 2, 1):
        found[f"sample {sample}"] = partial(one_place, place=(sample, 2**32 - 2))
    found["sparse"] = partial(sparse, content=content)
    found["not HDF5"] = lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(1000))
    found["deep JSON"] = lambda path: path.write_bytes(b'{"a":' * 100_000)
    np.savez(folder / "inputs.npz", x=np.zeros((4, 3), np.float32), x0=np.zeros(1, np.float32))
    return found


def make(folder):
    """Write all hostile recordings; return them by what is wrong with them."""
    found = {}
    for title, write in ways(folder).items():
        found[title] = folder / f"{len(found)}.h5"
        write(found[title])
    return found


def run_one(words, folder, *, guarded):
    """Run a command in a forked process; return what became of it."""
    out, err = (tempfile.TemporaryFile(dir=folder) for _ in range(2))  # noqa: SIM115  closed with the process that holds them
    process = os.fork()
    if not process:
        code = 70
        try:
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            os.chdir(folder)
            if not guarded:
                resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
            code = run_command([*words, "--untrusted"] if guarded else words)
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 70
        except BaseException:  # noqa: BLE001  what this is about
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    begun, status, usage = time.monotonic(), None, None
    while status is None:
        done, state, used = os.wait4(process, os.WNOHANG)
        if done:
            status, usage = state, used
        elif time.monotonic() - begun > 2 * SECONDS:
            os.kill(process, signal.SIGKILL)
        time.sleep(0.01)
    err.seek(0)
    said = err.read().decode(errors="replace")
    per_mb = 1 << (20 if sys.platform == "darwin" else 10)
    return os.waitstatus_to_exitcode(status), said, time.monotonic() - begun, usage.ru_maxrss / per_mb


def judged(code, said, seconds, memory, changed, *, guarded):
    """Tell of each promise whether it was kept; None where it does not apply."""
    told = [line for line in said.splitlines() if line.startswith("qdebug: ")]
    return (
        code >= 0 and "was ended by" not in said,
        seconds <= SECONDS,
        code in (0, 1, 2, 3),
        "Traceback" not in said and "internal error" not in said,
        len(told) == 1 and re.search(r"[.!]$", told[0]) is not None if code == 2 else None,
        not changed if guarded else None,
        memory <= MEMORY_MB if guarded else None,
    )


def load_ahead():
    """Import what the verbs import when they run, so that the forked runs need not; runtimes and screens stay out."""
    for module in pkgutil.walk_packages(qdebug.__path__, "qdebug."):
        if module.name.split(".")[1] not in ("backends", "tui", "__main__"):
            importlib.import_module(module.name)


def part_of(text):
    """Return which part is meant, from 0, and of how many."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 0 < int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text!r} is no part: write 1/8")
    return int(number) - 1, int(count)


def use_all(share, rng, part=(0, 1), verbs=tuple(VERBS), shown=print):
    """Use every file with every verb; return how often each promise was tried and broken, and the broken ones."""
    tried, broken, failures = Counter(), Counter(), []
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held)
        (folder / "files").mkdir()
        files = make(folder / "files")
        chosen = sorted(files)[part[0] :: part[1]]
        shown(f"{len(chosen)} of {len(files)} hostile recordings", flush=True)
        runs = [(title, verb, guarded) for title in chosen for guarded in (False, True) for verb in verbs]
        runs = [run for run in runs if (not run[2] or run[1] in GUARDED) and rng.random() < share]

        def one(run):
            title, verb, guarded = run
            with tempfile.TemporaryDirectory(dir=folder) as place:
                own = Path(place) / "held"
                own.mkdir()
                path = own / files[title].name
                os.link(files[title], path)
                fill = {"FILE": path, "SOUND": folder / "files/sound.h5", "INPUTS": folder / "files/inputs.npz"}
                words = [str(fill.get(word, word)) for word in VERBS[verb]]
                code, said, seconds, memory = run_one(words, Path(place), guarded=guarded)
                left = [each.name for each in own.iterdir() if each != path]
                return run, judged(code, said, seconds, memory, left, guarded=guarded), (code, seconds, memory, said)

        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for done, (run, kept, what) in enumerate(pool.map(one, runs), 1):
                if not done % 100:
                    print(f"{done} of {len(runs)} runs", file=sys.stderr, flush=True)
                for promise, fine in zip(PROMISES, kept, strict=True):
                    if fine is not None:
                        tried[promise] += 1
                        broken[promise] += not fine
                if False in kept:
                    failures.append((run, [p for p, fine in zip(PROMISES, kept, strict=True) if fine is False], what))
    return tried, broken, failures


def read_all(path):
    """Read all that a recording holds."""
    with open_recording(path) as recording:
        _ = recording.graph, recording.info
        for name in recording.names:
            for place in recording.places(name):
                if recording.has(name, *place):
                    recording.load(name, *place)


def rescue(path):
    """Follow and rebuild what a run left."""
    with FollowedRecording(path) as recording:
        for name in recording.names:
            for place in recording.places(name):
                recording.has(name, *place) and recording.load(name, *place)
    recover(path, path.with_name("rescued.h5"), force=True)


def mutate(count, seed, folder):
    """Read so many spoiled files and journals; return the errors that are not typed."""
    mutated = loaded(HERE / "test_mutations.py").mutated
    rng, wrong = random.Random(seed), []  # noqa: S311  seeded on purpose
    loaded(HERE / "conftest.py").write_innocent(folder / "sound.h5")
    recorder = Recorder(folder / "left.h5", backend="b")
    recorder.put("x", np.arange(6, dtype=np.float32), node="n", op="Relu", inputs=("w",))
    recorder.next_sample()
    recorder.put("x", np.arange(6, dtype=np.float32), scale=0.5, zero_point=1)
    recorder._sink.leave()  # as if the process had died
    whole = (folder / "sound.h5").read_bytes()
    journal, part = ((folder / f"left.h5.{end}").read_bytes() for end in ("journal", "part"))
    for number in range(count):
        target = folder / f"m{number % 8}"
        target.mkdir(exist_ok=True)
        try:
            if number % 2:
                (target / "run.h5").write_bytes(mutated(whole, rng))
                read_all(target / "run.h5")
            else:
                for end, content in (
                    ("journal", mutated(journal, rng)),
                    ("part", part),
                ):
                    (target / f"left.h5.{end}").write_bytes(content)
                rescue(target / "left.h5")
        except QdebugError as error:
            if "\n" in error.message:
                wrong.append(error.message)
        except Exception:  # noqa: BLE001  what this is about
            wrong.append(traceback.format_exc())
    return wrong


def mutate_all(count, seed):
    """Share mutations among forked processes; return how many were tried, errors, and processes that died."""
    batch, errors, died, tried = 1000, [], 0, 0
    for start in range(0, count, batch * (os.cpu_count() or 1)):
        running = {}
        for first in range(start, min(start + batch * (os.cpu_count() or 1), count), batch):
            size = min(batch, count - first)
            read, write = os.pipe()
            if not (process := os.fork()):
                os.close(read)
                resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
                signal.alarm(600)
                with tempfile.TemporaryDirectory() as folder, os.fdopen(write, "w") as out:
                    json.dump(mutate(size, seed + first, Path(folder))[:20], out)
                os._exit(0)
            os.close(write)
            running[process] = (read, size, first)
        for process, (read, size, first) in running.items():
            with os.fdopen(read) as found:
                text = found.read()
            _, status = os.waitpid(process, 0)
            tried += size
            if status:
                died += 1
                errors.append(f"a process died: seed {seed + first}, status {status}")
            elif text:
                errors += json.loads(text)
    return tried, errors, died


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="part of the runs that is made")
    parser.add_argument("--part", type=part_of, default=(0, 1), metavar="K/N", help="part of the files")
    parser.add_argument("--verbs", nargs="+", choices=VERBS, default=tuple(VERBS), metavar="VERB", help="only these")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--mutations", type=int, default=0, help="spoiled files and journals to read")
    options = parser.parse_args()
    load_ahead()
    tried, broken, failures = use_all(options.share, random.Random(options.seed), options.part, options.verbs)  # noqa: S311  seeded
    if options.mutations:
        count, errors, died = mutate_all(options.mutations, options.seed)
        for promise, number in (
            ("mutation: a typed error or a good read", len(errors) - died),
            ("mutation: alive", died),
        ):
            tried[promise], broken[promise] = count, number
        failures += [(("mutation", "", ""), ["typed"], (0, 0, 0, text)) for text in errors[:10]]
    for (title, verb, guarded), promises, (code, seconds, memory, said) in failures[:40]:
        print(f"BROKEN {title} | {verb} | untrusted={guarded} | {code}, {seconds:.1f} s, {memory:.0f} MB | {promises}")
        print("   " + "\n   ".join(said.splitlines()[-6:]))
    print(f"{'promise':58} {'tried':>8} {'kept':>8}")
    for promise, count in tried.items():
        print(f"{promise:58} {count:8} {count - broken[promise]:8}")
    return int(any(broken.values()))


if __name__ == "__main__":
    sys.exit(main())
