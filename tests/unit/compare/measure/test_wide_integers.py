"""Integers beyond 2**24, from the recording to the verdict: one code more is one mismatch and one step."""

import json
import math
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.pairs import Match, Pair, Transform
from qdebug.compare.measure.compare import compare_pair
from qdebug.compare.measure.pair_values import PairReader, open_pair
from qdebug.compare.measure.recordings import dequantize_where_scale_varies
from qdebug.recording.recorder import Recorder

F32 = np.float32
SIZE, PLACE = 4096, 4001
CODES = np.arange(2**24 - SIZE // 2, 2**24 + SIZE // 2, dtype=np.int32)
WRONG = CODES.copy()
WRONG[PLACE] += 1
CHANNELS = np.linspace(0.26, 0.27, SIZE).astype(F32)
PAIR = Pair(reference="y", backend="y", match=Match.EXACT, reason="same name")


def record(array, *, keep=None, path=None, **facts):
    with Recorder(path, backend="b", keep=keep) as rec:
        rec.put("x", np.zeros(1, F32))
        rec.put("y", array, node="n", op="Custom", inputs=("x",), **facts)
    return None if path is not None else rec.recording


def metrics(first, second):
    (node,) = [each for each in qdebug.diff(first, second).nodes if each.tensor == "y"]
    return node.status, node.metrics


@pytest.mark.parametrize("keep", [None, "elements:4096", "elements:3800"])
@pytest.mark.parametrize(
    "facts", [{"scale": F32(0.26)}, {"scale": 0.37, "zero_point": 9}, {"scale": CHANNELS, "axis": 0}]
)
def test_one_code_is_one_mismatch(keep, facts):
    status, found = metrics(record(CODES, keep=keep, **facts), record(WRONG, keep=keep, **facts))
    assert status != "identical"
    assert (found.mismatches, found.max_lsb, found.worst_index) == (1, 1.0, (PLACE,))
    status, found = metrics(record(CODES, keep=keep, **facts), record(CODES, keep=keep, **facts))
    assert (found.mismatches, found.max_lsb) == (0, 0.0)


def test_statistics_alone_never_call_such_codes_identical():
    sides = [record(codes, keep="stats", scale=F32(0.26)) for codes in (CODES, WRONG)]
    assert metrics(*sides)[0] == "incomparable"
    assert metrics(sides[0], sides[0])[0] == "identical"


def test_codes_of_another_width_and_dequantized_values():
    codes = record(WRONG, scale=F32(0.26))
    for other in (np.int64, np.uint32):
        _, found = metrics(record(CODES.astype(other), scale=F32(0.26)), codes)
        assert (found.mismatches, found.max_lsb, found.worst_index) == (1, 1.0, (PLACE,))
    assert metrics(record((WRONG * np.float64(F32(0.26))).astype(F32)), codes)[0] == "identical"
    status, found = metrics(record(CODES), record(WRONG))  # accumulators that nobody gave a scale
    assert status != "identical"
    assert (found.mismatches, found.max_abs, found.max_lsb) == (1, 1.0, None)


def test_small_tensors_are_compared_as_large_ones():
    sides = [record(codes[PLACE - 5 : PLACE + 5], scale=F32(0.26)) for codes in (CODES, WRONG)]
    found = compare_pair(*sides, PAIR).stats
    assert (found.mismatches, found.max_lsb, found.worst_index) == (1, 1.0, (5,))


def test_processes_find_the_same(tmp_path):
    paths = tmp_path / "r.h5", tmp_path / "b.h5"
    for path, codes in zip(paths, (CODES, WRONG), strict=True):
        record(codes, path=path, scale=F32(0.26))
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        there = json.loads(qdebug.diff(*paths, executor=pool).to_json())
    assert there["nodes"] == json.loads(qdebug.diff(*paths).to_json())["nodes"]
    assert [node["metrics"]["max_lsb"] for node in there["nodes"] if node["tensor"] == "y"] == [1.0]


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_the_elements_that_are_shown_differ(dtype):
    sides = [record(codes.astype(dtype), scale=F32(0.26)) for codes in (CODES, WRONG)]
    reader = PairReader(*sides, PAIR)
    values = reader.values(0, 0)
    assert np.flatnonzero(values.reference != values.backend).tolist() == [PLACE]
    window = open_pair(reader, sample=0, step=0).window((PLACE,), (1, 8))
    assert np.count_nonzero(window.reference != window.backend) == 1
    (worst,) = reader.worst(9, 0, 0)
    assert (worst.index, worst.lsb, worst.backend_code - worst.reference_code) == ((PLACE,), 1.0, 1)
    assert [element.index for element in reader.profile().worst] == [(PLACE,)]


def test_elements_of_narrow_codes_by_channel_have_the_values_that_all_have():
    codes = np.random.default_rng(0).integers(-100, 100, (8, 500)).astype(np.int8)
    scale = np.linspace(0.01, 0.03, 8).astype(F32)
    real = (codes * scale[:, None]).astype(F32)
    kept = record(codes, keep="elements:900", scale=scale, axis=0)
    found = compare_pair(record(real), kept, PAIR)
    assert (found.basis, found.stats.mismatches, found.stats.max_lsb) == ("elements", 0, 0.0)
    turned = record(np.ascontiguousarray(codes.T), keep="elements:900", scale=scale, axis=1)
    pair = Pair(reference="y", backend="y", match=Match.EXACT, reason="", backend_view=Transform(transpose=(1, 0)))
    found = compare_pair(record(real), turned, pair)
    assert (found.basis, found.stats.mismatches, found.stats.max_lsb) == ("elements", 0, 0.0)


def test_scales_that_vary_do_not_make_codes_equal():
    recordings = []
    for codes in (CODES, WRONG):
        with Recorder(None, backend="b") as rec:
            for sample in range(2):
                rec.at(sample)
                rec.put("x", np.zeros(1, F32))
                rec.put("y", codes, node="n", op="Custom", inputs=("x",), scale=F32(0.26 + sample))
        recordings.append(rec.recording)
    shown = dequantize_where_scale_varies(recordings[0])
    assert (shown.load("y").dtype, shown.graph.tensors["y"].dtype) == (np.float64, "float64")
    _, found = metrics(*recordings)
    assert found.mismatches == 2
    assert math.isclose(found.max_abs, 1.26, rel_tol=1e-6)
