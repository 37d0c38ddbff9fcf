"""What screens say of shares, samples and constants, and how they use the room of a wide terminal."""

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest

from qdebug.compare.result.finding import Status
from qdebug.compare.result.node_result import SampleError
from qdebug.model import Graph, Role, TensorInfo
from qdebug.tui.nodes.walk import inputs_of
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.channels import _share_bar
from qdebug.tui.views.elements import ElementCursor
from qdebug.tui.views.graph import go_to_worst_input
from qdebug.tui.views.table import Views
from qdebug.tui.views.view import heading


def text(lines):
    return "\n".join("".join(piece for piece, _ in line) for line in lines)


@pytest.fixture
def pages():
    """Return new pages."""
    return Views(ElementCursor())


def test_a_share_that_is_not_all_is_never_said_to_be_all(pages, make_scene):
    scene = make_scene()
    result = scene.outcome
    tiny = replace(result.introduced, rmse=result.propagated.rmse / 1e4)
    scene.table.put(replace(result, introduced=tiny))
    for view in (ScreenId.GRAPH, ScreenId.WHY):
        drawn = text(pages[view].draw(scene, 80, 22))
        assert "<0.01 %" in drawn
        assert "100" not in drawn


@pytest.mark.parametrize(("share", "said"), [(0.0, "0%"), (0.001, "<1%"), (0.5, "50%"), (0.999, ">99%"), (1.0, "100%")])
def test_the_share_of_a_channel_is_none_or_all_only_if_it_is(make_scene, share, said):
    assert _share_bar(share, make_scene()).split()[-1] == said


def test_with_a_sample_chosen_a_screen_says_whose_errors_it_shows(pages, make_scene):
    scene = make_scene()
    for view in (ScreenId.ANSWER, ScreenId.GRAPH):
        assert "of all 3 samples" not in text(pages[view].draw(scene, 100, 24))
    scene.navigator.choose_sample(1)
    for view in (ScreenId.ANSWER, ScreenId.GRAPH):
        for width in (60, 100):
            assert "of all 3 samples" in text(pages[view].draw(scene, width, 24))


def test_weights_stand_before_their_scales(make_scene):
    scene = make_scene()
    graph, tensor = scene.opened.backend_graph, scene.plan_row.tensor
    node = graph.producer(tensor)
    constants = {"s": (), "z": (1,), "w": (8, 4, 3, 3), "b": (8,)}
    nodes = [replace(each, inputs=(*each.inputs, *constants)) if each is node else each for each in graph.nodes]
    tensors = {
        **graph.tensors,
        **{name: TensorInfo(name=name, shape=shape, role=Role.CONSTANT) for name, shape in constants.items()},
    }
    wider = Graph(nodes=tuple(nodes), tensors=tensors.values(), inputs=graph.inputs, outputs=graph.outputs)
    edges = inputs_of(wider, scene.table, tensor)
    assert [edge.tensor for edge in edges if edge.constant] == ["w", "b", "s", "z"]


def test_the_backends_of_a_wide_terminal_stand_next_to_the_names(pages, make_scene, make_table):
    scene = make_scene()
    columns = [(f"{name}.h5", make_table(24)) for name in ("a", "long-name-of-a-recording")]
    both = replace(scene, backends=columns)
    head, row, *_ = (pages[ScreenId.BACKENDS].draw(both, 200, 30)[at] for at in (0, 10))
    assert "SQNR dB and introduced" in text([head])
    assert "long-name-of-a-recording.h5" in text([head])
    assert text([row]).count("LSB") == 2
    assert len(text([row])) < 120


def test_a_wide_terminal_shows_what_each_sample_adds(pages, make_scene):
    scene = make_scene()
    result = scene.outcome
    own = SampleError(max_abs=0.1, rmse=0.05, sqnr_db=20.0, max_lsb=2.5)
    scene.table.put(replace(result, samples=tuple(replace(one, introduced=own) for one in result.samples)))
    assert "introduced" not in text(pages[ScreenId.SAMPLES].draw(scene, 80, 20))
    wide = text(pages[ScreenId.SAMPLES].draw(scene, 120, 20))
    assert wide.count("2.50 LSB") == 3
    assert max(line.count("█") for line in wide.splitlines()) > 40


