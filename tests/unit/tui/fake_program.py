"""The interface on the fake session, as a program: for tests that drive it through a terminal."""

import sys
import time

from fake_session import FakeSession

from qdebug.tui.application import QdebugApp
from qdebug.tui.drawing.glyphs import UNICODE
from qdebug.tui.reading.messages import Opening
from qdebug.tui.screen.start_place import StartPlace

if __name__ == "__main__":
    view = sys.argv[1] if len(sys.argv) > 1 else None
    session = FakeSession(delay=float(sys.argv[2]) if len(sys.argv) > 2 else 0.0)
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 0.0

    def compare():
        time.sleep(seconds)
        return session

    app = QdebugApp(
        [Opening(compare=compare)], titles=[("ref.h5", "npu.h5")], start_place=StartPlace(screen=view), glyphs=UNICODE
    )
    sys.exit(app.run(mouse=False))
