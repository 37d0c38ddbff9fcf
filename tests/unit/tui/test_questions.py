"""The line that asks for text, and what the keys do that use it; several backends."""

from dataclasses import replace

import pytest
from textual.events import Paste

from qdebug.errors import LimitsError
from qdebug.limits.map_file import load_map
from qdebug.tui.screen.bindings import shared_key_rows
from qdebug.tui.screens import ScreenId

pytestmark = pytest.mark.asyncio

SIZE = (80, 24)


@pytest.fixture
def opened(make_app, make_session, settle, tmp_path, monkeypatch):
    """Return a function that presses keys, and types the first letter of each text and pastes the rest of it."""
    monkeypatch.chdir(tmp_path)

    async def run(pilot, *keys):
        for key in keys:
            if key[:1] == ":":  # an action of the palette, which no key is spent on
                await pilot.app.screen_stack[0].perform(key[1:])
                await pilot.pause()
                continue
            letters = key if isinstance(key, list) else [key]
            await pilot.press(*letters[:1])
            if len(letters) > 1:
                pilot.app.post_message(Paste("".join(letters[1:])))
            await pilot.pause()

    return run


async def test_a_filter_is_applied_as_it_is_typed_and_can_be_taken_back(make_app, make_session, settle, opened):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "j", "j", "f", *"op=relu")
        assert main.navigator.lines == 6
        assert "6 of 26 nodes" in main.message
        await opened(pilot, [" ", "&"])
        assert main.message.startswith("not yet: expected a field")
        assert main.navigator.lines == 6, "the last filter that could be read stays"
        await opened(pilot, "escape")
        assert main.navigator.lines == 26
        assert main.navigator.cursor == 2
        assert not main.is_asking
        await opened(pilot, "f", list("sqnr<20"), "enter")
        assert main.navigator.order.tolist() == [9, 10, 17]
        await opened(pilot, "f")
        assert main.line.value == "sqnr<20", "the filter in force can be changed"
        await opened(pilot, "escape", ":clear_filter")
        assert main.message == "filter 'sqnr<20' cleared, back at block0/relu_2"
        await opened(pilot, ":clear_filter")
        assert "there is no filter" in main.message


async def test_a_filter_that_cannot_be_read_to_its_end_says_what_is_in_force(make_app, make_session, settle, opened):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "f", list("op=relu & rel>x"))
        assert main.message == "not yet: expected a number after rel>, not 'x'"
        await opened(pilot, "enter")
        assert main.navigator.filter == "op=relu"
        assert main.navigator.lines == 6
        assert main.message == "filter is 'op=relu' alone: expected a number after rel>, not 'x'"
        await opened(pilot, ":clear_filter", "f", list("(("), "enter")
        assert main.message.startswith("no filter: ")
        assert main.navigator.lines == 26
        await opened(pilot, "f", "right", "backspace", "backspace", list("op=relu"), "enter")
        assert main.navigator.filter == "op=relu", "what was refused is there to be mended"
        await opened(pilot, "f", "enter", "F", "f", list("is=missing"), "enter")
        assert main.navigator.filter == "is=missing", "and gone once a filter is in force"


async def test_the_name_of_a_field_is_no_part_of_a_name_while_its_comparison_is_typed(
    make_app, make_session, settle, opened
):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "f")
        for key in "sqnr<":
            await opened(pilot, [key])
            assert main.navigator.lines > 0
        assert main.message == "not yet: expected a value after sqnr<"
        assert main.navigator.lines == 26
        await opened(pilot, ["backspace"])
        assert main.message == "not yet: no node has that in its name; compare a field, such as sqnr>1"
        await opened(pilot, list("<20"))
        assert main.navigator.order.tolist() == [9, 10, 17]
        await opened(pilot, "ctrl+u", list("nothing-is-called-this"))
        assert main.navigator.lines == 0


