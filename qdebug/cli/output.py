"""Print results on stdout or to a file, and progress on a terminal on stderr."""

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
from qdebug.recording.remote_url import check_local

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
    "render",
    "show_stages",
    "terminal_height",
    "terminal_width",
    "write_result",
]


_MIN_WIDTH, _MAX_WIDTH = 80, 400
"""Minimum and maximum width of a line without a terminal, in characters."""
_DEFAULT_HEIGHT = 24
"""Height assumed for an unknown screen, in lines."""
_LINE_SECONDS = 10.0
"""Interval between progress lines without a terminal."""
_STATUS_DELAY = 0.5
"""Seconds of work before the status line appears."""


class OnProgress(Protocol):
    """Progress callback."""

    def __call__(self, done: int, total: int, label: str = "") -> None:
        """Report progress.

        Args:
            done: Number of finished units.
            total: Total number of units.
            label: The current unit; "" for no change.
        """


class _ColorChoice:
    """The value of --color. It is global, since a process runs one command line."""

    mode = "auto"


_color = _ColorChoice()


def choose_color(mode: str) -> None:
    """Choose when text is coloured.

    Args:
        mode: "auto" (on a terminal), "always" or "never".
    """
    _color.mode = mode


def _stderr_console() -> Console:
    """Return the console for progress."""
    from rich.console import Console

    return Console(stderr=True, no_color=True if _color.mode == "never" else None)


def terminal_width() -> int | None:
    """Return the width of the terminal on stdout; None for a pipe or a file."""
    if sys.stdout is None or not sys.stdout.isatty():  # None if stdout was closed at the start
        return None
    from rich.console import Console

    return Console(file=sys.stdout).width


def terminal_height() -> int:
    """Return the height of the terminal on stdout, or a default for a pipe or file."""
    if sys.stdout is None or not sys.stdout.isatty():
        return _DEFAULT_HEIGHT
    from rich.console import Console

    return Console(file=sys.stdout).height


def natural_width(renderable: RenderableType) -> int:
    """Return the width at which no line is wrapped, within limits. It is used for pipes and files.

    Args:
        renderable: The output.
    """
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(file=StringIO(), width=_MAX_WIDTH)
    return max(_MIN_WIDTH, Measurement.get(console, console.options, renderable).maximum)


def render(renderable: RenderableType, *, width: int, is_plain: bool = False) -> str:
    """Render a rich renderable as text, with colours if stdout supports them.

    Args:
        renderable: The output.
        width: Maximum width of a line in characters.
        is_plain: Whether to leave out colours, as for a file.
    """
    from rich.console import Console

    on_terminal = sys.stdout is not None and sys.stdout.isatty()
    if is_plain or _color.mode == "never" or not (on_terminal or _color.mode == "always"):
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
    """Print a result on stdout. It is not an error if the reader closes the pipe early (`| head`)."""
    if sys.stdout is None:
        raise UsageError("Standard output is closed.", hint="Open it, or write the result to a file: -o FILE.")
    output_text = text if sys.stdout.isatty() else plain_digits(text)
    try:
        sys.stdout.write(output_text if output_text.endswith("\n") else output_text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_stdout()
    except OSError as error:
        _drop_stdout()
        raise OSError(error.errno, error.strerror, "standard output") from None


def emit_verdict(text: str) -> None:
    """Print the verdict for a result that was written to a file. A closed stdout is not an error."""
    if sys.stdout is not None:
        with suppress(OSError):
            emit(text)


def _drop_stdout() -> None:
    """Redirect stdout to the null device, so that flushing it at exit does not fail again."""
    null_device = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null_device, sys.stdout.fileno())
    os.close(null_device)


def page(text: str) -> None:
    """Show a text in the pager if it does not fit on the terminal; else print it."""
    import shutil
    import subprocess

    less = shutil.which("less")
    if less is None or sys.stdout is None or not sys.stdout.isatty() or text.count("\n") < terminal_height():
        emit(text)
        return
    previous_handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C stops a search in the pager
    try:
        subprocess.run([less, "-RS"], input=text, text=True, check=False)  # noqa: S603  the system's pager
    finally:
        signal.signal(signal.SIGINT, previous_handler)


