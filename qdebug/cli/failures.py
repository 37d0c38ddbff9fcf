"""Exit codes, and errors on stderr: one sentence and one hint, made safe for the terminal here."""

from __future__ import annotations

import sys

from qdebug.errors import QdebugError
from qdebug.present.numbers import plain_digits
from qdebug.present.text import safe_text

__all__ = ["CANCELLED", "COULD_NOT_RUN", "INCOMPLETE", "report_failure", "say"]

COULD_NOT_RUN = 2
"""Exit code for wrong usage, an unreadable file, a missing extra, or a bug in qdebug."""

INCOMPLETE = 3
"""Exit code for an incomplete comparison, unless incompleteness is allowed."""

CANCELLED = 130
"""Exit code after Ctrl-C: 128 + SIGINT, as in shells."""

_MESSAGE_LIMIT = 2000


def say(text: str) -> None:
    """Print a line on stderr, or nothing if it is closed."""
    try:
        print(text if sys.stderr.isatty() else plain_digits(text), file=sys.stderr, flush=True)
    except (BrokenPipeError, ValueError):
        return


def report_failure(failure: BaseException) -> None:
    """Print an error and its hint on stderr.

    Args:
        failure: The exception.
    """
    if isinstance(failure, QdebugError):
        message, hint = failure.message, failure.hint
    elif isinstance(failure, KeyboardInterrupt):
        message, hint = str(failure) or "interrupted; nothing was kept.", ""
    elif isinstance(failure, OSError):
        message, hint = _os_message(failure), ""
    elif isinstance(failure, MemoryError):
        message = f"not enough memory{': ' + str(failure) if str(failure) else '.'}"
        hint = "Record fewer samples at once (--samples N), or compare one sample (--sample N)."
    else:
        message, hint = _unexpected_message(failure)
    say(f"qdebug: {safe_text(message, limit=_MESSAGE_LIMIT)}")
    if hint:
        say(f"  hint: {safe_text(hint, limit=_MESSAGE_LIMIT)}")


def _unexpected_message(failure: BaseException) -> tuple[str, str]:
    """Return message and hint for an unexpected error: a missing or outdated package, or a bug."""
    from qdebug.requirements import missing_package, outdated_packages

    missing_error = missing_package(failure) if isinstance(failure, ImportError) else None
    outdated_requirements = outdated_packages() if isinstance(failure, AttributeError | ImportError | TypeError) else []
    error_text = f"{type(failure).__name__}: {failure}"
    if outdated_requirements:
        requirement, version = outdated_requirements[0]
        oldest_version = requirement.oldest_version
        return (
            f"{requirement.package} {version} is too old: qdebug needs {oldest_version} or newer ({error_text}).",
            f"Upgrade it: pip install --upgrade '{requirement.package}{requirement.bounds}'.",
        )
    if missing_error is not None:
        return missing_error.message, missing_error.hint
    return (
        f"internal error: {error_text}",
        "This is a bug in qdebug. Please report it with the traceback that the same command prints with --debug.",
    )


def _os_message(failure: OSError) -> str:
    if failure.filename is None or failure.strerror is None:
        return str(failure)
    return f"{failure.strerror}: {failure.filename!r}"
