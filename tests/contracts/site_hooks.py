"""Hooks of the site: its first page is the README, and the reference and the API are generated."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.structure.files import File

import qdebug
from qdebug.cli.topics import GENERATED, GROUPS, topic_text

ROOT = Path(__file__).parents[2]
_LINK = re.compile(r"\]\(qdebug/guide/([^)]+)\)")
_REPOSITORY_LINK = re.compile(r"\[([^\]]+)\]\((?:samples|tests|\.github)/[^)]*\)")


def on_config(config):
    """Set the navigation: the groups of `qdebug help`, and the API."""
    nav = [{"qdebug": "index.md"}]
    for group, topics in GROUPS.items():
        pages = [{title(name): f"{name}.md"} for name in topics]
        if group == "reference":
            pages.insert(0, {"Python API": "api.md"})
        nav.append({group.capitalize(): pages})
    config.nav = nav
    return config


def on_files(files, config):
    """Add the pages that no file holds."""
    pages = {"index.md": first_page(), "api.md": api_page()}
    pages |= {f"{name}.md": topic_text(name) for name in GENERATED if name != "kernels"}
    for path, content in pages.items():
        files.append(File.generated(config, path, content=content))
    return files


def title(topic: str) -> str:
    """Return the title of a page."""
    return topic_text(topic).partition("\n")[0].removeprefix("# ").partition(":")[0]


def first_page() -> str:
    """Return the README with links that lead to pages of the site; others become their text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return _REPOSITORY_LINK.sub(r"\1", _LINK.sub(r"](\1)", text))


def api_page() -> str:
    """Return the page of all public names, from their docstrings."""
    lines = ["# Python API", "", "What `import qdebug` offers.", ""]
    for name in sorted(qdebug.__all__, key=str.casefold):
        if name != "__version__":
            lines += [f"::: qdebug.{name}", "    options: {heading_level: 2}", ""]
    return "\n".join(lines)
