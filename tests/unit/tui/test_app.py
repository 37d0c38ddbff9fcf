"""The application as a user meets it, through Textual's pilot."""

import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest

from qdebug.errors import AlignmentError, RecordingError, UsageError
from qdebug.numerics.checkpoint import checkpoint
from qdebug.present.rows import metric_title
from qdebug.tui.drawing.glyphs import ASCII
from qdebug.tui.nodes.rows import METRIC_CHOICES, shown_sample
from qdebug.tui.provisional import Provisional, Until
from qdebug.tui.reading.messages import Opening
from qdebug.tui.screen.bindings import COMMANDS_WITHOUT_KEY, all_key_rows, shared_key_rows
from qdebug.tui.screen.other_screens import HelpScreen
from qdebug.tui.screens import ScreenId
from qdebug.tui.views.elements import sample_text
from qdebug.tui.views.view import output_limit_note

pytestmark = pytest.mark.asyncio

SIZE = (80, 24)


def screen_text(app):
    """Return the screen as lines of text."""
    width, height = app.size
    strips = app.screen._compositor.render_strips()
    return [strip.text[:width] for strip in strips[:height]]


async def test_the_verdict_stands_so_far_until_everything_is_compared(make_app, make_session, settle):
    session = make_session(pause_at=12)
    app = make_app(session, screen="answer")
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot, until=lambda _: "SO FAR 12 of" in "\n".join(screen_text(app)))
        text = "\n".join(screen_text(app))
        assert "SO FAR 12 of 24 compared, first divergence at block2/qlinearadd_9" in text
        assert "FAIL" not in text
        session.resume.set()
        main = await settle(pilot)
        assert "FAIL The backend diverges first at QLinearAdd" in "\n".join(screen_text(app))
        assert main.navigator.table.pending == 0


async def test_the_whole_verdict_follows_what_is_compared(make_app, make_session, settle):
    session = make_session(pause_at=12)
    app = make_app(session)
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot, until=lambda main: main.navigator and main.navigator.table.compared == 12)
        main = app.screen
        main.action_verdict()
        await pilot.pause()
        assert "SO FAR 12 of 24 compared" in "\n".join(screen_text(app))
        session.resume.set()
        await settle(pilot)
        text = "\n".join(screen_text(app))
        assert "SO FAR" not in text
        assert "The backend diverges first at QLinearAdd" in text
        assert "esc closes" in text


async def test_an_output_below_its_limit_says_so_while_a_node_fails(make_scene):
    scene = make_scene(24, failing=(9,), row=23)
    stats = replace(scene.outcome.metrics, sqnr_db=8.0)
    scene.table.results[23] = replace(scene.outcome, metrics=stats)
    graph = SimpleNamespace(outputs=(scene.plan_row.tensor,))
    scene = replace(scene, opened=replace(scene.opened, backend_graph=graph))
    assert output_limit_note(scene) == ", but below the limit of outputs"
    scene.table.results[23] = replace(scene.outcome, metrics=replace(stats, sqnr_db=40.0))
    assert not output_limit_note(scene)
    scene.navigator.go(9)
    assert not output_limit_note(scene), "it fails, and is no output"


async def test_before_names_are_known_there_is_a_frame_that_says_so(make_app, make_session, settle):
    import threading

    opened = threading.Event()
    session = make_session()

    def slow():
        opened.wait(20)
        return session

    app = make_app(session)
    app._reader._comparisons[0].opening = Opening(compare=slow)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        assert "opening both" in "\n".join(screen_text(app))
        for key in ("j", "enter", "exclamation_mark", "y", "s", "slash", "right"):
            await pilot.press(key)
            waits = key == "exclamation_mark"
            said = "first divergence: still comparing" if waits else "the recordings are still being opened"
            assert app.screen.message.startswith(said), key
        opened.set()
        main = await settle(pilot)
        assert (main.is_asking, main.navigator.cursor) == (False, 0), "what was refused is not done later"
        assert "still being opened" not in "\n".join(screen_text(app))


