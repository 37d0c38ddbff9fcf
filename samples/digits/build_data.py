"""Make the package data of qdebug from the digits net (needs the extra `onnx`, and no training).

Run it from a clone: python samples/digits/build_data.py
It writes the files that qdebug/data/__init__.py names.
"""

from pathlib import Path

import numpy as np

from qdebug import data
from qdebug.running.record import record_run

HERE = Path(__file__).resolve().parent
MODELS = {"digits.onnx": data.FLOAT_NET, "digits.qoperator.per_channel.onnx": data.INT8_NET}


def main() -> None:
    """Write the digits, then record both nets on the first of them."""
    test = np.load(HERE / "digits_test.npz")
    first = [int(np.flatnonzero(test["y"] == digit)[0]) for digit in range(10)]
    x = test["x"][first][:, None]
    np.savez_compressed(data.INPUTS, x=x)
    np.savez_compressed(data.LABELS, y=test["y"][first])
    for model, target in MODELS.items():
        record_run(HERE / model, backend="interpreter", options={}, inputs={"x": x[0]}, out=target, force=True)
        print(f"{target.name}: {target.stat().st_size} bytes")


if __name__ == "__main__":
    main()
