"""A transformer as a trainer and as an engine with two ranks and pages: is the node with a fault named?

`python tests/faults/engine_faults.py FOLDER --bugs --faults 200` tries all bugs, and faults at random.
"""

import importlib
from pathlib import Path

import pytest

import qdebug

pytest.importorskip("torch", reason="needs the extra torch")


@pytest.fixture(scope="module")
def engine_runs():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parent))
        yield importlib.import_module("engine_runs")


@pytest.fixture(scope="module")
def engine_faults(engine_runs):
    return importlib.import_module("engine_faults")


@pytest.fixture(scope="module")
def trainer(tmp_path_factory, engine_runs, engine_faults):
    path = tmp_path_factory.mktemp("trainer") / "trainer.h5"
    return engine_runs.record_trainer(path, engine_faults.REQUESTS, engine_runs.make_weights())


def test_an_engine_with_ranks_and_pages_meets_its_trainer(engine_runs, engine_faults, trainer, tmp_path):
    engine = engine_runs.record_engine(tmp_path, engine_faults.REQUESTS, engine_runs.make_weights())
    result = qdebug.diff(trainer, engine)
    assert result.status == "within"
    assert {"layers.0.kv_cache", "layers.3.attn", "lm_head"} <= {node.tensor for node in result}


@pytest.mark.parametrize(
    ("bug", "sentence"),
    [
        ("another epsilon", "epsilon acts as 0.01"),
        ("bfloat16 result", "representable in bfloat16"),
        ("a rank is missing", "the last 32 of the 64 products of each sum are left out"),
        ("overwritten page", "1 row of the cache changed"),
    ],
)
def test_the_bug_is_named_in_its_node(engine_faults, trainer, tmp_path, bug, sentence):
    fault = engine_faults.BUGS[bug]
    node, reason = engine_faults.named_node(trainer, tmp_path, fault)
    assert node == fault.site
    assert sentence in reason


def test_the_first_divergent_tensor_is_found_in_sketches(engine_faults, tmp_path):
    for site, kind, node in engine_faults.first_divergences(tmp_path, 2):
        assert node == site, kind
