"""Print what explains the quantized nodes of a few nets on each runtime: one row for each operator and its types.

python tests/backends/explained.py FOLDER [--backends NAME[:key=value,...] ...] [--nets WORD ...] [--samples N]

Nets, runtimes and FOLDER are those of table.py, which this file is beside. Nets without codes have no row.

  nodes      explained bit for bit, of those with an output on codes; moved codes count
  arithmetic the simplest that explains them, or that of the runtime's own fingerprint
  witnesses  the different sums or codes that the best failing arithmetic gets wrong
  runner-up  that arithmetic, and the share that it reproduces
  left       why nodes were not examined, or what the first unexplained one is likely to be
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np

from qdebug.backends import load_backend
from qdebug.cli.record import BackendChoice, backend_choice
from qdebug.compare.explaining.explain import explain_recording
from qdebug.compare.explaining.explanation import ExplainStatus, NodeExplanation
from qdebug.errors import MissingExtraError, QdebugError
from qdebug.running.feeds import ArrayFeeds
from qdebug.running.record import record_feeds
from qdebug.session import open_recording

HEADS = ("net", "runtime", "operator", "nodes", "arithmetic", "witnesses", "runner-up", "left")


def nets_of_table() -> ModuleType:
    """Import the table of runtimes, whose nets these are."""
    spec = importlib.util.spec_from_file_location("table", Path(__file__).with_name("table.py"))
    module = sys.modules["table"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def explained(path: Path, inputs: object, backend: BackendChoice, samples: int) -> Sequence[NodeExplanation]:
    """Record a net on a backend and explain its nodes with an output on codes.

    Args:
        path: The model.
        inputs: Makes the array of an input from its name, shape and dtype.
        backend: The backend and its options.
        samples: How many samples are recorded.
    """
    with (
        closing(load_backend(backend.name).open(path, options=backend.options)) as run,
        TemporaryDirectory() as scratch,
    ):
        arrays = {
            info.name: inputs(info.name, tuple(extent or 1 for extent in info.shape), np.dtype(info.dtype))
            for info in run.inputs
        }
        out = Path(scratch) / "out.h5"
        record_feeds(run, ArrayFeeds(arrays, run.inputs, samples=samples), out)
        return [node for node in explain_recording(open_recording(out)).nodes if node.on_codes]


def grouped(nodes: Sequence[NodeExplanation]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each operator and its types."""
    groups: dict[tuple[str, str], list[NodeExplanation]] = {}
    for node in nodes:
        groups.setdefault((node.op, node.dtypes), []).append(node)
    for (op, dtypes), members in groups.items():
        fits = [node for node in members if node.status is ExplainStatus.EXPLAINED]
        others = [node for node in members if node not in fits]
        rivals = [node.runner_up for node in fits if node.runner_up is not None]
        rival = max(rivals, key=lambda runner: runner.match) if rivals else None
        left = others[0] if others else None
        yield (
            f"{op} {dtypes}".strip(),
            f"{len(fits)} of {len(members)}",
            "; ".join(dict.fromkeys((node.variants or (node.words or "",))[0] for node in fits)),
            str(sum(node.witnesses for node in fits)),
            "" if rival is None else f"{rival.variant} ({rival.match:.4%})",
            ""
            if left is None
            else left.residual.likely or left.residual.detail
            if left.residual
            else left.reason or "",
        )


def main(words: Sequence[str] | None = None) -> None:
    """Print the table as Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where nets are kept")
    parser.add_argument("--backends", nargs="+", type=backend_choice, default=[], metavar="NAME[:key=value,...]")
    parser.add_argument("--nets", nargs="+", default=["int8"], metavar="WORD", help="only nets with these words")
    parser.add_argument("--samples", type=int, default=8)
    arguments = parser.parse_args(words)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    table = nets_of_table()
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}")
    total = fits = 0
    for net in table.nets(arguments.folder):
        if not all(word in net.title for word in arguments.nets):
            continue
        usual = [backend_choice(text) for text in table.RUNTIMES.get(net.kind, ()) if text != "interpreter"]
        for backend in [each for each in usual if not arguments.backends or each in arguments.backends]:
            title = ":".join(filter(None, (backend.name, ",".join(f"{k}={v}" for k, v in backend.options.items()))))
            try:
                path = net.path(arguments.folder)
                nodes = explained(
                    path, lambda *given, net=net, path=path: net.inputs(path, given[0], arguments.samples, *given[1:]),
                    backend, arguments.samples,
                )  # fmt: skip
            except (MissingExtraError, ImportError) as error:
                print(f"| {net.title} | {title} | not run: {error} |{' |' * 5}", flush=True)
                continue
            except QdebugError as error:
                print(f"| {net.title} | {title} | failed: {error.message} |{' |' * 5}", flush=True)
                continue
            total += len(nodes)
            fits += sum(node.status is ExplainStatus.EXPLAINED for node in nodes)
            for row in grouped(nodes):
                print(f"| {net.title} | {title} | {' | '.join(cell.replace('|', '/') for cell in row)} |", flush=True)
    print(f"\n{fits} of {total} nodes explained.")


if __name__ == "__main__":
    main()