async def test_from_any_screen_the_filter_shows_the_list_and_goes_back(make_app, make_session, settle, opened):
    app = make_app(make_session(), screen="graph")
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "f")
        assert main.view is ScreenId.NODES
        await opened(pilot, list("is=failing"), "enter", "escape")
        assert main.view is ScreenId.NODES, "the last thing done comes first"
        assert main.message == "filter 'is=failing' cleared, back at block0/qlinearconv_0"
        assert main.navigator.cursor == 0, "where the filter moved it from"
        await opened(pilot, "escape")
        assert main.view is ScreenId.GRAPH
        await opened(pilot, "g", "f", list("is=failing"), "enter", "f", "escape", ":clear_filter")
        assert main.navigator.cursor == 0, "looking at the filter again moves nothing"
        await opened(pilot, "f", list("is=failing"), "enter", "f", list("is=failing & row>9"), "enter", ":clear_filter")
        assert main.navigator.cursor == 0, "a filter that is changed is one filter"
        main.navigator.go(25)
        await opened(pilot, "f", list("is=failing"), "enter", ":clear_filter")
        assert main.navigator.cursor == 25, "what only the reference has is come back to as well"
        main.navigator.go(0)
        await opened(pilot, "f", list("is=failing"), "enter", "j", ":clear_filter")
        assert (main.message, main.navigator.cursor) == ("filter 'is=failing' cleared", 10), (
            "it was moved on from there"
        )


async def test_a_filter_set_before_a_screen_is_taken_back_after_it(make_app, make_session, settle, opened):
    app = make_app(make_session(), screen="nodes")
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "f", list("op~conv"), "enter", "3", "2", "escape")
        assert (main.view, main.message) == (ScreenId.NODES, "filter 'op~conv' cleared")


async def test_a_filter_is_taken_back_though_the_way_back_was_gone_on_another_backend(
    make_app, make_session, settle, opened
):
    app = make_app(make_session(), make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "f", list("op~conv"), "enter", "b", "escape", "b")
        assert main.navigator.filter
        await opened(pilot, "escape")
        assert main.message == "filter 'op~conv' cleared"
        assert not main.navigator.filter
        await opened(pilot, "escape")
        assert "nothing to go back to" in main.message


async def test_what_is_typed_takes_the_place_of_the_text_that_a_question_begins_with(
    make_app, make_session, settle, opened
):
    app = make_app(make_session(), screen="nodes")
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "f", list("op~conv"), "enter", "f")
        assert main.message.startswith("typing replaces the text, right keeps it")
        await opened(pilot, list("sqnr<20"), "enter")
        assert main.navigator.filter == "sqnr<20"
        await opened(pilot, "f", "right", list(" & op~conv"), "enter")
        assert main.navigator.filter == "sqnr<20 & op~conv"


async def test_an_element_is_asked_for(make_app, make_session, settle, opened):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "j", "at")
        assert main.view is ScreenId.VALUES
        await settle(pilot, until=lambda main: main.scene.glimpse is not None)
        await opened(pilot, list("0,1,2,3"), "enter")
        assert main.elements.index == (0, 1, 2, 3)
        await opened(pilot, "at", list("9,9"), "enter")
        assert "needs 4 numbers" in main.message
        await opened(pilot, "at", "escape")
        assert main.message == "cancelled"


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "a reason is needed"), ("fine until then", "is not a date"), ("x until 2001-01-01", "has passed")],
)
async def test_what_is_no_reason_is_said(make_app, make_session, settle, opened, tmp_path, text, said):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "exclamation_mark", "i", list(text), "enter")
        await settle(pilot, until=lambda main: said in main.message)
        assert not main.scene.table.acknowledged.any()
    assert not (tmp_path / "qdebug-limits.toml").exists()


async def test_an_accepted_node_is_passed_by_and_shown(make_app, make_session, settle, opened, tmp_path):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "exclamation_mark", "i", list("known"), "enter")
        await settle(pilot, until=lambda main: "diff and tui use it with --limits qdebug-limits.toml" in main.message)
        await opened(pilot, "Y")
        assert "qdebug tui --limits qdebug-limits.toml REF BACKEND --node block2/" in main.message
        await opened(pilot, "g", "exclamation_mark")
        assert main.navigator.cursor == 10
        assert 'reason = "known"' in (tmp_path / "qdebug-limits.toml").read_text()
        strips = app.screen._compositor.render_strips()
        assert any("~" in strip.text[:4] for strip in strips)


