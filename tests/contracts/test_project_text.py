"""The project's text leads nowhere but to itself: no paths of a machine, no hosts of a package index."""

import re

import pytest

# Written in pieces, so that this file is no finding of its own.
BANNED = re.compile(
    r"(?<![\w.~$])/(?:wo" + r"rk|ho" + r"me|ro" + r"ot|fa" + r"rm|Us" + r"ers)/\w"
    r"|py" + r"pi\.org|npm" + r"js\.org|deb" + r"ian\.org|pythonho" + r"sted|hugging" + r"face\.co"
)


def findings(texts):
    return [
        f"{path}:{number} {line.strip()[:80]}"
        for path, text in texts.items()
        if not path.endswith(".svg")
        for number, line in enumerate(text.splitlines(), 1)
        if BANNED.search(line)
    ]


def test_no_path_of_a_machine_and_no_host_is_named(texts):
    assert not findings(texts)


@pytest.mark.parametrize("bad", ["see /wo" + "rk/main", "'/ho" + "me/me/x'", "https://py" + "pi.org/simple"])
def test_the_check_can_fail(bad):
    assert findings({"a.md": bad})


def test_innocent_text_is_no_finding():
    assert not findings({"a.md": "the frame/workload, ~/work/x, qdebug/root/x"})
