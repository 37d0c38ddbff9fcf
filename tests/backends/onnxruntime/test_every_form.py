"""One net in every form it can run in, each the reference of each: all are healthy, whichever is held against which."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import qdebug
from qdebug.compare.align.pairs import UnmatchedKind
from qdebug.compare.result.result import Status
from qdebug.running.record import record_run

pytest.importorskip("onnxruntime")

DIGITS = Path(__file__).resolve().parents[3] / "samples" / "digits"
FORMS = {
    "fp32 none": ("float", "none"),
    "fp32 extended": ("float", "extended"),
    "fp32 all": ("float", "all"),
    "qdq none": ("qdq", "none"),
    "qdq extended": ("qdq", "extended"),
    "qdq all": ("qdq", "all"),
    "qoperator none": ("qoperator", "none"),
    "qoperator all": ("qoperator", "all"),
}
PAIRS = list(itertools.permutations(FORMS, 2))
RING = {*itertools.pairwise([*FORMS, *FORMS]), *itertools.pairwise([*FORMS, *FORMS][::-1])}
"""Each form with the next one, and the float net as it is with all: both ways."""
QUICK = [pair if pair in RING else pytest.param(*pair, marks=pytest.mark.slow) for pair in PAIRS]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return a function that records a model at a level, once."""
    folder = tmp_path_factory.mktemp("forms")

    def recorded(path: Path, feed: dict, level: str) -> Path:
        out = folder / f"{path.stem}.{level}.h5"
        if not out.exists():
            count = len(next(iter(feed.values())))
            record_run(path, backend="onnxruntime", options={"opt": level}, inputs=feed, samples=count, out=out)
        return out

    return recorded


def check(reference: Path, backend: Path) -> None:
    result = qdebug.diff(reference, backend)
    assert result.status in (Status.WITHIN, Status.IDENTICAL), result.verdict.sentence
    assert [entry for entry in result.coverage.unmatched if entry.kind is UnmatchedKind.LOST] == []
    assert [node.tensor for node in result.nodes if node.status is Status.INCOMPARABLE] == []
    assert result.exit_code == 0


@pytest.mark.parametrize(("reference", "backend"), QUICK)
def test_the_digits_net_answers_to_itself_in_every_form(runs, digits, reference, backend):
    models = {"float": "digits", "qdq": "digits.qdq.per_tensor", "qoperator": "digits.qoperator.per_tensor"}
    sides = [
        runs(DIGITS / f"{models[form]}.onnx", {"x": digits[:2, None]}, level)
        for form, level in (FORMS[reference], FORMS[backend])
    ]
    check(*sides)


def half_precision(path: Path, out: Path, *, keep_io: bool) -> Path:
    """Convert a float network to float16, its inputs and outputs as well or through casts."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    model = onnx.load(path)
    graph = model.graph
    for index, constant in enumerate(graph.initializer):
        values = numpy_helper.to_array(constant)
        if values.dtype == np.float32:
            graph.initializer[index].CopyFrom(numpy_helper.from_array(values.astype(np.float16), constant.name))
    del graph.value_info[:]
    casts = []
    for ends, to in ((graph.input, TensorProto.FLOAT16), (graph.output, TensorProto.FLOAT)):
        for info in ends:
            if not keep_io:
                info.type.tensor_type.elem_type = TensorProto.FLOAT16
                continue
            inside = f"{info.name}_half"
            for node in graph.node:
                names = node.input if to == TensorProto.FLOAT16 else node.output
                names[:] = [inside if name == info.name else name for name in names]
            feeds = [info.name, inside] if to == TensorProto.FLOAT16 else [inside, info.name]
            casts.append((to, helper.make_node("Cast", feeds[:1], feeds[1:], to=to, name=f"cast_{info.name}")))
    nodes = [*(c for t, c in casts if t == TensorProto.FLOAT16), *graph.node, *(c for t, c in casts if t == 1)]
    del graph.node[:]
    graph.node.extend(nodes)
    onnx.save(model, out)
    return out


@pytest.mark.parametrize("keep_io", [True, False])
@pytest.mark.parametrize(
    "level", ["none", "all", *(pytest.param(level, marks=pytest.mark.slow) for level in ("basic", "extended"))]
)
@pytest.mark.parametrize("float_level", ["none", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.parametrize("way", ["there", "back"])
def test_the_digits_net_answers_to_itself_in_half_precision(runs, digits, tmp_path, way, float_level, level, keep_io):
    feed = {"x": digits[:2, None]}
    single = runs(DIGITS / "digits.onnx", feed, float_level)
    path = half_precision(DIGITS / "digits.onnx", tmp_path / f"digits.half.{keep_io}.onnx", keep_io=keep_io)
    half = runs(path, feed if keep_io else {"x": feed["x"].astype(np.float16)}, level)
    check(*((single, half) if way == "there" else (half, single)))


@pytest.mark.slow
@pytest.mark.parametrize(("reference", "backend"), PAIRS)
def test_the_text_direction_net_answers_to_itself_in_every_form(runs, nets, reference, backend):
    sides = [
        runs(nets.net("cls") if form == "float" else nets.quantized("cls", form), {"x": nets.crops(1)[:, None]}, level)
        for form, level in (FORMS[reference], FORMS[backend])
    ]
    check(*sides)
