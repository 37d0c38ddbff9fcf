"""Print what each runtime records of a few nets, whether recording changed the result, and what it costs.

python tests/backends/table.py FOLDER [--backends NAME[:key=value,...] ...] [--samples N] [--repeat N] [--nets WORD ...]

FOLDER is made where it is missing; the real nets are fetched into it, as packages. A model of your own takes part if it
lies in FOLDER/models with its inputs of one sample beside it: net.pt2 and net.npz. Without --backends, every runtime
has a row for each net of a kind that it runs (`RUNTIMES`), with the reason where it is not installed or refuses it.
Backends of other packages are tried on every net. With --backends, a net of another kind has no row.

  tensors   recorded, of those that the graph which runs has; constants apart
  plain     a sample, as production runs it: nothing is tapped
  copies    a sample, run as for a recording, with each tensor copied and dropped in place of being recorded
  writes    a sample, as for copies, with each tensor hashed and written to a file as well, and a line of a journal
  record    a sample of a whole recording: the same runs, plain ones for the fidelity, and a file of all tensors
  x plain, x copies   how many times that is
  x writes  how many times the plain runs and those that write together: the least that a recording does which can be
            trusted and survives a kill

Times are the best of --repeat, over --samples samples; opening the model is not in them. --cpu takes the processor's
time of the calling thread, for a machine that others use too; a runtime with the option `threads` is told to use one.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import xxhash

import qdebug.data
from qdebug.backends import BACKENDS, installed_backends, load_backend
from qdebug.cli.record import BackendChoice, backend_choice
from qdebug.errors import MissingExtraError, QdebugError, UsageError
from qdebug.recording.recorder import Recorder
from qdebug.running.feeds import ArrayFeeds
from qdebug.running.record import record_feeds
from qdebug.session import open_recording

DIGITS = Path(__file__).parents[2] / "samples" / "digits"
HEADS = (
    *("net", "runtime", "tensors", "fidelity", "plain ms", "copies ms", "writes ms", "record ms"),
    *("x plain", "x copies", "x writes"),
)
RUNTIMES = {
    "onnx": ("onnxruntime", "openvino", "interpreter"),
    "tflite": ("litert", "litert:kernels=builtin", "litert:kernels=reference", "tflm", "openvino"),
    "pt2": ("torch", "torch:compile=inductor", "executorch", "executorch:delegate=portable"),
    "pte": ("executorch",),
    "xml": ("openvino",),
}
"""What runs a net, by the ending of its file."""


@dataclass(frozen=True, kw_only=True)
class Net:
    """A net: its file, and what makes an input of so many samples of a shape and dtype."""

    title: str
    path: Callable[[Path], Path]
    inputs: Callable[[Path, str, int, tuple[int, ...], np.dtype], np.ndarray] = lambda *given: drawn(*given[2:])

    @property
    def kind(self) -> str:
        """Kind of its file, which its title ends with."""
        return self.title.replace(".", " ").rpartition(" ")[2]


def drawn(samples: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return random numbers, or whole ones that no table is too small for."""
    rng = np.random.default_rng(0)
    if dtype.kind in "iu":
        return rng.integers(0, 8, (samples, *shape)).astype(dtype)
    return rng.standard_normal((samples, *shape)).astype(dtype)