def test_what_fails_as_a_whole_but_in_no_single_sample_is_not_said_to_be_fine(make_scene):
    scene = make_scene()
    table, row = scene.table, scene.row
    result = table.results[row]
    fine = tuple(replace(one, status=Status.WITHIN) for one in result.samples)
    broken = replace(result, samples=fine, reason="the graphs differ")
    table.put(broken)
    scene.navigator.choose_sample(1)
    assert text([heading(scene, 80)]).endswith("QLinearAdd  * diverged")
    assert row in table.failing(1)
    table.put(replace(result, samples=fine, status=Status.WITHIN))
    assert row not in table.failing(1)
    table.put(broken)  # while a sample is chosen
    assert row in table.failing(1)
    page = Views(ElementCursor())[ScreenId.SAMPLES]
    drawn = text(page.draw(scene, 80, 18))
    assert "beyond the limit as a whole, not in a single sample: the graphs differ" in drawn
    scene.navigator.choose_sample(None)
    assert "sample" not in text([heading(scene, 80)])


def test_a_narrow_terminal_says_which_of_the_backends_it_shows(pages, make_scene, make_table):
    scene = make_scene()
    columns = [(f"{name}.h5", make_table(24)) for name in "abc"]
    three = replace(scene, backends=columns)
    narrow = text(pages[ScreenId.BACKENDS].draw(three, 60, 20)).splitlines()
    assert len(narrow) == 20
    assert "c.h5" not in "".join(narrow)
    assert any("1 to 2 of 3; h and l show the others" in line for line in narrow)
    assert "of 3" not in text(pages[ScreenId.BACKENDS].draw(three, 120, 20))


def test_a_reader_without_a_finite_error_is_comparable_all_the_same(pages, make_scene):
    scene = make_scene()
    after = scene.table.results[10]
    for level in (float("inf"), float("nan")):
        scene.table.put(replace(after, metrics=replace(after.metrics, rel_l2=level)))
        drawn = text(pages[ScreenId.GRAPH].draw(scene, 100, 22))
        assert f"* rel {'inf' if level > 1 else 'NaN'}" in drawn
        assert "incomparable" not in drawn
    scene.table.put(replace(after, status=Status.INCOMPARABLE, metrics=None))
    assert "? incomparable" in text(pages[ScreenId.GRAPH].draw(scene, 100, 22))


def test_an_input_that_could_not_be_compared_has_no_error_to_tell(make_scene):
    scene = make_scene(row=6)
    assert go_to_worst_input(scene) == "at an input that could not be compared; H goes back"
    scene.navigator.go(7)
    assert go_to_worst_input(scene).startswith("at the worst input, rel 0.00")


def test_the_way_here_names_every_step_of_it(pages, make_scene):
    scene = make_scene(row=3)
    for row in (4, 3, 4, 5, 4):
        scene.navigator.jump(row)
    path = text(pages[ScreenId.GRAPH].draw(scene, 160, 22)).splitlines()[0]
    assert [name.rpartition("_")[2].rstrip("]") for name in path.split(" > ")] == ["3", "4", "3", "4", "5", "4"]
    narrow = text(pages[ScreenId.GRAPH].draw(scene, 60, 22)).splitlines()[0]
    assert ".. > " in narrow


def test_what_is_of_one_sample_and_step_says_which(pages, make_scene):
    scene = make_scene()
    for view in (ScreenId.CHANNELS, ScreenId.MAP):
        assert "sample 2" in text(pages[view].draw(scene, 80, 22)), view
    scene.navigator.steps = 2
    for view in (ScreenId.CHANNELS, ScreenId.MAP):
        assert "sample 2, step 0" in text(pages[view].draw(scene, 80, 22)), view
    alone = make_scene(samples=1)
    for view in (ScreenId.CHANNELS, ScreenId.MAP):
        assert "sample" not in text(pages[view].draw(alone, 80, 22)), view


