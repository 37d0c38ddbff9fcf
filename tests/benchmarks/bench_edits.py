"""How long the screens budget and edits take to answer, on a thread as the screens ask it.

Run it: python tests/benchmarks/bench_edits.py [REF BACKEND] [--nodes 10]

Without files it is the digits net of the package. Times are by the clock, from the request to the answer: the first
mark on each of some nodes spread over the graph, for one sample, with the edit that reaches farthest of those that need
no float neighbours; and the budget of the first samples and of all. What takes longest is the replay from the node on.
Target: each mark on the net cls in at most a second.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from queue import Queue

from rich.console import Console
from rich.table import Table

from qdebug import data
from qdebug.session import DiffSession, open_recording
from qdebug.tui.reading.messages import (
    BudgetWish,
    EditWish,
    Finished,
    Opening,
    TrialReady,
    TrialRequest,
    TrialWish,
)
from qdebug.tui.reading.reader import Reader


class PlainWorker:
    """What the reader knows of a worker of Textual."""

    def __init__(self) -> None:
        self.cancelled_event = threading.Event()

    @property
    def is_cancelled(self) -> bool:
        return self.cancelled_event.is_set()


class Asker:
    """Asks on a thread, and waits for the answer.

    Args:
        session: The comparison.
    """

    def __init__(self, session: DiffSession) -> None:
        self._events: Queue[object] = Queue()
        self._reader = Reader([Opening(compare=lambda: session)], self._events.put)
        self._worker = PlainWorker()
        self._thread = threading.Thread(target=self._reader.compare, args=[self._worker])
        self._thread.start()
        while not isinstance(self._events.get(), Finished):
            pass

    def stop(self) -> None:
        """End the thread of the last question."""
        self._worker.cancelled_event.set()
        self._thread.join()

    def ask(self, tensor: str, wish: TrialWish, enough: Callable[[TrialReady], object]) -> tuple[float, TrialReady]:
        """Ask for something; return the seconds until enough is told, and what is told then."""
        self.stop()
        request, self._worker = TrialRequest(row=0, tensor=tensor, wish=wish), PlainWorker()
        self._thread = threading.Thread(target=self._reader.try_out, args=[request, self._worker])
        begun = time.perf_counter()
        self._thread.start()
        while True:
            event = self._events.get()
            if isinstance(event, TrialReady) and event.request is request:
                if event.problem:
                    raise SystemExit(event.problem)
                if enough(event):
                    return time.perf_counter() - begun, event


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE")
    parser.add_argument("--nodes", type=int, default=10)
    options = parser.parse_args()
    paths = options.files or [files(data).joinpath(f"digits.{form}.h5") for form in ("float", "int8")]
    session = DiffSession(*map(open_recording, paths), cache=bool(options.files))
    asker = Asker(session)
    table = Table("what", "node", "edit", "s to the answer")
    names = [entry.tensor for entry in session.entries() if session.backend.graph.producer(entry.tensor) is not None]
    for at in range(options.nodes):
        tensor = names[at * (len(names) - 1) // max(options.nodes - 1, 1)]
        took, told = asker.ask(tensor, EditWish(), lambda ready: ready.edits is not None and not ready.activity)
        edits = [] if told.edits is None else [edit for edit in told.edits.edits if edit.kind != "float"]
        if not edits:
            table.add_row("edits listed", tensor, "none", f"{took:.3f}")
            continue
        wish = EditWish(edits=(edits[-1].name,), sample=0)
        took, _ = asker.ask(tensor, wish, lambda ready: ready.edits is not None and ready.edits.effect is not None)
        table.add_row("mark, one sample", edits[-1].unit.node.name, edits[-1].kind, f"{took:.3f}")
    took, told = asker.ask("", BudgetWish(), lambda ready: ready.budget is not None and ready.budget.outputs)
    many = 0 if told.budget is None else told.budget.outputs[0].samples
    table.add_row("budget, first", "", f"{many} samples", f"{took:.3f}")
    more, told = asker.ask("", BudgetWish(), lambda ready: ready.budget is not None and not ready.activity)
    many = 0 if told.budget is None or not told.budget.outputs else told.budget.outputs[0].samples
    table.add_row("budget, whole", "", f"{many} samples", f"{took + more:.3f}")
    asker.stop()
    Console().print(table)


if __name__ == "__main__":
    main()
