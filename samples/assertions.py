"""Assertions on numbers in a plain script: one kernel, one net, and what the messages say when they fail.

Nothing here needs a test runner: the assertions raise AssertionError, in unittest and pytest as well as here.

Run it from a clone with qdebug installed: python samples/assertions.py
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from qdebug.testing import assert_close, assert_explained, random_recording

SCALE = 0.05


def quantized_sigmoid(x: np.ndarray, *, table_bits: int = 8) -> np.ndarray:
    """Compute a sigmoid as small chips do: by a table, in codes of 8 bits."""
    steps = 2**table_bits
    place = np.clip(np.rint((x + 8) / 16 * (steps - 1)), 0, steps - 1)
    return np.rint(1 / (1 + np.exp(8 - place / (steps - 1) * 16)) / SCALE).astype(np.int8)


def show(what: str, check: Callable[[], None]) -> None:
    """Run a check and print how it ends."""
    try:
        check()
    except AssertionError as error:
        print(f"{what}: fails\n{error}\n")
    else:
        print(f"{what}: holds\n")


def main() -> None:
    """Check a kernel and a net, each right and wrong."""
    x = np.linspace(-6, 6, 1000, dtype=np.float32)
    exact = 1 / (1 + np.exp(-x))
    show("a table of 256 entries", lambda: assert_close(exact, quantized_sigmoid(x), scale=SCALE, max_lsb=1))
    coarse = quantized_sigmoid(x, table_bits=4)
    show("a table of 16 entries", lambda: assert_close(exact, coarse, scale=SCALE, max_lsb=1, name="sigmoid"))

    reference = random_recording(np.random.default_rng(0))
    backend = random_recording(np.random.default_rng(0), quantized=True)
    show("an 8-bit net against its float form", lambda: assert_close(reference, backend))
    show("its arithmetic", lambda: assert_explained(backend))
    broken = random_recording(np.random.default_rng(0), quantized=True, wrong="fc2")
    show("the same net with a bug", lambda: assert_close(reference, broken))


if __name__ == "__main__":
    main()
