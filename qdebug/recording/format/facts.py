"""Encode attributes and run facts as JSON, and decode them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import AttrValue, Fidelity, RunInfo
from qdebug.model.dtypes import logical_name
from qdebug.model.recording import SkipCause
from qdebug.recording.format.payload import from_physical, to_bytes
from qdebug.recording.format.specification import physical_dtype

__all__ = ["decode_attrs", "decode_info", "encode_attrs", "join_infos", "json_facts"]

T = TypeVar("T")


def encode_attrs(attrs: Mapping[str, AttrValue], node: str) -> bytes:
    """Return attributes as JSON in UTF-8; empty bytes for no attributes.

    Raises:
        RecordingError: An attribute's type cannot be stored; the message names the node and the attribute.
    """
    if not attrs:
        return b""
    json_object = {}
    for name, value in attrs.items():
        try:
            json_object[name] = _encode_value(value)
        except (TypeError, ValueError) as exc:
            raise RecordingError(f"Attribute {name!r} of node {node!r} cannot be recorded: {exc}.") from None
    return json.dumps(json_object, allow_nan=False, separators=(",", ":")).encode("ascii")


def decode_attrs(text: bytes) -> dict[str, AttrValue]:
    """Decode the attributes written by `encode_attrs`.

    Raises:
        ValueError: `encode_attrs` cannot have written the text.
    """
    if not text:
        return {}
    try:
        json_object = json.loads(text)
        return {str(name): _DECODERS[kind](value) for name, (kind, value) in json_object.items()}
    except (AttributeError, KeyError, TypeError, RecursionError) as exc:
        raise ValueError(f"attributes cannot be decoded: {exc!r}") from None


def _encode_value(value: Any) -> tuple[str, Any]:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray):
        return "a", _encode_array(value)
    if isinstance(value, list | tuple):
        return _encode_list(value)
    for kind, code in ((bool, "b"), (int, "i"), (str, "s")):
        if isinstance(value, kind):
            return code, value
    if isinstance(value, float):
        return "f", _encode_float(value)
    raise TypeError(f"its type {type(value).__name__} cannot be stored in a recording")


def _encode_list(values: list[Any] | tuple[Any, ...]) -> tuple[str, Any]:
    if all(type(value) is int for value in values):
        return "is", list(values)
    kinds = {_encode_value(value)[0] for value in values}
    if kinds <= {"b", "i"}:
        return "is", [int(value) for value in values]
    if kinds <= {"b", "i", "f"}:
        return "fs", [_encode_float(float(value)) for value in values]
    if kinds == {"s"}:
        return "ss", list(values)
    raise TypeError("a list must contain only numbers or only text")


def _encode_float(value: float) -> float | str:
    return value if math.isfinite(value) else repr(value)


def _encode_array(array: np.ndarray) -> dict[str, Any]:
    logical = logical_name(array.dtype)
    data = base64.b64encode(to_bytes(array, logical)).decode("ascii")
    return {"dtype": logical, "shape": list(array.shape), "data": data}


def _decode_array(json_object: Mapping[str, Any]) -> np.ndarray:
    raw = np.frombuffer(
        base64.b64decode(json_object["data"], validate=True), dtype=physical_dtype(json_object["dtype"])
    )
    shape = [int(extent) for extent in json_object["shape"]]
    if min(shape, default=0) < 0:
        raise ValueError("attributes contain an array with a negative extent")
    return from_physical(raw, json_object["dtype"]).reshape(shape)


_DECODERS: dict[str, Callable[[Any], AttrValue]] = {
    "i": int,
    "f": float,
    "s": str,
    "b": bool,
    "is": lambda values: tuple(int(value) for value in values),
    "fs": lambda values: tuple(float(value) for value in values),
    "ss": lambda values: tuple(str(value) for value in values),
    "a": _decode_array,
}


def json_facts(info: RunInfo) -> dict[str, Any]:
    """Return the facts of a run as JSON values."""
    json_object = info.to_dict()
    json_object["options"] = {str(name): _json_option(value) for name, value in info.options.items()}
    return json_object


def _json_option(value: Any) -> Any:
    """Return an option's value as JSON. A value that JSON cannot hold becomes text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(key): _json_option(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_json_option(item) for item in value]
    return str(value)


