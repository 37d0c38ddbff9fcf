"""Make the pictures of the terminal interface that the README shows: each screen on the recordings of `qdebug demo`.

    python samples/pictures.py samples/pictures

Without a folder they are made and thrown away. The program draws itself, as it does for the key `e`.
"""

import asyncio
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from qdebug.running.demo import run_demo
from qdebug.session import DiffSession, open_recording
from qdebug.tui.application import QdebugApp
from qdebug.tui.reading.messages import Opening
from qdebug.tui.screens import ScreenId

SIZE, WIDE = (96, 28), (160, 45)
SCREENS = tuple(each for each in ScreenId if each is not ScreenId.BACKENDS)  # there is one backend
KEYS = {"map": ("v",), "mend": ("down", "down", "space")}
"""What is pressed on a screen before it is drawn."""


async def pictures(reference: Path, backend: Path, folder: Path) -> None:
    """Write each screen at the first divergence as SVG, and the list of nodes in a wide terminal."""
    async with program(reference, backend).run_test(size=SIZE) as pilot:
        main = await begun(pilot)
        for screen in SCREENS:
            main.action_screen(str(screen))
            await pilot.pause(0.2)
            await until(pilot, lambda screen=screen: not main.shows_detail or known(main, screen))
            await pilot.press(*KEYS.get(screen, ()))
            await pilot.pause(0.2)
            await until(pilot, lambda screen=screen: not main.shows_detail or known(main, screen))
            write(folder / f"{screen}.svg", pilot.app.export_screenshot(title=f"qdebug tui --screen {screen}"))
    async with program(reference, backend).run_test(size=WIDE) as pilot:
        main = await begun(pilot)
        main.action_screen(str(ScreenId.NODES))
        for name in ("wide-dark", "wide-light"):
            if name == "wide-light":
                await pilot.app.run_action("theme")
            await pilot.pause(0.2)
            await until(pilot, lambda: known(main, ScreenId.NODES))
            write(folder / f"{name}.svg", pilot.app.export_screenshot(title="qdebug tui --screen nodes"))


def program(reference: Path, backend: Path) -> QdebugApp:
    """Return the interface on two recordings."""

    def compare() -> DiffSession:
        return DiffSession(open_recording(reference), open_recording(backend))

    return QdebugApp([Opening(compare=compare)], titles=[(reference.name, backend.name)])


async def begun(pilot):
    """Wait for the verdict, and go to the first divergence."""
    main = pilot.app.screen_stack[0]
    await until(pilot, lambda: main.is_finished)
    await pilot.press("exclamation_mark")
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


def make(folder: Path) -> None:
    """Write all pictures into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory() as scratch:
        demo = run_demo(Path(scratch))
        asyncio.run(pictures(Path(demo.reference), Path(demo.backend), folder))


def write(path: Path, svg: str) -> None:
    """Write a picture, and say how large it is."""
    path.write_text(svg, encoding="utf-8")
    print(f"{path.name}: {len(svg):,} characters")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        make(Path(sys.argv[1]))
    else:
        with TemporaryDirectory() as thrown_away:
            make(Path(thrown_away))
