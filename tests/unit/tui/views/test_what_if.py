"""Scales that are tried: figures at once, exact after, the calibrators' choices, and what cannot be tried."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from qdebug.compare.align.pairs import Match, Pair
from qdebug.numerics.quant_error import QuantErrorCounter, estimate_error
from qdebug.present import numbers
from qdebug.recording.recorder import Recorder
from qdebug.tui.drawing.glyphs import ASCII, UNICODE
from qdebug.tui.reading.messages import ScaleWish, TrialRequest
from qdebug.tui.reading.trials import Trials
from qdebug.tui.views.what_if import WhatIfView

VALUES = np.random.default_rng(3).laplace(size=(2, 3, 40)).astype(np.float32)
NOW = {"scale": 0.02, "zero_point": 5}


def made(**facts):
    with Recorder(None, backend="npu") as rec:
        for name, array in facts.pop("arrays").items():
            rec.put(name, array, node=f"make {name}", op="Conv", **facts)
    return rec.recording


def codes(scale=0.02, zero_point=5):
    return np.clip(np.rint(VALUES / np.float32(scale)) + zero_point, -128, 127).astype(np.int8)


def session(backend=None, reference=None):
    backend = backend or made(arrays={"q": codes()}, **NOW)
    reference = reference or made(arrays={"values": VALUES})
    pairs = [Pair(reference="values", backend=name, match=Match.EXACT, reason="") for name in backend.graph.tensors]
    return SimpleNamespace(backend=backend, reference=reference, alignment=SimpleNamespace(pairs=pairs))


def told(source, quant=None, *, replay=False, tensor="q"):
    """Return what the reader tells, in its parts."""
    parts = []
    request = TrialRequest(row=9, tensor=tensor, wish=ScaleWish(quant=quant, wants_replay=replay))
    Trials(parts.append).answer(source, request, lambda: False)
    return parts


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


def cells(drawn, label):
    line = next(line for line in drawn.splitlines() if line.strip(" ▸>").startswith(label))
    return line[22:46].strip(), line[46:].strip()


def test_in_a_low_terminal_drawings_give_way_to_what_is_said(page, scene):
    known = replace(scene, trial=told(session())[-1])
    tall, low, lowest = (text(page.draw(known, 60, height)).splitlines() for height in (24, 12, 9))
    assert tall[-1] == low[-1] == lowest[-1] == "  enter replays the network with this scale"[1:]
    assert "values" in "".join(line[:8] for line in tall)
    assert len(low) <= 12
    assert len(lowest) <= 9
    assert any("SQNR dB" in line for line in lowest)


@pytest.fixture
def scene(make_scene):
    return make_scene(row=9)


@pytest.fixture
def page():
    return WhatIfView()


def test_figures_are_estimated_at_once_and_exact_when_the_reader_has_told_them(page, scene):
    first = told(session())[-1]
    scene = replace(scene, trial=first)
    page.draw(scene, 80, 19)
    page.step(scene, 8)
    drawn = text(page.draw(scene, 80, 19))
    assert cells(drawn, "scale") == ("0.020000", "0.021810")
    assert cells(drawn, "SQNR dB")[1].startswith("~")
    assert "~: estimated from the histogram of 240 values of values" in drawn
    quant = page.trial(scene).quant
    scene = replace(scene, trial=told(session(), quant)[-1])
    counter = QuantErrorCounter(quant)
    counter.add(VALUES)
    drawn = text(page.draw(scene, 80, 19))
    assert cells(drawn, "SQNR dB")[1] == numbers.number(counter.error().sqnr_db)
    assert cells(drawn, "clipped")[1].startswith(f"{counter.error().clipped_low + counter.error().clipped_high} (")
    assert int(cells(drawn, "span of codes")[1]) == int(codes(0.02181).max()) - int(codes(0.02181).min()) + 1
    assert "exact, of 240 values" in drawn
    page.step(scene, 1)
    assert cells(text(page.draw(scene, 80, 19)), "SQNR dB")[1].startswith("~"), "what is exact is of other parameters"


def test_the_curve_says_which_scale_around_keeps_most(page, scene):
    facts = told(session())[-1].facts
    drawn = text(page.draw(replace(scene, trial=told(session())[-1]), 80, 19))
    line = next(line for line in drawn.splitlines() if "29 scales, 1/8..8x" in line)
    level, scale = (float(word) for word in line.partition("best ~")[2].split(" dB at "))
    scales = [0.02 * 2 ** (step / 10) for step in range(-30, 31)]
    errors = [
        estimate_error(facts.histogram, replace(facts.current_quant, scale=np.float32(each))).sqnr_db for each in scales
    ]
    assert level == pytest.approx(max(errors), abs=0.5)
    assert scale == pytest.approx(scales[int(np.argmax(errors))], rel=0.2)
    assert scale > 0.02, "the codes in use cut off the tails"
    for width in (56, 70, 120):  # the same scales, however few have room
        narrow = text(page.draw(replace(scene, trial=told(session())[-1]), width, 19))
        assert line.partition("best ~")[2].strip() in narrow
        assert "29 scales" in narrow


def test_scale_and_zero_point_are_changed_and_taken_back(page, scene):
    scene = replace(scene, trial=told(session())[-1])
    page.draw(scene, 80, 19)
    now = page.trial(scene).quant
    page.step(scene, 8)
    page.step(scene, -8)
    assert page.trial(scene).quant == now
    assert "already" in page.move(scene, -1)
    assert "zero point" in page.move(scene, 1)
    assert page.side(scene, -1) == "scale 0.02, zero point 4"
    page.step(scene, 999)
    assert int(page.trial(scene).quant.zero_point[0]) == 127
    assert page.step(scene, 1) == "it goes no further"
    assert page.reset(scene) == "as recorded"
    assert page.trial(scene).quant == now
    scene.navigator.go(8)
    assert page.trial(replace(scene, trial=None)).quant is None, "another tensor begins anew"


def chosen(page, scene, field, direction=1):
    page.move(scene, -9)
    page.move(scene, ("scale", "zero point", "calibrator", "scheme").index(field))
    return page.side(scene, direction)


def calibrator(page, scene):
    return chosen(page, scene, "calibrator")


def scheme(page, scene):
    return chosen(page, scene, "scheme")


def test_calibrators_and_schemes_follow_one_another(page, scene):
    scene = replace(scene, trial=told(session())[-1])
    page.draw(scene, 80, 19)
    choices = scene.trial.facts.choices
    for choice in choices["asymmetric"]:
        assert calibrator(page, scene).startswith(f"{choice.calibrator}, asymmetric")
        assert page.trial(scene).quant == choice.quant
    assert calibrator(page, scene) == "as recorded"
    calibrator(page, scene)
    for kind in ("symmetric", "symmetric_uint8", "power_of_two", "asymmetric"):
        scheme(page, scene)
        assert page.trial(scene).quant == choices[kind][0].quant
    assert f"trial: {choices['asymmetric'][0].calibrator}, asymmetric" in text(page.draw(scene, 80, 19))


def test_of_a_tensor_without_codes_the_first_choice_is_tried(page, scene):
    source = session(made(arrays={"q": VALUES}))
    scene = replace(scene, trial=told(source)[-1])
    drawn = text(page.draw(scene, 80, 19))
    assert "not quantized" in drawn
    assert page.trial(scene).quant == scene.trial.facts.choices["asymmetric"][0].quant
    assert page.command(scene, ("a", "b"))[-2:] == ["--dtype", "int8"]


def test_a_replay_is_asked_for_and_given_up_by_any_change(page, scene):
    scene = replace(scene, trial=told(session())[-1])
    page.draw(scene, 80, 19)
    assert page.replay(scene) == ""
    assert page.trial(scene).wants_replay
    assert "cancelled" in page.replay(scene)
    page.replay(scene)
    page.step(scene, 1)
    assert not page.trial(scene).wants_replay
    page.replay(scene)
    scene = replace(scene, trial=told(session(), page.trial(scene).quant, replay=True)[-1])
    assert "no replay: Node 'make q' (Conv) has no input 0" in text(page.draw(scene, 80, 19))
    assert "already" in page.replay(scene)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            session(made(arrays={"q": codes()}, scale=[0.1, 0.2], axis=0)),
            "has 2 scales; only a tensor with one scale can be tried",
        ),
        (session(reference=made(arrays={"values": np.arange(3)})), "not quantized codes"),
    ],
)
def test_what_cannot_be_tried_says_why(page, scene, source, said):
    scene = replace(scene, trial=told(source)[-1])
    assert said in text(page.draw(scene, 80, 19)).replace("\n ", " ")
    for press in (
        *(lambda scene, each=each: each(page, scene) for each in (calibrator, scheme)),
        *(page.reset, page.replay, lambda scene: page.step(scene, 1)),
    ):
        assert said in press(scene)
    assert page.command(scene, ("a", "b")) is None


@pytest.mark.parametrize("glyphs", [UNICODE, ASCII], ids=["unicode", "ascii"])
@pytest.mark.parametrize("size", [(60, 12), (80, 19), (120, 34), (200, 56)])
def test_it_fits(page, make_scene, glyphs, size):
    scene = replace(make_scene(row=9, glyphs=glyphs), trial=told(session())[-1])
    for steps in (0, 400, -900):
        page.step(scene, steps)
        lines = page.draw(scene, *size)
        assert len(lines) <= size[1]
        assert all(len(line) <= size[0] for line in text(lines).splitlines())
        assert glyphs is UNICODE or text(lines).isascii()
