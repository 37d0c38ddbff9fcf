"""Check that a change of the code changes no decision: status, partner, origin, metric, arithmetic, exit code.

    python tests/decisions/run.py make CORPUS [--quick]                  once, outside the repository
    python tests/decisions/run.py compare OLD NEW CORPUS [--quick]       two commits; "." is the working tree
    python tests/decisions/run.py decide CORPUS -o OUT.json [--quick]    the tree that python imports

For example, before a change is committed: python tests/decisions/run.py compare main . ~/corpus --quick

`compare` ends with 1 if anything differs, and says which field of which node of which case. What a commit decides is
kept in CORPUS/decided, so the older side runs once. The whole corpus holds real nets and all seeded faults; the quick
tier holds the made-up pairs of the tests, the digits net and some small nets, and takes about a minute for one side.
Sentences are not compared. Keys that only the newer side has are no difference. Nothing is accepted: a change that is
wanted shows as a difference, and its commit says why.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
sys.path.insert(0, str(HERE))

from collect import cases_of, digest_of  # noqa: E402
from compare import report  # noqa: E402


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(TREE), *words], check=True, capture_output=True).stdout


def collected(tree: Path, corpus: Path, out: Path, *, quick: bool, jobs: int = 2) -> dict:
    """Decide with the qdebug of a tree, in processes of its own; return the decisions."""
    words = [sys.executable, str(HERE / "collect.py"), str(corpus), "-o", str(out), "--tree", str(tree)]
    words += ["--jobs", str(jobs), *(["--quick"] if quick else [])]
    subprocess.run(words, check=True, env=os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"})
    return json.loads(out.read_text(encoding="utf-8"))


def decided(commit: str, corpus: Path, *, quick: bool) -> dict:
    """Return what a commit decides, from the last time if the cases are the same; "." is the working tree."""
    cases = cases_of(corpus, quick=quick)
    digest = digest_of(cases)
    folder = corpus / "decided"
    folder.mkdir(exist_ok=True)
    if commit == ".":
        return collected(TREE, corpus, folder / "working-tree.json", quick=quick)
    number = _git("rev-parse", "--verify", f"{commit}^{{commit}}").decode().strip()
    for tier in ("whole", "quick") if quick else ("whole",):
        kept = folder / f"{number}.{tier}.json"
        found = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {"digest": "", "cases": {}}
        if found["digest"] == digest:
            return found
        if tier == "whole" and quick and found["digest"] == digest_of(cases_of(corpus, quick=False)):
            return {"digest": digest, "cases": {case["name"]: found["cases"][case["name"]] for case in cases}}
    with tempfile.TemporaryDirectory(prefix="qdebug-decisions-") as place:
        with tarfile.open(fileobj=io.BytesIO(_git("archive", number))) as archive:
            archive.extractall(place, filter="data")
        return collected(Path(place), corpus, folder / f"{number}.{'quick' if quick else 'whole'}.json", quick=quick)


def main() -> int:
    """Run one of the three commands."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, places in (("make", ["corpus"]), ("decide", ["corpus"]), ("compare", ["old", "new", "corpus"])):
        each = verbs.add_parser(verb)
        for place in places:
            each.add_argument(place, type=Path if place == "corpus" else str)
        each.add_argument("--quick", action="store_true", help="the quick tier alone")
        if verb == "decide":
            each.add_argument("-o", "--output", type=Path, required=True)
    options = parser.parse_args()
    corpus = options.corpus.resolve()
    if options.verb == "make":
        from make import make

        make(corpus, quick=options.quick)
        return 0
    if options.verb == "decide":
        import qdebug

        collected(Path(qdebug.__file__).parents[1], corpus, options.output.resolve(), quick=options.quick)
        return 0
    lines, changed = report(*(decided(commit, corpus, quick=options.quick) for commit in (options.old, options.new)))
    print("\n".join(lines))
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
