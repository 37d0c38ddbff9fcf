"""How long the HTML page of a comparison takes, and how large it is, for nets of some sizes.

Run it: python tests/benchmarks/bench_page.py [--nodes 10 300 5000] [--rounds 3] [--keep FOLDER]

The recordings hold small float32 tensors under long names; half way an error enters that fades away, so that a limit of
20 dB is missed by some 80 nodes. What is timed is what comes after the comparison: gathering the nodes that are shown
in full, and writing the page.
Targets: below 0.6 MB and 0.3 s for each 1,000 nodes, beside what the nodes in full take.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import qdebug
from qdebug.cli.comparison import node_detail
from qdebug.compare.result.limits import Limits
from qdebug.present.reports.html import diff_html, worth_detail
from qdebug.session import DiffSession

FADES = 0.98


def write_pair(folder: Path, count: int) -> tuple[Path, Path]:
    """Record a chain twice, the second time with noise and, from the middle on, an error that fades away."""
    generator = np.random.default_rng(0)
    paths = folder / f"ref-{count}.h5", folder / f"backend-{count}.h5"
    recorders = [qdebug.Recorder(path, backend="synthetic") for path in paths]
    with recorders[0] as reference, recorders[1] as backend:
        for recorder in recorders:
            recorder.put("x", np.ones((1, 64), np.float32))
        before, error = "x", np.zeros((1, 64))
        for index in range(count):
            values = generator.standard_normal((1, 64)).astype(np.float32)
            error = FADES * error + generator.standard_normal((1, 64)) * 1e-3 + (0.5 if index == count // 2 else 0)
            node = f"model/block{index // 10}/layer{index % 10}/Synthetic"
            for recorder, array in ((reference, values), (backend, values + error.astype(np.float32))):
                recorder.put(f"{node}_out", array, node=node, op="Synthetic", inputs=(before,))
            before = f"{node}_out"
        for recorder in recorders:
            recorder.outputs(before)
    return paths


def measured(paths: tuple[Path, Path], rounds: int) -> tuple[float, float, str]:
    """Return the least seconds for the nodes in full, those for the page, and the page."""
    session = DiffSession(*map(qdebug.open_recording, paths), limits=Limits(min_sqnr=20.0))
    result = session.result()
    gathering, writing, page = [], [], ""
    for _ in range(rounds):
        begin = time.perf_counter()
        details = [node_detail(session, result, node.tensor) for node in worth_detail(result)]
        gathered = time.perf_counter()
        page = diff_html({"backend": result}, {"backend": details})
        gathering.append(gathered - begin)
        writing.append(time.perf_counter() - gathered)
    return min(gathering), min(writing), page


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, nargs="+", default=(10, 300, 5000))
    parser.add_argument("--rounds", type=int, default=3, help="the fastest counts")
    parser.add_argument("--keep", type=Path, help="folder to keep the pages in")
    options = parser.parse_args()
    table = Table(title="The HTML page of a comparison")
    for head in ("nodes", "in full s", "page s", "MB"):
        table.add_column(head, justify="right")
    for count in options.nodes:
        with tempfile.TemporaryDirectory() as folder:
            gathering, writing, page = measured(write_pair(Path(folder), count), options.rounds)
        size = len(page.encode()) / 1e6
        table.add_row(f"{count:,}", f"{gathering:.2f}", f"{writing:.2f}", f"{size:.2f}")
        if options.keep is not None:
            options.keep.mkdir(parents=True, exist_ok=True)
            (options.keep / f"{count}.html").write_text(page, encoding="utf-8")
    Console().print(table)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
