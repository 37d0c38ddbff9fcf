"""Collect what the qdebug that is imported decides of a corpus of recordings, without a word of its sentences.

    PYTHONPATH=TREE python tests/decisions/collect.py CORPUS -o OUT.json [--quick] [--jobs 2] [--tree TREE]

Only the fixed contract is used: `qdebug.diff(...).to_json()` and the command line. So one collector serves older and
newer trees. `run.py` beside this file makes the corpus, calls this script for two commits and compares.

A case is decided in an empty folder of its own, under links to its files. Nothing kept by an earlier run, or by another
commit, is found there.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import io
import json
import multiprocessing
import os
import runpy
import shutil
import sys
import tempfile
import time
import traceback
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

VERDICT = ("status", "first_divergence", "origin", "worst_sample", "contributors", "compounding")
UNMATCHED = ("side", "tensor", "kind")
DIFF_NODE = (
    *("node", "op", "tensor", "reference_tensor", "match", "status", "basis", "explained", "reproduced", "precision"),
    *("metrics", "introduced", "propagated", "constants", "arithmetic", "declared", "findings", "gain", "saturation"),
    *("quant", "samples"),
)
EXPLAIN_NODE = (
    *("node", "op", "tensor", "status", "kind", "variants", "presets", "match", "witnesses", "witness_elements"),
    *("runner_up", "residual", "recorded", "band", "tried", "elements"),
)
WORDS = frozenset(
    {"sentence", "reason", "match_reason", "note", "attribution_note", "words", "likely", "detail", "provenance"}
)
"""Keys whose values are sentences: they may change while no decision does."""
SLOWEST = 10
"""How many of the cases that took longest are named at the end."""


def cases_of(corpus: Path, *, quick: bool) -> list[dict]:
    """Return the cases of a corpus that a tier asks for."""
    listed = corpus / "manifest.json"
    if not listed.exists():
        raise SystemExit(
            f"There is no corpus in {corpus}. Make it: python tests/decisions/run.py make {corpus} --quick"
        )
    manifest = json.loads(listed.read_text(encoding="utf-8"))
    return [case for case in manifest["cases"] if not quick or case["tier"] == "quick"]


def digest_of(cases: list[dict]) -> str:
    """Return a hash of cases: decisions over other cases or other files cannot be compared."""
    return hashlib.sha256(json.dumps(cases, sort_keys=True).encode()).hexdigest()


def altered(cases: list[dict], corpus: Path) -> list[str]:
    """Return the files that are missing or not those of the manifest."""
    stated = {file: digest for case in cases for file, digest in zip(case["files"], case["sha256"], strict=True)}
    found = {file: corpus / file for file in stated if (corpus / file).exists()}
    now = {file: hashlib.sha256(path.read_bytes()).hexdigest() for file, path in found.items()}
    return [file for file, digest in stated.items() if now.get(file) != digest]


def without_words(value: object) -> object:
    """Return a JSON value without its sentences."""
    if isinstance(value, dict):
        return {key: without_words(entry) for key, entry in value.items() if key not in WORDS}
    return [without_words(entry) for entry in value] if isinstance(value, list) else value


def _picked(entry: dict, keys: tuple[str, ...]) -> dict:
    picked = {key: without_words(entry[key]) for key in keys if key in entry}
    if "declared" in picked:  # a sentence too: whether there is one is the decision
        picked["declared"] = picked["declared"] is not None
    return picked


def decisions(said: dict) -> dict:
    """Return the decisions in one JSON document of `qdebug diff` or `qdebug explain`."""
    if said["format"] == "qdebug.diffs":
        return {"diffs": [decisions(each) for each in said["diffs"]], "matrix": without_words(said["matrix"])}
    if said["format"] == "qdebug.explain":
        return {
            "summary": said["summary"],
            "arithmetic": said.get("arithmetic"),
            "nodes": [_picked(node, EXPLAIN_NODE) for node in said["nodes"]],
        }
    coverage = said["coverage"]
    return {
        "verdict": _picked(said["verdict"], VERDICT),
        "fidelity": said["fidelity"],
        "compared": coverage["compared"],
        "unmatched": [[entry[key] for key in UNMATCHED] for entry in coverage["unmatched"]],
        "outputs": without_words(said.get("outputs")),
        "nodes": [_picked(node, DIFF_NODE) for node in said["nodes"]],
    }


def command(arguments: list[str]) -> tuple[object, str]:
    """Run `python -m qdebug` in this process; return its exit code and what it printed on stdout."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    import qdebug

    before, sys.argv = sys.argv, ["qdebug", *arguments]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            # by its path: pytest, which may have loaded the package, cannot run modules of it
            runpy.run_path(str(Path(qdebug.__file__).with_name("__main__.py")), run_name="__main__")
            code: object = 0
    except SystemExit as end:
        code = end.code if end.code is not None else 0
    finally:
        sys.argv = before
    out.flush()
    return code, out.buffer.getvalue().decode("utf-8")


