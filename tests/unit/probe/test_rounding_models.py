"""Networks of float operators: stated in one format, with numbers that tell roundings apart."""

import numpy as np
import pytest

from qdebug.numerics.short_formats import SHORT_FORMATS
from qdebug.probe.rounding_models import ROUNDED_FORMATS, ROUNDED_OPS, rounding_model

FORMATS = {short.name: short for short in SHORT_FORMATS}


@pytest.mark.parametrize("short", ROUNDED_FORMATS)
@pytest.mark.parametrize("op", ROUNDED_OPS)
def test_a_model_has_one_output_and_at_least_64_rows(op, short):
    model = rounding_model(op, short)
    assert model.kind == short
    assert len(model.graph.outputs) == 1
    assert [node.op for node in model.graph.nodes] == op.split(" + ")
    arrays = [*model.feed.values(), *model.constants.values()]
    assert all(np.isfinite(array.astype(np.float32)).all() for array in arrays)
    assert all(array.dtype.name == ("float32" if op == "Cast" else short) for array in arrays)
    assert next(iter(model.feed.values())).size // next(iter(model.feed.values())).shape[-1] >= 64


@pytest.mark.parametrize("short", ROUNDED_FORMATS)
def test_another_seed_gives_other_numbers_and_the_same_graph(short):
    first, again, second = (rounding_model("Gemm", short, seed=seed) for seed in (1, 1, 2))
    for name, array in {**first.feed, **first.constants}.items():
        np.testing.assert_array_equal(array, {**again.feed, **again.constants}[name])
        assert not np.array_equal(array, {**second.feed, **second.constants}[name])
    assert first.graph.nodes == second.graph.nodes


@pytest.mark.parametrize("short", ROUNDED_FORMATS)
def test_casts_have_ties_subnormal_results_and_results_beyond_the_range(short):
    dtype = rounding_model("Add", short).feed["x0"].dtype
    values = rounding_model("Cast", short).feed["x0"]
    with np.errstate(over="ignore"):
        nearest = values.astype(dtype)
        error = nearest.astype(np.float64) - values
    finite = np.isfinite(nearest.astype(np.float32))
    size = np.abs(values.astype(np.float64))
    step = np.exp2(np.floor(np.log2(np.maximum(size, FORMATS[short].normal)))) * 2 * FORMATS[short].unit
    assert np.count_nonzero(np.abs(error[finite]) == step[finite] / 2) >= 64
    assert np.count_nonzero(size < FORMATS[short].normal) >= 64
    assert 64 <= np.count_nonzero(~finite) < values.size // 4


@pytest.mark.parametrize("short", ROUNDED_FORMATS)
def test_products_have_ties_and_subnormal_results(short):
    model = rounding_model("Mul", short)
    exact = np.prod([array.astype(np.float64) for array in model.feed.values()], axis=0)
    size = np.abs(exact)
    normal = size >= FORMATS[short].normal
    with np.errstate(divide="ignore"):
        steps = exact / (np.exp2(np.floor(np.log2(size))) * 2 * FORMATS[short].unit)
    assert np.count_nonzero((np.abs(steps - np.floor(steps)) == 0.5) & normal) >= 40
    assert np.count_nonzero(~normal & (size > 0)) >= 64
