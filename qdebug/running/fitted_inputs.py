"""Inputs of runs that are to be compared: random values, or the inputs of another run, converted to fit a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qdebug.errors import InputError, RecordingError, UsageError
from qdebug.model import Graph, Recording, RunInfo, TensorInfo, operators
from qdebug.model.dtypes import is_float, is_whole, logical_dtype
from qdebug.numerics.affine import dequantize, is_wide_code, quantize
from qdebug.running.feeds import check_names, has_shape_of, read_inputs
from qdebug.running.input_shapes import Shape, choose_shapes, dimensions

__all__ = [
    "CHANGES",
    "INPUTS",
    "RANDOM",
    "RANDOM_HIDES",
    "GivenInputs",
    "fit_inputs",
    "input_ranges",
    "load_recorded_inputs",
    "make_given_inputs",
    "random_inputs",
    "random_inputs_note",
]

INPUTS = "inputs"
"""Option of a recorded run: the origin of its inputs, as a clause."""
CHANGES = "inputs_changed"
"""Option of a recorded run: the changes made to its inputs, as clauses."""
RANDOM_HIDES = "random inputs hide errors that real inputs show"
"""Warning about random inputs, as a clause."""
RANDOM = "inputs_random"
"""Option of a recorded run whose inputs are random values: true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInputs:
    """Inputs of a run, before they are fitted to a model.

    Args:
        arrays: Values by name, or None for random ones.
        samples: Length of their leading axis of samples, or None if they have none.
        origin_text: Where the values come from, as a clause.
        is_random: Whether the values are random, including those recorded in a run with random inputs.
        seed: Seed of random values.
        ranges: Minimum and maximum random value of inputs with a known range.
        shapes: Shapes chosen by the user, by input.
        files: Files that the values were read from.
    """

    arrays: Mapping[str, np.ndarray] | None
    samples: int | None
    origin_text: str
    is_random: bool = False
    seed: int = 0
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


