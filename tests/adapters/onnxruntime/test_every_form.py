"""One net in every form it can run in, each the reference of each: all are healthy, whichever is held against which."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

import qdebug
from qdebug.analysis.alignment import Kind
from qdebug.analysis.result import Status
from qdebug.workflow.record import record_run

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


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Give a function that records a model at a level, once."""
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
    assert [entry for entry in result.coverage.unmatched if entry.kind is Kind.LOST] == []
    assert [node.tensor for node in result.nodes if node.status is Status.INCOMPARABLE] == []
    assert result.exit_code == 0


@pytest.mark.parametrize(("reference", "backend"), PAIRS)
def test_the_digits_net_answers_to_itself_in_every_form(runs, digits, reference, backend):
    models = {"float": "digits", "qdq": "digits.qdq.per_tensor", "qoperator": "digits.qoperator.per_tensor"}
    sides = [
        runs(DIGITS / f"{models[form]}.onnx", {"x": digits[:2, None]}, level)
        for form, level in (FORMS[reference], FORMS[backend])
    ]
    check(*sides)


@pytest.mark.slow
@pytest.mark.parametrize(("reference", "backend"), PAIRS)
def test_the_text_direction_net_answers_to_itself_in_every_form(runs, nets, reference, backend):
    sides = [
        runs(nets.net("cls") if form == "float" else nets.quantized("cls", form), {"x": nets.crops(1)[:, None]}, level)
        for form, level in (FORMS[reference], FORMS[backend])
    ]
    check(*sides)
