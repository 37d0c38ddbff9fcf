"""How much CPU the comparison of real nets takes, in this tree and in another one, run in turn.

Run it: python tests/benchmarks/bench_real.py FOLDER [--other TREE] [--pairs 7] [--only cls8 rec8]

FOLDER keeps the recordings, which are made once: two text nets of a wheel, in float32 and quantized, a page net in
float32 without and with ONNX Runtime's optimizations, and chains of small tensors. Each figure is the CPU time of a
whole process, children included, with no result kept from before unless the case says "cached". With --other, both
trees take turns, and the ratio is the median of the ratios of each turn: it holds on a noisy machine, where the seconds
do not.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import resource
import shutil
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

TREE = Path(__file__).resolve().parents[2]
SMALL = (100, 1000, 10000)


def _models():
    spec = importlib.util.spec_from_file_location("models", TREE / "tests" / "backends" / "models.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _pair(folder: Path, name: str, arrays: np.ndarray, reference: Path, backend: Path) -> None:
    from qdebug.running.record import record_run

    for side, model, level in (("ref", reference, "none"), ("other", backend, "all")):
        out = folder / f"{name}.{side}.h5"
        if not out.exists():
            feed = {"x": arrays[:, None]}
            record_run(model, backend="onnxruntime", options={"opt": level}, inputs=feed, samples=len(arrays), out=out)


def _chain(folder: Path, count: int) -> None:
    import qdebug

    generator = np.random.default_rng(0)
    if (folder / f"chain{count}.other.h5").exists():
        return
    for side in ("ref", "other"):
        with qdebug.Recorder(folder / f"chain{count}.{side}.h5", backend="chain") as recorder:
            values = np.random.default_rng(1).normal(size=(1, 256)).astype(np.float32)
            for index, sign in enumerate((1, -1)):
                recorder.constant(f"c{index}", np.full(1, sign, np.float32))
            recorder.put("t0", values)
            for index in range(count):
                made = values + np.float32(-1 if index % 2 else 1)
                noise = generator.normal(size=values.shape) * 3e-8 if side == "other" else 0
                values = (made * (1 + noise)).astype(np.float32)
                recorder.put(f"t{index + 1}", values, node=f"n{index}", op="Add", inputs=(f"t{index}", f"c{index % 2}"))
            recorder.outputs(f"t{count}")


def make(folder: Path, only: Sequence[str] = ()) -> None:
    """Make the recordings that are not there yet, for all cases or for those whose names contain one of some texts."""

    def wanted(name: str) -> bool:
        return not only or any(part.partition(" ")[0] in name for part in only)

    models = _models()
    folder.mkdir(parents=True, exist_ok=True)
    for count in (1, 8):
        if wanted(f"cls{count}"):
            _pair(folder, f"cls{count}", models.crops(count), models.net("cls"), models.quantized("cls", "qdq"))
    if wanted("rec8"):
        _pair(folder, "rec8", models.words(8), models.net("rec"), models.quantized("rec", "qdq"))
    if wanted("det2"):
        pages = [models._resize(models.picture(name), 320, 640) / 127.5 - 1 for name in ("page", "text")]
        arrays = np.stack([np.broadcast_to(page, (3, 320, 640)) for page in pages]).astype(np.float32)
        _pair(folder, "det2", arrays, models.net("det"), models.net("det"))
    for count in SMALL:
        if wanted(f"chain{count} "):
            _chain(folder, count)


def cases(folder: Path) -> Mapping[str, tuple[list[str], list[str]]]:
    """Return, by name, the words that are run beforehand and those that are timed."""
    pairs = {
        name: [str(folder / f"{name}.{side}.h5") for side in ("ref", "other")]
        for name in ("cls1", "cls8", "rec8", "det2")
    }
    found: dict[str, tuple[list[str], list[str]]] = {"help": ([], ["--help"])}
    for name, pair in pairs.items():
        found[f"{name} diff"] = ([], ["diff", *pair, "-q"])
    found["cls8 diff, cached"] = (["diff", *pairs["cls8"], "-q"], ["diff", *pairs["cls8"], "-q"])
    for name in ("cls1", "cls8", "rec8"):
        found[f"{name} diff, itself"] = ([], ["diff", pairs[name][0], pairs[name][0], "-q"])
    found["cls1 explain"] = ([], ["explain", pairs["cls1"][1]])
    found["cls1 budget"] = ([], ["budget", *pairs["cls1"]])
    for count in SMALL:
        found[f"chain{count} diff"] = (
            [],
            ["diff", *(str(folder / f"chain{count}.{side}.h5") for side in ("ref", "other")), "-q"],
        )
    return found


def _clear(folder: Path) -> None:
    for kept in folder.glob("*.qdebug-cache"):
        shutil.rmtree(kept)


def cpu(tree: Path, folder: Path, before: list[str], words: list[str]) -> float:
    """Return the CPU seconds of a command of a tree."""
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": ""}
    _clear(folder)
    run = [sys.executable, "-m", "qdebug"]  # which looks for qdebug in its folder first
    if before:
        subprocess.run([*run, *before], env=environment, cwd=folder, capture_output=True, check=False)
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([*run, *words], env=environment, cwd=folder, capture_output=True, check=False)
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}: {done.stderr.decode()[-500:]}")
    return end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime


def main() -> None:
    """Make what is missing, run the cases, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="keeps the recordings")
    parser.add_argument("--other", type=Path, help="another tree, to compare with")
    parser.add_argument("--pairs", type=int, default=3, help="turns of each case (default: 3)")
    parser.add_argument("--only", nargs="+", default=[], help="cases whose names contain one of these")
    options = parser.parse_args()
    folder = options.folder.resolve()
    make(folder, options.only)
    trees = [TREE] if options.other is None else [TREE, options.other.resolve()]
    print(f"{'case':24}{'CPU s':>8}" + (f"{'other':>8}{'ratio':>8}" if options.other else ""))
    for name, (before, words) in cases(folder).items():
        if options.only and not any(part in name for part in options.only):
            continue
        turns = [[cpu(tree, folder, before, words) for tree in trees] for _ in range(options.pairs)]
        medians = [statistics.median(turn[side] for turn in turns) for side in range(len(trees))]
        line = f"{name:24}" + "".join(f"{each:8.2f}" for each in medians)
        if options.other:
            line += f"{statistics.median(turn[0] / turn[1] for turn in turns):8.2f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
