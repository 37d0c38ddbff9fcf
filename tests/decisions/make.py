"""Make the corpus: recordings of healthy and faulty runs, each made once, and the manifest that lists the cases.

All inputs and weights are seeded. A recording also holds the time it was made, so a corpus made again has other hashes:
two sets of decisions can be compared only over one and the same corpus.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
from collect import command
from corpus import HERE, LEVELS, TESTS, TREE, Corpus, load
from nets import cls, rec, strangers, swift_f0

import qdebug

DIGITS = TREE / "samples" / "digits"
FORMS = [f"{form}.{per}" for form in ("qdq", "qoperator") for per in ("per_tensor", "per_channel")]
QUICK_TESTS = (
    *("tests/unit/compare", "tests/unit/test_session.py", "tests/unit/test_facade.py", "tests/cli/test_diff.py"),
    *("tests/cli/test_explain.py", "tests/faults", "tests/unit/running/test_explain_file.py"),
)
SLOW_TESTS = (
    "tests/faults",
    *(f"tests/backends/onnxruntime/test_{name}.py" for name in ("explain_nets", "real_diffs")),
)
RUNTIME_TESTS = tuple(
    f"tests/backends/onnxruntime/test_{name}.py"
    for name in ("every_form", "explain_nets", "explain_operators", "known_bug", "real_diffs", "rewrites")
)


# -- the digits net ----------------------------------------------------------------------------------------------------


def demo(corpus: Corpus, tier: str) -> None:
    """Keep the pair of the demo."""
    folder = corpus.work / "demo"
    code, _ = command(["demo", str(folder), "--force"])
    if code not in (0, 1):
        raise RuntimeError(f"the demo ended with exit code {code}")
    pair = [corpus.keep(folder / name) for name in ("float.h5", "int8.h5")]
    corpus.add("demo", "both", *pair, tier=tier)
    corpus.add("demo, the other way round", "diff", *pair[::-1], tier=tier)


def digits(corpus: Corpus, tier: str) -> None:
    """Record the digits net in all its forms, on ONNX Runtime and in the interpreter."""
    with np.load(DIGITS / "digits_test.npz") as data:
        feeds = {"x": data["x"][:3, None]}
    made = {}
    for form in ("float", *FORMS):
        model = DIGITS / ("digits.onnx" if form == "float" else f"digits.{form}.onnx")
        for level in LEVELS:
            made[form, level] = corpus.record(model, feeds, 3, "--backend", f"onnxruntime:opt={level}")
    presets = ("ort-mlas", "glow-interpreter", "xnnpack-rndnu", "tflite-reference")
    for name in presets:
        model = DIGITS / "digits.qoperator.per_channel.onnx"
        made["interpreter", name] = corpus.record(model, feeds, 3, "--backend", f"interpreter:arithmetic={name}")
    reference = made["float", "none"]
    for (form, level), file in made.items():
        corpus.add(f"digits {form} {level}", "diff" if form == "float" else "both", reference, file, tier=tier)
    for level in LEVELS:
        pair = made["qdq.per_tensor", level], made["qoperator.per_tensor", "all"]
        corpus.add(f"digits qdq {level}, qoperator all", "diff", *pair, tier=tier)
        corpus.add(f"digits qoperator all, qdq {level}", "diff", *pair[::-1], tier=tier)
    corpus.add("digits four backends", "diff", reference, *(made[form, "all"] for form in FORMS), tier=tier)
    coded = made["qoperator.per_tensor", "all"]
    for args in (["--max-lsb", "1"], ["--max-lsb", "4"], ["--min-sqnr", "40"], ["--atol", "0.05", "--rtol", "0.01"]):
        corpus.add(f"digits limits {' '.join(args)}", "diff", reference, coded, tier=tier, args=args)
        corpus.add(
            f"digits float limits {' '.join(args)}", "diff", reference, made["float", "all"], args=args, tier=tier
        )
    corpus.add("digits no arithmetic looked for", "diff", reference, coded, tier=tier, args=["--no-explain"])
    rules = '[[limit]]\nop = "QLinear*"\nmin_sqnr = 40.5\n[[acknowledged]]\nnode = "fc2_quant"\nreason = "known"\n'
    named = {"texts": {"limits.toml": rules}, "args": ["--limits", "limits.toml"]}
    corpus.add("digits limits of a file", "diff", reference, coded, tier=tier, **named)
    corpus.add("digits one sample", "diff", reference, coded, tier=tier, args=["--sample", "2"])


# -- recordings changed by hand ----------------------------------------------------------------------------------------


def changed(source, out: Path, change=lambda name, array, sample: array, *, graph=True, **said) -> Path:
    """Copy a recording with changes.

    Args:
        source: The recording.
        out: The new file.
        change: Returns the array to put, by name, array and sample; None to leave it out.
        graph: Whether the new one is told the graph; a graph is taken as it is given.
        said: `keep`, `constants`, `fidelity`, `complete`, `steps`, `names` (new ones for bare tensors).
    """
    known = source.graph if graph is True else graph or None
    recorder = qdebug.Recorder(out, backend="made-up", graph=known, force=True, cpu_flags=(), keep=said.get("keep"))
    for name in source.names:
        if source.graph.is_constant(name) and said.get("constants", True):
            recorder.constant(name, source.load(name))
    names = said.get("names", {})
    for sample in range(source.samples):
        recorder.at(*((0, sample) if said.get("steps") else (sample, 0)))
        outputs = {}
        for name in source.names:
            if source.graph.is_constant(name) or not source.has(name, sample):
                continue
            array = change(name, np.array(source.load(name, sample)), sample)
            if array is None:
                continue
            quant = source.graph.tensors[name].quant if not graph else None
            facts = {} if quant is None else {"scale": quant.scale, "zero_point": quant.zero_point, "axis": quant.axis}
            recorder.put(names.get(name, name), array, **facts)
            if name in source.graph.outputs:
                outputs[names.get(name, name)] = array
        if "fidelity" in said:
            recorder.check({name: array + (said["fidelity"] == "differs") for name, array in outputs.items()})
    recorder.close(complete=said.get("complete", True))
    return out


def _spoiled(tensor: str, value: float) -> Callable:
    def change(name: str, array: np.ndarray, sample: int) -> np.ndarray:
        if name == tensor and sample == 1:
            array.flat[7] = value
        return array

    return change


def _cast(dtype) -> Callable:
    return lambda name, array, sample: array.astype(dtype) if array.dtype == np.float32 else array


def changed_by_hand(corpus: Corpus, tier: str) -> None:
    """Make what no runtime gives: gaps, broken values, bare names, other precisions, other layouts."""
    import ml_dtypes

    with np.load(DIGITS / "digits_test.npz") as data:
        feeds = {"x": data["x"][:3, None]}
    kept = {
        form: corpus.record(DIGITS / name, feeds, 3, "--backend", "onnxruntime:opt=none")
        for form, name in (("float", "digits.onnx"), ("int8", "digits.qoperator.per_tensor.onnx"))
    }
    opened = {form: qdebug.open_recording(corpus.folder / file) for form, file in kept.items()}
    middle = {}
    for form, found in opened.items():
        compute = [n.outputs[0] for n in found.graph.nodes if n.op in ("Conv", "QLinearConv")]
        middle[form] = compute[1]
    numbered = {form: {name: f"t{at}" for at, name in enumerate(found.names)} for form, found in opened.items()}

    def crop(tensor: str) -> Callable:
        return lambda name, array, sample: array[..., :-1] if name == tensor else array

    def without(tensor: str) -> Callable:
        return lambda name, array, sample: None if name == tensor else array

    def last(name: str, array: np.ndarray, sample: int) -> np.ndarray:
        return np.moveaxis(array, 1, -1) if array.ndim == 4 else array

    def tail(tensor: str) -> Callable:
        return lambda name, array, sample: _with_tail(array) if name == tensor else array

    for form, found in opened.items():
        at = middle[form]
        variants: dict[str, dict] = {
            "as it is": {},
            "one tensor left out": {"change": without(at)},
            "another shape": {"change": crop(at)},
            "unwritten tail": {"change": tail(at)},
            "statistics alone": {"keep": "stats"},
            "some elements": {"keep": "elements:50"},
            "no weights": {"constants": False},
            "unfaithful": {"fidelity": "differs"},
            "faithful": {"fidelity": "equal"},
            "not complete": {"complete": False},
            "bare names": {"graph": False},
            "bare numbers": {"graph": False, "names": numbered[form]},
            "bare numbers, channels last": {"graph": False, "names": numbered[form], "change": last},
            "bare names, channels last": {"graph": False, "change": last},
            "one tensor left out, bare": {"graph": False, "change": without(at)},
        }
        if form == "float":
            floats = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}
            for name, dtype in floats.items():
                variants[name] = {"graph": _typed(found.graph, name), "change": _cast(dtype)}
                variants[f"{name}, bare"] = {"graph": False, "change": _cast(dtype)}
            for value in (np.nan, np.inf):
                variants[f"{value} in one sample"] = {"change": _spoiled(at, value)}
                variants[f"{value} in the output"] = {"change": _spoiled(found.graph.outputs[0], value)}
        for title, said in variants.items():
            try:
                file = corpus.keep(changed(found, corpus.work / "changed.h5", **said))
            except qdebug.QdebugError as error:
                corpus.lack(f"{form} {title}: {error}")
                continue
            corpus.add(f"{form} {title}", "both", kept["float"], file, tier=tier)
            corpus.add(f"{form} {title}, as reference", "diff", file, kept["int8"], tier=tier)
            if title in ("one tensor left out", "unfaithful", "not complete"):
                args = ["--allow-partial", "--allow-unfaithful", "--allow-uncompared", "*"]
                corpus.add(f"{form} {title}, allowed", "diff", kept["float"], file, tier=tier, args=args)
        steps = [corpus.keep(changed(opened[side], corpus.work / "changed.h5", steps=True)) for side in ("float", form)]
        corpus.add(f"{form} in steps", "both", *steps, tier=tier)


def _with_tail(array: np.ndarray) -> np.ndarray:
    array[:, -3:] = 0
    return array


def _typed(graph: qdebug.Graph, dtype: str) -> qdebug.Graph:
    """Return the graph with its computed floats in another precision."""
    tensors = [
        replace(info, dtype=dtype) if info.dtype == "float32" and not graph.is_constant(info.name) else info
        for info in graph.tensors.values()
    ]
    return qdebug.Graph(graph.nodes, tensors=tensors, inputs=graph.inputs, outputs=graph.outputs)


# -- faults ------------------------------------------------------------------------------------------------------------


def _planted(corpus: Corpus, tier: str, title: str, file: str, every: int) -> None:
    """Plant each kernel bug into nodes of a recording."""
    planted, harvest = load(TESTS / "faults" / "planted.py"), _harvest(corpus)
    from qdebug.replay.variant import Variant

    recording = qdebug.open_recording(corpus.folder / file)
    for bug in planted.BUGS:
        for number, source in enumerate(planted.sources(recording, "conv")[::every]):
            altered = planted.plant(source, bug, Variant())
            if altered is not None:
                name = f"planted in {title}: {bug.name} {number}"
                corpus.add(name, "both", file, harvest.stored(altered), tier=tier)


def _harvest(corpus: Corpus) -> ModuleType:
    os.environ["QDEBUG_HARVEST"] = str(corpus.folder)
    return load(HERE / "harvest.py")


def planted_in_digits(corpus: Corpus, tier: str) -> None:
    """Plant kernel bugs into the int8 digits net."""
    with np.load(DIGITS / "digits_test.npz") as data:
        feeds = {"x": data["x"][:4, None]}
    form = "qdq.per_tensor" if tier == "quick" else "qdq.per_channel"
    file = corpus.record(DIGITS / f"digits.{form}.onnx", feeds, 4, "--backend", "onnxruntime:opt=all")
    _planted(corpus, tier, f"digits {form}", file, 1)


def planted_in_cls(corpus: Corpus, tier: str) -> None:
    """Plant kernel bugs into the int8 text direction net."""
    models = load(TESTS / "backends" / "models.py")
    feeds = {"x": models.crops(1)[:, None]}
    file = corpus.record(models.quantized("cls", "qdq"), feeds, 1, "--backend", "onnxruntime:opt=all")
    _planted(corpus, tier, "cls", file, 18)


def tests_pairs(corpus: Corpus, tier: str) -> None:
    """Keep what the tests compare and explain."""
    listed = corpus.folder / "harvest.jsonl"
    listed.unlink(missing_ok=True)
    runs = (
        [(QUICK_TESTS, "not slow", "12")]
        if tier == "quick"
        else [
            (RUNTIME_TESTS, "not slow", "12"),
            (SLOW_TESTS, "slow", "400"),
        ]
    )
    for paths, marked, most in runs:
        here = {"QDEBUG_HARVEST": str(corpus.folder), "QDEBUG_HARVEST_MOST": most}
        here["PYTHONPATH"] = os.pathsep.join([str(TREE), str(HERE)])
        words = [sys.executable, "-m", "pytest", "-q", "-p", "harvest", "-p", "no:cacheprovider", "-m", marked, *paths]
        done = subprocess.run(words, cwd=TREE, env=os.environ | here, check=False, stdout=sys.stderr)
        if done.returncode:
            corpus.lack(f"some pairs of {' '.join(paths)}: their tests ended with {done.returncode}")
    for line in listed.read_text(encoding="utf-8").splitlines():
        corpus.cases.append(json.loads(line) | {"tier": tier})


QUICK = (demo, digits, changed_by_hand, planted_in_digits, strangers, tests_pairs)
WHOLE = (planted_in_digits, swift_f0, cls, strangers, planted_in_cls, rec, tests_pairs)


def make(folder: Path, *, quick: bool) -> None:
    """Make a corpus; the quick tier first, so that it can be used while the rest is made."""
    corpus = Corpus(folder.resolve())
    corpus.sections("quick", *QUICK)
    corpus.write()
    if not quick:
        corpus.sections("whole", *WHOLE)
        corpus.write()
    shutil.rmtree(corpus.work)
    (corpus.folder / "harvest.jsonl").unlink(missing_ok=True)
    print(f"{len(corpus.cases)} cases; {len(corpus.absent)} not made: {corpus.absent}", file=sys.stderr)
