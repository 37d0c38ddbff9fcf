"""Quantize float nets by onnxruntime's default recipe, repair them, and print what that takes beside plain baselines.

python tests/backends/repaired.py FOLDER [--nets NAME ...] [--within DB] [--samples N] [--minutes M]

  before, after   SQNR in dB of the outputs on samples that were held out, replayed
  model run       the same of the repaired model, really run, on all samples
  edits           nodes that are changed, and how
  in float        share of the multiply-adds in float
  by own error    nodes in float until the goal is reached, those with the largest own relative error first
  one at a time   the same, those first that gain most when they alone are in float

FOLDER/models/NAME.onnx with FOLDER/models/NAME.npz, samples along the first axis, is a float net of your own.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np

from qdebug.errors import QdebugError
from qdebug.repair.find import RepairOptions, find_repair, prepare_search
from qdebug.repair.search import Search
from qdebug.running.record import record_run
from qdebug.session import DiffSession, open_recording

HEADS = ("net", "before", "after", "model run", "edits", "in float", "by own error", "one at a time", "minutes")
Inputs = Mapping[str, np.ndarray]


def models() -> ModuleType:
    """Import what fetches nets."""
    spec = importlib.util.spec_from_file_location("models", Path(__file__).with_name("models.py"))
    module = sys.modules["models"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def nets(folder: Path, samples: int) -> dict[str, Callable[[], tuple[Path, Inputs]]]:
    """Return float nets by name, each with inputs; what has to be fetched is fetched when it is asked for."""
    held = models()
    known = {
        "cls": lambda: (held.net("cls", folder), {"x": held.crops(samples, cache=folder)[:, None]}),
        "rec": lambda: (held.net("rec", folder), {"x": held.words(samples, cache=folder)[:, None]}),
        "det": lambda: (held.net("det", folder), {"x": _parts(held, samples, folder)}),
        "orientation": lambda: (held.net("orientation", folder), {"x": _parts(held, samples, folder)}),
        "marks": lambda: (held.net("marks", folder), {"images": 127.5 * (_parts(held, samples, folder, side=416) + 1)}),
        "file-type": lambda: (held.net("file-type", folder), {"bytes": _files(samples)}),
        "voice": lambda: (held.net("voice", folder), _frames(held, samples)),
        "basic-pitch": lambda: (held.net("pitch-onnx", folder), _sounds(held, samples)),
        "swift-f0": lambda: (held.net("swift-f0", folder), _voices(held, samples)),
    }
    for path in sorted(folder.glob("models/*.onnx")):
        if path.with_suffix(".npz").exists() and "int8" not in path.name:
            known[path.stem] = lambda path=path: (path, dict(np.load(path.with_suffix(".npz"))))
    return known


def _parts(held: ModuleType, samples: int, folder: Path, side: int = 224) -> np.ndarray:
    """Cut squares out of two scanned pages, every other turned upside down: float32 [samples, 1, 3, side, side]."""
    pages, rng = [held.picture(name, folder) for name in ("page", "text")], np.random.default_rng(0)
    out = np.empty((samples, 1, 3, side, side), np.float32)
    for at in range(samples):
        page = np.pad(pages[at % 2], ((0, side), (0, side)), mode="reflect")
        top, left = (int(rng.integers(0, extent - side)) for extent in page.shape)
        part = page[top : top + side, left : left + side] / 127.5 - 1
        out[at] = part if at % 2 else part[::-1, ::-1]
    return out


def _files(samples: int) -> np.ndarray:
    """Return the first and last 1024 bytes of files of this project, int32 [samples, 1, 2048]; 256 is no byte.

    The first file of each kind comes first, then the second, and so on.
    """
    home = Path(__file__).resolve().parents[2]
    out = np.full((samples, 1, 2048), 256, np.int32)
    kinds = dict[str, list[Path]]()
    for path in sorted(each for part in ("samples", "tests", "qdebug/guide") for each in (home / part).rglob("*.*")):
        if path.is_file() and "__pycache__" not in path.parts:
            kinds.setdefault(path.suffix, []).append(path)
    ranked = sorted((at, path) for files in kinds.values() for at, path in enumerate(files))
    for at, (_, path) in enumerate(ranked[:samples]):
        content = np.frombuffer(path.read_bytes(), np.uint8)
        first, last = content[:1024], content[-1024:]
        out[at, 0, : first.size], out[at, 0, 2048 - last.size :] = first, last
    return out


def _frames(held: ModuleType, samples: int) -> Inputs:
    wave = held.sound(samples, seconds=1)
    frames = np.stack([wave[:, start : start + 576] for start in range(0, wave.shape[1] - 576, 512)], axis=1)
    state = np.zeros((samples, 1, 1, 128), np.float32)
    return {"input": frames, "h": state, "c": state}


def _voices(held: ModuleType, samples: int) -> Inputs:
    bounds = {name: np.full(samples, value, np.float32) for name, value in (("fmin", 46.875), ("fmax", 2093.75))}
    return {"audio": held.sound(samples)[:, None], **bounds}


def _sounds(held: ModuleType, samples: int) -> Inputs:
    wave = held.sound(samples, seconds=2, rate=22050)[:, :43844]
    return {"serving_default_input_2:0": np.pad(wave, ((0, 0), (0, 43844 - wave.shape[1])))[:, None, :, None]}


def quantized(path: Path, inputs: Inputs, out: Path) -> Path:
    """Quantize a net as onnxruntime does by default: uint8 activations, int8 weights, one scale a tensor."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            count = len(next(iter(inputs.values())))
            self.left = iter([{name: np.asarray(array[at]) for name, array in inputs.items()} for at in range(count)])

        def get_next(self) -> Inputs | None:
            return next(self.left, None)

    prepared = out.with_suffix(".prepared.onnx")
    quant_pre_process(str(path), str(prepared), skip_symbolic_shape=True)
    quantize_static(
        str(prepared), str(out), Reader(), quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
    )  # fmt: skip
    return out


