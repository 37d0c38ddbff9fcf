"""Inputs for runs that are to be compared: random ones, those of another recording, and what fits them to a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from qdebug.errors import InputError, RecordingError, UsageError
from qdebug.model import Graph, Recording, RunInfo, TensorInfo, operators
from qdebug.model.dtypes import is_float, is_whole, logical_dtype
from qdebug.numerics.affine import dequantize, is_wide_code, quantize
from qdebug.running.feeds import check_names, fits, read_inputs
from qdebug.running.input_shapes import Shape, choose_shapes, dimensions

__all__ = [
    "CHANGES",
    "INPUTS",
    "RANDOM",
    "RANDOM_HIDES",
    "GivenInputs",
    "fitted_inputs",
    "given_inputs",
    "input_ranges",
    "random_inputs",
    "random_inputs_said",
    "recorded_inputs",
]

INPUTS = "inputs"
"""Option of a recorded run that says where its inputs come from."""
CHANGES = "inputs_changed"
"""Option of a recorded run that says what was done to its inputs."""
RANDOM_HIDES = "random inputs hide what real ones show"
"""What is said wherever random inputs are used."""
RANDOM = "inputs_random"
"""Option of a recorded run whose inputs are random values: true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInputs:
    """Inputs of a run before the model is known that takes them.

    Args:
        arrays: Values by name; None if random ones are to be made.
        samples: Length of their leading axis of samples; None if they have none.
        said: Where they come from, in a clause.
        random: Whether the values are random, or were where they come from.
        seed: Seed of random values.
        ranges: Least and largest random value of inputs of which that is known.
        shapes: Shapes that the user chose, by input.
        files: Files that they are taken from.
    """

    arrays: Mapping[str, np.ndarray] | None
    samples: int | None
    said: str
    random: bool = False
    seed: int = 0
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


