"""States of a stateful network: outputs that are fed back into inputs from one step to the next."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np

from qdebug.backends.protocol import Feeds
from qdebug.errors import UsageError
from qdebug.model import TensorInfo
from qdebug.running.feeds import ArrayFeeds

__all__ = ["StateFeeds", "find_state_pairs", "parse_state_pairs"]

_SIDE_WORDS = frozenset(
    "in input out output new next prev previous past present current updated old initial init".split()  # noqa: SIM905
)
"""Words that distinguish the input from the output of a state."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_END_WORDS = ("0", "n")
"""Words at the end of a name that mark the first and the last value of a state, as in h_0 and h_n."""


def parse_state_pairs(state_texts: Sequence[str], inputs: Collection[str], outputs: Collection[str]) -> dict[str, str]:
    """Return the output that feeds each state's input, as given by `--state OUT=IN`.

    Args:
        state_texts: Texts of the form OUT=IN.
        inputs: Names of the model's inputs.
        outputs: Names of the model's outputs.

    Raises:
        UsageError: A text has a different form, a name is unknown, or an input occurs twice.
    """
    pairs: dict[str, str] = {}
    for text in state_texts:
        splits = [(text[:index], text[index + 1 :]) for index, letter in enumerate(text) if letter == "="]
        valid_splits = [(output, name) for output, name in splits if output in outputs and name in inputs]
        if not valid_splits:
            raise UsageError(
                f"The state {text!r} does not name an output and an input of the model.",
                hint=f"Give --state OUT=IN; outputs: {_names_text(outputs)}; inputs: {_names_text(inputs)}.",
            )
        output, name = valid_splits[0]
        if name in pairs:
            raise UsageError(f"The input {name!r} is fed from two outputs.", hint="Name each input in one --state.")
        pairs[name] = output
    return pairs


def find_state_pairs(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo]) -> dict[str, str]:
    """Return the output that feeds each state's input, found by names, shapes and dtypes.

    The two names of a state differ only in words such as "in" and "out" or "past" and "present": "h_out" is fed into
    "h" or "h_in", "hn" into "h0". A name that consists only of such words is not a state.

    Args:
        inputs: The model's inputs.
        outputs: The model's outputs.
    """
    pairs: dict[str, str] = {}
    for core_of_name in (_name_core, _name_core_without_end):
        free_inputs = [info for info in inputs if info.name not in pairs]
        free_outputs = [info for info in outputs if info.name not in pairs.values()]
        outputs_by_core, inputs_by_core = (
            _group_by_core(free_outputs, core_of_name),
            _group_by_core(free_inputs, core_of_name),
        )
        for key, candidates in inputs_by_core.items():
            sources = outputs_by_core.get(key, [])
            if key and len(candidates) == len(sources) == 1 and _can_pair(candidates[0], sources[0]):
                pairs[candidates[0].name] = sources[0].name
    return {info.name: pairs[info.name] for info in inputs if info.name in pairs}


def _group_by_core(
    infos: Sequence[TensorInfo], core_of_name: Callable[[str], tuple[str, ...]]
) -> dict[tuple[str, ...], list[TensorInfo]]:
    groups: dict[tuple[str, ...], list[TensorInfo]] = {}
    for info in infos:
        groups.setdefault(core_of_name(info.name), []).append(info)
    return groups


def _name_core(name: str) -> tuple[str, ...]:
    """Return the words that both names of a state have in common: ("0", "key") for past_key_values.0.key."""
    words = (word.lower() for word in _WORD.findall(name.removesuffix(":0").replace("past_key_values", "past")))
    return tuple(word for word in words if word not in _SIDE_WORDS)


def _name_core_without_end(name: str) -> tuple[str, ...]:
    """Return the core of a name without the mark of the first or last value at its end."""
    words = _name_core(name)
    if len(words) > 1 and words[-1] in _END_WORDS:
        return words[:-1]
    if words and len(words[-1]) == 2 and words[-1].endswith("n"):  # PyTorch's names hn and cn
        return (*words[:-1], words[-1][0])
    return words


def _can_pair(state_input: TensorInfo, state_output: TensorInfo) -> bool:
    if None not in (state_input.dtype, state_output.dtype) and state_input.dtype != state_output.dtype:
        return False
    if state_input.shape is None or state_output.shape is None:
        return True
    return len(state_input.shape) == len(state_output.shape) and all(
        None in (input_extent, output_extent) or input_extent == output_extent
        for input_extent, output_extent in zip(state_input.shape, state_output.shape, strict=True)
    )


def _names_text(names: Collection[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


class StateFeeds:
    """Inputs of a run with states: the outputs of a plain run at one step are inputs at the next.

    Args:
        feeds: The inputs, of which those of states are initial values.
        run: Runs the model plainly on one array per input, and returns its outputs.
        pairs: The output that feeds each state's input.
        restart: Called before the first run of each sample to clear state inside the model.
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

    def describe_nonfinite(self) -> list[str]:
        """Return a clause for each given input with NaN or infinite values."""
        return self._feeds.describe_nonfinite() if isinstance(self._feeds, ArrayFeeds) else []

    @property
    def steps(self) -> int:
        """Number of steps of each sample."""
        return self._feeds.steps

    def feed(self, sample: int, step: int = 0) -> dict[str, np.ndarray]:
        """Return one array per model input."""
        return self._inputs_at(sample, step, self.plain(sample, step - 1) if step else {})

    def plain(self, sample: int, step: int) -> dict[str, np.ndarray]:
        """Return the outputs of a plain run at a step, running earlier steps first if needed."""
        last_sample, last_step, outputs = self._last
        start = last_step + 1 if last_sample == sample and last_step <= step else 0
        for current_step in range(start, step + 1):
            if current_step == 0:
                self._restart()
            outputs = self._run(self._inputs_at(sample, current_step, outputs))
            self._last = sample, current_step, outputs
        return outputs

    def forget(self) -> None:
        """Forget the last outputs, so that the next sample is run again."""
        self._last = (-1, -1, {})

    def _inputs_at(self, sample: int, step: int, last_outputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        values = self._feeds.feed(sample, step)
        return values | {name: last_outputs[output] for name, output in self._pairs.items()} if step else values

    def describe_states(self, zeros: Collection[str]) -> Iterator[str]:
        """Yield a clause for each state.

        Args:
            zeros: The states that start as zeros because the inputs omit them.
        """
        for name, output in self._pairs.items():
            yield f"{output} -> {name}{' (from zeros)' if name in zeros else ''}"
