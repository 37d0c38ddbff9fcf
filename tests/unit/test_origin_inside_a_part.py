"""An origin that is not compared itself: it lies inside a compared part, and each way to it leads to that part."""

import json

import numpy as np
import pytest

import qdebug
from qdebug.cli.main import main
from qdebug.model import Graph, Node
from qdebug.session import DiffSession
from qdebug.tui.application import QdebugApp
from qdebug.tui.reading.messages import Opening
from qdebug.tui.screen.start_place import StartPlace

X = np.random.default_rng(1).normal(size=(4, 6)).astype(np.float32)


def record(path, alpha, *, kept):
    """Record a LeakyRelu and what comes after it, with its own result or without."""
    leaky = np.where(X < 0, X * np.float32(alpha), X).astype(np.float32)
    nodes = [
        Node(name="leaky", op="LeakyRelu", inputs=("x",), outputs=("l",), attrs={"alpha": alpha}),
        Node(name="neg", op="Neg", inputs=("l",), outputs=("y",)),
        Node(name="more", op="Abs", inputs=("y",), outputs=("z",)),
    ]
    with qdebug.Recorder(path, backend="b", graph=Graph(nodes, inputs=("x",), outputs=("z",))) as rec:
        for name, array in {"x": X, "l": leaky, "y": -leaky, "z": np.abs(leaky)}.items():
            if kept or name != "l":
                rec.put(name, array)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Return a reference and a backend with another alpha, which does not keep the result of the LeakyRelu."""
    folder = tmp_path_factory.mktemp("part")
    record(folder / "ref.h5", 0.1, kept=True)
    record(folder / "backend.h5", 0.3, kept=False)
    return folder / "ref.h5", folder / "backend.h5"


def test_the_verdict_says_at_which_tensor_its_origin_was_found(paths):
    session = DiffSession(*map(qdebug.open_recording, paths))
    verdict = session.result().verdict
    assert (verdict.origin, verdict.way[-1]) == ("leaky", "y")
    assert session.part("leaky").tensor == "y"
    with pytest.raises(qdebug.QdebugError, match="is called 'leaky'"):
        session.values("leaky")


def test_one_node_in_full_is_its_part(paths, capsys):
    assert main(["diff", *map(str, paths), "--node", "leaky", "--json"]) == 3  # a tensor of the reference is lost
    said = capsys.readouterr()
    assert "'leaky' is not compared itself; it is judged by tensor 'y', which is shown." in said.err
    shown = json.loads(said.out)
    assert (shown["verdict"]["origin"], shown["nodes"][0]["tensor"]) == ("leaky", "y")
    main(["diff", *map(str, paths), "--node", "neg", "--json"])
    assert "not compared itself" not in capsys.readouterr().err


@pytest.mark.asyncio
@pytest.mark.parametrize("begin", [StartPlace(node="leaky"), StartPlace(), StartPlace(node="x"), StartPlace(node="z")])
async def test_the_terminal_goes_to_the_part(paths, begin):
    opening = Opening(compare=lambda: DiffSession(*map(qdebug.open_recording, paths)))
    app = QdebugApp([opening], start_place=begin)
    async with app.run_test(size=(80, 24)) as pilot:
        main_screen = app.screen_stack[0]
        for _ in range(2000):
            await pilot.pause(0.01)
            if main_screen.is_finished:
                break
        if begin.node != "leaky":
            await pilot.press("W")
            await pilot.pause()
        assert main_screen.scene.plan_row.tensor == "y"
