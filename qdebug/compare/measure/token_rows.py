"""Pairs the rows of two runs of a language model by their tokens, however each run batches, packs and pads them.

An index states for each row of a step which request and which position it belongs to. With it, a view of a run has a
sample for each request, in which the rows follow the positions. A padded batch of a trainer, a packed prefill and many
steps of decoding then have equal shapes, and are compared like any other recordings. Rows of padding are in no sample.

A cache holds the rows of earlier steps too. With an index of its own, its rows are compared with the step that wrote
them: the first one that holds the token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

import numpy as np

from qdebug.errors import UsageError
from qdebug.model import Graph, Node, Recording, RunInfo, TensorInfo, operators
from qdebug.model.graph import AttrValue
from qdebug.model.kept import Kept
from qdebug.model.recording import TOKEN_INDEX, ChangedRow, Outline, SkipCause, no_values_error, shape_of
from qdebug.model.view import View

__all__ = ["TokenIndex", "TokenPairing", "pair_tokens"]

Place = tuple[int, int]
TokenIndex = Mapping[tuple[str, Place], np.ndarray]
"""Request and position of each row, [..., 2], by pattern of tensors ("" for all others) and by sample and step."""

_MAX_CACHED_BYTES = 64 << 20
_CACHE_HINT = "Check the index: request and position of each row, -1 for rows of padding."


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenPairing:
    """Two runs with the same tokens in the same rows.

    Args:
        reference: The reference, a sample for each request.
        backend: The backend, likewise.
        sentence: How many tokens are compared, and which rows are left out.
    """

    reference: Recording
    backend: Recording
    sentence: str


def pair_tokens(
    reference: Recording, backend: Recording, user_indexes: Sequence[TokenIndex | None] = (None, None)
) -> TokenPairing | None:
    """Return two runs whose rows are paired by tokens, or None if neither states its tokens.

    Args:
        reference: The reference.
        backend: The backend.
        user_indexes: The index of each run if the user states it; None for the recorded one.

    Raises:
        UsageError: The user states tokens of one run, and the other has none; an index is invalid; or the runs have no
            token in common.
        RecordingError: A recorded index cannot be read.
    """
    sides = (reference, backend)
    indexes = [user_index or _recorded_index(side) for user_index, side in zip(user_indexes, sides, strict=True)]
    first, second = indexes
    if not first or not second:
        if any(user_index is not None for user_index in user_indexes):
            lacking = "reference" if not first else "backend"
            raise UsageError(
                f"The {lacking} has no token index for its rows.",
                hint=f"Give its index too: --tokens {lacking}=IDS.npz.",
            )
        return None
    rows = [_Rows(index) for index in indexes if index]
    common = np.intersect1d(rows[0].tokens(), rows[1].tokens())
    if not common.size:
        raise UsageError("The two runs have no token in common.", hint=_CACHE_HINT)
    views = [_TokenRecording(side, index, common) for side, index in zip(sides, rows, strict=True)]
    return TokenPairing(reference=views[0], backend=views[1], sentence=_describe_compared_tokens(common, rows))


def _describe_compared_tokens(common: np.ndarray, rows: Sequence[_Rows]) -> str:
    requests = np.unique(common["request"]).size
    parts = [f"{common.size} tokens of {requests} {'request' if requests == 1 else 'requests'} are compared"]
    for title, index in zip(("reference", "backend"), rows, strict=True):
        alone = index.tokens().size - common.size
        parts += [f"{alone} only in the {title}"] if alone else []
        parts += [f"{index.padding} rows of padding in the {title}"] if index.padding else []
    return "; ".join(parts)


_TOKEN = np.dtype([("request", np.int64), ("position", np.int64)])


def _recorded_index(recording: Recording) -> TokenIndex:
    """Return the index that was recorded with a run; empty if there is none."""
    names = [name for name in recording.names if name == TOKEN_INDEX or name.startswith(f"{TOKEN_INDEX}:")]
    index = {
        (name.removeprefix(TOKEN_INDEX).removeprefix(":"), place): recording.load(name, *place)
        for name in names
        for place in recording.places(name)
    }
    return index if any(pattern == "" for pattern, _ in index) else {}


class _Rows:
    """The tokens of the rows of a run.

    Args:
        index: The index.

    Raises:
        UsageError: It is not an array of pairs.
    """

    def __init__(self, index: TokenIndex) -> None:
        self._tokens: dict[str, dict[Place, np.ndarray]] = {}
        for (pattern, place), pairs in sorted(index.items()):
            if pairs.dtype.kind not in "iu" or pairs.ndim < 2 or pairs.shape[-1] != 2:
                raise UsageError(
                    f"The token index of step {place[1]} is {pairs.dtype} {list(pairs.shape)}, not integers [..., 2].",
                    hint=_CACHE_HINT,
                )
            flat = np.ascontiguousarray(pairs.reshape(-1, 2), np.int64)
            self._tokens.setdefault(pattern, {})[place] = flat.view(_TOKEN).reshape(-1)
        self.padding = sum(int((~_is_token(tokens)).sum()) for tokens in self._tokens.get("", {}).values())

    def pattern_of(self, tensor: str) -> str:
        """Return the pattern of the index that applies to a tensor."""
        return next((pattern for pattern in self._tokens if pattern and fnmatchcase(tensor, pattern)), "")

    def tokens_of_pattern(self, pattern: str) -> Mapping[Place, np.ndarray]:
        """Return the token of each row, by sample and step."""
        return self._tokens[pattern]

    def tokens(self) -> np.ndarray:
        """Return all tokens of the run, sorted, without padding."""
        all_tokens = np.concatenate(list(self._tokens[""].values()))
        return np.unique(all_tokens[_is_token(all_tokens)])

    def origins(self, pattern: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return all tokens of an index, sorted, with the number of the place and the row that each is read from.

        If several steps computed a token, the first one counts, because later steps read its result. A row of a cache
        is read from the last step that holds it.
        """
        parts = list(self._tokens[pattern].values())
        all_tokens = np.concatenate(parts)
        places = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        rows = np.concatenate([np.arange(len(part)) for part in parts])
        token_rows = np.flatnonzero(_is_token(all_tokens))
        token_rows = token_rows[::-1] if pattern else token_rows
        tokens, first = np.unique(all_tokens[token_rows], return_index=True)
        return tokens, places[token_rows[first]], rows[token_rows[first]]


