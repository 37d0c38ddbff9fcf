"""How fast the terminal interface is: first paint, keys, filter, sort, stalls, memory, idle, on a pseudo-terminal.

Run it: python tests/benchmarks/bench_tui.py [--nodes 1000 100000] [--rounds 40]

The interface runs as a program of its own on a synthetic comparison, which holds its results as a session does; the
results share their numbers, so that the memory is nearly that of the interface alone; what a session keeps of the
graphs of as many nodes comes on top. Keys are sent as bytes; a latency is the time from the byte to the end of what is
drawn for it. A stall is how late a timer of 5 ms fired between the first paint and the verdict; beside it stands how
long threads of the program waited for a core in that time, all together, which is what the rest of the machine did to
it, and the longest stall in which the program itself was at work all the time. The CPU figures hardly depend on what
else the machine does. Where Python is told to keep no bytecode, it is kept in a temporary folder: nobody who installed
the program waits for its compilation at each start. Targets: first paint 300 ms at 1,000 nodes and 500 ms at 100,000;
key p95 25 ms, page down 30 ms, a filter keystroke 60 ms (regex 120), sort 50 ms, stall 50 ms, memory 80 MB, idle 1 %
of a core. The import of the libraries alone is printed too: it is the floor of the first paint on this machine.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import pty
import select
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from pathlib import Path
from tempfile import TemporaryDirectory
from termios import TIOCSWINSZ
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # what is measured loads them itself, at its time
    from qdebug.compare.align.pairs import Match
    from qdebug.model import QuantParams
    from qdebug.numerics.accumulate import ErrorStats

NODES = (1_000, 100_000)
OPS = ("QLinearConv", "QLinearAdd", "Relu", "MaxPool")
COLUMNS, LINES = 140, 40
QUIET = 0.012
"""Seconds without output after which a key's drawing counts as finished."""


# The program that is measured


def synthetic(nodes: int):
    """Return the opening of a comparison of a chain of nodes that costs next to nothing to compute."""
    from qdebug.tui.reading.messages import Opening

    names = [f"block{n // 50}/layer{n % 50}/{OPS[n % 4].lower()}_{n}" for n in range(nodes)]
    return Opening(compare=lambda: made_up(names), read_names=lambda: names)


@dataclass(frozen=True, slots=True)
class Entry:
    """A row that is to be compared."""

    index: int
    node: str
    op: str
    tensor: str
    reference_tensor: str
    match: Match
    match_reason: str
    shape: tuple[int, ...]
    quant: QuantParams


def made_up_metrics(quant: QuantParams) -> list[ErrorStats]:
    """Measure int8 codes against values that are from 1e-4 to 1 away."""
    import numpy as np

    from qdebug.numerics.accumulate import ErrorAccumulator

    kinds = []
    for error in np.geomspace(1e-4, 1, 50):
        accumulator = ErrorAccumulator(backend_quant=quant)
        codes = np.arange(-60, 60, dtype=np.int8)
        accumulator.update((codes + 3) * np.float32(0.05) + np.float32(error), codes, sample=0)
        kinds.append(accumulator.stats())
    return kinds


def made_up(names: list[str]):
    """Make the comparison, as a session would: on the reader thread, after the names are on the screen."""
    from qdebug.compare.align.pairs import Alignment, Match
    from qdebug.compare.result.limits import Limits
    from qdebug.compare.result.result import Coverage, NodeResult, RunComparison, SampleResult, Status, Verdict
    from qdebug.errors import QdebugError
    from qdebug.model import Graph, MemoryRecording, Node, QuantParams

    quant = QuantParams(dtype="int8", scale=0.05, zero_point=-3)
    kinds = made_up_metrics(quant)
    samples = (SampleResult(sample=0, max_abs=0.5, sqnr_db=30.0, status=Status.WITHIN),)

    class Source:
        def __init__(self) -> None:
            chain = [
                Node(name=name, op=OPS[n % 4], inputs=(names[n - 1] + "_out",) if n else (), outputs=(name + "_out",))
                for n, name in enumerate(names[:2000])
            ]
            self.reference = self.backend = MemoryRecording.single(Graph(chain), {})
            self.alignment = Alignment(pairs=(), unmatched=())
            self.limits = Limits()
            self._entries = [
                Entry(n, name, OPS[n % 4], name + "_out", f"ref_{n}", Match.EXACT, "same name", (1, 64, 56, 56), quant)
                for n, name in enumerate(names)
            ]
            self.compared = []
            self.outdated = False

        def entries(self):
            return self._entries

        def results(self):
            for entry in self._entries:
                failing = entry.index % 997 == 500
                kind = kinds[-1 if failing else entry.index % 40]
                made = NodeResult(
                    index=entry.index,
                    node=entry.node,
                    op=entry.op,
                    tensor=entry.tensor,
                    reference_tensor=entry.reference_tensor,
                    match=entry.match,
                    match_reason=entry.match_reason,
                    status=Status.DIVERGED if failing else Status.WITHIN,
                    reason="SQNR 9 dB is below 20 dB" if failing else None,
                    metrics=kind,
                    introduced=kind,
                    propagated=kind,
                    gain=1.1,
                    quant=quant,
                    samples=samples,
                )
                self.compared.append(made)
                yield made

        def result(self, *, contributors=True):
            first = next((made.node for made in self.compared if made.status is Status.DIVERGED), None)
            return RunComparison(
                reference=self.reference.info,
                backend=self.backend.info,
                verdict=Verdict(status=Status.DIVERGED, first_divergence=first, origin=first, sentence="It diverges."),
                coverage=Coverage(compared=len(names), unmatched=()),
                nodes=tuple(self.compared),
            )

        def pair(self, tensor, *, sample, step):
            raise QdebugError("made up: there are no values")

        def profile(self, tensor, *, sample, k, cancelled):
            return None

    return Source()