def given_inputs(
    inputs: str | Path | None,
    *,
    samples: int | None,
    seed: int,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> GivenInputs:
    """Return what a reference run is fed with: the arrays of a file, or random values.

    Args:
        inputs: An .npz file; None for random values.
        samples: Length of the leading axis of samples; None for none.
        seed: Seed of random values.
        ranges: Least and largest random value of inputs of which that is known, as `input_ranges` gives them.
        shapes: Shapes that the user chose, by input.

    Raises:
        InputError: The file is no .npz file of plain arrays.
    """
    if inputs is None:
        known = ranges or {}
        within = sorted({f"{low:.4g}..{high:.4g}" for low, high in known.values()})
        said = f"random, seed {seed}" + (f", {' and '.join(within)} as the codes reach" if within else "")
        return GivenInputs(
            arrays=None, samples=samples, said=said, random=True, seed=seed, ranges=known, shapes=shapes or {}
        )
    arrays = read_inputs(inputs)
    return GivenInputs(arrays=arrays, samples=samples, said=f"of {Path(inputs).name}", shapes=shapes or {})


def random_inputs_said(info: RunInfo) -> str | None:
    """Say of a recorded run that it was fed with random values; None if that is not known.

    Args:
        info: Facts of the run.
    """
    return f"{info.options.get(INPUTS, '')}: {RANDOM_HIDES}" if info.options.get(RANDOM) is True else None


def recorded_inputs(recording: Recording, *, title: str, extra: str | Path | None = None) -> GivenInputs:
    """Return the inputs of a recorded run as real values.

    Args:
        recording: The run.
        title: What it is called in a message.
        extra: An .npz file of further inputs, which the run itself did not have.

    Raises:
        RecordingError: The values of an input were not kept.
        UsageError: It is a run of several steps.
        InputError: `extra` is no .npz file of plain arrays.
    """
    if recording.steps > 1:
        raise UsageError(
            f"{title} is a run of {recording.steps} steps; its states cannot be taken for a model.",
            hint="Record the model yourself: qdebug record MODEL --backend NAME --inputs FILE.npz --steps N -o OUT.h5.",
        )
    arrays: dict[str, np.ndarray] = {}
    for name in recording.graph.inputs:
        if not all(recording.has(name, sample) for sample in range(recording.samples)):
            raise RecordingError(
                f"{title} does not hold the values of its input {name!r}.",
                hint="Record it with all values of its inputs, or record both models with the same --inputs FILE.npz.",
            )
        arrays[name] = np.stack([_real_input(recording, name, sample) for sample in range(recording.samples)])
    further = {} if extra is None else read_inputs(extra)
    random = recording.info.options.get(RANDOM) is True
    said = str(recording.info.options.get(INPUTS, "")) if random else f"those of {title}"
    return GivenInputs(arrays=further | arrays, samples=recording.samples, said=said, random=random)


def _real_input(recording: Recording, name: str, sample: int) -> np.ndarray:
    """Return the real values of an input; its axes, one of which may have scales, are those of one sample."""
    stored, quant = recording.load(name, sample), recording.graph.tensors[name].quant
    return stored if quant is None else dequantize(stored, quant, double=is_wide_code(stored.dtype))


def input_ranges(graph: Graph) -> dict[str, tuple[float, float]]:
    """Return the least and the largest value that the codes of a model's inputs stand for.

    Values outside would be cut off, which says nothing of the model. An input counts if it is in codes itself, or if a
    node that quantizes reads it: by its operator, or because it reads nothing else and gives codes of the same shape.

    Args:
        graph: The model's graph.
    """
    found: dict[str, tuple[float, float]] = {}
    for name in graph.inputs:
        tensors = [name]
        for node in graph.consumers(name):
            read = [each for each in node.inputs if each and not graph.is_constant(each)]
            made = [out for out in node.outputs if out]
            alike = read == [name] and all(graph.tensors[out].shape == graph.tensors[name].shape for out in made)
            tensors += made if alike or operators.of(node.op).quantizes else []
        quants = [graph.tensors[each].quant for each in tensors]
        quant = next((each for each in quants if each is not None and not each.per_channel), None)
        if quant is not None and quant.qmin is not None and quant.qmax is not None:
            scale, zero = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
            found[name] = scale * (quant.qmin - zero), scale * (quant.qmax - zero)
    return found


def random_inputs(
    infos: Sequence[TensorInfo],
    *,
    samples: int | None,
    seed: int,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    shapes: Mapping[str, Shape] | None = None,
) -> dict[str, np.ndarray]:
    """Return random arrays for the inputs of a model.

    Real numbers have mean 0 and variance 1, or are spread evenly over the range of the input. Codes are any code, other
    integers and booleans are 0 or 1: any table has two rows.

    Args:
        infos: The inputs.
        samples: Length of a leading axis of samples; None for none.
        seed: Seed.
        ranges: Least and largest value by input; the only one is that of the only input, whatever it is called.
        shapes: The shape of each input, as `choose_shapes` gives them; its defaults if None.

    Raises:
        InputError: An input holds no numbers, or nobody knows its rank.
    """
    rng = np.random.default_rng(seed)
    known = dict(ranges or {})
    if len(known) == len(infos) == 1:
        known = {infos[0].name: next(iter(known.values()))}
    chosen = choose_shapes(infos)[0] if shapes is None else shapes
    return {info.name: _random(info, chosen.get(info.name), rng, samples, known.get(info.name)) for info in infos}


def _random(
    info: TensorInfo,
    own: Shape | None,
    rng: np.random.Generator,
    samples: int | None,
    limits: tuple[float, float] | None,
) -> np.ndarray:
    if info.dtype is None or own is None:
        lacks = "the dtype" if info.dtype is None else "the rank"
        raise InputError(
            f"Input {info.name!r}: the model does not say {lacks}, so no values can be made for it.",
            hint="Give the inputs: --inputs FILE.npz." if own else f"Give its shape: --shape {info.name}=1x3x48x192.",
        )
    shape = own if samples is None else (samples, *own)
    dtype = logical_dtype(info.dtype)
    if is_float(info.dtype):
        values = rng.standard_normal(shape) if limits is None else rng.uniform(*limits, size=shape)
        return np.asarray(values.astype(dtype))
    if info.quant is not None and info.quant.qmin is not None and info.quant.qmax is not None:
        return rng.integers(info.quant.qmin, info.quant.qmax, size=shape, endpoint=True).astype(dtype)
    return rng.integers(0, 2, size=shape).astype(dtype)


def fitted_inputs(
    given: GivenInputs,
    infos: Sequence[TensorInfo],
    *,
    adapt: bool,
    extent_names: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, np.ndarray], list[str]]:
    """Return arrays that a model takes, and what was done for that.

    Args:
        given: What there is.
        infos: The inputs of the model.
        adapt: Whether values may be quantized, cast and laid out anew, and the one input left over be taken for the one
            that is missing.
        extent_names: Names of the dimensions of each input, by input.

    Returns:
        An array for each input, and a clause for each change and for each shape that was filled in by default.

    Raises:
        InputError: Random values cannot be made, an input has no array, or a shape that was chosen does not fit.
    """
    if given.arrays is None:
        shapes, filled = choose_shapes(infos, given=given.shapes, extent_names=extent_names)
        made = random_inputs(infos, samples=given.samples, seed=given.seed, ranges=given.ranges, shapes=shapes)
        return made, filled
    arrays = {info.name: given.arrays[info.name] for info in infos if info.name in given.arrays}
    left = [name for name in given.arrays if name not in arrays]
    changes: list[str] = []
    missing = [info.name for info in infos if info.name not in arrays]
    if adapt and len(missing) == len(left) == 1:
        arrays[missing[0]] = given.arrays[left[0]]
        changes.append(f"{missing[0]!r} gets {left[0]!r}, the only input without a partner")
        left, missing = [], []
    if missing:
        check_names(given.arrays, infos)
    changes += [f"{name!r} is no input of this model" for name in left]
    leading = 0 if given.samples is None else 1
    _check_chosen(given, arrays, infos, leading)
    if adapt:
        for info in infos:
            if info.name in arrays:
                arrays[info.name], said = _adapted(arrays[info.name], info, leading)
                changes += [f"{info.name!r}: {clause}" for clause in said]
    return arrays, changes


