"""Draw the pictures of the guide and the README anew: `qdebug tui` draws itself, as it does for the key `e`.

    python tests/contracts/pictures.py [FOLDER]

They go to `qdebug/guide/pictures` unless a folder is named. The screens show a real network that fails by several
causes (`tests/snapshots/make_pitch_net.py`), the screen why a kernel bug of `qdebug demo`, and the pictures of the
tutorial its three nights (`samples/00_tutorial.py`). Takes a minute.
"""

from __future__ import annotations

import asyncio
import html
import re
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from qdebug.compare.result.limits import Limits
from qdebug.running.demo import run_demo
from qdebug.running.record import record_run
from qdebug.session import DiffSession, open_recording
from qdebug.tui.application import QdebugApp
from qdebug.tui.reading.messages import Opening
from qdebug.tui.screen.start_place import StartPlace
from qdebug.tui.screens import ScreenId

ROOT = Path(__file__).parents[2]
PICTURES = ROOT / "qdebug" / "guide" / "pictures"
SIZE, WIDE = (96, 28), (160, 45)
PITCH = tuple(ROOT / "tests" / "snapshots" / "pitch_net" / name for name in ("pitch.h5", "pitch.int8.h5"))
SCREENS = tuple(each for each in ScreenId if each not in {ScreenId.BACKENDS, ScreenId.WHY})  # there is one backend
KEYS = {"mend": ("down", "space", "slash", *"conv18", "enter", "down", "space")}
"""What is pressed on a screen before it is drawn."""
PLACES = {"values": "conv14_quant", "map": "conv14_quant", "channels": "conv14_quant", "graph": "concat1_quant"}
"""Nodes that are shown instead of the first one of the diagnosis."""
_TEXT = re.compile(r"<text[^>]*>(.*?)</text>")


@dataclass(frozen=True, slots=True, kw_only=True)
class TutorialPicture:
    """A picture of the tutorial: two files of its folder, and what the interface shows of them."""

    files: tuple[str, str]
    screen: str
    node: str
    keys: tuple[str, ...] = ()
    limits: Limits | None = None


TUTORIAL = {
    "tutorial-answer": TutorialPicture(files=("ref.h5", "board.h5"), screen="answer", node="pwconv"),
    "tutorial-channels": TutorialPicture(files=("ref.h5", "board.h5"), screen="channels", node="pwconv"),
    "tutorial-why": TutorialPicture(files=("large.onnx", "large.int8.onnx"), screen="why", node="dwconv"),
    "tutorial-mend": TutorialPicture(
        files=("net.onnx", "net.int8.onnx"),
        screen="mend",
        node="logits",
        keys=("down", "down", "space"),
        limits=Limits(min_output_sqnr=38),
    ),
}


async def screens(reference: Path, backend: Path, folder: Path) -> None:
    """Write each screen at the first node of the diagnosis or another one, and the answer in a wide terminal."""
    for screen in SCREENS:
        place = StartPlace(node=PLACES.get(screen), screen=str(screen))
        async with program(reference, backend, place).run_test(size=SIZE) as pilot:
            main = await begun(pilot)
            await until(pilot, lambda main=main: any(fault.remedies for fault in main.current.result.diagnosis))
            await shown(pilot, main, screen, KEYS.get(screen, ()))
            write(folder / f"{screen}.svg", pilot.app.export_screenshot(title=f"qdebug tui --screen {screen}"))
    async with program(reference, backend).run_test(size=WIDE) as pilot:
        main = await begun(pilot)
        await until(pilot, lambda: any(fault.remedies for fault in main.current.result.diagnosis))
        for name in ("wide-dark", "wide-light"):
            if name == "wide-light":
                await pilot.app.run_action("theme")
            await pilot.pause(0.2)
            await until(pilot, lambda: known(main, ScreenId.ANSWER))
            write(folder / f"{name}.svg", pilot.app.export_screenshot(title="qdebug tui"))


async def explained(reference: Path, backend: Path, folder: Path) -> None:
    """Write the screen why at the first divergence as SVG."""
    async with program(reference, backend).run_test(size=SIZE) as pilot:
        main = await begun(pilot)
        await pilot.press("exclamation_mark")
        await shown(pilot, main, ScreenId.WHY, ())
        write(folder / f"{ScreenId.WHY}.svg", pilot.app.export_screenshot(title=f"qdebug tui --screen {ScreenId.WHY}"))


