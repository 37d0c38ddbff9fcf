"""Where results and progress go: results to stdout or a file, progress to a terminal on stderr."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from io import StringIO
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from qdebug.cli.failures import say
from qdebug.errors import OutputExistsError, RecordingError, UsageError
from qdebug.present.numbers import plain_digits
from qdebug.present.text import safe_text

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.status import Status

__all__ = [
    "OnProgress",
    "check_target",
    "choose_color",
    "emit",
    "emit_verdict",
    "natural_width",
    "page",
    "progress",
    "rendered",
    "stages",
    "terminal_height",
    "terminal_width",
    "write_result",
]


_NARROWEST, _WIDEST = 80, 400
"""Characters a line may take where there is no terminal."""
_USUAL_HEIGHT = 24
"""Lines of a screen that is not known."""
_LINE_SECONDS = 10.0
"""Time between two lines of progress where no terminal shows a bar."""
_LONG_SECONDS = 0.5
"""What takes longer is told of."""


class OnProgress(Protocol):
    """Called as work gets on."""

    def __call__(self, done: int, total: int, label: str = "") -> None:
        """Take note of progress.

        Args:
            done: Units done.
            total: Units in all.
            label: What is being done; "" for no change.
        """


class _Color:
    """When text is coloured, for the whole process: it has one command line."""

    wish = "auto"


_color = _Color()


def choose_color(wish: str) -> None:
    """Choose when text is coloured.

    Args:
        wish: "auto" (on a terminal), "always" or "never".
    """
    _color.wish = wish


def _stderr() -> Console:
    """Return the console on which progress is shown."""
    from rich.console import Console

    return Console(stderr=True, no_color=True if _color.wish == "never" else None)


def terminal_width() -> int | None:
    """Return the width of the terminal that stdout is; None if it is a pipe or a file."""
    if sys.stdout is None or not sys.stdout.isatty():  # None where stdout was closed before the start
        return None
    from rich.console import Console

    return Console(file=sys.stdout).width


def terminal_height() -> int:
    """Return the lines of the terminal that stdout is; those of the usual one if it is a pipe or a file."""
    if sys.stdout is None or not sys.stdout.isatty():
        return _USUAL_HEIGHT
    from rich.console import Console

    return Console(file=sys.stdout).height


def natural_width(renderable: RenderableType) -> int:
    """Return the width at which no line has to be wrapped, within reason: what a pipe or a file gets.

    Args:
        renderable: What will be shown.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(file=StringIO(), width=_WIDEST)
    return max(_NARROWEST, Measurement.get(console, console.options, renderable).maximum)


def rendered(renderable: RenderableType, *, width: int, plain: bool = False) -> str:
    """Turn a rich renderable into text, with colours where stdout shows them.

    Args:
        renderable: What to show.
        width: Characters a line may take.
        plain: Leave colours out, as for a file.
    """
    from rich.console import Console

    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    if plain or _color.wish == "never" or not (on_terminal or _color.wish == "always"):
        console = Console(file=StringIO(), width=width, color_system=None, force_terminal=False, highlight=False)
    elif not on_terminal:
        console = Console(
            file=StringIO(), width=width, color_system="standard", force_terminal=True, no_color=False, highlight=False
        )
    else:
        console = Console(file=sys.stdout, width=width, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in capture.get().split("\n"))