def _check_chosen(
    given: GivenInputs, arrays: Mapping[str, np.ndarray], infos: Sequence[TensorInfo], leading: int
) -> None:
    """Refuse shapes that were chosen where the arrays have others."""
    choose_shapes(infos, given=given.shapes)
    for name, shape in given.shapes.items():
        own = arrays[name].shape[leading:]
        if own != shape:
            raise InputError(
                f"The array of input {name!r} has shape {dimensions(own)}, and --shape says {dimensions(shape)}.",
                hint="Leave out --shape: the arrays have their shapes.",
            )


def _adapted(values: np.ndarray, info: TensorInfo, leading: int) -> tuple[np.ndarray, list[str]]:
    """Lay values out and convert them as an input takes them; what cannot be is left to be refused."""
    said: list[str] = []
    if info.shape is not None and not fits(values.shape[leading:], info.shape):
        for source, target, words in (
            (leading + 1, -1, "channels moved last"),
            (-1, leading + 1, "channels moved second"),
        ):
            if values.ndim - leading > 2:
                moved = np.moveaxis(values, source, target)
                if fits(moved.shape[leading:], info.shape):
                    values = moved
                    said.append(words)
                    break
    if info.dtype is None or values.dtype == logical_dtype(info.dtype):
        return values, said
    dtype, quant = logical_dtype(info.dtype), info.quant
    if quant is not None and not quant.per_channel and is_whole(info.dtype) and is_float(values.dtype.name):
        scale, zero = float(quant.scale.reshape(-1)[0]), int(quant.zero_point.reshape(-1)[0])
        return quantize(values, quant), [*said, f"quantized to {info.dtype} by scale {scale:.6g} / zero point {zero}"]
    alike = is_float(info.dtype) == is_float(values.dtype.name)
    if alike and (is_float(info.dtype) or bool((values.astype(dtype) == values).all())):
        return values.astype(dtype), [*said, f"cast from {values.dtype.name} to {info.dtype}"]
    return values, said
