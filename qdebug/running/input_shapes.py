"""Choose the free dimensions of a model's inputs: from the user, from equally named dimensions, or by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qdebug.backends.protocol import check_shapes
from qdebug.model import TensorInfo

__all__ = ["Shape", "choose_shapes", "dimensions"]

Shape = tuple[int, ...]
"""Shape of an array without its axes of samples and steps."""
_DEFAULT_EXTENT = 32
"""Default extent of a free axis other than the batch: large enough for the strides of most networks."""
_DEFAULT_BATCH = 1


def dimensions(shape: Sequence[int]) -> str:
    """Return a shape in the format of `--shape`, such as 1x3x224x224."""
    return "x".join(map(str, shape))


def choose_shapes(
    infos: Sequence[TensorInfo],
    *,
    chosen_shapes: Mapping[str, Shape] | None = None,
    extent_names: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, Shape], list[str]]:
    """Choose a shape for each input. Dimensions with the same name get the same extent, across inputs.

    Shapes chosen by the user apply even if they give a name two extents, because the runtime decides what the model
    accepts.

    Args:
        infos: The inputs of the model.
        chosen_shapes: Shapes chosen by the user, by input.
        extent_names: The name of each dimension of an input, by input. "" for a dimension without a name.

    Returns:
        A shape for each input of known rank, and a sentence for each input with a default extent, unless only the
            leading axis is free: this is the batch, which defaults to 1.

    Raises:
        InputError: A shape is given for an unknown input, or does not fit the model.
    """
    chosen_shapes, names = chosen_shapes or {}, extent_names or {}
    check_shapes(infos, chosen_shapes)
    extents: dict[str, int] = {}
    for name, shape in chosen_shapes.items():
        _bind_names(extents, shape, names.get(name, ()))
    shapes: dict[str, Shape] = {}
    fill_notes: list[str] = []
    for info in infos:
        if info.name in chosen_shapes:
            shapes[info.name] = chosen_shapes[info.name]
        elif info.shape is not None:
            axis_names = [*names.get(info.name, ())] or [""] * len(info.shape)
            shape, free_axes = _fill_free_dimensions(info.shape, axis_names, extents)
            shapes[info.name] = shape
            _bind_names(extents, shape, axis_names)
            if any(axis > 0 for axis in free_axes):
                axes = ", ".join(axis_names[axis] or str(axis) for axis in free_axes)
                fill_notes.append(
                    f"{info.name!r} is {dimensions(shape)}: free dimensions ({axes}) were filled in by default; "
                    f"choose them with --shape {info.name}={dimensions(shape)}"
                )
    return shapes, fill_notes


def _fill_free_dimensions(
    shape: Sequence[int | None], axis_names: Sequence[str], extents: Mapping[str, int]
) -> tuple[Shape, list[int]]:
    """Return a shape with its free dimensions filled in, and the axes that got a default extent."""
    filled_shape: list[int] = []
    free_axes: list[int] = []
    input_extents: dict[str, int] = {}
    for axis, extent in enumerate(shape):
        name = axis_names[axis]
        if extent is not None:
            filled_shape.append(extent)
        elif name in extents:
            filled_shape.append(extents[name])
        else:
            filled_shape.append(input_extents.get(name, _DEFAULT_EXTENT if axis else _DEFAULT_BATCH))
            free_axes.append(axis)
        if name:
            input_extents[name] = filled_shape[-1]
    return tuple(filled_shape), free_axes


def _bind_names(extents: dict[str, int], shape: Sequence[int], axis_names: Sequence[str]) -> None:
    """Store the extents of an input by the names of its dimensions, unless a name already has one."""
    for extent, name in zip(shape, axis_names, strict=False):
        if name:
            extents.setdefault(name, extent)
