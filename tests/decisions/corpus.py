"""The corpus as it is made: a folder of recordings under the hash of their bytes, and the cases over them."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType

import numpy as np
from collect import command

import qdebug

HERE = Path(__file__).resolve().parent
TESTS, TREE = HERE.parent, HERE.parents[1]
LEVELS = ("none", "extended", "all")


def load(path: Path) -> ModuleType:
    """Import a test script that lies in no package, once."""
    name = f"qdebug_tests_{path.parent.name}_{path.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, path)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


class Corpus:
    """A folder of recordings, and the cases over them.

    Args:
        folder: Where it is made.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.work = folder, folder / "work"
        self.cases: list[dict] = []
        self.absent: list[str] = []
        for place in (folder / "files", self.work):
            place.mkdir(parents=True, exist_ok=True)

    def keep(self, path: Path) -> str:
        """Move a recording under the hash of its bytes; return its path in the corpus."""
        target = f"files/{hashlib.sha256(path.read_bytes()).hexdigest()[:20]}.h5"
        path.replace(self.folder / target)
        return target

    def add(self, name: str, kind: str, *files: str, tier: str = "quick", args: Sequence[str] = (), **texts) -> None:
        """Add a case; two kinds at once are "both": the comparison, and the last file explained."""
        for each in ("diff", "explain") if kind == "both" else (kind,):
            chosen = files[-1:] if each == "explain" else files
            case = {"name": f"{name} {each}", "kind": each, "files": list(chosen), "args": list(args), "tier": tier}
            self.cases.append({**case, **({"texts": texts["texts"]} if texts else {})})

    def record(self, model: Path, feeds: Mapping[str, np.ndarray] | None, count: int, *options: str) -> str:
        """Record a model by the command line; return the recording's path in the corpus."""
        inputs, out = self.work / "inputs.npz", self.work / "made.h5"
        np.savez(inputs, **feeds)
        words = [*options] if options else ["--backend", "onnxruntime:opt=none"]
        words += ["--inputs", str(inputs), "--samples", str(count), "--force", "-o", str(out)]
        code, _ = command(["record", str(model), *words])
        if code not in (0, 3):
            raise RuntimeError(f"recording {model.name} with {options} ended with exit code {code}")
        return self.keep(out)

    def sections(self, tier: str, *makers: Callable[[Corpus, str], None]) -> None:
        """Make parts of the corpus; what cannot be made is said, and the rest is made."""
        for maker in makers:
            start, before = time.perf_counter(), len(self.cases)
            try:
                maker(self, tier)
            except Exception as error:  # noqa: BLE001  one net less is better than no corpus
                self.lack(f"{maker.__name__}: {type(error).__name__}: {error}")
                traceback.print_exc()
            made, seconds = len(self.cases) - before, time.perf_counter() - start
            print(f"{maker.__name__}: {made} cases in {seconds:.0f} s", file=sys.stderr, flush=True)

    def lack(self, what: str) -> None:
        """Say that something is not in the corpus."""
        self.absent.append(what)
        print(f"NOT IN THE CORPUS: {what}", file=sys.stderr, flush=True)

    def write(self) -> None:
        """Write the manifest, with the hash of every file that a case reads."""
        names = [case["name"] for case in self.cases]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two cases are called {sorted(twice)[:3]}")
        files = sorted({file for case in self.cases for file in case["files"]})
        hashes = {file: hashlib.sha256((self.folder / file).read_bytes()).hexdigest() for file in files}
        cases = [case | {"sha256": [hashes[file] for file in case["files"]]} for case in self.cases]
        found = {"qdebug": qdebug.__version__, "absent": self.absent, "cases": cases}
        part = self.folder / "manifest.part"
        part.write_text(json.dumps(found, indent=1), encoding="utf-8")
        part.replace(self.folder / "manifest.json")
