"""How long it takes to explain whole nets recorded on ONNX Runtime, on one core, and what a comparison pays for it.

Run it: python tests/benchmarks/bench_explain_net.py [--nets cls rec stream] [--rounds 3] [--samples 1] [--steps 800]

The nets are the tests' (tests/backends/models.py fetches and quantizes them once). Times are of the processor, so that
other work on the machine counts little; each is the best of several rounds. Target: the text direction net with all
nodes and more than 100 variants for each convolution, on one input, in less than 3 seconds. `stream` is a small
streaming net of 45 nodes, recorded at many steps: 800 of them in less than 20 seconds.
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

import streaming_net
from rich.console import Console
from rich.table import Table

from qdebug.api import explain
from qdebug.compare.result.limits import Limits
from qdebug.running.record import record_run
from qdebug.session import DiffSession, open_recording

TARGET = {"cls": 3.0, "stream": 20.0}


def models() -> ModuleType:
    """Load the module that fetches nets."""
    path = Path(__file__).resolve().parents[1] / "backends" / "models.py"
    spec = importlib.util.spec_from_file_location("qdebug_bench_models", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def processor_seconds(job: Callable[[], object], rounds: int) -> float:
    """Return the least processor time of several rounds."""
    times = []
    for _ in range(rounds):
        begin = time.process_time()
        job()
        times.append(time.process_time() - begin)
    return min(times)


def rows(name: str, folder: Path, rounds: int, samples: int) -> list[tuple[str, ...]]:
    """Record one net in float and in int8, and time what is done with it."""
    nets = models()
    feeds = {"x": nets.crops(samples, width=192 if name == "cls" else 320)[:, None]}
    paths = {}
    for form, opt in (("float", "none"), ("qdq", "all")):
        paths[form] = folder / f"{name}.{form}.h5"
        model = nets.net(name) if form == "float" else nets.quantized(name, form)
        record_run(model, backend="onnxruntime", options={"opt": opt}, inputs=feeds, samples=samples, out=paths[form])
    backend = open_recording(paths["qdq"])
    found = explain(backend)
    tried = sum(node.tried for node in found.nodes)
    spent = processor_seconds(lambda: explain(backend), rounds)
    sides = tuple(open_recording(path) for path in paths.values())

    def compared(*, search: bool) -> float:
        return processor_seconds(lambda: DiffSession(*sides, limits=Limits(explain=search)).result(), rounds)

    without, both = compared(search=False), compared(search=True)
    target = f"{TARGET[name]:g}" if name in TARGET else "-"
    what = f"explain: {len(found.nodes)} nodes, {tried} variants tried"
    counts = {key: many for key, many in found.summary.items() if key != "by_op" and many}
    return [
        (name, what, f"{spent:.2f}", target, ", ".join(f"{many} {key}" for key, many in counts.items())),
        (name, "diff --no-explain", f"{without:.2f}", "-", ""),
        (name, "diff", f"{both:.2f}", "-", f"{both / without:.2f} times as long"),
    ]


def streamed(folder: Path, rounds: int, steps: int) -> tuple[str, ...]:
    """Record a streaming net at many steps, and time how long it takes to explain."""
    backend = open_recording(streaming_net.recorded(folder, steps))
    found = explain(backend)
    spent = processor_seconds(lambda: explain(open_recording(backend.path)), rounds)
    explained = found.summary["explained"]
    what = f"explain: {len(found.nodes)} nodes, {steps} steps"
    return ("stream", what, f"{spent:.2f}", f"{TARGET['stream']:g}", f"{explained} explained")


def main() -> int:
    """Print one table."""
    parser = argparse.ArgumentParser(description="How long it takes to explain whole nets.")
    parser.add_argument("--nets", nargs="+", default=["cls"], choices=["cls", "rec", "stream"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=1)
    parser.add_argument("--steps", type=int, default=800)
    options = parser.parse_args()
    table = Table("net", "what", "seconds", "target", "result", title="Explaining whole nets, processor time")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.nets:
            if name == "stream":
                table.add_row(*streamed(Path(folder), options.rounds, options.steps))
                continue
            for row in rows(name, Path(folder), options.rounds, options.samples):
                table.add_row(*row)
    Console(width=150).print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
