"""The protocols of adapters: a backend that runs models, a reader that reads model files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from qdebug.errors import InputError, UsageError
from qdebug.model import Graph, Node, QuantParams, Recording, TensorInfo

if TYPE_CHECKING:
    from qdebug.recording.recorder import Recorder

__all__ = [
    "TAPS",
    "Backend",
    "BackendRun",
    "Feeds",
    "ModelReader",
    "ModelSource",
    "NodeEdit",
    "OnProgress",
    "OptionSpec",
    "RunFacts",
    "check_options",
    "check_shapes",
    "check_taps",
    "fixes_shapes",
    "open_run",
    "shapes_text",
    "split_into_harmless_taps",
]

TAPS = ("faithful", "all", "outputs")
"""Choices of the tensors to tap: all of the executed graph, all of the source graph, or the outputs only."""

_Tapped = TypeVar("_Tapped")

OnProgress = Callable[[int, int, str], None]
"""Progress callback with (done, total, label)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSpec:
    """One option of a backend, as in `--backend onnxruntime:opt=none`.

    Args:
        name: The option's name.
        default: Its default value.
        choices: Its allowed values; None for any value.
        help: One clause for `--help`.
    """

    name: str
    default: str
    choices: tuple[str, ...] | None = None
    help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """Facts of a run before it starts, for the recording.

    Args:
        backend: The backend's name.
        model: File name or title of the model.
        model_sha256: Hash of the model file in hexadecimal; "" without a file.
        taps: One of `TAPS`.
        versions: Version of each package that is involved.
        cpu_flags: Instruction sets of the processor that affect arithmetic.
        options: Backend options in effect, including defaults.
        extent_names: Names of the dimensions of the model's inputs, by input; "" for a dimension without a name.
            Dimensions with the same name have the same extent.
    """

    backend: str
    model: str = ""
    model_sha256: str = ""
    taps: str = "faithful"
    versions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    cpu_flags: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    extent_names: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))


class Feeds(Protocol):
    """The inputs of a run by sample and step, already checked against the model."""

    @property
    def samples(self) -> int:
        """Number of samples."""

    @property
    def steps(self) -> int:
        """Number of steps per sample of a stateful network; 1 for other networks."""

    def feed(self, sample: int, step: int = 0) -> dict[str, np.ndarray]:
        """Return one array per model input."""


@runtime_checkable
class ModelSource(Protocol):
    """A model file that was read: its graph, and its constants on demand."""

    @property
    def path(self) -> Path:
        """The file."""

    @property
    def name(self) -> str:
        """The model's name for display."""

    @property
    def sha256(self) -> str:
        """Hash of the file in hexadecimal."""

    @property
    def graph(self) -> Graph:
        """The model's graph, with the quantization that follows from its structure."""

    @property
    def constants(self) -> Sequence[str]:
        """Names of the constants, in the model's order."""

    def with_shapes(self) -> ModelSource:
        """Return the model with inferred shapes; the model itself if its file states them."""

    def constant(self, name: str) -> np.ndarray:
        """Return the elements of one constant, read on demand.

        Raises:
            QdebugError: The constant does not exist, or its data cannot be read.
        """


class ModelReader(Protocol):
    """The protocol of a module's `reader` object, which reads model files."""

    @property
    def suffixes(self) -> tuple[str, ...]:
        """File suffixes that it reads, including the dot."""

    def open(self, path: Path) -> ModelSource:
        """Read a model file.

        Raises:
            QdebugError: The file is missing or is not a valid model.
        """


