"""A mistake of our own code is an error, or shows in the verdict: it never passes as weaker evidence.

Functions that a comparison of the digits net calls are made to raise an exception that no data causes, one at a time.
"""

from __future__ import annotations

import importlib
import pkgutil
import shutil
import sys
from collections.abc import Iterator
from functools import cached_property
from types import CodeType, FunctionType

import pytest

import qdebug
from qdebug import data
from qdebug.cli.main import main

PACKAGES = ("replay", "arithmetic", "compare", "recording", "numerics")
MISTAKES = ("TypeError", "AttributeError", "KeyError", "IndexError", "NameError")
PLANTED = "a mistake that was planted"
PARTS = 20
"""The gate breaks one function of so many, and the slow suite the others."""


def raising(mistake: str) -> CodeType:
    """Return the code of a function that takes anything and raises."""
    made: dict[str, FunctionType] = {}
    exec(f"def planted(*args, **rest): raise {mistake}({PLANTED!r})", made)  # noqa: S102  fixed text
    return made["planted"].__code__


def functions() -> dict[CodeType, FunctionType]:
    """Return the functions of the packages by their code: those of modules, and of classes in them."""
    found: dict[CodeType, FunctionType] = {}
    for package in PACKAGES:
        root = importlib.import_module(f"qdebug.{package}")
        for info in pkgutil.walk_packages(root.__path__, f"qdebug.{package}."):
            for value in vars(importlib.import_module(info.name)).values():
                for function in functions_of(value):
                    if function.__module__ == info.name and not function.__closure__:
                        found[function.__code__] = function
    return found


def functions_of(value: object) -> Iterator[FunctionType]:
    """Yield a function itself, or those of a class: methods, properties."""
    if isinstance(value, FunctionType):
        yield value
    for each in vars(value).values() if isinstance(value, type) else ():
        inner = each.func if isinstance(each, cached_property) else getattr(each, "fget", None)
        inner = inner or getattr(each, "__func__", None) or each
        if isinstance(inner, FunctionType):
            yield inner


def called(pair) -> list[FunctionType]:
    """Return the functions that a comparison calls, in the order of their names."""
    known, seen = functions(), set[CodeType]()

    def profile(frame, event, _):
        if event == "call" and frame.f_code in known:
            seen.add(frame.f_code)

    sys.setprofile(profile)
    try:
        qdebug.diff(*pair)
    finally:
        sys.setprofile(None)
    return sorted((known[code] for code in seen), key=lambda each: (each.__module__, each.__qualname__))


def compared(pair, capsys) -> tuple[int, str, str]:
    """Run `qdebug diff` without what was kept of a comparison before; return the exit code and what it printed."""
    shutil.rmtree(f"{pair[1]}.qdebug-cache", ignore_errors=True)
    code = main(["diff", *map(str, pair)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in range(1, PARTS))])
def test_no_mistake_leaves_the_verdict_as_it_was(tmp_path, capsys, part):
    pair = [shutil.copy(net, tmp_path) for net in (data.FLOAT_NET, data.INT8_NET)]
    code, out, _ = compared(pair, capsys)
    assert code == 0
    assert "judged by replay" in out
    shutil.rmtree(f"{pair[1]}.qdebug-cache")
    chosen = [function for function in called(pair) if function.__name__ != "__del__"][part::PARTS]
    assert len(chosen) * PARTS >= 240
    silent, unclear = [], []
    for at, function in enumerate(chosen):
        name = f"{function.__module__}.{function.__qualname__}"
        original, function.__code__ = function.__code__, raising(MISTAKES[at % len(MISTAKES)])
        try:
            found = compared(pair, capsys)
        finally:
            function.__code__ = original
        if found[0] == 0 and found[1] == out:
            silent.append(name)
        elif found[0] == 2 and not ("internal error" in found[2] and PLANTED in found[2]):
            unclear.append((name, found[2]))
    assert not silent, "these leave the verdict unchanged"
    assert not unclear, "these are told as something else than an internal error"
