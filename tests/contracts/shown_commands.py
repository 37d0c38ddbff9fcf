"""Commands that a document shows, and whether the program takes them."""

import contextlib
import io
import re
import shlex

from qdebug.cli.main import build_parser


def shell_lines(text):
    """Return the lines of the shell blocks of a Markdown text; a line that goes on is one with the next."""
    blocks = re.findall(r"^```(?:bash|console|sh)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return "".join(blocks).replace("\\\n", " ").splitlines()


def qdebug_commands(text):
    """Return the words of each `qdebug ...` command, without prompt, comment and path to the program."""
    found = []
    for line in shell_lines(text):
        for part in re.split(r"&&|;", line.removeprefix("$ ")):
            words = shlex.split(part, comments=True)
            if words and words[0].rpartition("/")[2] == "qdebug":
                found.append(words[1:])
    return found


def refusal(words):
    """Return why the parser refuses a command; nothing if it takes it, or ends well as after --help."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
            build_parser().parse_args(words)
    except SystemExit as stop:
        return said.getvalue() or "refused" if stop.code else ""
    return ""
