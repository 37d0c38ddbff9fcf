"""What a replay from an edit on takes beside one of the whole net, and how long the budget of an output takes.

Run it: python tests/benchmarks/bench_repair.py [FOLDER] [--nets cls rec] [--samples 8] [--edits 1000] [--jobs 2]

The nets are those of tests/backends/repaired.py, quantized by onnxruntime's default recipe, in the format QDQ; FOLDER
is where they are kept. Replays take turns: the whole net, then one edit, and so on, with the strongest edit of each of
some nodes that lie evenly in the order of the graph. The ratio is that of the mean times. A replay ends where nothing
differs from the recording any more. Targets: 5 times; the budget of cls under 60 s, of rec under 300 s, by the clock.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
from rich.console import Console
from rich.table import Table

from qdebug.arithmetic.arithmetic_file import find_arithmetic
from qdebug.arithmetic.presets import DEFAULT_PRESET
from qdebug.repair.edited_replay import Change, EditedReplay
from qdebug.repair.find import RepairOptions, prepare_search
from qdebug.running.record import record_run
from qdebug.running.workers import open_workers
from qdebug.session import DiffSession, open_recording

TARGET = {"cls": 60, "rec": 300}
DIGITS = Path(__file__).resolve().parents[2] / "samples" / "digits"


def repaired() -> ModuleType:
    """Load the module that quantizes nets."""
    path = Path(__file__).resolve().parents[1] / "backends" / "repaired.py"
    spec = importlib.util.spec_from_file_location("qdebug_bench_repaired", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def recordings(name: str, nets: Path, folder: Path, samples: int) -> tuple[Path, Path]:
    """Record a net in float and in int8."""
    if name == "digits":
        models = DIGITS / "digits.onnx", DIGITS / "digits.qdq.per_tensor.onnx"
        with np.load(DIGITS / "digits_test.npz") as held:
            inputs = {"x": next(held[key] for key in held if held[key].ndim == 4)[:samples, None]}
    else:
        tools = repaired()
        model, inputs = tools.nets(nets, samples)[name]()
        models = model, tools.quantized(model, inputs, folder / f"{name}.int8.onnx")
    paths = folder / f"{name}.float.h5", folder / f"{name}.int8.h5"
    for source, out in zip(models, paths, strict=True):
        record_run(source, backend="onnxruntime", options={"opt": "none"}, inputs=inputs, samples=samples, out=out)
    return paths


def seconds(job: Callable[[], object]) -> float:
    """Return how long something takes."""
    begun = time.perf_counter()
    job()
    return time.perf_counter() - begun


def replay_row(name: str, session: DiffSession, edits: int) -> tuple[str, ...]:
    """Time replays from an edit on, and of the whole net."""
    search = prepare_search(session, RepairOptions())
    replay, place = EditedReplay(session.backend, find_arithmetic(DEFAULT_PRESET).arithmetic), search.places[0]
    units = list(search.catalog.units)
    picked = [units[at] for at in np.linspace(0, len(units) - 1, min(edits, len(units))).astype(int)]
    changes = [search.catalog.change(search.catalog.edits_of(unit)[-1:]) for unit in picked]
    whole, part, felt = [], [], []
    (recorded,) = replay.outputs(Change(), [place])
    for change in changes:
        whole.append(seconds(lambda: replay.outputs(Change(), [place], everything=True)))
        begun = time.perf_counter()
        (made,) = replay.outputs(change, [place])
        part.append(time.perf_counter() - begun)
        felt.append(any(not np.array_equal(made[name], recorded[name]) for name in made))
    of_whole = [np.mean(whole) / np.mean(each) for each in (part, np.array(part)[felt])]
    return (
        name,
        f"{len(changes)} replays from an edit on, {sum(felt)} of which reach an output",
        f"{np.mean(part):.3f} s",
        f"{np.mean(whole):.3f} s the whole net",
        f"{of_whole[0]:.1f}; {of_whole[1]:.1f} of those that reach one",
        "5",
    )


def budget_row(name: str, paths: tuple[Path, Path], jobs: int) -> tuple[str, ...]:
    """Time the budget, after the comparison."""
    session = DiffSession(*map(open_recording, paths))
    session.result()
    with open_workers(jobs=jobs) as executor:
        if executor is not None:
            session.compare_in(executor, *paths)
        spent = seconds(session.budget)
    return (name, f"budget, {jobs} processes", f"{spent:.1f} s", "", "", f"{TARGET.get(name, '-')}")


def main() -> int:
    """Print one table."""
    parser = argparse.ArgumentParser(description="What replays with edits, and the budget, take.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path.home() / ".cache" / "qdebug-tests")
    parser.add_argument("--nets", nargs="+", default=["cls"], metavar="NAME", help="also digits")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--edits", type=int, default=1000, help="most of them")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    table = Table("net", "what", "time", "beside", "ratio", "target", title="Replays with edits")
    with tempfile.TemporaryDirectory() as scratch:
        for name in options.nets:
            paths = recordings(name, options.folder, Path(scratch), options.samples)
            table.add_row(*replay_row(name, DiffSession(*map(open_recording, paths)), options.edits))
            table.add_row(*budget_row(name, paths, options.jobs))
    Console(width=150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