def _is_token(tokens: np.ndarray) -> np.ndarray:
    is_token: np.ndarray = (tokens["request"] >= 0) & (tokens["position"] >= 0)
    return is_token


class _TokenRecording(View):
    """A run with a sample for each request, whose rows follow the positions.

    Args:
        recording: The run.
        rows: The tokens of its rows.
        tokens: The tokens to keep, sorted.
    """

    def __init__(self, recording: Recording, rows: _Rows, tokens: np.ndarray) -> None:
        super().__init__(recording)
        self._rows = rows
        self._tokens = tokens
        self._requests = tuple(int(request) for request in np.unique(tokens["request"]))
        self._row_ranks: dict[str, int | None] = {}
        self._origins: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        self._memo: tuple[str, dict[Place, np.ndarray]] = ("", {})

    @property
    def samples(self) -> int:
        """One more than the largest request."""
        return self._requests[-1] + 1

    @property
    def steps(self) -> int:
        """Always 1: the rows of all steps are in one array."""
        return 1

    @cached_property
    def names(self) -> Sequence[str]:
        """Names of the constants, and of the tensors with a row for each token."""
        return [
            name
            for name in self._recording.names
            if self._recording.graph.is_constant(name) or self._row_rank(name) is not None
        ]

    @cached_property
    def info(self) -> RunInfo:
        """Facts about the run, including which tensors were left out."""
        info, names = self._recording.info, set(self.names)
        left_out = [name for name in self._recording.names if name not in names]
        return replace(
            info,
            skipped={**info.skipped, **dict.fromkeys(left_out, "it has no row for each token")},
            skip_causes={**info.skip_causes, **dict.fromkeys(left_out, SkipCause.NOT_DUMPED)},
        )

    @cached_property
    def graph(self) -> Graph:
        """The graph, without operators that mix or move rows."""
        graph = self._recording.graph
        return Graph(
            [self._make_row_node(node) for node in graph.nodes],
            tensors=[self._make_row_info(info) for info in graph.tensors.values()],
            inputs=graph.inputs,
            outputs=[name for name in graph.outputs if self._row_rank(name) is not None],
            name=graph.name,
            opset=graph.opset,
        )

    def _make_row_info(self, info: TensorInfo) -> TensorInfo:
        trailing = None if self._recording.graph.is_constant(info.name) else self._row_rank(info.name)
        if trailing is None or info.shape is None:
            return info
        quant = info.quant
        if quant is not None and quant.axis is not None and quant.axis >= 0:
            quant = replace(quant, axis=quant.axis - len(info.shape))
        return replace(info, shape=(None, *info.shape[len(info.shape) - trailing :]), quant=quant)

    def _make_row_node(self, node: Node) -> Node:
        """Return a node, with an unknown operator unless it computes each row from the same row alone."""
        attrs = self._attrs_by_row(node)
        return (
            replace(node, op=operators.UNKNOWN_OP, domain="", attrs={}) if attrs is None else replace(node, attrs=attrs)
        )

    def _attrs_by_row(self, node: Node) -> dict[str, AttrValue] | None:
        """Return the attributes of a node that works row by row, with axes counted from the end; None for others."""
        graph, row = self._recording.graph, operators.plain(node)
        data = [name for name in node.inputs if name and not graph.is_constant(name)]
        constants = [graph.tensors[name] for name in node.inputs if name and graph.is_constant(name)]
        trailing = [self._row_rank(name) for name in (*data, *filter(None, node.outputs))]
        attrs: dict[str, AttrValue] = dict(node.attrs)
        if not data or None in trailing:
            return None
        ranks = [None if info.shape is None else len(info.shape) for info in constants]
        if row.elementwise or row.casts or row.keeps_values:
            return attrs if all(rank is not None and rank <= (trailing[0] or 0) for rank in ranks) else None
        if row.sums is operators.Sums.MATRIX and len(data) == 1 and node.inputs[0] == data[0] and trailing[0] == 1:
            return attrs if all(rank is not None and rank <= 2 for rank in ranks) else None
        if row.moves is operators.Move.GATHER and node.inputs[1:2] == tuple(data) and not attrs.get("axis", 0):
            return attrs
        if not (row.along_axis or row.picks_index) or (ranks and any(rank != 1 for rank in ranks)):
            return None
        axis, shape = attrs.get("axis", -1), graph.tensors[data[0]].shape
        if not isinstance(axis, int) or (axis >= 0 and shape is None):
            return None
        axis = axis if axis < 0 or shape is None else axis - len(shape)
        return {**attrs, "axis": axis} if -(trailing[0] or 0) <= axis else None

    def _row_rank(self, tensor: str) -> int | None:
        """Return the number of dimensions of a row of a tensor; None if it has no row for each token."""
        if tensor not in self._row_ranks:
            self._row_ranks[tensor] = self._find_row_rank(tensor)
        return self._row_ranks[tensor]

    def _find_row_rank(self, tensor: str) -> int | None:
        index = self._rows.tokens_of_pattern(self._rows.pattern_of(tensor))
        places = [place for place in self._recording.places(tensor) if self._recording.has(tensor, *place)]
        shapes = {place: shape_of(self._recording, tensor, *place) for place in places if place in index}
        if not shapes or tensor.startswith(TOKEN_INDEX):
            return None
        # The leading dimensions count rows, the trailing ones belong to a row. In the place with most rows a
        # coincidence is least likely; all other places must agree with it.
        largest = max(shapes, key=lambda place: len(index[place]))
        leading = next(
            (
                count
                for count in range(1, len(shapes[largest]) + 1)
                if math.prod(shapes[largest][:count]) == len(index[largest])
            ),
            None,
        )
        trailing = None if leading is None else len(shapes[largest]) - leading
        if trailing is None:
            return None
        fits = all(
            math.prod(shape[: len(shape) - trailing]) == len(index[place])
            and shape[len(shape) - trailing :] == shapes[largest][len(shapes[largest]) - trailing :]
            for place, shape in shapes.items()
        )
        return trailing if fits else None

    def places(self, tensor: str | None = None) -> Sequence[Place]:
        """Return the requests for all rows of the tensor, or of any tensor, as places in order."""
        if tensor is not None and self.graph.is_constant(tensor):
            return super().places(tensor)
        return tuple((request, 0) for request in self._requests if tensor is None or self.has(tensor, request))

    def has(self, tensor: str, sample: int = 0, step: int = 0) -> bool:
        """Return whether all rows of a request were recorded."""
        if self._recording.graph.is_constant(tensor):
            return self._recording.has(tensor, sample, step)
        if step or self._row_rank(tensor) is None:
            return False
        located = self._locate_rows(tensor, sample)
        return located is not None and all(self._recording.has(tensor, *place) for place, _, _ in located)

    def _locate_rows(self, tensor: str, request: int) -> list[tuple[Place, np.ndarray, np.ndarray]] | None:
        """Return the places that hold a request's rows, each with positions in the result and row numbers in the place.

        None if no row holds one of the tokens.
        """
        pattern = self._rows.pattern_of(tensor)
        if pattern not in self._origins:
            self._origins[pattern] = self._rows.origins(pattern)
        tokens, places, rows = self._origins[pattern]
        requested = self._tokens[self._tokens["request"] == request]
        at = np.searchsorted(tokens, requested)
        if not requested.size or (at >= tokens.size).any() or (tokens[at] != requested).any():
            return None
        all_places = list(self._rows.tokens_of_pattern(pattern))
        return [
            (all_places[number], result_positions, rows[at[result_positions]])
            for number in np.unique(places[at])
            for result_positions in (np.flatnonzero(places[at] == number),)
        ]

    def load(self, tensor: str, sample: int = 0, step: int = 0) -> np.ndarray:
        """Return the rows of a request, read-only.

        Raises:
            RecordingError: They were not recorded.
        """
        if self._recording.graph.is_constant(tensor):
            return self._recording.load(tensor, sample, step)
        located = self._locate_rows(tensor, sample) if self.has(tensor, sample, step) else None
        if not located:
            raise no_values_error(tensor, sample, step, self.names)
        parts = [(result_positions, self._rows_at(tensor, place)[rows]) for place, result_positions, rows in located]
        count = sum(len(result_positions) for result_positions, _ in parts)
        joined = np.empty((count, *parts[0][1].shape[1:]), parts[0][1].dtype)
        for result_positions, values in parts:
            joined[result_positions] = values
        joined.flags.writeable = False
        return joined

    def _rows_at(self, tensor: str, place: Place) -> np.ndarray:
        """Return the rows of a tensor at a place. The last tensor's rows are cached, because requests share places."""
        if self._memo[0] != tensor:
            self._memo = (tensor, {})
        memo = self._memo[1]
        if place in memo:
            return memo[place]
        array = self._recording.load(tensor, *place)
        rows = array.reshape(-1, *array.shape[array.ndim - (self._row_rank(tensor) or 0) :])
        if sum(cached_rows.nbytes for cached_rows in memo.values()) + rows.nbytes <= _MAX_CACHED_BYTES:
            memo[place] = rows
        return rows

    def kept(self, tensor: str, sample: int = 0, step: int = 0) -> Kept | None:
        """Return the partial record of a constant. Records of other tensors do not cover single tokens."""
        return self._recording.kept(tensor, sample, step) if self._recording.graph.is_constant(tensor) else None

    def outline(self, tensor: str, sample: int = 0, step: int = 0) -> Outline | None:
        """Return the outline of a constant; None for other tensors."""
        return self._recording.outline(tensor, sample, step) if self._recording.graph.is_constant(tensor) else None

    def changed_rows(self, tensor: str) -> Sequence[ChangedRow]:
        """Return the first change of each row of a cache that changed after the step that wrote it."""
        pattern = self._rows.pattern_of(tensor)
        return list(self._find_changes(tensor, pattern)) if pattern and self._row_rank(tensor) is not None else []

    def _find_changes(self, tensor: str, pattern: str) -> Iterator[ChangedRow]:
        # A row of a cache must keep its bytes after the step that wrote it. Each token is reported once.
        written: dict[tuple[int, int], tuple[int, bytes]] = {}
        changed: set[tuple[int, int]] = set()
        for place, tokens in self._rows.tokens_of_pattern(pattern).items():
            if not self._recording.has(tensor, *place):
                continue
            rows = np.ascontiguousarray(self._rows_at(tensor, place))
            for number in np.flatnonzero(_is_token(tokens)):
                token = int(tokens["request"][number]), int(tokens["position"][number])
                content = rows[number].tobytes()
                step, written_content = written.setdefault(token, (place[1], content))
                if content != written_content and token not in changed:
                    changed.add(token)
                    yield ChangedRow(*token, written=step, changed=place[1])
