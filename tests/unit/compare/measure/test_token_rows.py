"""Rows are paired by tokens: packed steps of an engine meet a padded batch of a trainer."""

import numpy as np
import pytest

import qdebug
from qdebug import Recorder
from qdebug.cli.main import main
from qdebug.errors import QdebugError

HIDDEN = 8
RNG = np.random.default_rng(0)
WEIGHTS = [RNG.normal(size=shape).astype(np.float32) for shape in ((HIDDEN, 16), (16, HIDDEN), (HIDDEN, 6))]
LENGTHS = {0: 5, 1: 3, 4: 4}
TOKENS = {
    (request, position): RNG.normal(size=HIDDEN).astype(np.float32)
    for request, length in LENGTHS.items()
    for position in range(length)
}
PADDED = [[[[request, p] if p < length else [-1, -1] for p in range(5)] for request, length in LENGTHS.items()]]
PACKED = [
    [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [4, 0]],
    [[4, 1], [1, 2], [0, 3], [-1, -1]],
    [[0, 4], [4, 2]],
]


def record(path, index, *, factor=1.0, router_noise=0.0, cache_fault=False, with_index=True, padding=9.0):
    """Record a layer with a router, and a cache of two pages with rows in the order of their steps."""
    cache = np.zeros((4, 4, HIDDEN), np.float32)
    held = np.full((4, 4, 2), -1)
    used = 0
    with Recorder(path, backend="test") as rec:
        for name, values in zip(("up.weight", "down.weight", "router.weight"), WEIGHTS, strict=True):
            rec.constant(name, values)
        for step, tokens in enumerate(map(np.array, index)):
            if step:
                rec.next_step()
            rows = [
                TOKENS.get(tuple(token), np.full(HIDDEN, padding, np.float32))
                for token in tokens.reshape(-1, 2).tolist()
            ]
            x = np.stack(rows).reshape(*tokens.shape[:-1], HIDDEN)
            up = x @ WEIGHTS[0] * np.float32(factor)
            act = np.maximum(up, 0)
            logits = x @ WEIGHTS[2] + np.float32(router_noise) * np.arange(6, dtype=np.float32)
            if with_index:
                rec.put("token_index", tokens)
            rec.put("x", x)
            rec.put("up", up, node="up", op="MatMul", inputs=("x", "up.weight"))
            rec.put("act", act, node="act", op="Relu", inputs=("up",))
            rec.put("down", act @ WEIGHTS[1], node="down", op="MatMul", inputs=("act", "down.weight"))
            rec.put("router", logits, node="router", op="MatMul", inputs=("x", "router.weight"))
            rec.put(
                "experts",
                np.argmax(logits, -1),
                node="top",
                op="ArgMax",
                inputs=("router",),
                attrs={"axis": -1, "keepdims": 0},
            )
            rec.put("lengths", np.arange(7 + step))
            for token, values in zip(tokens.reshape(-1, 2).tolist(), rows, strict=True):
                if token[0] >= 0 and used < 16:
                    cache.reshape(-1, HIDDEN)[used], held.reshape(-1, 2)[used] = values, token
                    used += 1
            if cache_fault and step == 2:
                cache.reshape(-1, HIDDEN)[1] += 1
            rec.put("kv_cache", cache.copy())
            if with_index:
                rec.put("token_index:kv_*", held.copy())
        rec.outputs("down")
    return path


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    return record(tmp_path_factory.mktemp("trainer") / "ref.h5", PADDED)


def test_packed_steps_meet_a_padded_batch(trainer, tmp_path):
    result = qdebug.diff(trainer, record(tmp_path / "engine.h5", PACKED, padding=-3.0))
    assert result.status in ("identical", "within")
    assert {node.tensor for node in result} == {"x", "up", "act", "down", "router", "experts", "kv_cache"}
    assert [sample.sample for sample in result["up"].samples] == [0, 1, 4]
    assert "11 tokens of 3 requests are compared; 1 only in the reference" in str(result).replace("\n          ", " ")


def test_a_fault_is_found_in_the_node_that_has_it(trainer, tmp_path):
    result = qdebug.diff(trainer, record(tmp_path / "engine.h5", PACKED, factor=1.01))
    assert result.first_divergence == "up"
    assert "1.01 times" in str(result)


def test_an_expert_that_differs_at_a_tie_is_a_selection(trainer, tmp_path):
    backend = record(tmp_path / "engine.h5", PACKED, router_noise=0.5)
    experts = qdebug.diff(trainer, backend)["experts"]
    assert [finding.kind for finding in experts.findings] == ["selection"]
    assert experts.status != "diverged"


def test_a_cache_row_that_a_later_step_changes_is_a_finding(tmp_path):
    sound = record(tmp_path / "sound.h5", PACKED)
    result = qdebug.diff(sound, record(tmp_path / "engine.h5", PACKED, cache_fault=True))
    assert result.first_divergence == "kv_cache"
    finding = next(finding for finding in result["kv_cache"].findings if finding.kind == "cache")
    assert "request 0, position 1: step 0 wrote it, and it differs in step 2" in finding.sentence


def write_index(path, index):
    np.savez(path, **{f"step{step}": np.array(tokens) for step, tokens in enumerate(index)})
    return path


def test_tokens_are_given_on_the_command_line(tmp_path, capsys):
    reference = record(tmp_path / "ref.h5", PADDED, with_index=False)
    backend = record(tmp_path / "engine.h5", PACKED, with_index=False)
    sides = {"reference": write_index(tmp_path / "a.npz", PADDED), "backend": write_index(tmp_path / "b.npz", PACKED)}
    options = [part for side, path in sides.items() for part in ("--tokens", f"{side}={path}")]
    assert main(["diff", str(reference), str(backend), *options]) == 0
    assert "11 tokens of 3 requests" in capsys.readouterr().out.replace("\n          ", " ")
    assert main(["diff", str(reference), str(backend), *options, "--jobs", "2"]) == 0
    assert qdebug.diff(reference, backend, tokens=sides).status in ("identical", "within")


def test_invalid_tokens_get_one_sentence(trainer, tmp_path):
    engine = record(tmp_path / "engine.h5", PACKED, with_index=False)
    np.savez(tmp_path / "names.npz", first=np.zeros((2, 2), int))
    np.savez(tmp_path / "shape.npz", step0=np.zeros((6, 3), int))
    np.savez(tmp_path / "others.npz", step0=np.full((6, 2), 99))
    for tokens, reason in (
        ({"backend": tmp_path / "names.npz"}, "not the index of a step"),
        ({"backend": tmp_path / "shape.npz"}, "not integers"),
        ({"backend": tmp_path / "others.npz"}, "no token in common"),
        ({"engine": tmp_path / "others.npz"}, "Unknown side"),
        ({"reference": tmp_path / "others.npz"}, "has no token index"),
    ):
        with pytest.raises(QdebugError, match=reason):
            qdebug.diff(trainer, engine, tokens=tokens)
