"""Capture what native code writes to the process's stdout and stderr."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["capture_native_output"]


@contextmanager
def capture_native_output(lines: list[str], *, drop_on_success: bool = False) -> Iterator[None]:
    """Capture what native code writes to stdout and stderr inside the block.

    Args:
        lines: Receives the printed lines if the block raises an exception.
        drop_on_success: Whether to drop the lines if the block succeeds; by default they are written to stderr then.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError, OSError):  # the stream is None or closed, or its reader has exited
            stream.flush()
    with tempfile.TemporaryFile() as file:
        saved_descriptors = {number: os.dup(number) for number in (1, 2)}
        try:
            for number in saved_descriptors:
                os.dup2(file.fileno(), number)
            yield
        except BaseException:
            file.seek(0)
            text = file.read().decode("utf-8", "replace")
            lines += [line.strip() for line in text.splitlines() if line.strip() and "\x1b" not in line]
            file.truncate(0)
            raise
        finally:
            for number, saved_fd in saved_descriptors.items():
                os.dup2(saved_fd, number)
                os.close(saved_fd)
            file.seek(0)
            if (content := file.read()) and not drop_on_success:
                os.write(2, content)