def make_given_inputs(
    inputs: str | Path | None,
    *,
    samples: int | None,
    seed: int,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> GivenInputs:
    """Return the inputs of a reference run: the arrays of a file, or random values.

    Args:
        inputs: An .npz file, or None for random values.
        samples: Length of the leading axis of samples, or None for none.
        seed: Seed of random values.
        ranges: Minimum and maximum random value by input, as from `input_ranges`.
        shapes: Shapes chosen by the user, by input.

    Raises:
        InputError: The file is not an .npz file of plain arrays.
    """
    if inputs is None:
        ranges_by_input = ranges or {}
        range_texts = sorted({f"{low:.4g}..{high:.4g}" for low, high in ranges_by_input.values()})
        origin_text = f"random, seed {seed}" + (
            f", {' and '.join(range_texts)} over the range of the codes" if range_texts else ""
        )
        return GivenInputs(
            arrays=None,
            samples=samples,
            origin_text=origin_text,
            is_random=True,
            seed=seed,
            ranges=ranges_by_input,
            shapes=shapes or {},
        )
    arrays = read_inputs(inputs)
    return GivenInputs(arrays=arrays, samples=samples, origin_text=f"of {Path(inputs).name}", shapes=shapes or {})


def random_inputs_note(info: RunInfo) -> str | None:
    """Return a warning if a recorded run had random inputs, or None if it did not or this is unknown.

    Args:
        info: Facts of the run.
    """
    return f"{info.options.get(INPUTS, '')}: {RANDOM_HIDES}" if info.options.get(RANDOM) is True else None


def load_recorded_inputs(recording: Recording, *, title: str, extra: str | Path | None = None) -> GivenInputs:
    """Return the inputs of a recorded run as real values.

    Args:
        recording: The run.
        title: Name of the run in messages.
        extra: An .npz file of additional inputs that the run itself did not have.

    Raises:
        RecordingError: The values of an input were not kept.
        UsageError: The run has several steps.
        InputError: `extra` is not an .npz file of plain arrays.
    """
    if recording.steps > 1:
        raise UsageError(
            f"{title} is a run of {recording.steps} steps; its states cannot be used as inputs of a model.",
            hint="Record the model yourself: qdebug record MODEL --backend NAME --inputs FILE.npz --steps N -o OUT.h5.",
        )
    arrays: dict[str, np.ndarray] = {}
    for name in recording.graph.inputs:
        if not all(recording.has(name, sample) for sample in range(recording.samples)):
            raise RecordingError(
                f"{title} lacks values of its input {name!r}.",
                hint=(
                    "Record it again with all values of its inputs, or record both models with the same "
                    "--inputs FILE.npz."
                ),
            )
        arrays[name] = np.stack([_load_real_input(recording, name, sample) for sample in range(recording.samples)])
    extra_arrays = {} if extra is None else read_inputs(extra)
    is_random = recording.info.options.get(RANDOM) is True
    origin_text = str(recording.info.options.get(INPUTS, "")) if is_random else f"those of {title}"
    return GivenInputs(
        arrays=extra_arrays | arrays, samples=recording.samples, origin_text=origin_text, is_random=is_random
    )


def _load_real_input(recording: Recording, name: str, sample: int) -> np.ndarray:
    """Return the real values of an input for one sample. Stacked samples would shift the axis of per-channel scales."""
    stored_values, quant = recording.load(name, sample), recording.graph.tensors[name].quant
    return (
        stored_values if quant is None else dequantize(stored_values, quant, double=is_wide_code(stored_values.dtype))
    )


def input_ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    """Return the range of real values that the codes of a model's inputs can represent, by input.

    Random values beyond this range would only be clipped. An input has a range if it is quantized itself, or if it is
    read by a node that quantizes it: one with such an operator, or with this input only and a quantized output of the
    same shape.

    Args:
        graph: The model's graph.
    """
    ranges_by_input: dict[str, tuple[float, float]] = {}
    for name in graph.inputs:
        tensors = [name]
        for node in graph.consumers(name):
            activations = [name for name in node.inputs if name and not graph.is_constant(name)]
            outputs = [output for output in node.outputs if output]
            quantizes_input = activations == [name] and all(
                graph.tensors[output].shape == graph.tensors[name].shape for output in outputs
            )
            tensors += outputs if quantizes_input or operators.of(node.op).quantizes else []
        quants = [graph.tensors[tensor].quant for tensor in tensors]
        quant = next((quant for quant in quants if quant is not None and not quant.per_channel), None)
        if quant is not None and quant.qmin is not None and quant.qmax is not None:
            scale, zero = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
            ranges_by_input[name] = scale * (quant.qmin - zero), scale * (quant.qmax - zero)
    return ranges_by_input


def random_inputs(
    infos: Sequence[TensorInfo],
    *,
    samples: int | None,
    seed: int,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> dict[str, np.ndarray]:
    """Return random arrays for the inputs of a model.

    Real numbers have mean 0 and variance 1, or are uniform over the range of the input. Codes are uniform over all
    codes. Other integers and booleans are 0 or 1, which are valid indices for any table with two rows.

    Args:
        infos: The inputs.
        samples: Length of a leading axis of samples, or None for none.
        seed: Seed of the values.
        ranges: Minimum and maximum value by input. If there is only one range and one input, their names need not
            match.
        shapes: The shape of each input, as from `choose_shapes`, or None for its defaults.

    Raises:
        InputError: An input does not hold numbers, or has no known rank.
    """
    rng = np.random.default_rng(seed)
    ranges_by_input = dict(ranges or {})
    if len(ranges_by_input) == len(infos) == 1:
        ranges_by_input = {infos[0].name: next(iter(ranges_by_input.values()))}
    chosen_shapes = choose_shapes(infos)[0] if shapes is None else shapes
    return {
        info.name: _random_array(info, chosen_shapes.get(info.name), rng, samples, ranges_by_input.get(info.name))
        for info in infos
    }


def _random_array(
    info: TensorInfo,
    sample_shape: Shape | None,
    rng: np.random.Generator,
    samples: int | None,
    limits: tuple[float, float] | None,
) -> np.ndarray:
    if info.dtype is None or sample_shape is None:
        missing_fact = "the dtype" if info.dtype is None else "the rank"
        raise InputError(
            f"No values can be generated for input {info.name!r}, because the model does not state {missing_fact}.",
            hint="Give the inputs: --inputs FILE.npz."
            if sample_shape
            else f"Give its shape: --shape {info.name}=1x3x48x192.",
        )
    shape = sample_shape if samples is None else (samples, *sample_shape)
    dtype = logical_dtype(info.dtype)
    if is_float(info.dtype):
        values = rng.standard_normal(shape) if limits is None else rng.uniform(*limits, size=shape)
        return np.asarray(values.astype(dtype))
    if info.quant is not None and info.quant.qmin is not None and info.quant.qmax is not None:
        return rng.integers(info.quant.qmin, info.quant.qmax, size=shape, endpoint=True).astype(dtype)
    return rng.integers(0, 2, size=shape).astype(dtype)


def fit_inputs(
    given_inputs: GivenInputs,
    infos: Sequence[TensorInfo],
    *,
    may_adapt: bool,
    extent_names: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return arrays that fit a model, and the changes that were necessary.

    Args:
        given_inputs: The inputs.
        infos: The inputs of the model.
        may_adapt: Whether values may be quantized, cast and moved to a different layout, and a single unmatched array
            may be used for a single missing input.
        extent_names: Names of the dimensions of each input, by input.

    Returns:
        An array for each input, and a clause for each change and each default shape.

    Raises:
        InputError: Random values cannot be made, an input has no array, or a chosen shape does not fit.
    """
    if given_inputs.arrays is None:
        shapes, fill_notes = choose_shapes(infos, chosen_shapes=given_inputs.shapes, extent_names=extent_names)
        random_arrays = random_inputs(
            infos, samples=given_inputs.samples, seed=given_inputs.seed, ranges=given_inputs.ranges, shapes=shapes
        )
        return random_arrays, fill_notes
    arrays = {info.name: given_inputs.arrays[info.name] for info in infos if info.name in given_inputs.arrays}
    unmatched_names = [name for name in given_inputs.arrays if name not in arrays]
    changes: list[str] = []
    missing_names = [info.name for info in infos if info.name not in arrays]
    if may_adapt and len(missing_names) == len(unmatched_names) == 1:
        arrays[missing_names[0]] = given_inputs.arrays[unmatched_names[0]]
        changes.append(f"{missing_names[0]!r} gets {unmatched_names[0]!r}, the only input without a partner")
        unmatched_names, missing_names = [], []
    if missing_names:
        check_names(given_inputs.arrays, infos)
    changes += [f"{name!r} is not an input of this model" for name in unmatched_names]
    leading_axes = 0 if given_inputs.samples is None else 1
    _check_chosen_shapes(given_inputs, arrays, infos, leading_axes)
    if may_adapt:
        for info in infos:
            if info.name in arrays:
                arrays[info.name], clauses = _adapt_input(arrays[info.name], info, leading_axes)
                changes += [f"{info.name!r}: {clause}" for clause in clauses]
    return arrays, changes


def _check_chosen_shapes(
    given_inputs: GivenInputs, arrays: Mapping[str, np.ndarray], infos: Sequence[TensorInfo], leading_axes: int
) -> None:
    """Reject chosen shapes that the arrays do not have."""
    choose_shapes(infos, chosen_shapes=given_inputs.shapes)
    for name, shape in given_inputs.shapes.items():
        array_shape = arrays[name].shape[leading_axes:]
        if array_shape != shape:
            raise InputError(
                f"The array of input {name!r} has shape {dimensions(array_shape)}, but --shape says "
                f"{dimensions(shape)}.",
                hint="Leave out --shape; the arrays have shapes already.",
            )


def _adapt_input(values: np.ndarray, info: TensorInfo, leading_axes: int) -> tuple[np.ndarray, list[str]]:
    """Convert values to the layout and dtype of an input if possible, and describe each change.

    Values that still do not match the input are rejected later, when the run is fed.
    """
    clauses: list[str] = []
    if info.shape is not None and not has_shape_of(values.shape[leading_axes:], info.shape):
        for source, target, clause in (
            (leading_axes + 1, -1, "channels moved last"),
            (-1, leading_axes + 1, "channels moved second"),
        ):
            if values.ndim - leading_axes > 2:
                moved_values = np.moveaxis(values, source, target)
                if has_shape_of(moved_values.shape[leading_axes:], info.shape):
                    values = moved_values
                    clauses.append(clause)
                    break
    if info.dtype is None or values.dtype == logical_dtype(info.dtype):
        return values, clauses
    dtype, quant = logical_dtype(info.dtype), info.quant
    if quant is not None and not quant.per_channel and is_whole(info.dtype) and is_float(values.dtype.name):
        scale, zero = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
        return quantize(values, quant), [
            *clauses,
            f"quantized to {info.dtype} by scale {scale:.6g} / zero point {zero}",
        ]
    same_kind = is_float(info.dtype) == is_float(values.dtype.name)
    if same_kind and (is_float(info.dtype) or bool((values.astype(dtype) == values).all())):
        return values.astype(dtype), [*clauses, f"cast from {values.dtype.name} to {info.dtype}"]
    return values, clauses
