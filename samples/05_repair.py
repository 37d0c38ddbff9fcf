"""Repair: the fewest changes that bring an int8 net back, and the model with these changes.

The net reads handwritten digits; its int8 form reaches 37 dB. The script asks three questions: which results in 16 bits
reach 38 dB, is the written model really that good, and how many first layers would have to stay in float.

Run it from a clone with the extra `onnx` installed: python samples/05_repair.py
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

DIGITS = Path(__file__).resolve().parent / "digits"
NETS = ("digits.onnx", "digits.qdq.per_channel.onnx")
STEPS = (
    """repair {nets} --inputs x.npz --samples 32 --backend onnxruntime:opt=none
    --within 38 --kinds 16-bit --write-model mended.onnx""",
    "diff {float} mended.onnx --inputs x.npz --samples 32 --backend onnxruntime:opt=none --min-output-sqnr 38",
    "repair {nets} --inputs x.npz --samples 32 --sweep first:5 --within 39",
)


def main() -> None:
    """Run each command and print the first lines of its answer."""
    paths = [str(DIGITS / name) for name in NETS]
    with TemporaryDirectory() as folder, np.load(DIGITS / "digits_test.npz") as digits:
        np.savez(Path(folder, "x.npz"), x=digits["x"][:32, None])
        for step in STEPS:
            words = step.format(nets=" ".join(paths), float=paths[0]).split()
            print("\n$ qdebug", *step.format(nets=" ".join(NETS), float=NETS[0]).split())
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-m", "qdebug", *words], cwd=folder, capture_output=True, text=True, check=False
            )
            print("\n".join((done.stdout or done.stderr).splitlines()[:14]))
            print("exit code", done.returncode)


if __name__ == "__main__":
    main()
