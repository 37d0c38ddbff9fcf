"""Profiles: a histogram of each tensor over one or more runs, for choosing scales. Defines their two file formats.

A profile is written as JSON if the file's name ends in .json, else as HDF5. Both can be read.

HDF5, format version 1: fixed-length text attribute `format` = "qdebug.profile", int32 attribute `format_version`, and
three datasets: `profile` (uint8, the JSON object below in UTF-8, but without "counts" and "ranges"), `counts` (int64)
and `ranges` (float64, two columns): the counts and ranges of all histograms, in the order of the JSON.

JSON: {"format": "qdebug.profile", "version": 1, "bins": maximum bins of a histogram, "runs": [{"backend", "model",
"samples"}], "left_out": {tensor: reason}, "tensors": [{"name", "node", "op", "axis", "scale", "offset", "histogram",
"channels": [histogram, ...]}]}. A histogram is {"exponent", "first", "size", "count", "low", "high", "zeros", "nan",
"infinite", "percentiles", "arrays", "counts", "ranges"}: bin k of `counts` holds the values from (first + k) *
2**exponent up to but excluding the start of the next bin. `ranges` holds the smallest and largest value of each array.
`scale` and `offset` are for int8 codes that cover the whole range. Like `percentiles`, they are for readers without
this package. Non-finite numbers are the texts "NaN", "Infinity" and "-Infinity".
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, NotRequired, TypedDict

import h5py
import numpy as np

from qdebug.errors import FormatVersionError, NotARecordingError, RecordingError, UsageError
from qdebug.model import Graph, QuantParams, RunInfo
from qdebug.model.json_object import Count, json_safe
from qdebug.model.kept import Statistics
from qdebug.numerics.affine import dequantize
from qdebug.numerics.calibration import MinMax, calibrate
from qdebug.numerics.range_histogram import MOST_BINS, RangeCounter, RangeHistogram, merge_histograms
from qdebug.numerics.scheme import QuantScheme
from qdebug.recording.reading.hdf5_checks import open_dataset, open_hdf5, read_integer_attribute, read_text_attribute
from qdebug.recording.target import replacing_file
from qdebug.regular_file import near_file, open_binary

__all__ = [
    "ProfiledTensor",
    "ScaleProfile",
    "TensorCounter",
    "is_profile",
    "profile_json",
    "profile_of_run",
    "read_profile",
    "write_profile",
]

_FORMAT = "qdebug.profile"
_VERSION = 1
_HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
_PERCENTILES = (0.01, 0.1, 1.0, 50.0, 99.0, 99.9, 99.99)
_MAX_BYTES = 1 << 30
"""Maximum bytes of a JSON file, or of the header of an HDF5 file, that are read."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ProfiledTensor:
    """Histograms of one tensor over all samples.

    Args:
        name: The tensor.
        node: The node that produces it; "" for an input.
        op: That node's operator.
        histogram: The histogram of all its values.
        axis: The channel axis of `channels`; None without channels.
        channels: The histogram of each channel.
    """

    name: str
    node: str = ""
    op: str = ""
    histogram: RangeHistogram
    axis: int | None = None
    channels: tuple[RangeHistogram, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScaleProfile:
    """Histograms of all tensors of one or more runs.

    Args:
        runs: Facts of each run: "backend", "model", "samples".
        bins: Maximum number of bins of a histogram.
        tensors: The tensors by name, in the order of the first run.
        left_out: Tensors without a histogram, with the reason.
    """

    runs: tuple[Mapping[str, Any], ...]
    bins: int
    tensors: Mapping[str, ProfiledTensor]
    left_out: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def merge(self, other: ScaleProfile) -> ScaleProfile:
        """Return the merged profile. The histograms do not depend on which of the two comes first.

        Raises:
            UsageError: Their histograms have different numbers of bins, or a tensor has different channels.
        """
        tensors = dict(self.tensors)
        for name, other_tensor in other.tensors.items():
            tensors[name] = _merge_tensors(tensors[name], other_tensor) if name in tensors else other_tensor
        left_out = {**self.left_out, **other.left_out}
        return ScaleProfile(
            runs=(*self.runs, *other.runs),
            bins=self.bins,
            tensors=tensors,
            left_out={name: reason for name, reason in left_out.items() if name not in tensors},
        )


def _merge_tensors(first: ProfiledTensor, second: ProfiledTensor) -> ProfiledTensor:
    has_same_channels = (first.axis, len(first.channels)) == (second.axis, len(second.channels))
    if not has_same_channels and first.channels and second.channels:
        raise UsageError(
            f"Tensor {first.name!r} has {len(first.channels)} channels along axis {first.axis} in one profile and "
            f"{len(second.channels)} along axis {second.axis} in another.",
            hint="Profile them separately, or without --per-channel.",
        )
    pairs = zip(first.channels, second.channels, strict=True) if has_same_channels else ()
    return ProfiledTensor(
        name=first.name,
        node=first.node,
        op=first.op,
        histogram=merge_histograms([first.histogram, second.histogram]),
        axis=first.axis if has_same_channels else None,
        channels=tuple(merge_histograms(pair) for pair in pairs),
    )


def _channel_axis(rank: int) -> int | None:
    """Return the usual channel axis for a rank: the last for ranks 2 and 3, else the second."""
    if rank < 2:
        return None
    return 1 if rank > 3 else rank - 1


class TensorCounter:
    """Counts the values of one tensor and, optionally, of each channel.

    Args:
        bins: Maximum number of bins of a histogram.
        per_channel: Whether to count each channel too.
    """

    def __init__(self, bins: int, *, per_channel: bool = False) -> None:
        self._bins, self._per_channel = bins, per_channel
        self._all = RangeCounter(bins)
        self._channels: list[RangeCounter] = []
        self._axis: int | None = None

    def add(self, values: np.ndarray | Statistics, quant: QuantParams | None) -> None:
        """Count the values of one sample.

        Args:
            values: Stored elements, or their statistics, which have no channels.
            quant: Their quantization.

        Raises:
            UsageError: They are not real numbers, or the number of channels changed.
        """
        self._all.add(values, quant)
        if not self._per_channel or isinstance(values, Statistics):
            return
        axis = _channel_axis(values.ndim)
        if axis is None:
            return
        if not self._channels:
            self._axis = axis
            self._channels = [RangeCounter(self._bins) for _ in range(values.shape[axis])]
        if len(self._channels) != values.shape[axis]:
            raise UsageError(
                f"A sample has {values.shape[axis]} channels, but the previous sample has {len(self._channels)}."
            )
        for counter, channel_values in zip(
            self._channels, np.moveaxis(dequantize(values, quant), axis, 0), strict=True
        ):
            counter.add(np.ascontiguousarray(channel_values))

    def make_profile(self, name: str, graph: Graph) -> ProfiledTensor:
        """Return the profile of a tensor.

        Args:
            name: The tensor.
            graph: The graph of the run.
        """
        producer = graph.producer(name)
        return ProfiledTensor(
            name=name,
            node=producer.name if producer else "",
            op=producer.op if producer else "",
            histogram=self._all.histogram(),
            axis=self._axis,
            channels=tuple(counter.histogram() for counter in self._channels),
        )


def profile_of_run(
    counters: Mapping[str, TensorCounter],
    graph: Graph,
    info: RunInfo,
    *,
    bins: int,
    samples: int,
    left_out: Mapping[str, str],
) -> ScaleProfile:
    """Return the profile of one run.

    Args:
        counters: The counters by tensor.
        graph: The graph of the run.
        info: Facts of the run.
        bins: Maximum number of bins of a histogram.
        samples: Number of samples.
        left_out: Tensors that were not counted, with the reason.
    """
    run = {"backend": info.backend, "model": info.model, "samples": samples}
    tensors = {name: counter.make_profile(name, graph) for name, counter in counters.items()}
    return ScaleProfile(runs=(run,), bins=bins, tensors=tensors, left_out=left_out)


# -- files -------------------------------------------------------------------------------------------------------------


def is_profile(path: Path) -> bool:
    """Return whether a file claims to be a profile. Return False if it cannot be read."""
    try:
        with open_binary(path) as file:
            start = file.read(4096)
            if start.startswith(_HDF5_MAGIC):
                return read_text_attribute(open_hdf5(path, file.fileno()), b"format") == _FORMAT
    except (OSError, ValueError, RuntimeError, RecordingError):
        return False
    return start.lstrip()[:1] == b"{" and f'"{_FORMAT}"'.encode() in start


def write_profile(profile: ScaleProfile, path: Path) -> None:
    """Write a profile atomically, as JSON if the name ends in .json, else as HDF5."""
    as_json = path.suffix.lower() == ".json"
    header, histograms = _to_header(profile, arrays=as_json)
    try:
        with replacing_file(path) as partial:
            if as_json:
                partial.write_text(_format_json(header), encoding="utf-8")
            else:
                _write_hdf5(header, histograms, partial)
    except OSError as error:
        raise RecordingError(
            f"The profile {str(path)!r} cannot be written: {error.strerror or error}.", hint="Choose another path."
        ) from error


def profile_json(profile: ScaleProfile) -> str:
    """Return a profile as JSON, with the same content as a .json file."""
    return _format_json(_to_header(profile, arrays=True)[0])


def _write_hdf5(header: Mapping[str, Any], histograms: Sequence[RangeHistogram], path: Path) -> None:
    content = io.BytesIO()  # the HDF5 library crashes if the disk is full when it closes a file
    text = np.frombuffer(json.dumps(header, allow_nan=False).encode(), np.uint8)
    counts = np.concatenate([np.zeros(0, np.int64), *(histogram.counts for histogram in histograms)])
    ranges = np.concatenate([np.zeros((0, 2)), *(histogram.ranges for histogram in histograms)])
    with h5py.File(content, "w") as file:
        file.attrs.create("format", np.bytes_(_FORMAT))
        file.attrs.create("format_version", np.int32(_VERSION))
        for name, array in (("profile", text), ("counts", counts), ("ranges", ranges)):
            file.create_dataset(name, data=array)
    path.write_bytes(content.getbuffer())


def _format_json(header: Mapping[str, Any]) -> str:
    """Return JSON with one line per fact, and each list of numbers on a single line."""
    encoder = json.JSONEncoder(allow_nan=False)

    def format_value(value: Any, indent: str) -> str:
        inner_indent = indent + "  "
        if isinstance(value, Mapping) and value:
            rows = [
                f"{inner_indent}{encoder.encode(key)}: {format_value(item, inner_indent)}"
                for key, item in value.items()
            ]
            return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
        if isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            return (
                "[\n" + ",\n".join(inner_indent + format_value(item, inner_indent) for item in value) + f"\n{indent}]"
            )
        return encoder.encode(value)

    return format_value(header, "") + "\n"


class ProfileHistogram(TypedDict):
    """A histogram of a tensor or channel, as stored in files. The JSON of an HDF5 file lacks the arrays.

    Args:
        exponent: A bin is 2**exponent wide.
        first: Number of the first bin: bin k begins at k * 2**exponent.
        ranges: Smallest and largest value of each array.
    """

    exponent: int
    first: int
    size: Count
    count: Count
    low: float
    high: float
    zeros: Count
    nan: Count
    infinite: Count
    percentiles: Mapping[str, float]
    arrays: Count
    counts: NotRequired[list[Count]]
    ranges: NotRequired[list[tuple[float, float]]]


class ProfileTensor(TypedDict):
    """A tensor of a profile, as stored in files.

    Args:
        scale: Scale of int8 codes for the whole range.
    """

    name: str
    node: str
    op: str
    axis: int | None
    scale: float | None
    offset: int | None
    histogram: ProfileHistogram
    channels: list[ProfileHistogram]


class ProfiledRun(TypedDict):
    """A run that a profile covers."""

    backend: str
    model: str
    samples: Count


class ProfileHeader(TypedDict):
    """A histogram of each tensor.

    Args:
        left_out: Tensors without a histogram, with the reason.
    """

    format: str
    version: int
    bins: Count
    runs: list[ProfiledRun]
    left_out: Mapping[str, str]
    tensors: list[ProfileTensor]


def _to_header(profile: ScaleProfile, *, arrays: bool) -> tuple[ProfileHeader, list[RangeHistogram]]:
    histograms: list[RangeHistogram] = []

    def add_histogram(histogram: RangeHistogram) -> ProfileHistogram:
        histograms.append(histogram)
        return _histogram_to_json(histogram, arrays=arrays)

    tensors: list[ProfileTensor] = []
    for tensor in profile.tensors.values():
        scale, offset = _scale_and_offset(tensor.histogram)
        tensors.append(
            {
                "name": tensor.name,
                "node": tensor.node,
                "op": tensor.op,
                "axis": tensor.axis,
                "scale": scale,
                "offset": offset,
                "histogram": add_histogram(tensor.histogram),
                "channels": [add_histogram(channel) for channel in tensor.channels],
            }
        )
    header: ProfileHeader = {
        "format": _FORMAT,
        "version": _VERSION,
        "bins": profile.bins,
        "runs": [{"backend": run["backend"], "model": run["model"], "samples": run["samples"]} for run in profile.runs],
        "left_out": dict(profile.left_out),
        "tensors": tensors,
    }
    return header, histograms


def _scale_and_offset(histogram: RangeHistogram) -> tuple[float | None, int | None]:
    try:
        quant, _ = calibrate(MinMax(), histogram, QuantScheme())
    except UsageError:
        return None, None
    return float(quant.scale[0]), int(quant.zero_point[0])


def _histogram_to_json(histogram: RangeHistogram, *, arrays: bool) -> ProfileHistogram:
    json_histogram: ProfileHistogram = {
        "exponent": histogram.exponent,
        "first": histogram.first,
        "size": int(histogram.counts.size),
        "count": histogram.total,
        "low": json_safe(histogram.low),
        "high": json_safe(histogram.high),
        "zeros": histogram.zeros,
        "nan": histogram.nan,
        "infinite": histogram.infinite,
        "percentiles": _percentiles(histogram),
        "arrays": len(histogram.ranges),
    }
    if arrays:
        json_histogram["counts"] = histogram.counts.tolist()
        json_histogram["ranges"] = json_safe(histogram.ranges.tolist())
    return json_histogram


def _percentiles(histogram: RangeHistogram) -> dict[str, float]:
    """Return the percentiles of a histogram by their percentage, accurate to the width of a bin."""
    if not histogram.total:
        return {}
    cumulative_shares = np.cumsum(histogram.counts) / histogram.total
    bin_ends = np.clip(histogram.edges[1:], histogram.low, histogram.high)
    bin_numbers = np.minimum(np.searchsorted(cumulative_shares, np.array(_PERCENTILES) / 100.0), bin_ends.size - 1)
    return {
        f"{percent:g}": float(bin_ends[bin_number])
        for percent, bin_number in zip(_PERCENTILES, bin_numbers, strict=True)
    }


def read_profile(path: Path) -> ScaleProfile:
    """Read and check a profile.

    Raises:
        NotARecordingError: The file is not a profile.
        FormatVersionError: A newer qdebug wrote it.
        RecordingError: It is missing or damaged.
    """
    if not path.exists():
        raise RecordingError(f"There is no file {str(path)!r}.{near_file(path)}", hint="Check the path.")
    if not is_profile(path):
        raise NotARecordingError(f"{str(path)!r} is not a profile.", hint="Make one: qdebug scales profile RUN.h5.")
    try:
        with open_binary(path) as file:
            if file.read(len(_HDF5_MAGIC)) == _HDF5_MAGIC:
                header, counts, ranges = _read_hdf5(path, file.fileno())
            else:
                header, counts, ranges = _read_json(path), None, None
        return _read_profile_header(header, _ArrayPool(counts, ranges))
    except FormatVersionError:
        raise
    except (OSError, ValueError, TypeError, KeyError, OverflowError, RuntimeError, RecursionError) as error:
        raise RecordingError(
            f"The profile {str(path)!r} is damaged: {error}.", hint="Make it again: qdebug scales profile RUN.h5."
        ) from error


def _read_json(path: Path) -> Any:
    if path.stat().st_size > _MAX_BYTES:
        raise ValueError(f"it has more than {_MAX_BYTES} bytes of JSON")
    return json.loads(path.read_text(encoding="utf-8"))


def _read_hdf5(path: Path, fd: int) -> tuple[Any, np.ndarray, np.ndarray]:
    root, size = open_hdf5(path, fd), path.stat().st_size
    _check_version(read_integer_attribute(root, b"format_version"))
    arrays = []
    for name, dtype, ndim in ((b"profile", np.uint8, 1), (b"counts", np.int64, 1), (b"ranges", np.float64, 2)):
        dataset, extent = open_dataset(root, name, file_size=size)
        if extent.dtype != dtype or len(extent.shape) != ndim or (name == b"profile" and extent.nbytes > _MAX_BYTES):
            raise ValueError(f"{name.decode()} does not belong in a profile")
        values = np.empty(extent.shape, dtype)
        if values.size:
            dataset.read(h5py.h5s.ALL, h5py.h5s.ALL, values)
        arrays.append(values)
    if arrays[2].shape[1:] != (2,):
        raise ValueError("ranges is not valid in a profile")
    return json.loads(arrays[0].tobytes()), arrays[1], arrays[2]


def _check_version(version: Any) -> None:
    if type(version) is not int or version < 1:
        raise ValueError("its version is not a number")
    if version > _VERSION:
        raise FormatVersionError(
            f"The profile has format version {version}; this qdebug reads up to {_VERSION}.", hint="Update qdebug."
        )


class _ArrayPool:
    """Supplies the counts and ranges of each histogram, in the order of the file.

    An HDF5 file stores them in two arrays for all histograms. In JSON, each histogram contains its own.
    """

    def __init__(self, counts: np.ndarray | None, ranges: np.ndarray | None) -> None:
        self._counts, self._ranges = counts, ranges
        self._next_count = self._next_range = 0

    def take(self, json_histogram: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return the counts and the ranges of the next histogram."""
        size, arrays = _read_count(json_histogram["size"]), _read_count(json_histogram["arrays"])
        if self._counts is None or self._ranges is None:
            counts = np.array(json_histogram["counts"], np.int64)
            ranges = np.array(
                [[_read_float(end) for end in row] for row in json_histogram["ranges"]], np.float64
            ).reshape(-1, 2)
        else:
            counts = self._counts[self._next_count : self._next_count + size]
            ranges = self._ranges[self._next_range : self._next_range + arrays]
            self._next_count, self._next_range = self._next_count + size, self._next_range + arrays
        if counts.shape != (size,) or ranges.shape != (arrays, 2) or (counts < 0).any():
            raise ValueError("the counts of a histogram do not add up to its total")
        counts, ranges = counts.copy(), ranges.copy()
        counts.flags.writeable = ranges.flags.writeable = False
        return counts, ranges


def _read_count(value: Any, minimum: int = 0) -> int:
    if type(value) is not int or not minimum <= value < 2**62:
        raise ValueError(f"{value!r} is not a count")
    return value


def _read_float(value: Any) -> float:
    if value in ("NaN", "Infinity", "-Infinity"):
        return float(value)
    if type(value) not in (int, float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _read_text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not text")
    return value


def _read_profile_header(header: Any, array_pool: _ArrayPool) -> ScaleProfile:
    _check_version(header["version"])
    bins = _read_count(header["bins"], 2)
    tensors = dict(_read_tensors(header["tensors"], bins, array_pool))
    runs = tuple(
        {
            "backend": _read_text(run["backend"]),
            "model": _read_text(run["model"]),
            "samples": _read_count(run["samples"]),
        }
        for run in header["runs"]
    )
    left_out = {_read_text(name): _read_text(reason) for name, reason in header["left_out"].items()}
    return ScaleProfile(runs=runs, bins=bins, tensors=tensors, left_out=left_out)


def _read_tensors(rows: Any, bins: int, array_pool: _ArrayPool) -> Iterator[tuple[str, ProfiledTensor]]:
    for row in rows:
        axis = row["axis"]
        name = _read_text(row["name"])
        yield (
            name,
            ProfiledTensor(
                name=name,
                node=_read_text(row["node"]),
                op=_read_text(row["op"]),
                histogram=_read_histogram(row["histogram"], bins, array_pool),
                axis=None if axis is None else _read_count(axis),
                channels=tuple(_read_histogram(channel, bins, array_pool) for channel in row["channels"]),
            ),
        )


def _read_histogram(json_histogram: Any, bins: int, array_pool: _ArrayPool) -> RangeHistogram:
    counts, ranges = array_pool.take(json_histogram)
    exponent, first_bin = json_histogram["exponent"], json_histogram["first"]
    if type(exponent) is not int or not -1000 <= exponent <= 1023 or counts.size > min(bins, MOST_BINS):
        raise ValueError("a histogram has invalid bins")
    if type(first_bin) is not int or (counts.size and not first_bin <= 0 < first_bin + counts.size):
        raise ValueError("a histogram does not include 0")
    low, high = _read_float(json_histogram["low"]), _read_float(json_histogram["high"])
    if counts.size and not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise ValueError("a histogram has values but no range")
    return RangeHistogram(
        exponent=exponent,
        first=first_bin,
        counts=counts,
        low=low,
        high=high,
        zeros=_read_count(json_histogram["zeros"]),
        nan=_read_count(json_histogram["nan"]),
        infinite=_read_count(json_histogram["infinite"]),
        ranges=ranges,
        bins=bins,
    )
