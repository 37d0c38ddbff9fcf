"""How long a recorded pair of a very large net takes to open, align and show, and how much memory.

Run it: python tests/benchmarks/bench_large.py [--nodes 1000 100000] [--rounds 3] [--folder FOLDER]

A net of 1x1 convolutions, sums, Relus and poolings is run in float and in int8 and recorded with qdebug's own recorder;
FOLDER keeps the recordings for the next time. Each figure is the median of some runs, each in a process of its own,
with warm files and no kept results. CPU figures hardly depend on what else the machine does; the wall clock does.
`names` is what the first useful paint of `qdebug tui` waits for, `aligned` what the first result waits for. Memory is
the whole process. What is summed up are made-up results, a few of them diverged; its peak is above what was there.
The interface runs on a pseudo-terminal of 140x40; its stall is how late a timer of 5 ms fired at most until everything
was listed, and beside it stands how long its threads waited for a core meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

SCALE, ZERO = np.float32(1.2 / 250), -120
KERNEL = {"kernel_shape": [1, 1]}
ATTRS = {"kernel_shape": [1, 1], "pads": [0, 0, 0, 0], "strides": [1, 1]}


# The recordings


def weights(layers: int):
    """Return an input and a weight for each layer with which no activation dies or explodes."""
    random = np.random.default_rng(0)
    turns = [np.linalg.qr(random.standard_normal((4, 4)))[0] for _ in range(64)]
    first = values = np.abs(random.standard_normal((4, 4)))
    first = values = values / values.max()
    chosen = []
    for layer in range(layers):
        mixed = (0.5 * np.eye(4) + 0.3 * turns[(layer + turn) % 64] for turn in range(64))
        matrix = next(matrix for matrix in mixed if (matrix @ values).max() > 0.1)
        weight = (matrix / (matrix @ values).max() - np.eye(4)).astype(np.float32)
        chosen.append(weight)
        values = np.maximum((weight + np.eye(4)) @ values, 0)
    return first.astype(np.float32), chosen


def record(path: Path, nodes: int, *, coded: bool) -> None:
    """Run the net and record every tensor."""
    import qdebug

    given, chosen = weights(nodes // 4)
    with qdebug.Recorder(path, backend="int8" if coded else "float") as recorder:

        def put(name, values, **facts):
            if not coded:
                recorder.put(name, values.reshape(1, 4, 2, 2), **facts)
                return values
            codes = np.clip(np.round(values / SCALE) + ZERO, -128, 127).astype(np.int8)
            recorder.put(name, codes.reshape(1, 4, 2, 2), scale=SCALE, zero_point=ZERO, **facts)
            return (codes.astype(np.float32) - ZERO) * SCALE

        before, values = "x", put("x", given)
        for layer, weight in enumerate(chosen):
            place = f"block{layer // 25}/layer{layer % 25}/"
            if coded:
                step = np.abs(weight).max() / 127
                codes = np.round(weight / step).astype(np.int8)
                recorder.constant(f"{place}weight", codes.reshape(4, 4, 1, 1), scale=step, zero_point=0)
                used = codes * np.float32(step)
            else:
                used = weight
                recorder.constant(f"{place}weight", weight.reshape(4, 4, 1, 1))
            conv, total, relu, pool = (f"{place}{op}" for op in ("conv", "add", "relu", "pool"))
            read = before, f"{place}weight"
            made = put(f"{conv}_out", used @ values, node=conv, op="Conv", inputs=read, attrs=ATTRS)
            made = put(f"{total}_out", made + values, node=total, op="Add", inputs=(f"{conv}_out", before))
            made = put(f"{relu}_out", np.maximum(made, 0), node=relu, op="Relu", inputs=f"{total}_out")
            values = put(f"{pool}_out", made, node=pool, op="MaxPool", inputs=f"{relu}_out", attrs=KERNEL)
            before = f"{pool}_out"
        recorder.outputs(before)


def recordings(folder: Path, nodes: int) -> tuple[Path, Path]:
    """Return the two recordings, made if they are not there."""
    made = folder / f"float-{nodes}.h5", folder / f"int8-{nodes}.h5"
    for path, coded in zip(made, (False, True), strict=True):
        if not path.exists():
            record(path, nodes, coded=coded)
    return made


# What is measured, each in a process of its own


def memory() -> float:
    """Return the resident megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def peak() -> float:
    """Return the most megabytes that this process ever had."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) * 1024 / 1e6


def opening(reference: str, backend: str) -> dict[str, float]:
    """Open and align, and tell what it took."""
    from qdebug.recording.reading.opening import open_recording
    from qdebug.session import DiffSession
    from qdebug.tui.reading.plan_rows import describe_comparison

    figures = {"libraries MB": memory()}
    begun = time.process_time()
    second = open_recording(backend)
    _ = second.names
    figures["names CPU ms"] = (time.process_time() - begun) * 1000
    first = open_recording(reference)
    _ = first.graph, second.graph
    figures["both graphs CPU ms"] = (time.process_time() - begun) * 1000
    session = DiffSession(first, second)
    figures["aligned CPU ms"] = (time.process_time() - begun) * 1000
    describe_comparison(session).table.prepare()
    figures["rows of the list CPU ms"] = (time.process_time() - begun) * 1000
    figures["memory aligned MB"] = memory()
    figures["peak MB"] = peak()
    return figures


def summing_up(reference: str, backend: str) -> dict[str, float]:
    """Sum up results of a comparison, and tell what it took."""
    from qdebug.recording.reading.opening import open_recording
    from qdebug.session import DiffSession

    session = DiffSession(open_recording(reference), open_recording(backend))
    random = np.random.default_rng(1)
    for entry in session.entries():
        session.compared.append(made_up(entry, random))
    session.outputs()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before, begun = memory(), time.process_time()
    session.result()
    spent = (time.process_time() - begun) * 1000
    return {"summing up CPU ms": spent, "summing up peak MB": max(0.0, peak() - before)}


def made_up(entry, random):
    """Return a result as most are: a little error, most of it handed on; one in 30,000 is diverged."""
    from qdebug.compare.result.result import NodeResult, SampleResult, Status
    from qdebug.numerics.accumulate import ErrorAccumulator

    accumulator = ErrorAccumulator()
    values = random.standard_normal(4)
    accumulator.update(values, values + 0.01 * random.standard_normal(4), sample=0)
    stats = accumulator.stats()
    status = Status.DIVERGED if entry.index % 30_000 == 7 else Status.WITHIN
    known = {name: getattr(entry, name) for name in ("index", "node", "op", "tensor", "reference_tensor", "match")}
    return NodeResult(
        **known,
        match_reason=entry.match_reason,
        status=status,
        metrics=stats,
        introduced=replace(stats, rmse=stats.rmse / 2),
        propagated=stats,
        gain=float(random.lognormal(0.0, 0.1)),
        quant=entry.quant,
        samples=(SampleResult(sample=0, max_abs=stats.max_abs, sqnr_db=stats.sqnr_db, status=status),),
    )


def interface(reference: str, backend: str, report: str) -> int:
    """Run the interface until both recordings are aligned, and write down what it took."""
    import asyncio

    from qdebug.tui import application

    figures: dict[str, float] = {}

    class Measured(application.QdebugApp):
        late = waited = 0.0

        async def _beat(self) -> None:
            loop = asyncio.get_running_loop()
            while True:
                due, before = loop.time() + 0.005, core_waits()
                await asyncio.sleep(0.005)
                if (late := loop.time() - due) > self.late:
                    self.late, self.waited = late, core_waits() - before

        def on_mount(self) -> None:
            self.run_worker(self._beat(), exclusive=False)

        def on_news(self, news) -> None:
            kind = type(news.event).__name__
            if kind in {"Named", "Opened"}:
                self.call_after_refresh(self._note, "first paint" if kind == "Named" else "everything listed")

        def _note(self, what: str) -> None:
            figures[f"{what} ms"] = (time.perf_counter() - float(os.environ["BENCH_STARTED"])) * 1000
            figures[f"{what} CPU ms"] = time.process_time() * 1000
            if what != "first paint":
                figures["memory of the interface MB"] = memory()
                figures["longest stall ms"] = self.late * 1000
                figures["of it waiting for a core ms"] = self.waited * 1000
                Path(report).write_text(json.dumps(figures))
                self.exit(0)

    application.QdebugApp = Measured
    from qdebug.cli.main import main as run

    return run(["tui", reference, backend, "--screen", "nodes", "--theme", "dark"])


PROGRAMS = {"opening": opening, "summing_up": summing_up}


def core_waits() -> float:
    """Return the seconds that threads of this process were ready to run and had no core."""
    waits = [each.joinpath("schedstat").read_text() for each in Path("/proc/self/task").iterdir()]
    return sum(int(text.split()[1]) for text in waits) / 1e9


# What measures it


def measured_in_a_process(program: str, pair: tuple[Path, Path]) -> dict[str, float]:
    """Measure `opening` or `summing_up`."""
    command = [sys.executable, __file__, "--program", program, *map(str, pair)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout))


def shown_in_a_process(pair: tuple[Path, Path]) -> dict[str, float]:
    """Measure `interface` on a pseudo-terminal."""
    import pty
    import struct
    from fcntl import ioctl
    from termios import TIOCSWINSZ

    master, slave = pty.openpty()
    ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    plain = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS", "LINES"}}
    with TemporaryDirectory() as folder:
        report = Path(folder) / "report"
        command = [sys.executable, __file__, "--program", "interface", *map(str, pair), "--report", str(report)]
        terminal = {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "BENCH_STARTED": str(time.perf_counter())}
        process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env={**plain, **terminal})
        os.close(slave)
        while process.poll() is None:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    os.read(master, 1 << 16)
                except OSError:  # it has ended
                    break
        process.wait(60)
        os.close(master)
        return dict(json.loads(report.read_text()))


def main() -> None:
    """Print one table."""
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--program", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--report", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.program is not None and given.program[0] in PROGRAMS:
        print(json.dumps(PROGRAMS[given.program[0]](*given.program[1:])))
        return
    if given.program is not None:
        sys.exit(interface(*given.program[1:], given.report))
    with TemporaryDirectory() as scratch:
        folder = given.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
            os.environ["PYTHONPYCACHEPREFIX"] = scratch  # as an installed program has it
        measured = []
        for nodes in given.nodes:
            pair = recordings(folder, nodes)
            if not measured:
                shown_in_a_process(pair)
            runs = [
                {**measured_in_a_process("opening", pair), **measured_in_a_process("summing_up", pair)}
                | shown_in_a_process(pair)
                for _ in range(given.rounds)
            ]
            measured.append({name: statistics.median(run[name] for run in runs) for name in runs[0]})
    table = Table(title=f"a recorded pair of a large net, medians of {given.rounds} runs")
    table.add_column("figure")
    for nodes in given.nodes:
        table.add_column(f"{nodes:,} nodes", justify="right")
    for name in measured[0]:
        table.add_row(name, *(f"{figures[name]:.0f}" for figures in measured))
    Console().print(table)


if __name__ == "__main__":
    main()
