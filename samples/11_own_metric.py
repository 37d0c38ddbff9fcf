"""A metric of your own for qdebug accuracy and qdebug repair: BLEU of token numbers, for nets that write text.

    qdebug accuracy fp32.h5 int8.h5 --labels text.npz --metric samples/11_own_metric.py:bleu

The first output has the tokens of a sample, or a row of scores for each; labels have the right tokens, a row a sample,
filled up with -1. Source: K. Papineni and others, "BLEU: a method for automatic evaluation of machine translation",
ACL 2002, of a whole corpus with one reference a sentence and up to four tokens.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping

import numpy as np

LONGEST = 4


def bleu(outputs: Mapping[str, np.ndarray], reference: Mapping[str, np.ndarray], labels: np.ndarray) -> float:
    """Return the BLEU of a run's first output against the labels, from 0 to 1."""
    made = outputs[next(iter(reference))]
    if made.dtype.kind == "f":
        made = made.argmax(axis=-1)
    pairs = [(tokens(one), tokens(other)) for one, other in zip(made, labels, strict=True)]
    length, wanted = (sum(len(pair[side]) for pair in pairs) for side in (0, 1))
    if not length:
        return 0.0
    logs = 0.0
    for size in range(1, LONGEST + 1):
        found = [(grams(one, size), grams(other, size)) for one, other in pairs]
        right, count = sum((one & other).total() for one, other in found), sum(one.total() for one, _ in found)
        if not right:
            return 0.0
        logs += math.log(right / count) / LONGEST
    return math.exp(logs + min(0.0, 1 - wanted / length))


def tokens(row: np.ndarray) -> list[int]:
    """Return the tokens of a row without what fills it up."""
    return [int(token) for token in np.ravel(row) if token >= 0]


def grams(row: list[int], size: int) -> Counter[tuple[int, ...]]:
    """Count the stretches of so many tokens."""
    return Counter(tuple(row[at : at + size]) for at in range(len(row) - size + 1))


def main() -> None:
    """Show what one wrong token of ten does."""
    right = np.arange(10)[np.newaxis]
    wrong = np.where(right == 4, 99, right)
    for name, made in (("the same", right), ("one wrong token", wrong)):
        print(f"{name}: BLEU {bleu({'y': made}, {'y': right}, right):.3f}")


if __name__ == "__main__":
    main()
