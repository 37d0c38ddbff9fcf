"""Command lines to type: quoted so that a POSIX shell, bash or zsh reads back the exact words, and safe to print."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from qdebug.present.text import safe_text
from qdebug.recording.remote_url import format_path

__all__ = ["command", "shell_word"]

_NAME_OPTIONS = frozenset({"--node", "--filter"})
"""Options whose value is a name from a recording, which may start with a dash."""


def shell_word(word: object) -> str:
    r"""Quote a word for the shell. Long words are not shortened.

    Characters that control a terminal or hide text (a newline, an escape) become escapes of the form `$'a\x0ab'`, which
    bash, zsh and ksh read back as the original characters. The result itself is one line without any of them.

    Args:
        word: A path or a text.
    """
    text = _word_text(word)
    if _is_printable(text):
        return shlex.quote(text)
    return f"$'{''.join(map(_escape, text))}'"


def command(*words: object) -> str:
    """Return a command line to type, quoted for the shell and safe to print.

    Args:
        words: The words. The value of `--node` and `--filter` is joined to the option if it starts with a dash.
    """
    texts = [_word_text(word) for word in words]
    shown: list[str] = []
    for position, word in enumerate(texts):
        if position and texts[position - 1] in _NAME_OPTIONS and word.startswith("-"):
            shown[-1] += f"={shell_word(word)}"
        else:
            shown.append(shell_word(word))
    return " ".join(shown)


def _word_text(word: object) -> str:
    return format_path(word) if isinstance(word, Path) else str(word)


def _is_printable(text: str) -> bool:
    return safe_text(text, limit=max(len(text), 1)) == text


def _escape(character: str) -> str:
    if character in "'\\":
        return f"\\{character}"
    if _is_printable(character):
        return character
    try:
        raw_bytes = os.fsencode(character)  # the original bytes of a file name that is not valid text
    except UnicodeEncodeError:
        raw_bytes = character.encode("utf-8", "surrogatepass")
    return "".join(f"\\x{byte:02x}" for byte in raw_bytes)
