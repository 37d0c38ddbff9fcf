"""States of a stateful net: outputs that are fed back into inputs, from one step to the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from qdebug.backends.protocol import Feeds
from qdebug.errors import UsageError
from qdebug.model import TensorInfo
from qdebug.running.feeds import ArrayFeeds

__all__ = ["StateFeeds", "paired_states", "stated_pairs"]

_SIDES = frozenset(
    "in input out output new next prev previous past present current updated old initial init".split()  # noqa: SIM905
)
"""Words by which the two names of one state differ."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_ENDS = ("0", "n")
"""Words at the end of a name for the first value and the last one: h_0 and h_n."""


def stated_pairs(stated: Sequence[str], inputs: Collection[str], outputs: Collection[str]) -> dict[str, str]:
    """Return the output that each state's input is fed from, as `--state OUT=IN` says it.

    Args:
        stated: Texts of the form OUT=IN.
        inputs: Names of the model's inputs.
        outputs: Names of the model's outputs.

    Raises:
        UsageError: A text has another form, a name is unknown, or an input comes twice.
    """
    pairs: dict[str, str] = {}
    for text in stated:
        splits = [(text[:at], text[at + 1 :]) for at, letter in enumerate(text) if letter == "="]
        known = [(out, name) for out, name in splits if out in outputs and name in inputs]
        if not known:
            raise UsageError(
                f"The state {text!r} names no output and input of the model.",
                hint=f"Give --state OUT=IN; outputs: {_names(outputs)}; inputs: {_names(inputs)}.",
            )
        out, name = known[0]
        if name in pairs:
            raise UsageError(f"The input {name!r} is fed from two outputs.", hint="Name each input in one --state.")
        pairs[name] = out
    return pairs


def paired_states(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> dict[str, str]:
    """Return the output that each state's input is fed from, as far as names, shapes and dtypes tell.

    The two names of a state differ in words such as "in" and "out" or "past" and "present" alone: "h_out" is fed
    into "h" or "h_in", "hn" into "h0". A name of which nothing is left without these words is none of a state.

    Args:
        inputs: The model's inputs.
        outputs: Its outputs.
    """
    pairs: dict[str, str] = {}
    for core in (_core, _loose_core):
        left = [info for info in inputs if info.name not in pairs]
        made = [info for info in outputs if info.name not in pairs.values()]
        theirs, ours = _by_core(made, core), _by_core(left, core)
        for key, found in ours.items():
            sources = theirs.get(key, [])
            if key and len(found) == len(sources) == 1 and _alike(found[0], sources[0]):
                pairs[found[0].name] = sources[0].name
    return {info.name: pairs[info.name] for info in inputs if info.name in pairs}


def _by_core(
    infos: Sequence[TensorInfo], core: Callable[[str], tuple[str, ...]]
) -> dict[tuple[str, ...], list[TensorInfo]]:
    found: dict[tuple[str, ...], list[TensorInfo]] = {}
    for info in infos:
        found.setdefault(core(info.name), []).append(info)
    return found


def _core(name: str) -> tuple[str, ...]:
    """Return the words of a name that both names of a state have; past_key_values.0.key is present.0.key."""
    words = (word.lower() for word in _WORD.findall(name.removesuffix(":0").replace("past_key_values", "past")))
    return tuple(word for word in words if word not in _SIDES)


def _loose_core(name: str) -> tuple[str, ...]:
    """Return the same without a mark of the first value or the last one at the end."""
    words = _core(name)
    if len(words) > 1 and words[-1] in _ENDS:
        return words[:-1]
    if words and len(words[-1]) == 2 and words[-1].endswith("n"):  # hn, cn
        return (*words[:-1], words[-1][0])
    return words


def _alike(one: TensorInfo, other: TensorInfo) -> bool:
    if None not in (one.dtype, other.dtype) and one.dtype != other.dtype:
        return False
    if one.shape is None or other.shape is None:
        return True
    return len(one.shape) == len(other.shape) and all(
        None in (a, b) or a == b for a, b in zip(one.shape, other.shape, strict=True)
    )


def _names(names: Collection[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


class StateFeeds:
    """Inputs of a run in which states are fed back: what plain runs give at one step is read at the next.

    Args:
        feeds: The inputs; of states their first values.
        run: Runs the model plainly on one array per input, and gives its outputs.
        pairs: The output that each state's input is fed from.
        restart: Called before the first run of each sample: forgets state that the model itself keeps.
    """

    def __init__(
        self,
        feeds: Feeds,
        run: Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]],
        pairs: Mapping[str, str],
        *,
        restart: Callable[[], None] = lambda: None,
    ) -> None:
        self._feeds, self._run, self._pairs, self._restart = feeds, run, dict(pairs), restart
        self._last: tuple[int, int, dict[str, np.ndarray]] = (-1, -1, {})

    @property
    def samples(self) -> int:
        """Number of samples."""
        return self._feeds.samples

    def nonfinite(self) -> list[str]:
        """Say for each given input with values that are not finite how many there are."""
        return self._feeds.nonfinite() if isinstance(self._feeds, ArrayFeeds) else []

    @property
    def steps(self) -> int:
        """Number of steps of each sample."""
        return self._feeds.steps

    def feed(self, sample: int, step: int = 0) -> dict[str, np.ndarray]:
        """Return one array per model input."""
        return self._fed(sample, step, self.plain(sample, step - 1) if step else {})

    def plain(self, sample: int, step: int) -> dict[str, np.ndarray]:
        """Return the outputs of a plain run at a step; those before it are run first where they were not."""
        known, at, made = self._last
        start = at + 1 if known == sample and at <= step else 0
        for moment in range(start, step + 1):
            if moment == 0:
                self._restart()
            made = self._run(self._fed(sample, moment, made))
            self._last = sample, moment, made
        return made

    def forget(self) -> None:
        """Run the next sample anew, whatever was run of it."""
        self._last = (-1, -1, {})

    def _fed(self, sample: int, step: int, made: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = self._feeds.feed(sample, step)
        return values | {name: made[out] for name, out in self._pairs.items()} if step else values

    def said(self, zeros: Collection[str]) -> Iterator[str]:
        """Yield a clause for each state.

        Args:
            zeros: The states that begin with zeros since the inputs leave them out.
        """
        for name, out in self._pairs.items():
            yield f"{out} -> {name}{' (from zeros)' if name in zeros else ''}"
