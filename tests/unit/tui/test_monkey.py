"""Random keys at random sizes: nothing breaks, nothing hangs."""

import random

import pytest

from qdebug.tui.application import QdebugApp
from qdebug.tui.screen.bindings import shared_key_rows, view_key_rows
from qdebug.tui.screens import VIEWS
from qdebug.tui.views.table import view_class

OTHERS = [*"abcXyz0123456789", "space", "delete", "f1", "ctrl+a", "ctrl+e", "ctrl+k", "ctrl+w"]
"""Keys that the table does not have, and more of what is typed into a line."""
LEFT_OUT = {"copy", "copy_command"}
SIZES = [(60, 20), (80, 24), (120, 40), (200, 60), (59, 17), (40, 10), (20, 5), (1, 1), (90, 12)]


BURSTS = (1, 1, 1, 2, 5, 20)
"""How many keys come at once."""


@pytest.fixture
def monkey(byte_terminal, make_app, make_session, settle, tmp_path, monkeypatch):
    """Return a function that presses random keys at random sizes, as bytes, and gives how many it pressed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(QdebugApp, "action_suspend_process", lambda _: None)  # the list of commands has these two too

    async def stay(app):
        app.screen_stack[0].say("stays")

    monkeypatch.setattr(QdebugApp, "action_quit", stay)

    async def play(*, keys, seed):
        chance = random.Random(seed)  # noqa: S311  a seeded walk, nothing secret
        names = ("[/foo]", "\x1b]0;x\x07", "\u202ertl\n", "x" * 3000, "畳み込み" * 30, "")
        session = make_session(60, names=names, nonfinite=(13,), failing=(9, 30, 31, 50))
        terminal, bound = byte_terminal(), keys_of_the_table()

        async def act(pilot):
            app, pressed = pilot.app, 0
            await settle(pilot)
            while pressed < keys:
                burst = [
                    chance.choice(bound if chance.random() < 0.85 else OTHERS) for _ in range(chance.choice(BURSTS))
                ]
                await terminal.press(*burst)
                pressed += len(burst)
                if chance.random() < 0.03:
                    await terminal.resize(*chance.choice(SIZES))
                assert app.failure is None, burst
                assert app.return_value is None, burst
                while len(app.screen_stack) > 3:
                    await terminal.press("escape")
            assert app.failure is None
            return pressed

        return await terminal.run(lambda: make_app(session, make_session(60, failing=(9,)), screen=None), act)

    return play


def keys_of_the_table():
    rows = [*shared_key_rows(), *(row for view in VIEWS for row in view_key_rows(view_class(view)))]
    return [*dict.fromkeys(key for row in rows if row.action not in LEFT_OUT for key in row.keys), "ctrl+p", "q"]


async def test_a_few_hundred_random_keys(monkey):
    assert await monkey(keys=200, seed=1) >= 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_ten_thousand_random_keys(monkey, seed):
    assert await monkey(keys=1000, seed=seed) >= 1000