async def test_an_accepted_node_can_be_taken_back(make_app, make_session, settle, opened, tmp_path):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "exclamation_mark", "i", "minus", "enter")
        await settle(pilot, until=lambda main: "There is no limits file" in main.message)
        await opened(pilot, "i", list("known"), "enter")
        await settle(pilot, until=lambda main: main.scene.table.acknowledged[9])
        await opened(pilot, "i", "minus", "enter")
        await settle(pilot, until=lambda main: "no longer acknowledged" in main.message)
        assert not main.scene.table.acknowledged.any()
        assert "acknowledged" not in (tmp_path / "qdebug-limits.toml").read_text()


async def test_what_has_no_partner_cannot_be_accepted(make_app, make_session, settle, opened):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "G", "i")
        assert "not compared" in main.message
        assert not main.is_asking


async def test_exports_say_what_was_written_or_why_not(make_app, make_session, settle, opened, tmp_path):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "e", "enter")
        await settle(pilot, until=lambda main: main.message.startswith("wrote nodes.csv"))
        assert (tmp_path / "nodes.csv").read_text().count("\n") == 27
        await opened(pilot, "e", "ctrl+u", list("nodes.csv"), "enter")
        assert "exists" in main.message
        await opened(pilot, "e", "ctrl+u", list("x.pdf"), "enter")
        assert ".npz" in main.message
        await opened(pilot, "e", "ctrl+u", list("no/such/x.svg"), "enter")
        await settle(pilot, until=lambda main: "No such file" in main.message)
        await opened(pilot, "e", "ctrl+u", list("s.svg"), "enter")
        await settle(pilot, until=lambda main: "the screen" in main.message)
        assert (tmp_path / "s.svg").read_text().startswith("<svg")


async def test_backends_are_switched_and_the_place_is_kept(make_app, make_session, settle, opened):
    other = make_session(failing=(9,))
    app = make_app(make_session(), other)
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot, until=lambda main: all(each.result is not None for each in main.backend_states))
        await opened(pilot, "exclamation_mark", "b")
        assert main.backend == 1
        assert main.navigator.cursor == 9
        assert main.navigator.table.failing().tolist() == [9]
        assert "backend 2 of 2, other.h5" in main.message
        await opened(pilot, "b")
        assert main.backend == 0
        await opened(pilot, "2", "v", "l")
        assert main.backend == 1


async def test_a_backend_that_fails_leaves_the_other(make_app, make_session, settle, opened):
    app = make_app(make_session(), make_session(break_at=3))
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot, until=lambda main: main.backend_states[1].failure is not None and main.is_finished)
        assert app.return_value is None
        await opened(pilot, "b")
        assert "damaged" in main.message
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "ERROR" in text


async def test_screens_are_turned_and_left_in_order(make_app, make_session, settle, opened):
    app = make_app(make_session(), screen="answer")
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "tab", "tab")
        assert main.view is ScreenId.GRAPH
        await opened(pilot, "shift+tab")
        assert main.view is ScreenId.NODES
        await opened(pilot, "4", "enter")
        assert main.view is ScreenId.VALUES
        await opened(pilot, "escape", "escape")
        assert main.view is ScreenId.NODES
        await opened(pilot, "2")
        assert "this is the screen nodes" in main.message
        await opened(pilot, "escape", "escape", "escape")
        assert "nothing to go back to" in main.message


async def test_the_walk_to_the_worst_input_and_the_origin(make_app, make_session, settle, opened):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "3", "exclamation_mark", "w")
        assert main.navigator.cursor == 8
        assert "at the worst input" in main.message
        await opened(pilot, "H", "W")
        assert main.navigator.cursor == 9
        assert "the origin is here" in main.message
        await opened(pilot, "2", "g", "3", "w")
        assert "no input carries any error" in main.message
        await opened(pilot, "W")
        assert "origin" in main.message
        assert main.navigator.cursor in {9, 10, 17}