class BackendRun(Protocol):
    """A model, ready to run and be recorded."""

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """The inputs to feed: name, shape (None for free extents), dtype."""

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the model's outputs."""

    @property
    def graph(self) -> Graph:
        """The graph that runs and is recorded."""

    @property
    def facts(self) -> RunFacts:
        """Facts of the run before it starts."""

    def constants(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the constants to record, one at a time; none if the run was opened without weights."""

    def plain(self, feed: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Run the model once as in production, untapped, and return its outputs.

        Raises:
            BackendError: The framework failed.
        """

    def restart(self) -> None:
        """Reset the state that plain runs left in the model. Called before the first plain run of each sample."""

    def record(self, feeds: Feeds, recorder: Recorder, on_progress: OnProgress | None = None) -> None:
        """Run all samples and steps and record every tapped tensor, in bounded memory.

        Raises:
            BackendError: The framework failed.
        """

    def close(self) -> None:
        """Free sessions and temporary files. Safe to call twice."""


class Backend(Protocol):
    """The protocol of a module's `backend` object, which runs models."""

    @property
    def name(self) -> str:
        """The name after `--backend`."""

    @property
    def options(self) -> tuple[OptionSpec, ...]:
        """The options that it accepts."""

    @property
    def models(self) -> tuple[str, ...]:
        """Suffixes of the model files that it runs, including the dot; the preferred suffix first."""

    def open(
        self, model: Path | Recording, *, options: Mapping[str, str], taps: str = "faithful", weights: bool = True
    ) -> BackendRun:
        """Prepare a model for running.

        Args:
            model: A model file, or a recording whose graph and weights are replayed.
            options: Values of options by name; other options take their defaults.
            taps: One of `TAPS`.
            weights: Whether constants are recorded.

        Raises:
            UsageError: An option or its value is unknown, or the backend cannot run this kind of model.
            BackendError: The framework refused the model.
        """


def open_run(
    backend: Backend,
    model: Path | Recording,
    *,
    options: Mapping[str, str],
    taps: str = "faithful",
    weights: bool = True,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> BackendRun:
    """Open a model for a run, optionally with fixed dimensions of its inputs.

    A runtime may choose different kernels for fixed dimensions and for free ones.

    Args:
        backend: The backend. If it has the attribute `fixes_shapes`, its `open` takes the shapes.
        model: As in `Backend.open`.
        options: As in `Backend.open`.
        taps: As in `Backend.open`.
        weights: As in `Backend.open`.
        shapes: Shapes to fix, by input; None leaves all dimensions unchanged.

    Raises:
        UsageError: The backend cannot fix shapes, or as `Backend.open`.
        InputError: A name is not an input, or a shape does not match the model.
        BackendError: The framework refused the model.
    """
    if not shapes:
        return backend.open(model, options=options, taps=taps, weights=weights)
    if not fixes_shapes(backend):
        raise UsageError(
            f"Backend {backend.name!r} cannot fix free dimensions of a model; it runs arrays of any shape.",
            hint="Leave out --shape, and give arrays of that shape.",
        )
    run: BackendRun = backend.open(  # type: ignore[call-arg]  # a backend with the attribute accepts shapes
        model, options=options, taps=taps, weights=weights, shapes=shapes
    )
    return run


def fixes_shapes(backend: Backend) -> bool:
    """Return whether a backend can fix free dimensions of a model."""
    return bool(getattr(backend, "fixes_shapes", False))


def shapes_text(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """Return fixed shapes as text for a run's options."""
    return ", ".join(f"{name}={'x'.join(map(str, shape))}" for name, shape in shapes.items())


def check_shapes(infos: Sequence[TensorInfo], shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Check the shapes chosen for the inputs of a model.

    Args:
        infos: The inputs, with None for free extents.
        shapes: The shapes, by input.

    Raises:
        InputError: A name is not an input, or a shape does not match the model.
    """
    by_name = {info.name: info for info in infos}
    for name, shape in shapes.items():
        info = by_name.get(name)
        if info is None:
            raise InputError(
                f"--shape names {name!r}, which is not an input of the model.",
                hint=f"Choose from: {', '.join(map(repr, by_name)) or 'none'}.",
            )
        model_shape = info.shape
        if model_shape is not None and not (
            len(shape) == len(model_shape) and all(e in (None, s) for s, e in zip(shape, model_shape, strict=True))
        ):
            expected_text = "x".join("?" if extent is None else str(extent) for extent in model_shape)
            raise InputError(
                f"Input {name!r} of the model has shape {expected_text}, but --shape says {'x'.join(map(str, shape))}.",
                hint="Give a size for each dimension; dimensions other than ? are fixed.",
            )


def check_taps(taps: str) -> None:
    """Check that a value is one of `TAPS`.

    Raises:
        UsageError: The value is not in `TAPS`.
    """
    if taps not in TAPS:
        raise UsageError(
            f"Taps are {taps!r}; expected one of: {', '.join(TAPS)}.", hint="Write --taps faithful for the default."
        )


def check_options(backend: str, specs: Sequence[OptionSpec], given_options: Mapping[str, str]) -> dict[str, str]:
    """Return the given options completed with defaults.

    Raises:
        UsageError: An option does not exist, or its value is not allowed.
    """
    specs_by_name = {spec.name: spec for spec in specs}
    for name, value in given_options.items():
        if name not in specs_by_name:
            raise UsageError(
                f"Backend {backend!r} has no option {name!r}; it has: {', '.join(specs_by_name) or 'none'}.",
                hint=f"Write --backend {backend}:OPTION=VALUE with one of these options.",
            )
        choices = specs_by_name[name].choices
        if choices is not None and value not in choices:
            raise UsageError(
                f"Option {name!r} of backend {backend!r} is {value!r}; expected one of: {', '.join(choices)}.",
                hint=f"Write --backend {backend}:{name}={specs_by_name[name].default} for the default.",
            )
    return {name: given_options.get(name, spec.default) for name, spec in specs_by_name.items()}


def split_into_harmless_taps(
    taps: Sequence[str],
    try_taps: Callable[[Sequence[str]], _Tapped | None],
    skip_tap: Callable[[str], None],
) -> Iterator[tuple[Sequence[str], _Tapped]]:
    """Split tensors into parts, each of which can be tapped in one run without changing the outputs.

    Args:
        taps: The tensors.
        try_taps: Returns a model with the given taps; None if its outputs differ from the plain ones.
        skip_tap: Called with a tensor that changes the outputs even when tapped alone.

    Yields:
        The tensors of a part, and the model that taps them.
    """
    tapped_model = try_taps(taps)
    if tapped_model is not None:
        yield taps, tapped_model
    elif len(taps) > 1:
        for half in (taps[: len(taps) // 2], taps[len(taps) // 2 :]):
            yield from split_into_harmless_taps(half, try_taps, skip_tap)
    else:
        skip_tap(taps[0])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodeEdit:
    """A change of one node of a quantized model.

    Args:
        tensor: Name of the tensor that identifies the node: the codes of its result, or else the result itself.
        weight: Real values of a new weight; None keeps the old one.
        bias: Real values of a new bias; None keeps the old one.
        bias_codes: Quantization of the new bias; None for a float bias.
        codes: Quantization of the new weight, per tensor or along an axis; None for a float weight.
        quant: New quantization of its result; None keeps the old one.
        wide_sum: Whether its sums must be exact where a 16-bit accumulator could overflow.
        keep_float: Whether its result is left unrounded.
        clamp: Bounds that the range of the codes imposed on the result. They are kept if the codes are removed. None
            for no bound.
    """

    tensor: str
    weight: np.ndarray | None = None
    bias: np.ndarray | None = None
    bias_codes: QuantParams | None = None
    codes: QuantParams | None = None
    quant: QuantParams | None = None
    wide_sum: bool = False
    keep_float: bool = False
    clamp: tuple[float | None, float | None] = (None, None)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NewPart:
    """New nodes that compute a tensor of a model, in place of the node that computed it before.

    Args:
        tensor: The tensor.
        nodes: The nodes, in topological order. Their own names are replaced by new ones.
        result: Name of the tensor among these nodes.
        leaves: Tensors of the model that these nodes read, by their name among these nodes.
        constants: The constants that they read, by name.
        opset: Version of each operator set that they need, by domain.
    """

    tensor: str
    nodes: Sequence[Node]
    result: str
    leaves: Mapping[str, str]
    constants: Mapping[str, np.ndarray]
    opset: Mapping[str, int]