def digits(_: Path, __: str, samples: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the built-in digits, as codes where the model takes codes."""
    with np.load(Path(qdebug.data.__file__).parent / "digits.inputs.npz") as given:
        images = np.resize(given["x"], (samples, 1, 8, 8))
    if dtype.kind in "iu":
        images = np.clip(np.rint(images * 255) + np.iinfo(dtype).min, np.iinfo(dtype).min, np.iinfo(dtype).max)
    return images.reshape(samples, *shape).astype(dtype)


def beside(model: Path, name: str, samples: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return the array beside a model of the user, as often as wanted."""
    del shape, dtype
    with np.load(model.with_suffix(".npz")) as given:
        return np.stack([given[name]] * samples)


def nets(folder: Path) -> list[Net]:
    """Return all nets; what has to be fetched is fetched when it is asked for."""
    spec = importlib.util.spec_from_file_location("models", Path(__file__).with_name("models.py"))
    models = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(models)

    def lines(_: Path, __: str, samples: int, ___: tuple[int, ...], ____: np.dtype) -> np.ndarray:
        return models.crops(samples, cache=folder)[:, None]

    own = sorted(
        path for path in folder.glob("models/*") if path.suffix != ".npz" and path.with_suffix(".npz").exists()
    )
    return [
        Net(title="digits fp32 onnx", path=lambda _: DIGITS / "digits.onnx", inputs=digits),
        Net(title="digits int8 onnx", path=lambda _: DIGITS / "digits.qdq.per_tensor.onnx", inputs=digits),
        Net(title="digits fp32 tflite", path=lambda _: DIGITS / "digits_float.tflite", inputs=digits),
        Net(title="digits int8 tflite", path=lambda _: DIGITS / "digits_int8.tflite", inputs=digits),
        Net(title="digits fp32 pt2", path=lambda cache: models.digits_program("float", cache), inputs=digits),
        Net(title="digits int8 pt2", path=lambda cache: models.digits_program("int8", cache), inputs=digits),
        Net(title="digits uint8 pt2", path=lambda cache: models.digits_program("uint8", cache), inputs=digits),
        Net(title="cls onnx", path=lambda cache: models.net("cls", cache), inputs=lines),
        Net(title="cls int8 onnx", path=lambda cache: models.quantized("cls", "qdq", cache), inputs=lines),
        Net(title="basic-pitch onnx", path=lambda cache: models.net("pitch-onnx", cache)),
        Net(title="basic-pitch tflite", path=lambda cache: models.net("pitch", cache)),
        *(Net(title=path.name, path=lambda _, path=path: path, inputs=beside) for path in own),
    ]


class Copying(Recorder):
    """Copies what it is given, and keeps nothing."""

    def __init__(self) -> None:
        super().__init__(None, backend="copies")
        self.copies = 0

    def put(self, name: str, array: Any, **_: Any) -> None:
        """Copy values."""
        np.array(array)
        self.copies += 1

    def constant(self, name: str, array: Any, **_: Any) -> None:
        """Do nothing: constants are no part of a sample."""

    def check(self, outputs: Any, **_: Any) -> None:
        """Do nothing: what is compared is not copied."""


class Writing(Copying):
    """Copies what it is given, and does with it the least that a recording can: a hash, and two writes to files."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._values, self._journal = ((folder / name).open("wb", buffering=0) for name in ("values", "journal"))

    def put(self, name: str, array: Any, **_: Any) -> None:
        """Copy, hash and write values."""
        data = np.array(array).reshape(-1).view(np.uint8).data
        self._journal.write(xxhash.xxh3_128_digest(data) + name.encode())
        self._values.write(data)

    def discard(self) -> None:
        """Bring the files to the disk and close them."""
        for file in (self._values, self._journal):
            os.fsync(file.fileno())
            file.close()
        super().discard()


def best(work: Callable[[], object], clock: Callable[[], float], repeat: int, samples: int) -> float:
    """Return the shortest time of a sample in milliseconds, after one run that is not counted."""
    work()
    times = []
    for _ in range(repeat):
        begun = clock()
        work()
        times.append(clock() - begun)
    return 1000 * min(times) / samples


def measured(net: Net, path: Path, backend: BackendChoice, arguments: argparse.Namespace) -> tuple[str, ...]:
    """Return the row of a net on a backend.

    Raises:
        QdebugError: The backend does not run it.
    """
    samples = arguments.samples
    clock = time.thread_time if arguments.cpu else time.perf_counter
    chosen = load_backend(backend.name)
    single = {"threads": "1"} if arguments.cpu and any(each.name == "threads" for each in chosen.options) else {}
    opened = chosen.open(path, options={**single, **backend.options})
    with closing(opened) as run, TemporaryDirectory() as scratch:
        arrays = {
            info.name: net.inputs(path, info.name, samples, tuple(e or 1 for e in info.shape), np.dtype(info.dtype))
            for info in run.inputs
        }
        feeds, out = ArrayFeeds(arrays, run.inputs, samples=samples), Path(scratch) / "out.h5"

        def plainly() -> None:
            run.restart()
            for sample in range(samples):
                run.plain(feeds.feed(sample))

        def copied(recorder: Callable[[], Copying] = Copying) -> None:
            copying = recorder()
            run.record(feeds, copying)
            copying.discard()

        def written() -> None:
            copied(lambda: Writing(Path(scratch)))

        def recorded() -> None:
            record_feeds(run, feeds, out, force=True)

        plain, copies, writes, record = (
            best(work, clock, arguments.repeat, samples) for work in (plainly, copied, written, recorded)
        )
        recording = open_recording(out)
        graph = recording.graph
        has = [name for name in graph.tensors if not graph.is_constant(name)]
        held = sum(name in set(recording.names) for name in has)
        return (
            f"{held} of {len(has)}",
            str(recording.info.fidelity),
            *(
                f"{each:.3g}"
                for each in (plain, copies, writes, record, record / plain, record / copies, record / (plain + writes))
            ),
        )


def rows(arguments: argparse.Namespace) -> Iterator[tuple[str, ...]]:
    """Yield a row for each net and backend."""
    others = [BackendChoice(name, {}) for name in installed_backends() if name not in BACKENDS]
    for net in nets(arguments.folder):
        usual = [backend_choice(text) for text in RUNTIMES.get(net.kind, ())]
        known = {each.name for each in usual}
        chosen = [each for each in arguments.backends if each.name in known or each.name not in BACKENDS]
        chosen = chosen if arguments.backends else [*usual, *others]
        if not chosen or not all(word in net.title for word in arguments.nets):
            continue
        try:
            path = net.path(arguments.folder)
        except ImportError as error:
            yield net.title, "", f"not made: {error.name} is not installed"
            continue
        for backend in chosen:
            title = ":".join(filter(None, (backend.name, ",".join(f"{k}={v}" for k, v in backend.options.items()))))
            try:
                yield net.title, title, *measured(net, path, backend, arguments)
            except MissingExtraError as error:
                yield net.title, title, f"not installed: {error.package}"
            except UsageError as error:
                yield net.title, title, f"not run: {error.message}"
            except QdebugError as error:
                yield net.title, title, f"failed: {error.message}"


def main(words: Sequence[str] | None = None) -> None:
    """Print the table as Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where nets are kept")
    parser.add_argument("--backends", nargs="+", type=backend_choice, default=[], metavar="NAME[:key=value,...]")
    parser.add_argument("--nets", nargs="+", default=[], metavar="WORD", help="only nets with these words")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--cpu", action="store_true", help="time of the processor, not of the clock")
    arguments = parser.parse_args(words)
    arguments.folder = arguments.folder.resolve()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    found = rows(arguments)
    first = next(found, None)
    if first is None:
        titles = ", ".join(net.title for net in nets(arguments.folder))
        parser.error(f"No net matches --nets and runs on --backends. Nets: {titles}.")
    print(f"| {' | '.join(HEADS)} |")
    print(f"|{'---|' * len(HEADS)}")
    for row in chain([first], found):
        print(f"| {' | '.join([*row, *[''] * (len(HEADS) - len(row))])} |", flush=True)


if __name__ == "__main__":
    main()