async def test_before_anything_is_open_no_key_breaks(make_app, make_session, settle):
    import threading

    from qdebug.tui.reading.messages import Opening

    gate = threading.Event()
    session = make_session()

    def slow():
        gate.wait(20)
        return session

    app = make_app(session)
    app._reader._comparisons[0].opening = Opening(compare=slow)
    async with app.run_test(size=SIZE) as pilot:
        for row in shared_key_rows():
            if row.action != "help_keys":
                await pilot.press(row.keys[0])
                said = app.screen.message or row.action.startswith(("screen(", "turn("))
                assert said, row.action
        gate.set()
        await settle(pilot)
    assert app.failure is None


@pytest.fixture
def opening(make_app, make_session):
    """Return an application whose graphs are read when an event is set, and the event."""
    import threading

    from qdebug.tui.reading.messages import Opening

    gate, session = threading.Event(), make_session()

    def slow():
        gate.wait(20)
        return session

    def make(**options):
        app = make_app(session, **options)
        names = [f"{name}_out" for name in session._names]
        app._reader._comparisons[0].opening = Opening(compare=slow, read_names=lambda: names)
        return app

    return make, gate


async def test_what_the_command_line_asked_for_holds_unless_a_key_said_otherwise(opening, settle, opened):
    make, gate = opening
    app = make(node="block2/relu_10", sample=1, wanted="row>5")
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot, until=lambda main: main.navigator is not None)
        await opened(pilot, "m")
        gate.set()
        main = await settle(pilot)
        navigator = main.navigator
        assert (navigator.cursor, navigator.sample, navigator.filter) == (10, 1, "row>5")
        assert navigator.trail.marks == [0]


async def test_a_note_marks_its_node_and_is_kept(make_app, make_session, settle, opened, tmp_path):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "exclamation_mark", ":note", "enter")
        assert "no note written" in main.message
        await opened(pilot, ":note", list("ask Ann"), "enter")
        await settle(pilot, until=lambda main: "note kept on block2/qlinearadd_9" in main.message)
        assert main.navigator.trail.marks == [9]
        assert 'text = "ask Ann"' in (tmp_path / "qdebug-limits.toml").read_text()
        await opened(pilot, "j", "k")
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "block2/qlinearadd_9: diverged (ask Ann)" in text
        await opened(pilot, "g", ":next_mark")
        assert main.message == "mark 1 of 1: ask Ann"
        await opened(pilot, "e", "ctrl+u", list("n.csv"), "enter")
        await settle(pilot, until=lambda main: main.message.startswith("wrote n.csv"))
        assert (tmp_path / "n.csv").read_text().splitlines()[10].endswith("True,ask Ann")
        await opened(pilot, ":note", "ctrl+u", "minus", "enter")
        await settle(pilot, until=lambda main: "no note any more" in main.message)
        assert not main.navigator.trail.marks
        await opened(pilot, ":note", "minus", "enter")
        await settle(pilot, until=lambda main: "has no note" in main.message)


async def test_a_pair_made_by_hand_lands_in_the_map(make_app, make_session, settle, opened, tmp_path):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await opened(pilot, "exclamation_mark", ":pair", "ctrl+u", list("ref_77777"), "enter")
        await settle(pilot, until=lambda main: "no tensor 'ref_77777'" in main.message)
        assert not (tmp_path / "qdebug-map.toml").exists()
        await opened(pilot, ":pair", "ctrl+u", list("ref_3"), "enter")
        main = await settle(pilot, until=lambda main: "is paired with 'ref_3'" in main.message)
        tensor = main.scene.plan_row.tensor
        said = load_map(tmp_path / "qdebug-map.toml")
        assert [(pair.backend, pair.reference) for pair in said.pairs] == [(tensor, "ref_3")]
        await opened(pilot, ":pair", "ctrl+u", "minus", "enter")
        await settle(pilot, until=lambda main: "has no partner" in main.message)
        assert load_map(tmp_path / "qdebug-map.toml").alone == (tensor,)


async def test_notes_come_back_with_the_next_start(make_app, make_session, settle, opened):
    app = make_app(make_session())
    opening = app._reader._comparisons[0].opening
    app._reader._comparisons[0].opening = replace(opening, load_notes=lambda: {"block2/relu_10": "old", "gone": "x"})
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        assert main.navigator.trail.notes == {10: "old"}
        await opened(pilot, ":next_mark", "4")
        text = "\n".join(strip.text for strip in app.screen._compositor.render_strips())
        assert "note: old" in text


