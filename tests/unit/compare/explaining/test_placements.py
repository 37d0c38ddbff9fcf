"""Products whose sums are kept in a short format: every recorded bit follows from one accumulator."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import qdebug

BFLOAT16 = ml_dtypes.bfloat16
RNG = np.random.default_rng(0)
X, W = (RNG.normal(size=shape).astype(BFLOAT16) for shape in ((40, 96), (96, 64)))


def product(accumulator, *, rounds_terms=False, spoil=False):
    """Record a product whose sums are rounded to a format after each term."""
    total = np.zeros((40, 64), np.float32)
    for at in range(96):
        term = X[:, at, None].astype(np.float32) * W[None, at].astype(np.float32)
        term = term.astype(accumulator).astype(np.float32) if rounds_terms else term
        total = (total + term).astype(accumulator).astype(np.float32)
    total[0, 0] += spoil
    with qdebug.Recorder(None, backend="npu") as recorder:
        recorder.constant("w", W)
        recorder.put("x", X)
        recorder.put("y", total.astype(BFLOAT16), node="product", op="MatMul", inputs=("x", "w"))
        recorder.outputs("y")
    return qdebug.explain(recorder.recording).nodes[0]


@pytest.mark.parametrize(
    ("accumulator", "rounds_terms", "words"),
    [
        (BFLOAT16, False, "its sums are accumulated in bfloat16, term by term"),
        (BFLOAT16, True, "its sums are accumulated in bfloat16, term by term, as are its terms"),
        (np.float16, False, "its sums are accumulated in float16, term by term"),
        (np.float32, False, "results rounded to nearest to bfloat16"),
    ],
)
def test_the_accumulator_is_named(accumulator, rounds_terms, words):
    node = product(accumulator, rounds_terms=rounds_terms)
    assert (node.status, node.words) == ("explained", words)
    assert node.witnesses > 100


def test_one_element_of_another_accumulator_is_not_explained():
    assert product(BFLOAT16, spoil=True).status != "explained"
