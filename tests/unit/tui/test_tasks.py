"""What people come to do, done on real recordings at 80x24 with nothing but keys; and no file is read while drawing."""

import functools
import json
import threading

import h5py
import numpy as np
import pytest
from textual.events import Paste

import qdebug
from qdebug.cli.main import main as cli
from qdebug.present import numbers
from qdebug.running.demo import run_demo
from qdebug.session import DiffSession, open_recording
from qdebug.tui.application import QdebugApp
from qdebug.tui.reading.messages import Opening
from qdebug.tui.screen.start_place import StartPlace
from qdebug.tui.screens import VIEWS, ScreenId

pytestmark = pytest.mark.asyncio

PLANTED = "pwconv_quant"


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Return the two recordings of the built-in net, compared once; the bug in the int8 one is known."""
    run = run_demo(tmp_path_factory.mktemp("demo"))
    assert run.planted == PLANTED
    DiffSession(open_recording(run.reference), open_recording(run.backend), cache=True).result()
    return run.reference, run.backend


@pytest.fixture(autouse=True)
def guard(monkeypatch):
    """Let any use of h5py on the thread that draws fail."""
    drawing = threading.main_thread()

    def guarded(method):
        @functools.wraps(method)
        def call(*arguments, **options):
            if threading.current_thread() is drawing and guard_on:
                raise AssertionError(f"h5py's {method.__qualname__} was called on the thread that draws")
            return method(*arguments, **options)

        return call

    guard_on = []
    for kind in (h5py.File, h5py.Group, h5py.Dataset, h5py.AttributeManager):
        for name in ("__getitem__", "__len__", "__iter__", "__contains__", "get", "keys", "close", "read_direct"):
            method = vars(kind).get(name)
            if callable(method):
                monkeypatch.setattr(kind, name, guarded(method))
    return guard_on


@pytest.fixture
def walk(demo, guard, tmp_path, monkeypatch, settle):
    """Return a function that presses keys on the two recordings and gives the main screen and its text.

    The first letter of a text is typed, and the rest of it pasted.
    """
    monkeypatch.chdir(tmp_path)

    async def run(*keys, begin=None, until=None, runs=(), cache=True):
        sides = []

        def compare():
            sides.extend(runs or (open_recording(path) for path in demo))
            return DiffSession(*sides, cache=cache)

        app = QdebugApp([Opening(compare=compare)], titles=[("float.h5", "int8.h5")], start_place=begin or StartPlace())
        async with app.run_test(size=(80, 24)) as pilot:
            guard.append(True)
            main = await settle(pilot)
            for key in keys:
                if key in VIEWS:  # a form of a screen, which its key and v lead to
                    main.action_screen(key)
                    await settle(pilot, until=_quiet)
                    continue
                letters = key if isinstance(key, list) else [key]
                await pilot.press(letters[0])
                if letters[1:]:
                    app.post_message(Paste("".join(letters[1:])))
                    await pilot.pause()
                await settle(pilot, until=lambda main: app.screen is not main or _quiet(main))
            if until is not None:
                await settle(pilot, until=lambda _: until(_text(app)))
            guard.clear()
            assert app.failure is None
            main.last_scene = main.scene
            return main, _text(app)

    return run


def _quiet(main):
    ready = main.detail_ready
    missing = main.scene.plan_row.missing
    return main.is_finished and (
        not main.shows_detail
        or missing is not None
        or main.view is ScreenId.WHY
        or (ready is not None and ready.is_complete and (ready.statistics is not None or not main.view.shows_elements))
    )


def _text(app):
    width, height = app.size
    return "\n".join(strip.text[:width] for strip in app.screen._compositor.render_strips()[:height])


def node(main):
    return main.last_scene.plan_row.node


async def test_the_guard_can_fail(demo, guard):
    with h5py.File(demo[0]) as file:
        guard.append(True)
        with pytest.raises(AssertionError, match="thread that draws"):
            list(file)
        guard.clear()


async def test_find_the_first_divergence(walk):
    main, text = await walk("!", cache=False)
    assert node(main) == PLANTED
    assert "FAIL diverged: kernel at QLinearConv" in text


async def test_run_to_the_origin_from_the_output(walk):
    main, text = await walk("2", "G", "/", list("logits_quant"), "enter", "W")
    assert node(main) == PLANTED
    assert "edges up (>99.9 % its own)" in text


async def test_see_whether_anything_is_clipped(walk):
    _, text = await walk("!", "4")
    assert "clipped" in text
    assert "at qmin" in text


async def test_compare_scales_by_channel(walk):
    _, text = await walk("!", "6")
    assert "scale" in text
    assert "24 channels along dimension 1" in text
    assert "0.07812" in text


async def test_find_the_worst_sample(walk):
    main, text = await walk("!", "9", "n")
    result = main.last_scene.outcome
    worst = min(result.samples, key=lambda one: one.sqnr_db).sample
    assert main.navigator.sample == worst
    assert f"the worst: sample {worst}" in text


async def test_the_samples_behind_the_first_screen_are_those_of_the_output(walk):
    main, _ = await walk("!", "9")
    node = next(iter(main.last_scene.table.diagnosis), main.last_scene.table.first_divergence())
    assert main.last_scene.plan_row.tensor in main.last_scene.opened.backend_graph.outputs
    main, _ = await walk("!", "9", "escape")
    assert main.last_scene.row == node, "the first screen is where it was"
    main, _ = await walk("!", "4", "9")
    assert main.last_scene.row == node, "a screen of a node keeps it"


async def test_find_out_whether_an_arithmetic_explains_it(walk):
    _, text = await walk("!", "7", until=lambda text: "unexplained" in text)
    assert "wrong" in text
    assert "pattern" in text


async def test_an_input_has_nothing_to_explain_and_its_values_are_shown_all_the_same(walk):
    main, text = await walk("2", "g", "7")
    assert main.last_scene.plan_row.op == "Input"
    assert "no node of the graph computes this tensor" in text
    _, text = await walk("2", "g", "7", "5")
    assert "@0,0,0,0" in text
    assert "No node" not in text


async def test_list_the_convolutions_that_lose_most(walk):
    main, _ = await walk("f", list("op~conv & sqnr<30"), "enter")
    shown = [main.navigator.line_to_row(line) for line in range(main.navigator.lines)]
    assert shown
    for row in shown:
        assert "Conv" in main.last_scene.table.rows[row].op


async def test_look_at_one_element(walk):
    main, text = await walk("!", "@", list("0,20,1,1"), "enter")
    assert main.elements.index == (0, 20, 1, 1)
    assert "@0,20,1,1" in text
    assert "AT QMIN, where the reference is not" in text
    assert "^" not in text.split("^: clipped")[1], "a Relu's zero is not marked as clipped"


async def test_see_where_in_the_tensor_the_error_is(walk):
    main, text = await walk("!", "6", "enter")
    assert main.view is ScreenId.MAP
    assert "of the error" in text
    assert main.elements.index[1] >= 16, "the bug is in the last eight channels"


async def test_try_another_scale_and_see_what_the_net_would_give(walk, demo, capsys):
    main, text = await walk("!", "8", "v", "pageup", "enter", until=lambda text: "samples replayed" in text)
    assert "exact, of" in text
    page, scene = main.page, main.last_scene
    words = page.command(scene, tuple(map(str, demo)))
    assert cli([*words[1:], "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["trial"]["scale"][0] == pytest.approx(told["now"]["scale"][0] * 2 ** (8 / 64))
    for side in ("now", "trial"):
        (output,) = told["outputs"]
        assert f"{numbers.number(output[side]['rel_l2'])} (" in text
        assert numbers.number(told["tensor_error"][side]["sqnr_db"]) in text


async def test_accept_a_node_with_a_reason(walk, tmp_path):
    main, _ = await walk("!", "i", list("known, until 2999-01-31"), "enter", until=lambda text: "acknowledged " in text)
    assert "2999-01-31" in (tmp_path / "qdebug-limits.toml").read_text()
    row = main.navigator.cursor
    assert main.last_scene.table.acknowledged[row]
    assert row not in main.last_scene.table.failing()


async def test_take_the_tensor_along(walk, tmp_path):
    suggested = "pwconv_quant.npz"
    await walk("!", "5", "e", "enter", until=lambda text: "wrote" in text)
    with np.load(tmp_path / suggested) as arrays:
        assert set(arrays) == {"reference", "backend", "backend_codes"}
        assert arrays["backend"].shape == (1, 24, 4, 4)


async def test_pass_the_place_on_as_a_command(walk):
    main, _ = await walk("!", "map", "full_stop", "Y")
    words = main.message.partition(": ")[2]
    assert words == f"qdebug tui REF BACKEND --node {PLANTED} --screen map --sample 0"


async def test_open_a_weight_like_a_tensor_and_see_where_it_differs(walk):
    main, text = await walk("!", "3", "j", "j", "enter", until=lambda text: "mean, std" in text)
    assert main.last_scene.plan_row.op == "constant"
    assert "the weight of the backend's QLinearConv" in text
    assert "constant 1 of" in text or "o the next of" in text
    _, text = await walk("!", "o", "5", until=lambda text: "LSB" in text)
    assert "reference" in text
    assert "code" in text
    _, text = await walk("!", "o", "6", until=lambda text: "24 channels along dimension 0" in text)
    main, _ = await walk("!", "o", "o", until=lambda text: "bias" in text)
    assert "bias" in node(main)


async def test_the_scale_of_a_weight_which_the_backend_alone_has_opens_with_its_values_and_its_map(walk):
    keys = ["!", *"ooo"]
    main, text = await walk(*keys, until=lambda text: "mean, std" in text)
    assert main.last_scene.plan_row.side == "backend"
    assert "o the next of" in main.message
    assert "5 its values" in main.message
    _, text = await walk(*keys, "enter", until=lambda text: "@()  backend" in text)
    assert "compared with nothing: only the backend has" in text
    _, text = await walk(*keys, "map", until=lambda text: "value " in text)
    assert "sizes of its values" in text


async def test_clipped_elements_of_a_constant_are_walked_on_the_constant(walk):
    main, _ = await walk("!", "o", "5", "^", until=lambda text: "LSB" in text)
    assert main.current.constants is not None
    assert "w" in node(main)
    assert "clipped" in main.message


async def test_back_from_a_constant_its_node_is_shown_again(walk):
    main, _ = await walk("!", "4", "o", "5", "escape", "escape")
    assert (node(main), main.view) == (PLANTED, ScreenId.TENSOR)


@pytest.mark.parametrize(
    "key", ["m", *(pytest.param(k, marks=pytest.mark.slow) for k in ("3", "full_stop", "H", "exclamation_mark"))]
)
async def test_a_key_of_the_node_leaves_its_constant(walk, key):
    main, _ = await walk("!", "o", key)
    assert main.current.constants is None
    assert node(main) == PLANTED


async def test_an_input_has_no_constants(walk):
    main, _ = await walk("2", "g", "o")
    assert "no node computes this tensor" in main.message


async def test_the_way_back_leads_through_each_screen_that_was_left_by_going_deeper(walk):
    main, _ = await walk("1", "enter", "9", "enter", "escape")
    assert main.view is ScreenId.SAMPLES
    main, _ = await walk("escape", "escape")
    assert main.view is ScreenId.ANSWER


async def test_a_clipped_element_is_gone_to_once_it_is_read(walk):
    runs = []
    for backend in (False, True):
        with qdebug.Recorder(None, backend="npu") as rec:
            rec.put("x", np.float32([0.2, 0.4]))
            real = np.float32([0.0, 9.0, 12.7, 13.2, -12.8, -20.0])
            codes = np.int8([0, 90, 127, 127, -128, -128])
            rec.put("y", codes if backend else real, node="q", op="QuantizeLinear", **{"scale": 0.1} if backend else {})
        runs.append(rec.recording)
    main, text = await walk("/", list("q"), "enter", "^", runs=runs)
    assert main.view is ScreenId.VALUES
    assert (main.message, main.elements.index) == ("clipped element 1 of 2", (3,)), "12.7 and -12.8 can be represented"
    assert "CLIPPED, at qmax" in " ".join(text.split())
    main, _ = await walk("2", "g", "^")
    assert main.message == "the backend has no codes here: nothing is clipped"


async def test_walk_to_an_input_and_back(walk):
    main, _ = await walk("!", "3", "h", "h", "H", "H")
    assert node(main) == PLANTED
    assert main.message.startswith("back at")


async def test_open_where_a_command_says(walk):
    begin = StartPlace(node=PLANTED, sample=4, screen="samples", filter="is=failing")
    main, text = await walk(begin=begin)
    assert (node(main), main.navigator.sample, main.view) == (PLANTED, 4, ScreenId.SAMPLES)
    assert "10 samples" in text


async def test_a_long_run_to_the_origin_is_gone_back_in_a_few_keys(make_app, make_session, settle):
    app = make_app(make_session(60, failing=(3,)), screen="graph")
    async with app.run_test(size=(80, 24)) as pilot:
        main = await settle(pilot)
        main.navigator.go(58)
        await pilot.press("W")
        assert main.message.startswith("the origin, 55 edges up")
        assert main.navigator.cursor == 3
        for _ in range(10):
            await pilot.press("H")
        assert main.navigator.cursor == 58
