"""A tensor that is too large to be held is seen through a window: at its edges too no number is another element's."""

import re
import tracemalloc

import numpy as np
import pytest

from qdebug.compare.measure.pair_values import OpenPair
from qdebug.present.text import safe_text
from qdebug.tui.reading.answers import Answers
from qdebug.tui.reading.glimpse import OpenPairs
from qdebug.tui.reading.messages import DetailRequest

SHAPE = (1, 3, 700, 1100)


@pytest.fixture
def huge(make_session):
    """Return a session whose tensors have each element's number as its value."""
    reference = np.arange(np.prod(SHAPE), dtype=np.float64).reshape(SHAPE)
    backend = reference + 0.5
    backend[0, 1, 3, 4] += 100

    class Huge(make_session):
        def pair(self, tensor, *, sample=0, step=0):
            self.guard()
            return OpenPair(reference, backend)

    return Huge()


def shown_numbers(main):
    """Return what the page shows of the reference, by row and column; None for what is on its way."""
    lines = ["".join(text for text, _ in line) for line in main.page.draw(main.scene, 118, 30)]
    at = next(number for number, line in enumerate(lines) if re.match(r"\s*\d+(\s+\d+)*\s*$", line))
    columns = [int(word) for word in lines[at].split()]
    found = {}
    for line in lines[at + 1 :]:
        if not re.match(r"\s*\d+ ", line):
            break
        row, *words = line.replace(main.look.glyphs.cursor, " ").split()
        cells = [word for at, word in enumerate(words) if word == ".." or words[at + 1 : at + 2] == ["->"]]
        for column, word in zip(columns, cells, strict=False):
            found[int(row), column] = None if word == ".." else float(word)
    return found


def check(main):
    """Check that each number is that of its element; tell how many are on their way."""
    numbers, plane = shown_numbers(main), main.elements.index[1]
    assert numbers
    for (row, column), value in numbers.items():
        right = (plane * SHAPE[2] + row) * SHAPE[3] + column
        assert value is None or value == pytest.approx(right, rel=1e-3), (row, column)
    return sum(value is None for value in numbers.values())


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param(["down"] * 80, marks=pytest.mark.slow),
        pytest.param(["right"] * 80, marks=pytest.mark.slow),
        ["pagedown"] * 5 + ["pageup"] * 3,
        pytest.param(["end", "home", "end"], marks=pytest.mark.slow),
        pytest.param(["c", "end", "c", "home", "C"], marks=pytest.mark.slow),
        pytest.param(["@", *"0,2,699,1099", "enter", "up", "left", "home"], marks=pytest.mark.slow),
        ["@", *"0,0,127,127", "enter", *["down", "right"] * 5, "n", "N"],
    ],
    ids=["down", "right", "pages", "ends", "channels", "last", "edge"],
)
async def test_wherever_one_goes_the_numbers_are_those_of_the_elements(make_app, huge, settle, keys):
    async with make_app(huge, node="block2/qlinearadd_9", screen="values").run_test(size=(120, 36)) as pilot:
        main = await settle(pilot)
        assert main.detail_ready.statistics.unread_count == 0
        for key in keys:
            await pilot.press(key)
            if main.elements.index:
                check(main)
        await settle(pilot, until=lambda main: not check(main))
        index = main.elements.index
        text = "\n".join("".join(piece for piece, _ in line) for line in main.page.draw(main.scene, 118, 30))
        value = float(np.ravel_multi_index(index, SHAPE))
        assert f"@{','.join(map(str, index))}  reference {value:.9g}" in text
        assert main.scene.glimpse.part.backend.nbytes <= 2 << 20


async def test_the_screens_of_a_huge_tensor_are_of_all_of_it(make_app, huge, settle):
    async with make_app(huge, node="block2/qlinearadd_9", screen="channels").run_test(size=(120, 36)) as pilot:
        main = await settle(pilot)

        def text(main):
            return "\n".join("".join(piece for piece, _ in line) for line in main.page.draw(main.scene, 118, 30))

        assert "3 channels along dimension 1 of sample 2, largest max abs; min, max: backend" in text(main)
        assert "100.5" in text(main) or "100" in text(main)
        main.action_screen("map")
        await pilot.press("@", *"0,1,3,4", "enter")
        main = await settle(pilot, until=lambda main: "plane [0,1]" in text(main))
        await settle(pilot, until=lambda main: "backend - ref +100.5" in text(main))
        assert "down: rows 0..699" in text(main)
        assert "right: columns 0..1\u202f099" in text(main)
        assert main.scene.glimpse.plane.difference_map.max() == 100.5
        assert (main.scene.glimpse.plane.difference_map >= 0.5).all(), "all of the plane is read"
        await pilot.press("c")
        main = await settle(pilot, until=lambda main: "plane [0,2]" in text(main))
        assert (main.scene.glimpse.plane.difference_map == 0.5).all()
        await pilot.press("v")
        await settle(pilot, until=lambda main: "down: channels 0..2" in text(main))
        assert main.detail_ready.statistics.difference_map.max() == 100.5


async def test_other_nodes_and_back(make_app, huge, settle):
    async with make_app(huge, node="block2/qlinearadd_9", screen="values").run_test(size=(120, 36)) as pilot:
        main = await settle(pilot)
        await pilot.press("@", *"0,2,500,900", "enter")
        for _ in range(2):
            await pilot.press("2", "j", "5")
            await settle(pilot, until=lambda main: main.scene.glimpse is not None and not check(main))
        await pilot.press("2", "k", "k", "5")
        await settle(pilot, until=lambda main: main.scene.glimpse is not None and not check(main))
        assert "block2" in safe_text(main.scene.plan_row.node)
        assert main.scene.glimpse is not None
        await pilot.press("2")
        await pilot.pause()
        if not main.frame.arrangement.side:
            assert main.scene.glimpse is None


def test_next_to_nothing_is_held_of_any_number_of_tensors(make_session, monkeypatch):
    """Four pairs of tensors of 16 MB."""
    session = make_session()
    monkeypatch.setattr(session, "guard", lambda **_: None)
    for side in (session.reference, session.backend):
        monkeypatch.setattr(side, "_guard", lambda: None)
    values = np.zeros((1, 8, 512, 1024), np.float32)
    session.pair = lambda tensor, **_: OpenPair(values, values + 1)
    answers, told = Answers(OpenPairs()), []
    tracemalloc.start()
    try:
        for result in list(session.results())[8:12]:
            request = DetailRequest(row=result.index, tensor=result.tensor, sample=0, wants_elements=True)
            *_, last = answers.answer(session, request, result, lambda: False)
            assert last.is_complete
            assert last.problem == ""
            assert last.statistics.channels.rmse == pytest.approx(np.ones(len(last.statistics.channels.rmse)))
            assert last.values.backend.counts.sum() == last.statistics.size
            told.append(last)
        held = sum(each.statistics.nbytes for each in told)
        assert tracemalloc.get_traced_memory()[1] < held + values.nbytes + (12 << 20)
    finally:
        tracemalloc.stop()