def emit(text: str) -> None:
    """Print a result on stdout; a reader that has seen enough (`| head`) is no error."""
    if sys.stdout is None:
        raise UsageError("Standard output is closed.", hint="Open it, or write the result to a file: -o FILE.")
    shown = text if sys.stdout.isatty() else plain_digits(text)
    try:
        sys.stdout.write(shown if shown.endswith("\n") else shown + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    except OSError as error:
        _drop_stdout()
        raise OSError(error.errno, error.strerror, "standard output") from None


def emit_verdict(text: str) -> None:
    """Print the verdict of a result that went to a file; where nobody can read it, that is no error."""
    if sys.stdout is not None:
        with suppress(OSError):
            emit(text)


def _drop_stdout() -> None:
    """Discard buffered output, so that the flush at exit does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def page(text: str) -> None:
    """Show a text in the pager where stdout is a terminal that it does not fit; else print it."""
    import shutil
    import subprocess

    less = shutil.which("less")
    if less is None or sys.stdout is None or not sys.stdout.isatty() or text.count("\n") < terminal_height():
        emit(text)
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's: it stops a search there
    try:
        subprocess.run([less, "-RS"], input=text, text=True, check=False)  # noqa: S603  the system's own pager
    finally:
        signal.signal(signal.SIGINT, before)


def check_target(output: Path | None, *, force: bool, sources: Sequence[Path] = (), regular: bool = False) -> None:
    """Refuse an output file before any work is done for it.

    Args:
        output: The file to write; None for stdout.
        force: Whether it may be overwritten.
        sources: Files that are read and must survive.
        regular: Whether it must be a file that can be replaced as a whole, no device and no pipe.

    Raises:
        UsageError: It is one of the files read, or a device or pipe where none will do.
        OutputExistsError: It exists and may not be overwritten.
        RecordingError: Its folder does not exist.
    """
    if output is None:
        return
    if str(output) == "-":
        raise UsageError("There is no file called '-'.", hint="Leave -o out: the result goes to standard output.")
    if output.is_dir():
        raise UsageError(f"The output {str(output)!r} is a directory.", hint="Give the name of a file: -o FILE.")
    if not output.parent.is_dir():
        raise RecordingError(
            f"The directory {str(output.parent)!r} does not exist.", hint=f"Make it first: mkdir -p {output.parent}."
        )
    if output.exists():
        if any(source.exists() and output.samefile(source) for source in sources):
            raise UsageError(f"The output {str(output)!r} is a file that is read here.", hint="Choose another name.")
        if regular and not output.is_file():
            raise UsageError(
                f"The output {str(output)!r} is no regular file.", hint="Give the name of a file: -o FILE."
            )
        if not force and output.is_file():  # text that goes to a device or a pipe overwrites nothing
            raise OutputExistsError(
                f"The file {str(output)!r} exists.", hint="Choose another name, or overwrite it with --force."
            )


def write_result(text: str, output: Path | None) -> None:
    """Return a result to stdout, or write it to a file as a whole or not at all; into a device or a pipe as it comes.

    Args:
        text: The result.
        output: The file; None for stdout.
    """
    if output is None:
        emit(text)
        return
    from qdebug.recording.target import naming_file, replacing_file

    content = plain_digits(text if text.endswith("\n") else text + "\n")
    if output.exists() and not output.is_file():  # a file put in the place of /dev/null would spoil the machine
        with (
            naming_file(output),
            suppress(BrokenPipeError),
            output.open("w", encoding="utf-8", errors="backslashreplace") as device,
        ):
            device.write(content)
        return
    with replacing_file(output) as partial:
        partial.write_text(content, encoding="utf-8", errors="backslashreplace")
    say(f"wrote {safe_text(output)}")


@contextmanager
def progress(title: str) -> Iterator[OnProgress]:
    """Show progress on stderr while work is done: a bar if somebody watches, else a line every ten seconds.

    Args:
        title: What is being done, in a word.
    """
    if not sys.stderr.isatty():
        yield _progress_lines(title)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    shown = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=_stderr(),
        transient=True,
    )
    task = shown.add_task(title, total=None)

    def note(done: int, total: int, label: str = "") -> None:
        description = f"{title} {safe_text(label, limit=40)}".rstrip()
        shown.update(task, completed=done, total=total, description=description)

    with shown:
        yield note


def _progress_lines(title: str) -> OnProgress:
    """Return what says how far work is, at most every ten seconds: in a log nothing moves."""
    begun = said = monotonic()

    def note(done: int, total: int, label: str = "") -> None:
        nonlocal said
        now = monotonic()
        if now - said >= _LINE_SECONDS:
            said = now
            say(f"{title} {safe_text(label, limit=40)}".rstrip() + f": {done} of {total}, {now - begun:.0f} s")

    return note


@contextmanager
def stages(title: str) -> Iterator[Callable[[str], None]]:
    """Show on stderr which part of some work is being done, if somebody watches and it takes long.

    Args:
        title: What is being done, in a word.
    """
    if not sys.stderr.isatty():
        yield lambda stage: None  # noqa: ARG005  nobody hears it
        return
    with ExitStack() as shown:
        status: list[Status] = []
        begun = monotonic()

        def tell(stage: str) -> None:
            if not status and monotonic() - begun < _LONG_SECONDS:
                return
            from rich.text import Text

            words = Text(f"{title}: {safe_text(stage, limit=60)}")
            if status:
                status[0].update(words)
            else:
                status.append(shown.enter_context(_stderr().status(words)))

        yield tell