async def test_first_divergence_detail_and_back(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await pilot.press("exclamation_mark", "enter")
        await settle(pilot)
        text = "\n".join(screen_text(app))
        assert "! first divergence, diverged" in text
        assert "histogram" in text
        assert "at qmin" in text
        await pilot.press("G")
        assert "worst elements" in "\n".join(screen_text(app))
        await pilot.press("escape")
        assert main.view is ScreenId.NODES
        assert main.navigator.cursor == 9, "going back keeps the selection"


async def test_facts_that_all_fit_never_lay_the_screen_out_again(make_app, make_session, settle):
    app = make_app(make_session(), node="block0/qlinearconv_0")
    async with app.run_test(size=(160, 60)) as pilot:
        main = await settle(pilot)
        detail = main.side
        before, seen = detail.virtual_size, set()
        for _ in range(12):
            await pilot.press("j")
            await settle(pilot)
            seen.add(len(detail._lines))
            assert detail.virtual_size == before
    assert len(seen) > 1, "the facts of different nodes take different numbers of lines"


async def test_failing_nodes_are_walked_in_the_detail_too(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await pilot.press("enter", "right_square_bracket", "right_square_bracket")
        await settle(pilot)
        assert main.navigator.cursor == 10
        assert "#10 " in screen_text(app)[3]


async def test_search_is_incremental_and_can_be_cancelled(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await pilot.press("j", "slash", *"pool_7")
        assert main.navigator.cursor == 7
        await pilot.press("escape")
        assert main.navigator.cursor == 1
        assert main.message == "search cancelled"
        await pilot.press("slash", *"pool", "enter")
        assert "n N walk them" in main.message
        await pilot.press("n")
        assert main.navigator.cursor == 7
        await pilot.press("escape", "n")
        assert main.navigator.cursor == 9, "without a search n goes to the next failing node"


async def test_facts_stand_beside_the_list_on_a_very_wide_terminal(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=(160, 40)) as pilot:
        await settle(pilot)
        await pilot.press("exclamation_mark")
        await settle(pilot)
        text = "\n".join(screen_text(app))
        assert "all 3 samples" in text
        assert "block5/qlinearadd_21" in text
        await pilot.resize_terminal(120, 40)
        await pilot.pause(0.2)
        assert "histogram" not in "\n".join(screen_text(app)), "it would halve the list"


async def test_resizing_keeps_the_cursor_and_tiny_terminals_are_told(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=(140, 40)) as pilot:
        main = await settle(pilot)
        await pilot.press("right_square_bracket")
        for size, words in (((50, 14), "SQNR dB"), ((30, 8), "30x8 is too small"), ((1, 1), ""), ((80, 24), "SQNR dB")):
            await pilot.resize_terminal(*size)
            await pilot.pause(0.05)
            assert words in "\n".join(screen_text(app))
        assert main.navigator.cursor == 9


async def test_the_cursor_stays_in_view(make_app, make_session, settle):
    app = make_app(make_session(500, failing=(400,)))
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        for key in ("exclamation_mark", "pagedown", "ctrl+u", "G", "g", "end", "k", "home"):
            await pilot.press(key)
            await pilot.pause()
            assert any(line.startswith("▸") for line in screen_text(app)), key
        assert main.navigator.cursor == 0


async def test_samples_change_the_numbers_and_the_detail(make_app, make_session, settle):
    session = make_session()
    app = make_app(session)
    async with app.run_test(size=(160, 40)) as pilot:
        main = await settle(pilot)
        await pilot.press("j", "full_stop", "full_stop")
        await settle(pilot)
        assert main.navigator.sample == 1
        assert "sample 1" in screen_text(app)[-2]
        assert (1, 1) in session.values_read


async def test_elements_are_of_the_sample_in_which_the_output_is_worst(make_app, make_session, settle):
    class OfSampleOne(make_session):
        def result(self, **options):
            told = super().result(**options)
            return replace(told, verdict=replace(told.verdict, worst_sample=1))

    async with make_app(OfSampleOne(24, samples=3), node="block2/qlinearadd_9", screen="channels").run_test(
        size=(120, 36)
    ) as pilot:
        main = await settle(pilot)
        assert main.scene.outcome.metrics.worst_sample == 2, "of the tensor itself"
        await settle(pilot, until=lambda main: main.detail_ready is not None and main.detail_ready.is_complete)
        assert main.detail_ready.values_sample == 1
        assert sample_text(main.scene) == "sample 1, the output's worst"
        assert "all, sample 1 shown" in "\n".join(screen_text(pilot.app))
        main.action_screen("samples")
        await pilot.pause()
        assert "screens 4 to 7 show sample 1, the output's worst" in "\n".join(screen_text(pilot.app))
        main.action_screen("channels")
        await pilot.press("full_stop")
        await settle(pilot)
        assert sample_text(main.scene) == "sample 0, chosen"
        result = main.scene.outcome
    assert shown_sample(replace(result, samples=result.samples[::2]), None, 1) == 2, "it was not recorded in sample 1"


async def test_columns_further_right_can_be_reached(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        header = next(line for line in screen_text(app) if "SQNR dB" in line and "node" in line)
        assert header.rstrip().endswith(">")
        await pilot.press("left")
        assert "first columns" in app.screen.message
        await pilot.press("right", "right")
        await pilot.pause()
        header = next(line for line in screen_text(app) if "SQNR dB" in line and "node" in line)
        assert "scale / zero point" in header
        assert "<" in header


async def test_copying_says_sent_and_no_more(make_app, make_session, settle):
    app = make_app(make_session(names=("odd\x1b[2Jname",)))
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await pilot.press("y")
        assert main.message.startswith("sent to the terminal: odd")
        assert "\x1b" not in app.clipboard


async def test_help_lists_every_key_and_closes(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await pilot.press("question_mark")
        await pilot.pause()
        assert isinstance(app.screen, HelpScreen)
        text = "\n".join("".join(piece for piece, _ in line) for line in app.screen._text._lines)
        assert "  q " in text
        assert "quit, exit" in text
        assert all(row.help in text for row in shared_key_rows() if row.action not in {"form", "open"})
        await pilot.press("escape")
        assert not isinstance(app.screen, HelpScreen)


async def test_the_palette_runs_the_commands_of_the_table(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        titles = {command.title for command in app.get_system_commands(main)}
        metrics = {f"metric {metric_title(each)}: show it in the list and the profile" for each in METRIC_CHOICES}
        without = {said for _, said in COMMANDS_WITHOUT_KEY}
        assert titles == {row.help for _, row in all_key_rows()} | metrics | without
        for words, attribute, reached in (("first div", "cursor", 9), ("metric cosine", "metric", "cosine")):
            await pilot.press("ctrl+p")
            await pilot.pause(0.1)
            await pilot.press(*words)
            await pilot.pause(0.5)
            await pilot.press("enter")
            await pilot.pause(0.3)
            if getattr(main.navigator, attribute) != reached:
                await pilot.press("enter")
                await pilot.pause(0.3)
            assert getattr(main.navigator, attribute) == reached


async def test_clicking_selects_and_clicking_again_opens(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await pilot.click("#nodes", offset=(10, 4))
        assert main.navigator.cursor == 3
        await pilot.click("#nodes", offset=(10, 4))
        assert main.view is ScreenId.TENSOR
        await pilot.press("1")
        await pilot.click("#profile", offset=(79, 1))
        assert main.navigator.cursor >= 23


async def test_hostile_names_are_shown_and_obeyed_nowhere(make_app, make_session, settle):
    names = ("[/foo]", "[@click=app.quit]q[/]", "\x1b]0;x\x07esc", "\u202ertl\nline", "=1+1", "x" * 5000)
    app = make_app(make_session(names=names))
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        for _ in names:
            await pilot.press("j")
            await settle(pilot)
        text = "\n".join(screen_text(app))
        assert "[/foo]" in text
        assert "[@click=app.quit]q[/]" in text
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert app.failure is None


@pytest.mark.parametrize("error", [RecordingError("gone", hint="Look."), AlignmentError("nothing"), OSError("io")])
async def test_an_error_ends_the_interface(make_app, make_session, error):
    def fail():
        raise error

    app = make_app(make_session())
    app._reader._comparisons[0].opening = Opening(compare=fail)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(0.2)
    assert app.failure is error
    assert app.return_value == 2


async def test_a_file_that_breaks_while_it_is_read_ends_the_interface(make_app, make_session):
    app = make_app(make_session(break_at=7))
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(0.2)
    assert "damaged" in str(app.failure)


async def test_it_opens_where_it_is_told(make_app, make_session, settle):
    app = make_app(make_session(), node="block2/relu_10", sample=2)
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        assert (main.navigator.cursor, main.navigator.sample) == (10, 2)


@pytest.mark.parametrize("options", [{"node": "block2/relu_1O"}, {"sample": 3}])
async def test_an_unknown_start_is_an_error_with_a_hint(make_app, make_session, options):
    app = make_app(make_session(), **options)
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(0.2)
    assert isinstance(app.failure, UsageError)
    assert app.failure.hint
    if "node" in options:
        assert "block2/relu_10" in app.failure.message


@pytest.mark.parametrize(
    ("keys", "code"),
    [
        *((["q"], 0), (["ctrl+q"], 0), (["question_mark", "ctrl+q"], 0)),
        *((["ctrl+c"], 130), (["question_mark", "ctrl+c"], 130), (["slash", "ctrl+c"], 130)),
    ],
)
async def test_leaving(make_app, make_session, settle, keys, code):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press(*keys)
    assert app.return_value == code


async def test_without_colours_nothing_is_lost(make_app, make_session, settle, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await app.run_action("theme")
        assert "NO_COLOR" in main.message
        text = "\n".join(screen_text(app))
        for sign in ("▸", " !*", "  ?", "inf"):
            assert sign in text
        await pilot.press("l")
        text = "\n".join(screen_text(app))
        for word in ("diverged", "within", "identical", "not compared"):
            assert word in text


async def test_the_theme_key_changes_the_colours(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        assert app.theme == "qdebug-dark"
        await app.run_action("theme")
        assert app.theme == "qdebug-light"


async def test_a_plain_locale_gets_plain_characters(make_app, make_session, settle):
    app = make_app(make_session(names=("naïve/畳み込み",)), glyphs=ASCII)
    async with app.run_test(size=(140, 40)) as pilot:
        await settle(pilot)
        await pilot.press("exclamation_mark")
        await settle(pilot)
        assert "\n".join(screen_text(app)).isascii()


async def test_rows_are_painted_on_demand(make_app, make_session, settle):
    app = make_app(make_session(10_000, failing=(7_777,), pause_at=50))
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot, until=lambda main: main.navigator and main.navigator.table.compared == 50)
        for key in ("G", "pageup", "g", "pagedown"):
            await pilot.press(key)
        assert len(main.query_one("#nodes")._strips) < 500
        app._reader._comparisons[0].opening.compare().resume.set()


async def test_the_palette_closes_where_there_is_no_room_for_it(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        await pilot.press("ctrl+p", "a")
        await pilot.resize_terminal(20, 5)
        await pilot.pause(0.1)
        assert app.screen is main
        await pilot.press("ctrl+p")
        assert app.screen is main
        assert "too small" in main.message
    assert app.failure is None


async def test_leaving_the_explanation_gives_its_search_up(make_app, make_session, settle, monkeypatch):
    searching, given_up = threading.Event(), threading.Event()

    def search(*_, **__):
        searching.set()
        try:
            while True:
                checkpoint()
        finally:
            given_up.set()

    monkeypatch.setattr("qdebug.running.explain_file.explain", search)
    app = make_app(make_session())
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        await pilot.press("exclamation_mark", "7")
        await settle(pilot, until=lambda _: searching.is_set())
        assert not given_up.is_set()
        await pilot.press("2")
        await settle(pilot, until=lambda _: given_up.is_set())
    assert app.failure is None


async def test_painting_everything_once_there_is_no_screen_any_more_does_nothing(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
    assert app._paint_all(None) is None


async def test_a_picture_is_of_the_screen_without_the_line_that_asks_for_its_name(
    make_app, make_session, settle, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("e", *["backspace"] * 60, *"here.svg", "enter")
        await settle(pilot, until=lambda _: (tmp_path / "here.svg").exists())
        await pilot.pause()
    picture = (tmp_path / "here.svg").read_text()
    assert "qlinearadd_1" in picture
    assert "here" not in picture


async def test_a_hint_that_is_too_long_for_the_line_is_shown_once(make_app, make_session, settle):
    app = make_app(make_session())
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("i")
        await settle(pilot)
        assert "\n".join(screen_text(app)).count("optionally") == 1


async def test_in_ascii_hidden_lines_are_marked(make_app, make_session, settle):
    app = make_app(make_session(), node="block2/qlinearadd_9", screen="tensor", glyphs=ASCII)
    async with app.run_test(size=SIZE) as pilot:
        main = await settle(pilot)
        top = main.page.region.y
        bottom = main.page.region.bottom - 1
        assert screen_text(app)[bottom].endswith("v")
        assert not screen_text(app)[top].endswith("^")
        await pilot.press("j", "j")
        await pilot.pause()
        assert screen_text(app)[top].endswith("^")
        await pilot.press("G")
        await pilot.pause()
        assert not screen_text(app)[bottom].endswith("v")


async def test_where_no_tabs_are_shown_the_screen_is_named(make_app, make_session, settle):
    app = make_app(make_session(), screen="samples")
    async with app.run_test(size=(60, 15)) as pilot:
        main = await settle(pilot)
        assert "9 samples, tab next" in "".join(text for text, _ in main.frame._draw_banner(60, 1)[0])
        await pilot.resize_terminal(80, 24)
        assert "tab next" not in "".join(text for text, _ in main.frame._draw_banner(80, 1)[0])


async def test_what_was_said_so_far_goes_once_all_is_compared(make_app, make_session, settle):
    session = make_session(failing=(), pause_at=8)
    app = make_app(session)
    async with app.run_test(size=(80, 24)) as pilot:
        main = await settle(pilot, until=lambda main: main.scene is not None)
        await pilot.press("[")
        assert "so far" in main.message
        session.resume.set()
        await settle(pilot)
        assert main.message == ""


async def test_a_message_is_not_taken_back_for_the_words_in_it(make_app, make_session, settle):
    session = make_session(failing=(), pause_at=8)
    async with make_app(session).run_test(size=(80, 24)) as pilot:
        main = await settle(pilot, until=lambda main: main.scene is not None)
        main.say("wrote notes so far.txt: not compared yet")
        session.resume.set()
        await settle(pilot)
        assert main.message == "wrote notes so far.txt: not compared yet"
        main.say(Provisional("the elements are being read ..", Until.ELEMENTS))
        await pilot.press("4")
        await settle(pilot)
        assert main.message != "the elements are being read .."


async def test_what_one_side_alone_has_is_shown_and_nothing_is_offered_that_is_not(make_app, make_session, settle):
    app = make_app(make_session(), screen="nodes", node="ref_only")
    async with app.run_test(size=(80, 24)) as pilot:
        main = await settle(pilot)

        async def shown(*keys, until):
            await pilot.press(*keys)
            await settle(pilot, until=lambda main: until in "\n".join(main.text_lines()))
            return "\n".join(main.text_lines())

        assert "enter shows its values (5)" in await shown("4", until="mean, std")
        await shown("enter", until="reference -1")
        text = await shown("down", until="reference -0.478260875")
        assert "compared with nothing: " in text
        assert "difference" not in text
        text = await shown("v", until="in hexadecimal bits")
        assert main.message.startswith("hex; this is not quantized")
        text = await shown("v", until="value -0.478261")
        assert "diff" not in text
        for key in ("n", "6", "s", "down"):
            await pilot.press(key)
            assert key == "6" or "only the reference has it: no error; 5 shows" in main.message, key
        assert "5 shows its values, v there their sizes" in await shown(until="no error")
