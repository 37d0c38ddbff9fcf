"""The list of all commands, with keys that come faster than it is laid out or closed."""

import pytest
from textual.command import CommandPalette
from textual.widgets import Input, OptionList


@pytest.fixture
def with_commands(byte_terminal, make_app, make_session, settle):
    """Return a function that runs something on a terminal whose application shows its nodes."""

    async def run(act):
        terminal = byte_terminal()

        async def then(pilot):
            await settle(pilot)
            return await act(terminal, pilot)

        return await terminal.run(lambda: make_app(make_session()), then)

    return run


@pytest.mark.parametrize(
    "key",
    [
        "pagedown",
        "enter",
        "escape",
        *(pytest.param(k, marks=pytest.mark.slow) for k in ("pageup", "down", "up", "end")),
    ],
)
async def test_keys_that_come_with_the_one_that_opens_it_break_nothing(with_commands, key):
    async def act(terminal, pilot):
        for _ in range(3):
            await terminal.press("ctrl+p", key, key)
            await terminal.press("escape")
            await terminal.press("escape")
        await terminal.press("2")
        return pilot.app.failure, pilot.app.is_running, terminal.text

    failure, running, text = await with_commands(act)
    assert failure is None
    assert running
    assert "FAIL" in text


async def test_a_command_that_is_chosen_twice_at_once_is_done_once(with_commands, settle):
    async def act(terminal, pilot):
        main = pilot.app.screen_stack[0]
        await terminal.press("ctrl+p")
        await terminal.send(b"first divergence")
        palette = pilot.app.screen
        assert isinstance(palette, CommandPalette)
        await settle(pilot, until=lambda _: palette.query_one(OptionList).option_count == 1)
        await terminal.press("enter", "enter", "enter")
        await settle(pilot, until=lambda _: pilot.app.screen is main)
        await terminal.press("m")
        return main.navigator.cursor, main.message, terminal.text

    cursor, message, text = await with_commands(act)
    assert cursor == 9
    assert message.startswith("marked")
    assert "FAIL" in text


async def test_what_was_submitted_after_a_choice_is_nothing(with_commands):
    async def act(terminal, pilot):
        await terminal.press("ctrl+p")
        palette = pilot.app.screen
        line = palette.query_one(Input)
        palette.dismiss()
        palette.dismiss()
        palette.post_message(Input.Submitted(line, "x"))
        await terminal.press("j")
        return pilot.app.screen_stack

    assert len(await with_commands(act)) == 1