def program(nodes: int, report: Path) -> int:
    """Run the interface and write down how late a timer fired while results came in."""
    gc.disable()  # while libraries are loaded, as `qdebug tui` does
    from qdebug.tui.application import QdebugApp
    from qdebug.tui.screen.start_place import StartPlace

    gc.freeze()
    gc.enable()

    class Measured(QdebugApp):
        late = busy = waited = own = 0.0

        async def _beat(self) -> None:
            loop = asyncio.get_running_loop()
            while not self._main.is_finished:
                used, before, worked = time.thread_time(), core_waits(), time.process_time()
                due = loop.time() + 0.005
                await asyncio.sleep(0.005)
                late, worked = loop.time() - due, time.process_time() - worked
                if late > self.late:
                    self.late, self.waited = late, core_waits() - before
                self.own = max(self.own, min(late, worked))
                self.busy = max(self.busy, time.thread_time() - used)
            report.write_text(f"{self.late} {self.waited} {self.own} {self.busy}\n")

        def on_mount(self) -> None:  # beside that of the application, which Textual calls too
            self.run_worker(self._wait(), exclusive=False)

        async def _wait(self) -> None:
            while self._main.navigator is None:
                await asyncio.sleep(0.005)
            self.call_after_refresh(lambda: self.run_worker(self._beat(), exclusive=False))

    app = Measured([synthetic(nodes)], start_place=StartPlace(screen="nodes"))
    return app.run(mouse=False) or 0


def core_waits() -> float:
    """Return the seconds that threads of this process were ready to run and had no core."""
    waits = [each.joinpath("schedstat").read_text() for each in Path("/proc/self/task").iterdir()]
    return sum(int(text.split()[1]) for text in waits) / 1e9


# What measures it


class Driven:
    """The program on a pseudo-terminal."""

    def __init__(self, nodes: int, report: Path) -> None:
        self._master, slave = pty.openpty()
        ioctl(slave, TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        plain = {key: value for key, value in os.environ.items() if key not in {"NO_COLOR", "COLUMNS", "LINES"}}
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--program", str(nodes), "--report", str(report)],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**plain, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"},
        )
        os.close(slave)

    def until(self, text: bytes, seconds: float = 120.0) -> float:
        """Read until a text is drawn; give the time since the start."""
        seen = b""
        end = time.perf_counter() + seconds
        while text not in seen:
            left = end - time.perf_counter()
            if left <= 0 or not select.select([self._master], [], [], left)[0]:
                raise TimeoutError(f"{text!r} was not drawn")
            seen = seen[-4096:] + os.read(self._master, 1 << 16)
        return time.perf_counter() - self.started

    def drain(self, quiet: float = 0.1) -> None:
        """Read until nothing is drawn any more."""
        with suppress(OSError):  # the program has ended
            while select.select([self._master], [], [], quiet)[0]:
                os.read(self._master, 1 << 16)

    def key(self, data: bytes) -> float:
        """Send a key; give the time until the last byte drawn for it."""
        begun = last = time.perf_counter()
        os.write(self._master, data)
        wait = 1.0
        while select.select([self._master], [], [], wait)[0]:
            os.read(self._master, 1 << 16)
            last = time.perf_counter()
            wait = QUIET
        return last - begun

    @property
    def cpu(self) -> float:
        """CPU seconds used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> float:
        """Resident megabytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def close(self) -> None:
        """Quit."""
        os.write(self._master, b"q")
        self.drain(0.5)
        self.process.wait(20)
        os.close(self._master)


_TEXTS = (
    ("filter", b"f", b"conv_1 & sqnr<40"),
    ("regex filter", b"f", b"name~'conv_[0-9]5$'"),
    ("search", b"/", b"layer7/relu"),
)
_TIMES = 8
"""How often each text is typed: the 95th percentile of the letters of one is the slowest of them."""


