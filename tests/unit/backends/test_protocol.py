"""Options are completed by their defaults, and wrong ones are answered with the right ones."""

from __future__ import annotations

import pytest

from qdebug.backends.protocol import OptionSpec, check_options
from qdebug.errors import UsageError

SPECS = (
    OptionSpec(name="opt", default="all", choices=("none", "all"), help="level"),
    OptionSpec(name="threads", default="0", help="threads"),
)


def test_options_left_out_take_their_defaults():
    assert check_options("rt", SPECS, {}) == {"opt": "all", "threads": "0"}
    assert check_options("rt", SPECS, {"threads": "3"}) == {"opt": "all", "threads": "3"}


def test_options_are_not_changed_in_place():
    given = {"opt": "none"}
    check_options("rt", SPECS, given)
    assert given == {"opt": "none"}


@pytest.mark.parametrize(
    ("specs", "given", "message"),
    [
        (SPECS, {"level": "1"}, "no option 'level'; it has: opt, threads"),
        ((), {"level": "1"}, "it has: none"),
        (SPECS, {"opt": "some"}, "'opt' of backend 'rt' is 'some'; expected one of: none, all"),
    ],
)
def test_wrong_options_are_answered_with_the_right_ones(specs, given, message):
    with pytest.raises(UsageError, match=message) as caught:
        check_options("rt", specs, given)
    assert "--backend rt:" in caught.value.hint