_OLD_FUSED_PREFIX = "it is never made: "
"""Prefix of the skip reason of a tensor inside a fused node, in old files without `skip_causes`."""


def _get_fact(json_object: Mapping[str, Any], name: str, kind: type[T], default: T | None = None) -> T:
    """Return a fact, or its default if it is missing.

    Raises:
        ValueError: It is missing without a default, or has another type.
    """
    value = json_object.get(name, default)
    if not isinstance(value, kind):
        raise ValueError(f"the facts of the run cannot be decoded: {name!r} is {value!r}")
    return value


def _get_texts(json_object: Mapping[str, Any], name: str, default: dict[str, Any] | None = None) -> dict[str, str]:
    """Return a fact that maps names to texts, see `_get_fact`."""
    return {str(key): str(text) for key, text in _get_fact(json_object, name, dict, default).items()}


def _decode_skips(json_object: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, SkipCause]]:
    """Return the reasons and causes of skipped tensors. In old files without causes, they are derived from reasons."""
    reasons = _get_texts(json_object, "skipped")
    if "skip_causes" in json_object:
        causes = _get_texts(json_object, "skip_causes")
        return reasons, {name: SkipCause(cause) for name, cause in causes.items() if cause in tuple(SkipCause)}
    fused_causes = {name: SkipCause.FUSED for name, reason in reasons.items() if reason.startswith(_OLD_FUSED_PREFIX)}
    return {name: reason.removeprefix(_OLD_FUSED_PREFIX) for name, reason in reasons.items()}, fused_causes


def decode_info(run: Mapping[str, Any], *, is_complete: bool) -> RunInfo:
    """Return the facts of the run. Unknown keys are ignored.

    Raises:
        ValueError: A fact has a wrong type.
    """
    json_object = _get_fact(run, "info", dict)
    reasons, causes = _decode_skips(json_object)
    return RunInfo(
        backend=_get_fact(json_object, "backend", str),
        model=_get_fact(json_object, "model", str),
        model_sha256=_get_fact(json_object, "model_sha256", str),
        taps=_get_fact(json_object, "taps", str),
        created=_get_fact(json_object, "created", str),
        fidelity=Fidelity(_get_fact(json_object, "fidelity", str)),
        fidelity_detail=_get_fact(json_object, "fidelity_detail", str),
        complete=is_complete and _get_fact(json_object, "complete", bool),
        versions=_get_texts(json_object, "versions"),
        cpu_flags=tuple(map(str, _get_fact(json_object, "cpu_flags", list))),
        options=dict(_get_fact(json_object, "options", dict)),
        skipped=reasons,
        skip_causes=causes,
        doubts=_get_texts(json_object, "doubts", {}),
        disturbed=_get_texts(json_object, "disturbed", {}),
    )


def join_infos(infos: Sequence[tuple[str, RunInfo]]) -> RunInfo:
    """Return the facts of a joined recording: those of the first, but complete and faithful only if all are.

    Args:
        infos: The prefix of tensor names and the facts of each recording.
    """
    worst_first = (Fidelity.DIFFERS, Fidelity.NONDETERMINISTIC, Fidelity.UNKNOWN, Fidelity.BIT_EQUAL)
    worst = min((info for _, info in infos), key=lambda info: worst_first.index(info.fidelity))
    facts_by_tensor: dict[str, Any] = {
        fact: {prefix + name: value for prefix, info in infos for name, value in getattr(info, fact).items()}
        for fact in ("disturbed", "skipped", "skip_causes")
    }
    return replace(
        infos[0][1],
        complete=all(info.complete for _, info in infos),
        fidelity=worst.fidelity,
        fidelity_detail=worst.fidelity_detail,
        **facts_by_tensor,
    )