def p95(values: list[float]) -> float:
    """Return the 95th percentile in milliseconds."""
    return sorted(values)[min(int(len(values) * 0.95), len(values) - 1)] * 1000


def measure(nodes: int, rounds: int) -> Iterator[tuple[str, float]]:
    """Measure everything once; yield each figure as soon as it is known."""
    with TemporaryDirectory() as folder:
        report = Path(folder) / "late"
        driven = Driven(nodes, report)
        yield "first paint ms", driven.until(b"block0/layer0") * 1000
        yield "first paint CPU ms", driven.cpu * 1000
        driven.until(b"diverges")
        yield "all results ms", (time.perf_counter() - driven.started) * 1000
        driven.drain(0.3)
        late, waited, own, busy = (float(word) * 1000 for word in report.read_text().split())
        yield "longest stall ms", late
        yield "waiting for a core in it ms", waited
        yield "longest stall of its own work ms", own
        yield "longest CPU of the loop ms", busy
        yield "memory MB", driven.memory
        yield "of it without a comparison MB", driven.memory - comparison_memory(nodes)
        for name, key in (("key", b"j"), ("page down", b"\x1b[6~"), ("sort", b"s")):
            used = driven.cpu
            yield f"{name} p95 ms", p95([driven.key(key) for _ in range(rounds)])
            yield f"{name} CPU ms", (driven.cpu - used) / rounds * 1000
        for name, key, text in _TEXTS:
            slowest, used = typed(driven, key, text)
            yield f"{name} p95 ms", slowest
            yield f"{name} CPU ms", used
        used, begun = driven.cpu, time.perf_counter()
        time.sleep(3)
        yield "idle CPU %", (driven.cpu - used) / (time.perf_counter() - begun) * 100
        driven.close()


def typed(driven: Driven, key: bytes, text: bytes) -> tuple[float, float]:
    """Return the 95th percentile of a letter in milliseconds, and its CPU, of a text that is typed several times."""
    letters, used = [], 0.0
    for _ in range(_TIMES):
        driven.key(key)
        driven.drain(0.4)  # the line has moved what is around it
        before = driven.cpu
        letters += [driven.key(bytes([byte])) for byte in text]
        used += driven.cpu - before
        driven.key(b"\x1b")
        driven.drain(0.5)
    return p95(letters), used / len(letters) * 1000


def comparison_memory(nodes: int) -> float:
    """Return the megabytes that the made-up comparison takes by itself."""
    words = "import sys, os; sys.path.insert(0, sys.argv[1]); import bench_tui, numpy"
    words += "; import qdebug.compare.explaining.explanation"
    words += "; read = lambda: int(open('/proc/self/statm').read().split()[1]) * os.sysconf('SC_PAGE_SIZE') / 1e6"
    words += "; import qdebug.tui.reading.messages; bench_tui.synthetic(1).compare(); before = read()"
    words += f"; opening = bench_tui.synthetic({nodes}); source = opening.compare()"
    words += "; [None for _ in source.results()]; source.result(); print(read() - before)"
    done = subprocess.run(
        [sys.executable, "-c", words, str(Path(__file__).parent)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def imports() -> float:
    """Return the milliseconds that the imports alone take."""
    begun = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import qdebug.tui.application"], check=True)
    return (time.perf_counter() - begun) * 1000


TARGETS = {
    "first paint ms": (300, 500),
    "longest stall ms": (50, 50),
    "longest stall of its own work ms": (50, 50),
    "of it without a comparison MB": (80, 80),
    "key p95 ms": (25, 25),
    "page down p95 ms": (30, 30),
    "sort p95 ms": (50, 50),
    "filter p95 ms": (60, 60),
    "regex filter p95 ms": (120, 120),
    "search p95 ms": (60, 60),
    "idle CPU %": (1, 1),
}


def main() -> None:
    """Print one table, row by row."""
    from streamed import StreamedTable  # a test loads this file from elsewhere

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=list(NODES))
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--program", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--report", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.program is not None:
        sys.exit(program(given.program, given.report))
    with TemporaryDirectory() as folder:
        if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
            os.environ["PYTHONPYCACHEPREFIX"] = folder
        deque(measure(min(given.nodes), 1), maxlen=0)
        print(f"imports alone {imports():.0f} ms", flush=True)
        table = StreamedTable(
            f"terminal interface on a {COLUMNS}x{LINES} pseudo-terminal",
            ("nodes", "figure", "measured", "target"),
            (7, 32, 9, 7),
            left=2,
        )
        for at, nodes in enumerate(given.nodes):
            for name, figure in measure(nodes, given.rounds):
                targets = TARGETS.get(name)
                target = "" if targets is None else f"{targets[at and 1]}"
                table.row(f"{nodes:,}", name, f"{figure:.1f}", target)
            table.rule()


if __name__ == "__main__":
    main()
