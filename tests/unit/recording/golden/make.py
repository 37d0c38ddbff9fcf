"""Make the golden recordings. Run once for each format version; what is committed is never made again.

Usage: python tests/unit/recording/golden/make.py FOLDER
"""

import sys
from pathlib import Path

import ml_dtypes
import numpy as np

from qdebug.model.dtypes import LOGICAL_DTYPES
from qdebug.recording.recorder import Recorder
from qdebug.recording.writing.pack import pack


def values(logical):
    """Return two values of a dtype that differ."""
    return np.array([0, 1]).astype(np.dtype(getattr(ml_dtypes, logical, logical)))


def fill(rec):
    """Record a little of everything. What was left unfinished has the same form since format 1: see unfinished-1."""
    rec.constant("w", np.arange(6, dtype=np.int8).reshape(2, 3), scale=[0.5, 0.25], axis=0)
    for sample in range(2):
        rec.at(sample)
        rec.put("x", np.full((1, 3), 1.5 + sample, np.float32))
        facts = {
            "node": "fc",
            "op": "Gemm",
            "inputs": ("x", "w"),
            "attrs": {"alpha": 1.5, "k": [1, 2]},
            "origin": "src",
        }
        scale = np.float32(0.1) * (sample + 1)
        rec.put("y", np.full((1, 2), -3 + sample, np.int8), scale=scale, zero_point=-3, multiplier=7, shift=2, **facts)
    for logical in LOGICAL_DTYPES:
        rec.put(f"dtype {logical}", values(logical))
    rec.put("long", np.arange(2000, dtype=np.int32) // 10)
    rec.put("scalar", np.float32(2.5))
    rec.put("empty", np.zeros((0, 4), np.int16))
    rec.put("naïve/../\x1b[31m name", np.zeros(1, np.uint8))
    rec.put("statistics", np.arange(1000.0))
    rec.put("elements", np.arange(1000.0))
    rec.outputs("y")
    rec.skip("z", "too large")


def main():
    folder = Path(sys.argv[1])
    keep = ["statistics=stats", "elements=elements:16"]
    facts = {"backend": "golden", "model": "net", "keep": keep, "cpu_flags": ["fma"], "options": {"opt": 1}}
    with Recorder(folder / "recording-2.h5", **facts) as rec:
        fill(rec)
    pack(folder / "recording-2.h5", folder / "packed-2.h5")


if __name__ == "__main__":
    main()
