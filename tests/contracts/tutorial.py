"""Run the tutorial's commands, and write what they print under them.

    python tests/contracts/tutorial.py

A block of commands stands before the block of text that it prints. Commands run in a folder of their own, in the order
of the page, with a terminal of 76 columns and 32 lines.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path
from unittest import mock

from qdebug.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "qdebug" / "guide" / "tutorial.md"
STEP = re.compile(r"^```bash\n(.*?)^```\n(?:\n```text\n(.*?)^```\n)?", re.MULTILINE | re.DOTALL)
WIDTH = 76
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """What a command prints, as a terminal gets it."""

    def isatty(self) -> bool:
        """Return that somebody reads it."""
        return True


def steps(text: str) -> list[tuple[str, str | None]]:
    """Return each block of commands, and the text that the page shows for it, if any."""
    return [(commands.replace("\\\n", " "), shown) for commands, shown in STEP.findall(text)]


def printed(words: list[str]) -> str:
    """Run a qdebug command in this process; return its standard output."""
    out = Terminal()
    size = {"COLUMNS": str(WIDTH), "LINES": "32", "TERM": "dumb", "NO_COLOR": "1"}
    errors = io.StringIO()
    with mock.patch.dict(os.environ, size), contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        try:
            main(words)
        except SystemExit as stop:
            raise RuntimeError(f"qdebug {shlex.join(words)}: {errors.getvalue()}") from stop
    return _ESCAPES.sub("", out.getvalue()).strip("\n").replace("\u202f", ",")  # as a file gets it


def run(commands: str) -> str:
    """Run the commands of a block; return what those of qdebug print."""
    texts = []
    for line in filter(None, map(str.strip, commands.splitlines())):
        words = shlex.split(line)
        if words[0] == "cd":
            os.chdir(words[1])
        elif words[0] == "python":
            script = ROOT / words[1].removeprefix("../")
            path = {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}
            subprocess.run([sys.executable, script, *words[2:]], check=True, env=os.environ | path)
        elif words[0] == "qdebug":
            texts.append(printed(words[1:]))
    return "\n".join(part.rstrip() for text in texts for line in text.splitlines() for part in broken(line))


def broken(line: str) -> list[str]:
    """Return a line that is wider than the terminal as several."""
    return [line] if len(line) <= WIDTH else textwrap.wrap(line, WIDTH, subsequent_indent="    ")


def masked(text: str) -> str:
    """Return a text without its numbers and bars, which vary with the processor."""
    return re.sub(r"[#\s]+", " ", re.sub(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?", "N", text))


def write() -> None:
    """Write what the commands print into the page."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):

        def step(match: re.Match[str]) -> str:
            text = run(match[1].replace("\\\n", " "))
            return match[0] if match[2] is None else f"```bash\n{match[1]}```\n\n```text\n{text}\n```\n"

        page = STEP.sub(step, PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    write()
