"""Entry point of the terminal interface. Textual is imported only after the first frame is on the screen."""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from qdebug.errors import QdebugError, RecordingError
from qdebug.plural import plural
from qdebug.tui.garbage import garbage_collection_paused
from qdebug.tui.terminal import require_terminal, skeleton

if TYPE_CHECKING:
    from qdebug.compare.align.pairs import PairList
    from qdebug.compare.result.limits import Limits
    from qdebug.model import Recording
    from qdebug.session import DiffSession
    from qdebug.tui.reading.following import Following
    from qdebug.tui.reading.messages import Opening

__all__ = ["TuiChoices", "run_tui"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TuiChoices:
    """Options of the interface, besides the recordings.

    Args:
        node: Node or tensor to start at: its name, part of its name, or a pattern with `*`.
        sample: Sample to start with; None for all samples.
        screen: Name of the screen to start with; None for the default one.
        filter: Filter of the node list to start with.
        theme: "dark", "light" or "contrast"; None to ask the terminal.
        mouse: Whether the interface uses the mouse. Without it, the mouse selects text as usual.
        limits: Returns the limits; None for the defaults.
        open_recording: Opens a finished recording; None for the default function.
        limits_file: Returns the file to which acknowledgements are written; None for the default file.
        map_file: The file to which manual pairs are written; None for the default file.
        load_pairs: Returns the pairs of a map file; None for no map.
        command: The command that opens the same recordings with the same limits.
        follow: Whether the recordings are still being written.
    """

    node: str | None = None
    sample: int | None = None
    screen: str | None = None
    filter: str = ""
    theme: str | None = None
    mouse: bool = True
    limits: Callable[[], Limits] | None = None
    open_recording: Callable[[Path], Recording] | None = None
    limits_file: Callable[[], Path | None] | None = None
    map_file: Path | None = None
    load_pairs: Callable[[], PairList | None] | None = None
    command: Sequence[str] = ("qdebug", "tui")
    follow: bool = False


def run_tui(reference: Path, backends: Sequence[Path], *, choices: TuiChoices | None = None) -> int:
    """Show the comparison of a recording with one or more others in the terminal. Return the exit code.

    Args:
        reference: Recording of the reference run.
        backends: Recordings of backend runs.
        choices: Options of the command line.

    Returns:
        0 after quitting, 130 after Ctrl-C.

    Raises:
        UsageError: There is no terminal, or the node, sample or screen does not exist.
        RecordingError: A recording cannot be read.
        AlignmentError: The recordings are of different networks.
        QdebugError: The interface itself failed; the traceback has been printed.
        KeyboardInterrupt: A signal, not a key, interrupted the interface.
    """
    options = choices or TuiChoices()
    require_terminal()
    with garbage_collection_paused(), skeleton(reference, backends):
        from qdebug.tui.terminal import BackgroundQuestion

        question = None if options.theme else BackgroundQuestion()
        from qdebug.tui.application import LIMITS_FILE, MAP_FILE, QdebugApp
        from qdebug.tui.drawing.glyphs import locale_glyphs
        from qdebug.tui.drawing.palette import LIGHT, named_palette
        from qdebug.tui.screen.start_place import StartPlace

        active_limits_file = None if options.limits_file is None else options.limits_file()
        limits_file = active_limits_file or LIMITS_FILE
        start_place = StartPlace(node=options.node, sample=options.sample, screen=options.screen, filter=options.filter)
        app = QdebugApp(
            [
                _make_opening(reference, backend, options, limits_file, is_unused=active_limits_file is None)
                for backend in backends
            ],
            titles=[(reference.name, backend.name) for backend in backends],
            start_place=start_place,
            glyphs=locale_glyphs(),
            palette=LIGHT if question is not None and question.is_light() else named_palette(options.theme or "dark"),
            limits_file=limits_file,
            needs_limits_option=active_limits_file is None,
            map_file=options.map_file or MAP_FILE,
            command_words=options.command,
            files=[str(reference), *map(str, backends)],
        )
        gc.freeze()  # all loaded modules stay in use; `QdebugApp.on_unmount` unfreezes
    code = app.run(mouse=options.mouse)
    if isinstance(app.failure, OSError) and not isinstance(app.failure, QdebugError):
        raise RecordingError(f"A recording can no longer be read: {app.failure}.") from app.failure
    if app.failure is not None:
        raise app.failure
    if code is None and not app.return_code:  # not a crash: a signal ended it from outside
        raise KeyboardInterrupt("interrupted.")
    if code is None:
        raise QdebugError("The terminal interface stopped.", hint="For the report: qdebug diff REF BACKEND.")
    return code


def _make_opening(
    reference: Path, backend: Path, choices: TuiChoices, limits_file: Path, *, is_unused: bool = False
) -> Opening:
    """Return the functions that open a comparison. All of them are called on worker threads.

    Args:
        reference: The reference run.
        backend: The other run.
        choices: Options of the command line.
        limits_file: The file to which acknowledgements and notes are written.
        is_unused: Whether that file does not affect the judgement, because no limits file is active.
    """
    from qdebug.tui.reading.messages import Opening

    sides: dict[str, Recording] = {}
    stamps: dict[Path, tuple[int, ...]] = {}
    listeners: list[Callable[[str], object]] = []

    def open_side(side: str, path: Path) -> Recording:
        from qdebug.recording.reading.opening import open_recording

        stamps[path] = _file_stamp(path)
        if choices.follow:
            sides[side] = open_recording(path, follow=True)
        else:
            sides[side] = (choices.open_recording or open_recording)(path)
        return sides[side]

    def read_names() -> Sequence[str]:
        return open_side("backend", backend).names

    def compare() -> DiffSession:
        from qdebug.session import DiffSession

        limits = None if choices.limits is None else choices.limits()
        if "reference" not in sides:
            open_side("reference", reference)
        if choices.follow:
            following().begin()
        pairs = None if choices.load_pairs is None else choices.load_pairs()
        cache, report = not choices.follow, (listeners[0] if listeners else None)
        return DiffSession(
            sides["reference"], sides["backend"], limits=limits, cache=cache, on_stage=report, user_pairs=pairs
        )

    @cache
    def following() -> Following:
        from qdebug.tui.reading.following import Following

        paths = {"reference": reference, "backend": backend}
        return Following(sides, lambda side: open_side(side, paths[side]))

    def describe_change() -> str:
        if choices.follow:
            return following().describe_change()
        from qdebug.present.text import safe_text

        changed_paths = [path for path, stamp in stamps.items() if path.exists() and _file_stamp(path) != stamp]
        name = safe_text(changed_paths[0].name, limit=60) if changed_paths else ""
        return f"{name!r} was changed on disk since it was opened" if changed_paths else ""

    def read_notes() -> Mapping[str, str]:
        from qdebug.limits.limits_file import load_notes

        return load_notes(limits_file)

    return Opening(
        add_listener=listeners.append,
        read_names=read_names,
        compare=compare,
        refresh=(lambda: following().refresh()) if choices.follow else None,
        take_news=(lambda: following().take_news()) if choices.follow else None,
        is_writing=(lambda: following().is_writing()) if choices.follow else None,
        load_notes=read_notes,
        make_remark=partial(_unused_limits_remark, limits_file) if is_unused else None,
        describe_change=describe_change,
    )


def _unused_limits_remark(limits_file: Path) -> str:
    """Return a hint if an inactive limits file acknowledges nodes, which `qdebug diff` ignores as well; else ""."""
    if not limits_file.exists():
        return ""
    from qdebug.limits.limits_file import load_limits

    count = sum(not entry.expired for entry in load_limits(limits_file).acknowledged)
    nodes_text = plural(count, "node")
    return f"{limits_file} acknowledges {nodes_text}; to use it: --limits {limits_file}" if count else ""


def _file_stamp(path: Path) -> tuple[int, ...]:
    """Return a file's device, inode, size and modification time, to detect changes; () if they cannot be read."""
    try:
        status = path.stat()
    except OSError:  # opening the file reports the reason
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
