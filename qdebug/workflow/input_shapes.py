"""Shapes of a model's inputs: what the model leaves free is chosen by the user, by another input, or by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from qdebug.errors import InputError
from qdebug.model import TensorInfo

__all__ = ["Shape", "check_shared_extents", "choose_shapes", "dimensions"]

Shape = tuple[int, ...]
"""Extents of an array, without axes of samples and steps."""
_OPEN_EXTENT = 32
"""Extent along a free axis that is no batch: large enough that no stride of a usual net leaves nothing of it."""
_OPEN_BATCH = 1


def dimensions(shape: Sequence[int]) -> str:
    """Return a shape as `--shape` takes it, such as 1x3x224x224."""
    return "x".join(map(str, shape))


def choose_shapes(
    infos: Sequence[TensorInfo],
    *,
    given: Mapping[str, Shape] | None = None,
    extent_names: Mapping[str, Sequence[str]] | None = None,
) -> tuple[dict[str, Shape], list[str]]:
    """Choose a shape for each input. A named dimension has one extent, whichever inputs have it.

    Args:
        infos: The inputs of the model.
        given: Shapes that the user chose, by input.
        extent_names: The name of each dimension of an input, by input; "" for one without a name.

    Returns:
        A shape for each input whose rank is known, and a sentence for each one whose free dimensions were filled in by
        default; a leading one is the batch, which is 1 and not mentioned alone.

    Raises:
        InputError: A shape is given for something that is no input, does not fit the model, or contradicts another one.
    """
    given, names = given or {}, extent_names or {}
    _check_given(infos, given)
    known: dict[str, tuple[int, str]] = {}
    for name, shape in given.items():
        _bind(known, name, shape, names.get(name, ()))
    shapes: dict[str, Shape] = {}
    filled: list[str] = []
    for info in infos:
        if info.name in given:
            shapes[info.name] = given[info.name]
        elif info.shape is not None:
            named = [*names.get(info.name, ())] or [""] * len(info.shape)
            shape, free = _filled(info.shape, named, known)
            shapes[info.name] = shape
            _bind(known, info.name, shape, named)
            if any(axis > 0 for axis in free):
                axes = ", ".join(named[axis] or str(axis) for axis in free)
                filled.append(
                    f"{info.name!r} is {dimensions(shape)}: free dimensions ({axes}) were filled in by default; "
                    f"choose them with --shape {info.name}={dimensions(shape)}"
                )
    return shapes, filled


def _filled(
    shape: Sequence[int | None], named: Sequence[str], known: Mapping[str, tuple[int, str]]
) -> tuple[Shape, list[int]]:
    """Return a shape without free dimensions, and the axes that took their default."""
    found: list[int] = []
    free: list[int] = []
    own: dict[str, int] = {}
    for axis, extent in enumerate(shape):
        name = named[axis]
        if extent is not None:
            found.append(extent)
        elif name in known:
            found.append(known[name][0])
        else:
            found.append(own.get(name, _OPEN_EXTENT if axis else _OPEN_BATCH))
            free.append(axis)
        if name:
            own[name] = found[-1]
    return tuple(found), free


def _check_given(infos: Sequence[TensorInfo], given: Mapping[str, Shape]) -> None:
    by_name = {info.name: info for info in infos}
    for name, shape in given.items():
        info = by_name.get(name)
        if info is None:
            raise InputError(
                f"--shape names {name!r}, which is no input of the model.",
                hint=f"Choose of: {', '.join(map(repr, by_name)) or 'none'}.",
            )
        expected = info.shape
        if expected is not None and not (
            len(shape) == len(expected) and all(e in (None, s) for s, e in zip(shape, expected, strict=True))
        ):
            said = "x".join("?" if extent is None else str(extent) for extent in expected)
            raise InputError(
                f"Input {name!r} of the model has shape {said}, and --shape says {dimensions(shape)}.",
                hint="Give an extent for each dimension; those that are not ? are fixed.",
            )


def check_shared_extents(shapes: Mapping[str, Sequence[int]], extent_names: Mapping[str, Sequence[str]]) -> None:
    """Check that dimensions of one name have one extent.

    Args:
        shapes: The shape of each input's array.
        extent_names: The name of each dimension of an input, by input; "" for one without a name.

    Raises:
        InputError: Two inputs, or two axes of one, have different extents along a dimension.
    """
    known: dict[str, tuple[int, str]] = {}
    for name, shape in shapes.items():
        _bind(known, name, shape, extent_names.get(name, ()))


def _bind(known: dict[str, tuple[int, str]], title: str, shape: Sequence[int], named: Sequence[str]) -> None:
    """Take the extents of an input for the dimensions that it names.

    Raises:
        InputError: A dimension has another extent already.
    """
    for extent, name in zip(shape, named, strict=False):
        if not name:
            continue
        other, first = known.setdefault(name, (extent, title))
        if other != extent:
            where = f"input {title!r}" if first == title else f"inputs {first!r} and {title!r}"
            raise InputError(
                f"Dimension {name!r} of the model has one extent, and {where} would have {other} and {extent}.",
                hint="Give arrays, or --shape, with one extent for it.",
            )
