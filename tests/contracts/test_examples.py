"""Every public name shows how it is used, and what it shows is true."""

import doctest
import pathlib

import numpy as np
import pytest

import qdebug
from qdebug.running.demo import run_demo

NAMES = [name for name in qdebug.__all__ if name != "__version__"]


def examples(name, documented):
    found = doctest.DocTestParser().get_doctest(documented.__doc__ or "", {}, name, None, None)
    found.globs = {"qdebug": qdebug, "np": np, "pathlib": pathlib}
    return found


def failures(found):
    said = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(found, out=said.append)
    return said


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    run_demo(folder)
    return folder


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example_that_runs(name, demo, monkeypatch):
    monkeypatch.chdir(demo)
    for made in ("npu.h5", "profile.h5"):
        (demo / made).unlink(missing_ok=True)
    found = examples(name, getattr(qdebug, name))
    assert found.examples, "no example in its docstring"
    assert not failures(found)


def test_the_check_can_fail():
    class Wrong:
        """Say what is not so.

        >>> 1 + 1
        3
        """

    assert failures(examples("Wrong", Wrong))
    assert not examples("int", int.__add__).examples