def decide(case: dict, corpus: Path) -> dict:
    """Decide one case in an empty folder; an exception is a decision too."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory(dir=corpus, prefix=".case-") as folder:
        try:
            os.chdir(folder)
            os.environ.update(HOME=folder, XDG_CACHE_HOME=folder)
            names = ["ref.h5" if case["kind"] == "diff" else "backend.h5", *(f"b{n}.h5" for n in range(1, 9))]
            names = names[: len(case["files"])]
            for name, file in zip(names, case["files"], strict=True):
                _link(corpus / file, Path(name))
            for name, text in case.get("texts", {}).items():
                Path(name).write_text(text, encoding="utf-8")
            return _decided(case, names)
        except Exception as error:  # noqa: BLE001  whatever it is, it is what this commit does of the case
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(f"{case['name']}: {type(error).__name__}: {error} ({place.filename}:{place.lineno})", file=sys.stderr)
            return {"raised": type(error).__name__}
        finally:
            os.chdir(here)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copyfile(source, target)


def _decided(case: dict, names: list[str]) -> dict:
    import qdebug

    code, printed = command([case["kind"], *names, "--json", *case.get("args", ())])
    found = {"exit": code, **(decisions(json.loads(printed)) if printed.strip() else {})}
    if case["kind"] == "diff" and len(names) == 2 and not case.get("args"):
        try:
            called = decisions(json.loads(qdebug.diff(*names).to_json()))
        except qdebug.QdebugError as error:
            found["called"] = type(error).__name__
        else:
            found["called"] = "as printed" if called.items() <= found.items() else "not as printed"
    return found


def _worker(case: dict, corpus: Path) -> tuple[str, dict, float]:
    start = time.perf_counter()
    return case["name"], decide(case, corpus), time.perf_counter() - start


def decide_all(cases: list[dict], corpus: Path, *, jobs: int, note) -> dict[str, dict]:
    """Decide cases in processes, the largest files first; return the decisions by case."""
    largest = sorted(cases, key=lambda case: -sum((corpus / file).stat().st_size for file in case["files"]))
    found: dict[str, dict] = {}
    took: dict[str, float] = {}
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting = [pool.submit(_worker, case, corpus) for case in largest]
        for done in as_completed(waiting):
            name, decided, seconds = done.result()
            found[name], took[name] = decided, seconds
            note(len(found), len(cases), name, seconds)
    for name in sorted(took, key=took.get, reverse=True)[:SLOWEST]:
        print(f"{took[name]:7.1f} s {name}", file=sys.stderr)
    return {case["name"]: found[case["name"]] for case in cases}


def _note(done: int, total: int, name: str, seconds: float) -> None:
    if seconds > 10 or done % 50 == 0 or done == total:
        print(f"{done} of {total} decided; {name}: {seconds:.1f} s", file=sys.stderr, flush=True)


def main() -> None:
    """Decide the cases of a corpus and write the decisions."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("corpus", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--tree", type=Path, help="fail unless qdebug is imported from here")
    options = parser.parse_args()
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # the cases run side by side
    import qdebug

    home = Path(qdebug.__file__).resolve().parents[1]
    if options.tree is not None and home != options.tree.resolve():
        sys.exit(f"qdebug is imported from {home}, not from {options.tree.resolve()}")
    print(f"deciding with the qdebug of {home}", file=sys.stderr)
    corpus = options.corpus.resolve()
    cases, start = cases_of(corpus, quick=options.quick), time.perf_counter()
    if wrong := altered(cases, corpus):
        sys.exit(f"{len(wrong)} files of the corpus are missing or changed, such as {wrong[0]}: make it again")
    found = {"digest": digest_of(cases), "cases": decide_all(cases, corpus, jobs=options.jobs, note=_note)}
    options.output.write_text(json.dumps(found, indent=0), encoding="utf-8")
    print(f"{len(cases)} cases in {time.perf_counter() - start:.0f} s -> {options.output}", file=sys.stderr)


if __name__ == "__main__":
    main()