async def tutorial(night: Path, folder: Path, names: Iterable[str]) -> None:
    """Write pictures of the tutorial from the files in its folder."""
    for name in names:
        picture = TUTORIAL[name]
        reference, backend = (recorded(night / file) for file in picture.files)
        place = StartPlace(node=picture.node, screen=picture.screen)
        async with program(reference, backend, place, picture.limits, picture.files).run_test(size=SIZE) as pilot:
            main = await begun(pilot)
            await shown(pilot, main, ScreenId(picture.screen), picture.keys)
            title = f"qdebug tui {' '.join(picture.files)}"
            write(folder / f"{name}.svg", pilot.app.export_screenshot(title=title))


async def shown(pilot, main, screen, keys) -> None:
    """Open a screen, press keys, and wait for all that it shows."""
    if main.view is not screen:
        main.action_screen(str(screen))
    await pilot.pause(0.2)
    await until(pilot, lambda: not main.shows_detail or known(main, screen))
    await pilot.press(*keys)
    await pilot.pause(0.2)
    await until(pilot, lambda: not main.shows_detail or known(main, screen))


def recorded(path: Path) -> Path:
    """Return a recording of a file of the tutorial; a model is run as `qdebug tui` runs it with `opt=none`."""
    out = path.with_suffix(".picture.h5")
    if path.suffix != ".onnx" or out.exists():
        return out if path.suffix == ".onnx" else path
    with np.load(path.with_name("x.npz")) as inputs:
        samples = len(inputs["x"])
        record_run(path, backend="onnxruntime", options={"opt": "none"}, inputs=dict(inputs), out=out, samples=samples)
    return out


def program(
    reference: Path,
    backend: Path,
    place: StartPlace | None = None,
    limits: Limits | None = None,
    titles: tuple[str, str] | None = None,
) -> QdebugApp:
    """Return the interface on two recordings."""

    def compare() -> DiffSession:
        return DiffSession(open_recording(reference), open_recording(backend), limits=limits)

    return QdebugApp([Opening(compare=compare)], titles=[titles or (reference.name, backend.name)], start_place=place)


async def begun(pilot):
    """Wait for the verdict."""
    main = pilot.app.screen_stack[0]
    await until(pilot, lambda: main.is_finished)
    return main


def known(main, screen: ScreenId) -> bool:
    """Tell whether everything that a screen shows is there."""
    ready = main.detail_ready
    if ready is None or not ready.is_complete:
        return False
    if "replays" in screen.traits:
        scene = main.scene
        asked = None if scene is None or main.page is None else main.page.trial(scene)
        tried = None if scene is None else scene.trial
        return tried is not None and tried.request.wish == asked and not tried.activity
    if screen is ScreenId.WHY:
        return ready.explanations is not None
    scene = main.scene
    return not main.view.shows_elements or (scene is not None and scene.glimpse is not None)


async def until(pilot, condition) -> None:
    """Wait for something to be on the screen."""
    for _ in range(6000):
        await pilot.pause(0.01)
        if condition():
            return
    raise TimeoutError("the interface did not get there in a minute")


def words(svg: str) -> str:
    """Return the text of a picture, from left to right and from top to bottom."""
    return " ".join(html.unescape("".join(re.findall(r">([^<]*)<", f">{part}<"))) for part in _TEXT.findall(svg))


def write(path: Path, svg: str) -> None:
    """Write a picture, and say how large it is."""
    path.write_text(svg, encoding="utf-8")
    print(f"{path.name}: {len(svg):,} characters")


def draw_screens(folder: Path) -> None:
    """Draw the screens on the real network, and the screen why on the demo."""
    with TemporaryDirectory() as scratch:
        demo = run_demo(Path(scratch))
        asyncio.run(explained(Path(demo.reference), Path(demo.backend), folder))
    asyncio.run(screens(*PITCH, folder))


def draw_tutorial(night: Path, folder: Path, names: Iterable[str] = TUTORIAL) -> None:
    """Draw pictures of the tutorial from the files that `samples/00_tutorial.py` wrote into a folder."""
    if not (night / "ref.h5").exists():
        recorded(night / "net.onnx").rename(night / "ref.h5")
    asyncio.run(tutorial(night, folder, names))


def make(folder: Path) -> None:
    """Draw all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    draw_screens(folder)
    with TemporaryDirectory() as scratch:
        night = Path(scratch, "night")
        subprocess.run([sys.executable, ROOT / "samples" / "00_tutorial.py", night], check=True)
        draw_tutorial(night, folder)


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURES)
