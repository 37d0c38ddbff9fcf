"""Metrics of a run's outputs: a number for all samples, of which higher is better."""

from __future__ import annotations

import importlib
import importlib.util
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from qdebug.errors import UsageError
from qdebug.regular_file import open_binary

__all__ = ["Metric", "Outputs", "confidence_interval", "evaluate_metric", "find_metric", "load_labels"]

Outputs = Mapping[str, np.ndarray]
"""The network's outputs by their names in the reference, with samples along an additional leading axis."""

_RESAMPLES, _SEED = 500, 7
_TAIL_PERCENT = 2.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A measure of a run's outputs.

    Args:
        name: Name of the metric, as given by the user.
        unit: Unit of the metric's values, or "".
        compute: Called with the outputs of a run, the outputs of the reference, and the labels or None.
        is_minimum: Whether a goal is a minimum value, rather than a maximum drop below the reference's value.
        default_goal: The default goal, in the metric's unit.
    """

    name: str
    unit: str
    compute: Callable[[Outputs, Outputs, np.ndarray | None], float]
    is_minimum: bool
    default_goal: float


def _worst_output_sqnr(outputs: Outputs, reference: Outputs, labels: np.ndarray | None) -> float:
    del labels
    worst_sqnr = math.inf
    for name, reference_values in reference.items():
        signal_energy = float(np.sum(np.asarray(reference_values, np.float64) ** 2))
        noise_energy = float(np.sum(np.subtract(outputs[name], reference_values, dtype=np.float64) ** 2))
        if noise_energy:
            worst_sqnr = min(
                worst_sqnr,
                10 * math.log10(signal_energy / noise_energy)
                if signal_energy and math.isfinite(noise_energy)
                else -math.inf,
            )
    return worst_sqnr


def _top1_accuracy(outputs: Outputs, reference: Outputs, labels: np.ndarray | None) -> float:
    name = next(iter(reference))
    predicted_labels = outputs[name].reshape(-1, outputs[name].shape[-1]).argmax(axis=-1)
    expected_labels = (
        reference[name].reshape(predicted_labels.shape[0], -1).argmax(axis=-1) if labels is None else np.ravel(labels)
    )
    if expected_labels.shape != predicted_labels.shape:
        raise UsageError(
            f"There are {expected_labels.size} labels for {predicted_labels.size} rows of scores.",
            hint="Give one label for each sample.",
        )
    return float(np.mean(predicted_labels == expected_labels))


_METRICS = {
    "output-sqnr": Metric(
        name="output-sqnr", unit="dB", compute=_worst_output_sqnr, is_minimum=True, default_goal=20.0
    ),
    "top1": Metric(name="top1", unit="", compute=_top1_accuracy, is_minimum=False, default_goal=0.005),
}


def find_metric(text: str) -> Metric:
    """Return a metric by name, or one computed by a user function.

    Args:
        text: "output-sqnr", "top1", "MODULE:FUNCTION" or "FILE.py:FUNCTION". The function is called as
            `function(outputs, reference, labels)`, with two mappings of output name to an array of all samples, and an
            array or None. It returns a number, the higher the better.

    Raises:
        UsageError: There is no such metric, module or function.
    """
    if text in _METRICS:
        return _METRICS[text]
    module_name, colon, name = text.rpartition(":")
    if not colon or not module_name:
        raise UsageError(
            f"Unknown metric {text!r}; known metrics are {', '.join(_METRICS)}.",
            hint="Give one of these, or your own function: --metric FILE.py:FUNCTION.",
        )
    function = getattr(_load_module(module_name), name, None)
    if not callable(function):
        raise UsageError(
            f"{module_name!r} has no function {name!r}.", hint="Name an existing function: --metric FILE.py:FUNCTION."
        )

    def compute(outputs: Outputs, reference: Outputs, labels: np.ndarray | None) -> float:
        try:
            return float(function(outputs, reference, labels))
        except Exception as error:  # any error of the user's function
            raise UsageError(
                f"The metric {text!r} failed: {type(error).__name__}: {error}.",
                hint="It must take two dicts of arrays by output name, and the labels, and return a number.",
            ) from error

    return Metric(name=text, unit="", compute=compute, is_minimum=False, default_goal=0.0)


def _load_module(module_name: str) -> Any:
    path = Path(module_name)
    try:
        if module_name.endswith(".py"):
            spec = importlib.util.spec_from_file_location(path.stem, path)
            if spec is None or spec.loader is None or not path.is_file():
                raise UsageError(f"There is no file {module_name!r}.", hint="Check the path.")
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            return module
        return importlib.import_module(module_name)
    except UsageError:
        raise
    except Exception as error:  # any error of the user's file
        message = " ".join(str(error).split()) or type(error).__name__
        raise UsageError(
            f"{module_name!r} cannot be imported: {message}.", hint="Give a module or a file: FILE.py."
        ) from error


def load_labels(path: Path) -> np.ndarray:
    """Load labels from an .npy file, or from an .npz file with one array.

    Raises:
        UsageError: The file cannot be read, or does not hold a single array.
    """
    try:
        with open_binary(path) as file:
            content = np.load(file, allow_pickle=False)
            arrays = list(content.values()) if hasattr(content, "values") else [content]
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        # numpy's own message about other files suggests allow_pickle=True, which is unsafe
        reason = f" ({error.strerror})" if isinstance(error, OSError) and error.strerror else ""
        raise UsageError(
            f"{str(path)!r} contains no labels: it is not a .npy or .npz file of numbers{reason}.",
            hint="Save them with numpy.save.",
        ) from error
    if len(arrays) != 1:
        raise UsageError(
            f"{str(path)!r} contains {len(arrays)} arrays.", hint="Save one array with one label per sample."
        )
    return np.asarray(arrays[0])


def confidence_interval(
    metric: Metric, outputs: Sequence[Outputs], reference: Sequence[Outputs], labels: Sequence[Any] | None
) -> tuple[float, float] | None:
    """Return the 95 % confidence interval of a metric, by resampling the samples (percentile bootstrap).

    B. Efron, "Bootstrap methods: another look at the jackknife", Annals of Statistics 7 (1979).

    Args:
        metric: The metric.
        outputs: The outputs of each sample.
        reference: The reference's outputs of each sample.
        labels: A label for each sample, or None.

    Returns:
        The ends of the interval, or None with fewer than two samples.
    """
    if len(outputs) < 2:
        return None
    rng, values = np.random.default_rng(_SEED), []
    for _ in range(_RESAMPLES):
        indices = rng.integers(0, len(outputs), len(outputs))
        resampled_outputs = [[side[index] for index in indices] for side in (outputs, reference)]
        resampled_labels = None if labels is None else [labels[index] for index in indices]
        values.append(evaluate_metric(metric, resampled_outputs[0], resampled_outputs[1], resampled_labels))
    low, high = np.percentile(values, [_TAIL_PERCENT, 100 - _TAIL_PERCENT], method="nearest")
    return float(low), float(high)


def evaluate_metric(
    metric: Metric, outputs: Sequence[Outputs], reference: Sequence[Outputs], labels: Sequence[Any] | None
) -> float:
    """Return the value of a metric over given samples."""
    stacked_outputs = [
        {name: np.stack([tensors[name] for tensors in side]) for name in side[0]} for side in (outputs, reference)
    ]
    return metric.compute(stacked_outputs[0], stacked_outputs[1], None if labels is None else np.asarray(labels))
