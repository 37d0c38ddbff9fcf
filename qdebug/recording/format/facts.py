"""Encode attributes and run facts as JSON, and decode them."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from qdebug.errors import RecordingError
from qdebug.model import AttrValue, Fidelity, RunInfo
from qdebug.model.dtypes import logical_name
from qdebug.model.recording import SkipCause
from qdebug.recording.format.payload import from_physical, to_bytes
from qdebug.recording.format.specification import physical_dtype

__all__ = ["decode_attrs", "decode_info", "encode_attrs", "json_facts"]


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
            json_object[name] = _encode(value)
        except (TypeError, ValueError) as exc:
            raise RecordingError(f"Attribute {name!r} of node {node!r} cannot be recorded: {exc}.") from None
    return json.dumps(json_object, allow_nan=False, separators=(",", ":")).encode("ascii")


def decode_attrs(text: bytes) -> dict[str, AttrValue]:
    """Decode the attributes written by `encode_attrs`.

    Raises:
        ValueError: The text is not such a JSON object.
    """
    if not text:
        return {}
    try:
        json_object = json.loads(text)
        return {str(name): _DECODERS[kind](value) for name, (kind, value) in json_object.items()}
    except (AttributeError, KeyError, TypeError, RecursionError) as exc:
        raise ValueError(f"attributes cannot be decoded: {exc!r}") from None


def _encode(value: Any) -> tuple[str, Any]:
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
    kinds = {_encode(value)[0] for value in values}
    if kinds <= {"b", "i"}:
        return "is", [int(value) for value in values]
    if kinds <= {"b", "i", "f"}:
        return "fs", [_encode_float(float(value)) for value in values]
    if kinds == {"s"}:
        return "ss", list(values)
    raise TypeError("a list must hold numbers only or text only")


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
        raise ValueError("attributes hold an array with a negative extent")
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
"""How the skip reason of a tensor inside a fused node begins, in files without causes."""


def _decode_skips(json_object: Mapping[str, Any]) -> tuple[dict[str, str], dict[str, SkipCause]]:
    """Return the reasons and causes of skipped tensors. In files without causes, the reasons imply them."""
    reasons = {str(name): str(reason) for name, reason in json_object["skipped"].items()}
    if "skip_causes" in json_object:
        return reasons, {
            str(name): SkipCause(cause)
            for name, cause in json_object["skip_causes"].items()
            if cause in tuple(SkipCause)
        }
    fused_causes = {name: SkipCause.FUSED for name, reason in reasons.items() if reason.startswith(_OLD_FUSED_PREFIX)}
    return {name: reason.removeprefix(_OLD_FUSED_PREFIX) for name, reason in reasons.items()}, fused_causes


def decode_info(run: Mapping[str, Any], *, is_complete: bool) -> RunInfo:
    """Return the run facts. Unknown keys are ignored.

    Raises:
        ValueError: A fact has a wrong type.
    """
    try:
        json_object = run["info"]
        skipped, causes = _decode_skips(json_object)
        return RunInfo(
            backend=str(json_object["backend"]),
            model=str(json_object["model"]),
            model_sha256=str(json_object["model_sha256"]),
            taps=str(json_object["taps"]),
            created=str(json_object["created"]),
            fidelity=Fidelity(json_object["fidelity"]),
            fidelity_detail=str(json_object["fidelity_detail"]),
            complete=is_complete and bool(json_object["complete"]),
            versions={str(name): str(value) for name, value in json_object["versions"].items()},
            cpu_flags=tuple(str(flag) for flag in json_object["cpu_flags"]),
            options=dict(json_object["options"]),
            skipped=skipped,
            skip_causes=causes,
            doubts={str(name): str(doubt) for name, doubt in json_object.get("doubts", {}).items()},
            disturbed={str(name): str(reason) for name, reason in json_object.get("disturbed", {}).items()},
        )
    except (KeyError, TypeError, AttributeError) as exc:
        raise ValueError(f"the facts of the run cannot be decoded: {exc!r}") from None
