"""Random keys at random sizes: nothing breaks, nothing hangs."""

import random

import pytest

from qdebug.tui.keys import KEYS

pytestmark = pytest.mark.asyncio

OTHERS = [*"abcxyz0123456789", "space", "delete", "f1", "ctrl+a", "ctrl+e", "ctrl+k", "ctrl+w"]
LEFT_OUT = {"leave", "suspend", "copy", "copy_command"}
SIZES = [(60, 20), (80, 24), (120, 40), (200, 60), (59, 17), (40, 10), (20, 5), (1, 1), (90, 12)]


async def monkey(make_app, make_session, settle, *, keys, seed):
    """Press random keys; give how many were pressed."""
    chance = random.Random(seed)  # noqa: S311  a seeded walk, nothing secret
    names = ("[/foo]", "\x1b]0;x\x07", "\u202ertl\n", "x" * 3000, "畳み込み" * 30, "")
    session = make_session(60, names=names, nonfinite=(13,), failing=(9, 30, 31, 50))
    app = make_app(session, make_session(60, failing=(9,)), screen=None)
    bound = [key for row in KEYS if row.action.split("(")[0] not in LEFT_OUT for key in row.keys]
    pressed = 0
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        while pressed < keys:
            burst = [chance.choice(bound if chance.random() < 0.85 else OTHERS) for _ in range(20)]
            await pilot.press(*[key for key in burst if key != "q"])
            pressed += len(burst)
            if chance.random() < 0.2:
                await pilot.resize_terminal(*chance.choice(SIZES))
            assert app.failure is None, burst
            assert app.return_value is None, burst
            while len(app.screen_stack) > 3:
                await pilot.press("escape")
    assert app.failure is None
    return pressed


async def test_a_few_hundred_random_keys(make_app, make_session, settle, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert await monkey(make_app, make_session, settle, keys=400, seed=1) >= 400


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
async def test_ten_thousand_random_keys(make_app, make_session, settle, tmp_path, monkeypatch, seed):
    monkeypatch.chdir(tmp_path)
    assert await monkey(make_app, make_session, settle, keys=1000, seed=seed) >= 1000