async def test_notes_that_cannot_be_read_are_no_reason_to_show_nothing(make_app, make_session, settle):
    def broken():
        raise LimitsError("'x.toml' is not valid TOML.", hint="Correct it.")

    app = make_app(make_session(pause_at=5))
    app._reader._comparisons[0].opening = replace(app._reader._comparisons[0].opening, load_notes=broken)
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot, until=lambda main: "not valid TOML" in main.message)
        app._reader._comparisons[0].source.resume.set()
        await settle(pilot)
        assert main.message.startswith("notes are not shown")


async def test_enter_before_the_letters_were_looked_for_searches_all_of_them(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=(80, 24)) as pilot:
        main = await settle(pilot)
        await pilot.press("slash")
        with main.line.prevent(main.line.Changed):
            main.line.value = "relu"
        await pilot.press("enter")
        await pilot.pause()
        assert main.navigator.pattern == "relu"
        assert "6 matches" in main.message


async def test_a_text_longer_than_the_line_is_seen_where_it_is_typed(make_app, make_session, settle, opened):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await opened(pilot, "slash", list("0123456789" * 8 + "end"))
        assert "789end" in app.export_screenshot()
        await opened(pilot, "home")
        picture = app.export_screenshot()
        assert "0123456789" in picture
        assert "789end" not in picture
        await opened(pilot, ["backspace"], "end", ["backspace"] * 3, "ctrl+u", list("relu_2"))
        assert "relu_2" in app.export_screenshot()


async def test_a_search_that_cannot_be_read_says_so_to_the_end(make_app, make_session, settle, opened):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "slash", list("~("), "enter")
        assert main.message.startswith("not a valid regular expression yet: missing )")
        await opened(pilot, "escape", "f", list("row>20"), "enter", "slash", list("add_9"), "enter")
        assert main.message.startswith("the filter hides every match")
        await opened(pilot, ":clear_filter", "slash", list("add_9"), "enter")
        assert main.message == "1 match; n N walk them, esc clears"


async def test_a_file_that_could_not_be_written_is_there_to_be_mended(make_app, make_session, settle, opened):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await opened(pilot, "e", list("nodes.foo"), "enter")
        await pilot.pause()
        assert "Unknown format" in main.message
        await opened(pilot, "e")
        assert main.line.value == "nodes.foo"
        await opened(pilot, list("nodes.csv"), "enter")
        await settle(pilot, until=lambda main: "wrote nodes.csv" in main.message)
        await opened(pilot, "e")
        assert main.line.value not in {"nodes.foo", "nodes.csv"}


async def test_a_map_is_written_in_shades_and_an_overview_with_its_profile(
    make_app, make_session, settle, opened, tmp_path
):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await opened(pilot, "1", "exclamation_mark", "e", list("over.txt"), "enter")
        await settle(pilot, until=lambda main: "wrote over.txt" in main.message)
        assert "SQNR" in (tmp_path / "over.txt").read_text()
        await opened(pilot, "5", "v", "v", "v")
        await settle(pilot, until=lambda main: main.scene.glimpse is not None)
        await opened(pilot, "e", list("map.txt"), "enter")
        await settle(pilot, until=lambda main: "wrote map.txt" in main.message)
        assert {*"░▒▓█"} & {*(tmp_path / "map.txt").read_text()}


@pytest.mark.parametrize(("filtered", "fit"), [("sqnr<-9", 0), ("sqnr>300", 1)])
async def test_the_list_shows_the_node_again_after_a_filter_of_few(
    make_app, make_session, settle, opened, filtered, fit
):
    app = make_app(make_session(200))
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        main.navigator.go(120)
        await opened(pilot, "2", "f", list(filtered), "enter")
        assert main.navigator.lines == fit
        await opened(pilot, "escape")
        place, top = main.navigator.line, main.page.scroll_offset.y
        assert top < place == 120 < top + main.page.rows_shown
