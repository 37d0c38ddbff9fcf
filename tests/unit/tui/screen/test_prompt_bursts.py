"""However the bytes of what is typed are cut into bursts, in the end everything is as after typing slowly."""

import asyncio
import random
import re

import pytest
from textual import constants

STREAMS = {
    "search": b"/conv\r",
    "search and walk": b"/relu\rnnj\x1b[B",
    "search what is not there": b"/q_17\rj",
    "filter": b"fop=relu\rjj",
    "filter that is narrowed on its way": b"jjjjjfop=maxpool\x7f\x7f\x7f\x7f\x7f\x7f\x7frelu\rjm",
    "filter that cannot be read": b"fsqnr<20 & \rj",
    "filter, and all again": b"fop=relu\rj\x7f",
    "element": b"!@0,3,1,2\r",
    "reason": b"!i reason\r",
    "note": b"jjaremember\r",
    "arrows": b"\x1b[B\x1b[B\x1b[A\x1b[6~\x1b[H\x1b[F",
    "paste": b"f\x1b[200~op=relu\nq\x1b[201~\rj",
    "paste nowhere": b"j\x1b[200~q\rq\x1b[201~j",
    "lines move while one is typed in": b"/relu\x1b[B\x1b[B\rm",
    "sorted": b"sssS!",
    "all at once": b"/conv\rfop=conv\rjj\x7f!@0,1\r2G/_3\rg",
}


def cut(data, chance, least):
    """Cut bytes at random places."""
    places = sorted(chance.sample(range(1, len(data)), min(chance.randrange(least, 6), len(data) - 1)))
    return [data[start:end] for start, end in zip([0, *places], [*places, len(data)], strict=True)]


def one_by_one(data):
    """Cut bytes into those of each key."""
    keys, rest = [], data
    while rest:
        length = next((len(each) for each in LONG if rest.startswith(each)), 1)
        keys.append(rest[:length])
        rest = rest[length:]
    return keys


def ends_within_a_key(burst):
    """Tell whether the rest must come at once: a terminal takes an escape that nothing follows for the key."""
    return re.search(rb"\x1b(\[[0-9]*)?$", burst) is not None


LONG = (
    b"\x1b[200~op=relu\nq\x1b[201~",
    b"\x1b[200~q\rq\x1b[201~",
    b"\x1b[6~",
    b"\x1b[5~",
    *(b"\x1b[%c" % c for c in b"ABHF"),
)


@pytest.fixture
def typed(byte_terminal, make_app, make_session, settle, tmp_path, monkeypatch):
    """Return a function that types some bytes in bursts, and gives what there is in the end."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "ESCAPE_DELAY", 60)  # the parts of a key may come late on a busy machine

    async def run(bursts, delays=None):
        terminal = byte_terminal()

        async def act(pilot):
            main = await settle(pilot)
            for burst, delay in zip(bursts, delays or [None] * len(bursts), strict=True):
                if delay is None:
                    await terminal.send(burst)
                    await settle(pilot)
                    await pilot.pause(0)
                else:
                    terminal.type(burst)
                    if not ends_within_a_key(burst):
                        await asyncio.sleep(delay)
            if delays is not None:
                await terminal.send(b"")
            await settle(pilot)
            for _ in range(3):
                await terminal.still()
            assert pilot.app.failure is None
            return {**state(pilot.app, main), **dict(enumerate(terminal.text.splitlines()))}

        return await terminal.run(lambda: make_app(make_session()), act)

    return run


def state(app, main):
    navigator = main.navigator
    return {
        "screen": type(app.screen).__name__,
        "view": main.view,
        "cursor": navigator.cursor,
        "filter": navigator.filter,
        "lines": navigator.lines,
        "pattern": navigator.pattern,
        "sort": (navigator.sort, navigator.reversed),
        "marks": tuple(navigator.trail.marks),
        "line": (main.is_asking, main.line.value if main.is_asking else ""),
    }


QUICK = {"all at once"}


@pytest.mark.parametrize("name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in STREAMS])
async def test_bytes_in_any_bursts_do_what_they_do_one_by_one(typed, name, tmp_path):
    chance = random.Random(name)  # noqa: S311  cuts, nothing secret
    data = STREAMS[name]
    slowly = await typed(one_by_one(data))
    for bursts in ([data], cut(data, chance, 1)):
        (tmp_path / "qdebug-limits.toml").unlink(missing_ok=True)
        assert await typed(bursts, [chance.choice((0, 0.001, 0.01, 0.03)) for _ in bursts]) == slowly, bursts


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("name", STREAMS)
async def test_bytes_in_many_bursts_do_what_they_do_one_by_one(typed, name, seed, tmp_path):
    chance = random.Random(f"{name} {seed}")  # noqa: S311  cuts, nothing secret
    data = STREAMS[name]
    slowly = await typed(one_by_one(data))
    (tmp_path / "qdebug-limits.toml").unlink(missing_ok=True)
    bursts = cut(data, chance, 0)
    assert await typed(bursts, [chance.choice((0, 0.001, 0.01, 0.03)) for _ in bursts]) == slowly, bursts
