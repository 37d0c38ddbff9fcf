"""Scales: what calibration sees, which scales each calibrator would choose, and what another scale does to the net.

    profile   count the values of every tensor over many inputs, in 2000 bins; a few kB for each tensor
    choose    scales by entropy, and scales that are powers of two, with the error that each leaves
    try       another scale for one node, through the whole net
    record    the same int8 net on qdebug's interpreter, and the processor's codes compared with it

Run it from a clone with the extra `onnx` installed: python samples/06_scales.py
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

DIGITS = Path(__file__).resolve().parent / "digits"
STEPS = (
    "record {digits}/digits.onnx --backend onnxruntime:opt=none --inputs x.npz --samples 8 -o float.h5",
    "record {digits}/digits.qoperator.per_channel.onnx --backend onnxruntime --inputs x.npz --samples 8 -o int8.h5",
    """scales profile {digits}/digits.onnx --backend onnxruntime:opt=none --inputs all.npz --samples 50
    --bins 2000 -o calib.h5""",
    "scales choose calib.h5 --calibrator entropy",
    "scales choose calib.h5 --scheme power_of_two --calibrator minmax",
    "scales try float.h5 int8.h5 --node relu2 --scale 0.1",
    "record int8.h5 --backend interpreter --inputs x.npz --samples 8 -o interpreter.h5",
    "diff interpreter.h5 int8.h5",
)


def main() -> None:
    """Run each command and print the first lines of its answer."""
    with TemporaryDirectory() as folder, np.load(DIGITS / "digits_test.npz") as digits:
        np.savez(Path(folder, "x.npz"), x=digits["x"][:8, None])
        np.savez(Path(folder, "all.npz"), x=digits["calib"][:50, None])
        for step in STEPS:
            print("\n$ qdebug", *step.format(digits="digits").split())
            words = step.format(digits=DIGITS).split()
            done = subprocess.run(  # noqa: S603
                [sys.executable, "-m", "qdebug", *words], cwd=folder, capture_output=True, text=True, check=False
            )
            print("\n".join((done.stdout or done.stderr).splitlines()[:12]))
            print("exit code", done.returncode)


if __name__ == "__main__":
    main()