def check_target(output: Path | None, *, force: bool, sources: Sequence[Path] = (), regular: bool = False) -> None:
    """Reject an unusable output file before any work is done.

    Args:
        output: The file to write; None for stdout.
        force: Whether it may be overwritten.
        sources: Input files, which must not be overwritten.
        regular: Whether it must be a regular file rather than a device or pipe.

    Raises:
        UsageError: The output is a URL or an input file, or is a device or pipe although it must be a regular file.
        OutputExistsError: The output exists and may not be overwritten.
        RecordingError: The folder of the output does not exist.
    """
    if output is None:
        return
    if str(output) == "-":
        raise UsageError(
            "'-' is not supported as an output file.", hint="Leave out -o; the result goes to standard output."
        )
    check_local(output, "-o", writes=True)
    if output.is_dir():
        raise UsageError(f"The output {str(output)!r} is a directory.", hint="Give the name of a file: -o FILE.")
    if not output.parent.is_dir():
        raise RecordingError(
            f"The directory {str(output.parent)!r} does not exist.", hint=f"Create it first: mkdir -p {output.parent}."
        )
    if output.exists():
        if any(source.exists() and output.samefile(source) for source in sources):
            raise UsageError(
                f"The output {str(output)!r} is also an input of this command.", hint="Choose another name."
            )
        if regular and not output.is_file():
            raise UsageError(
                f"The output {str(output)!r} is not a regular file.", hint="Give the name of a file: -o FILE."
            )
        if not force and output.is_file():  # writing to a device or a pipe overwrites nothing
            raise OutputExistsError(
                f"The file {str(output)!r} already exists.", hint="Choose another name, or overwrite it with --force."
            )


def write_result(text: str, output: Path | None) -> None:
    """Print a result on stdout, or write it to a file atomically. Devices and pipes are written directly.

    Args:
        text: The result.
        output: The file; None for stdout.
    """
    if output is None:
        emit(text)
        return
    from qdebug.recording.target import add_file_name, replacing_file

    content = plain_digits(text if text.endswith("\n") else text + "\n")
    if output.exists() and not output.is_file():  # replacing /dev/null by a file would break the machine
        with (
            add_file_name(output),
            suppress(BrokenPipeError),
            output.open("w", encoding="utf-8", errors="backslashreplace") as device,
        ):
            device.write(content)
        return
    with replacing_file(output) as temporary_file:
        temporary_file.write_text(content, encoding="utf-8", errors="backslashreplace")
    say(f"wrote {safe_text(output)}")


@contextmanager
def progress(title: str) -> Iterator[OnProgress]:
    """Show progress on stderr inside the block: a bar on a terminal, else a line every ten seconds.

    Args:
        title: Name of the work, as one word.
    """
    if not sys.stderr.isatty():
        yield _progress_lines(title)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=_stderr_console(),
        transient=True,
    )
    task = bar.add_task(title, total=None)

    def note(done: int, total: int, label: str = "") -> None:
        description = f"{title} {safe_text(label, limit=40)}".rstrip()
        bar.update(task, completed=done, total=total, description=description)

    with bar:
        yield note


def _progress_lines(title: str) -> OnProgress:
    """Return a callback that prints a line of progress at most every ten seconds, for logs."""
    start = last_shown = monotonic()

    def note(done: int, total: int, label: str = "") -> None:
        nonlocal last_shown
        time_now = monotonic()
        if time_now - last_shown >= _LINE_SECONDS:
            last_shown = time_now
            say(f"{title} {safe_text(label, limit=40)}".rstrip() + f": {done} of {total}, {time_now - start:.0f} s")

    return note


@contextmanager
def show_stages(title: str) -> Iterator[Callable[[str], None]]:
    """Inside the block, show the current stage of long work on stderr, if that is a terminal.

    Args:
        title: Name of the work, as one word.
    """
    if not sys.stderr.isatty():
        yield lambda stage: None  # noqa: ARG005  not shown
        return
    with ExitStack() as display:
        status: list[Status] = []
        start = monotonic()

        def show_stage(stage: str) -> None:
            if not status and monotonic() - start < _STATUS_DELAY:
                return
            from rich.text import Text

            text = Text(f"{title}: {safe_text(stage, limit=60)}")
            if status:
                status[0].update(text)
            else:
                status.append(display.enter_context(_stderr_console().status(text)))

        yield show_stage