def test_worst_elements_of_another_step_are_not_gone_to(make_scene):
    scene, cursor = make_scene(), ElementCursor()
    scene.navigator.steps = 2
    worst = tuple(replace(element, step=1) for element in scene.ready.worst)
    scene = replace(scene, ready=replace(scene.ready, profile=SimpleNamespace(worst=worst)))
    assert cursor.next_worst(scene, 1) == "the worst elements are in other steps: 1; ( and ) choose one"
    assert set(cursor.index) == {0}
    scene.navigator.step = 1
    assert cursor.next_worst(scene, 1) == "element 1 of the 8 worst in sample 2, step 1"
    worst = (replace(worst[0], step=0), *worst[1:])
    scene = replace(scene, ready=replace(scene.ready, profile=SimpleNamespace(worst=worst)))
    assert cursor.next_worst(scene, 1).endswith("of the 7 worst in sample 2, step 1; the worst of all is in step 0")


def test_the_difference_of_codes_is_headed_by_its_unit(pages, make_scene):
    scene = make_scene()
    drawn = text(pages[ScreenId.VALUES].draw(scene, 100, 22))
    assert "(diff)" in drawn.splitlines()[0]
    pages[ScreenId.VALUES]._cursor.next_form(scene)
    heads = text(pages[ScreenId.VALUES].draw(scene, 100, 22)).splitlines()[0]
    assert "(LSB)" in heads
    assert "ref, real" in heads


def test_of_a_node_without_steps_the_whole_error_is_told_too(pages, make_scene):
    scene = make_scene()
    metrics = replace(scene.outcome.metrics, max_lsb=None, lsb_bias=None)
    scene.table.put(replace(scene.outcome, metrics=metrics))
    drawn = text(pages[ScreenId.WHY].draw(scene, 100, 22))
    assert "differ, by at most 0.500" in drawn
    assert "LSB" not in next(line for line in drawn.splitlines() if "whole error" in line)


def test_what_weights_add_is_told_where_they_are_not_the_references(pages, make_scene):
    scene, page = make_scene(), pages[ScreenId.WHY]
    stats = scene.outcome.metrics
    for constants, told in ((replace(stats, rel_l2=0.125), True), (replace(stats, max_abs=0.0), False), (None, False)):
        scene.table.put(replace(scene.outcome, constants=constants))
        assert ("rel L2 0.125 of its result, by weights" in text(page.draw(scene, 100, 22))) is told


def test_columns_of_channels_that_have_no_room_can_be_gone_to(pages, make_scene):
    page, scene = pages[ScreenId.CHANNELS], make_scene()

    def head(width=60):
        drawn = text(page.draw(scene, width, 12))
        assert max(map(len, drawn.splitlines())) <= width
        return drawn.splitlines()[1]

    first = head()
    assert first.endswith(">")
    assert "scale" not in first
    assert page.side(scene, -1) == "there are no more columns on the left"
    seen = set(first.split())
    while not (said := page.side(scene, 1)):
        heads = head()
        assert heads.split()[:2] == ["channel", "RMSE"]
        assert "<" in heads
        seen |= set(heads.split())
    assert said == "there are no more columns on the right"
    assert {"scale", "zp", "clipped"} <= seen
    while not page.side(scene, -1):
        head()
    assert head() == first
    assert page.side(make_scene(filled=0), 1)


def test_an_output_that_is_short_says_so_though_its_node_is_within(pages, make_scene):
    scene = make_scene(failing=(), incomparable=(), row=9)
    drawn = []
    for short in ((), (scene.plan_row.tensor,)):
        result = replace(scene.result, verdict=replace(scene.result.verdict, short=short))
        drawn.append(text(pages[ScreenId.SAMPLES].draw(replace(scene, result=result), 100, 24)))
    assert "limit of outputs" not in drawn[0]
    assert "within, but below the limit of outputs" in drawn[1]
    assert re.search(r"\d of 3 samples are below the output limit of 20 dB|beyond its limit", drawn[1])
    assert "output limit" not in drawn[0]