def in_order(search: Search, names: Sequence[str], most: int) -> str:
    """Put nodes in float one after the other until the goal is reached; return how many that takes."""
    taken = []
    for name in names[:most]:
        taken += [edit for edit in search.catalog.edits_of(name) if edit.kind == "float"]
        if search.trials.score(taken, search.places) >= search.goal:
            return str(len(taken))
    return f"over {len(taken)}"


def baselines(session: DiffSession, options: RepairOptions, most: int) -> tuple[str, str]:
    """Return the nodes in float that two plain orders need."""
    search = prepare_search(session, options)
    own = {}
    for result in session.results():
        unit = search.catalog.nodes.unit_of(result.node)
        if unit is not None and result.introduced is not None and result.introduced.rel_l2 is not None:
            own[unit.node.name] = max(own.get(unit.node.name, 0.0), result.introduced.rel_l2)
    gains = {}
    for name in search.catalog.units:
        alone = [edit for edit in search.catalog.edits_of(name) if edit.kind == "float"]
        if alone:
            gains[name] = search.trials.score(alone, search.places[:1])
    orders = (sorted(each, key=lambda name, each=each: -each[name]) for each in (own, gains))
    first, second = (in_order(search, order, most) for order in orders)
    return first, second


def row(name: str, path: Path, inputs: Inputs, options: RepairOptions, most: int) -> tuple[str, ...]:
    """Return a row of the table."""
    with TemporaryDirectory() as scratch:
        folder, count = Path(scratch), len(next(iter(inputs.values())))
        int8 = quantized(path, inputs, folder / "int8.onnx")
        for source, out in ((path, "float.h5"), (int8, "int8.h5")):
            record_run(source, backend="onnxruntime", options={"opt": "none"}, inputs=inputs, samples=count,
                       out=folder / out)  # fmt: skip
        session = DiffSession(open_recording(folder / "float.h5"), open_recording(folder / "int8.h5"))
        begun = time.monotonic()
        found = find_repair(session, options, model=int8, out=folder / "repaired.onnx")
        minutes = (time.monotonic() - begun) / 60
        plain = baselines(session, options, most) if most else ("", "")
        proof, kinds = found.proof, Counter(edit.kind for edit in found.edits)
        kept = found.held_out or found.search
        return (
            name,
            f"{kept.before:.1f}",
            f"{kept.after:.1f}" + ("" if not found.exit_code else " (missed)"),
            "" if proof is None else f"{proof.after:.1f}",
            f"{len(found.edits)}: {', '.join(f'{number} {kind}' for kind, number in kinds.items())}",
            f"{sum(edit.macs for edit in found.edits):.1%}",
            *plain,
            f"{minutes:.1f}",
        )


def main(words: Sequence[str] | None = None) -> None:
    """Print the table as Markdown, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where nets are kept")
    parser.add_argument("--nets", nargs="+", metavar="NAME", help="only these")
    parser.add_argument("--within", type=float, default=20.0, metavar="DB")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--most", type=int, default=64, help="most nodes of a baseline; 0 for no baselines")
    arguments = parser.parse_args(words)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    print(f"| {' | '.join(HEADS)} |\n|{'---|' * len(HEADS)}", flush=True)
    options = RepairOptions(within=arguments.within, minutes=arguments.minutes)
    for name, load in nets(arguments.folder, arguments.samples).items():
        if arguments.nets and name not in arguments.nets:
            continue
        try:
            path, inputs = load()
            print(f"| {' | '.join(row(name, path, inputs, options, arguments.most))} |", flush=True)
        except (QdebugError, RuntimeError, ValueError, TypeError) as error:  # onnxruntime quantizes not every net
            said = " ".join(str(error).split())[:120]
            print(f"| {name} | failed: {said} |{' |' * (len(HEADS) - 2)}", flush=True)


if __name__ == "__main__":
    main()
