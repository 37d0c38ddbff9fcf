"""A transformer of four layers as a trainer and as an engine, with faults planted into one node of the engine.

The trainer is one process with a padded batch. The engine has tensor-parallel ranks, each with a recording of its own,
packs the prompts of all requests, decodes a token of each request in a step, and keeps keys and values in pages. Both
run in PyTorch on the CPU, in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from qdebug import Recorder
from qdebug.recording.reading.opening import join

LAYERS, HIDDEN, HEADS, DIM, MLP, VOCABULARY = 4, 64, 4, 16, 128, 96
EPSILON, PAGE = 1e-6, 4
AXES = (
    "qkv_proj=-1:1:1:1,o_proj.weight=0,down_proj.weight=0,gate_proj=-1,up_proj=-1,act=-1,mul=-1,q_rope=-2,k_rope=-2,"
    "attn=-1,kv_cache=-2,*=replicated"
)
Tensor = torch.Tensor
Change = Callable[[Callable[..., Tensor]], Tensor]
"""What a broken node gives, from the function that computes it, which takes options."""


def right(compute: Callable[..., Tensor]) -> Tensor:
    """Return what a sound node gives."""
    return compute()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault of one node.

    Args:
        site: The node.
        change: What it gives.
        weights: Weights of the engine that differ.
        cache_step: The step after which a row of the first layer's cache is overwritten; None for none.
    """

    site: str = ""
    change: Change = right
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    cache_step: int | None = None


SOUND = Fault()


def make_weights(seed: int = 0) -> dict[str, Tensor]:
    """Return random weights, those of products with the inputs in the first axis."""
    generator = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator) / math.sqrt(shape[0])

    weights = {"embed.weight": random(VOCABULARY, HIDDEN) * 8, "norm.weight": 1 + random(HIDDEN) / 4}
    for layer in range(LAYERS):
        shapes = {"qkv_proj": (HIDDEN, 3 * HIDDEN), "o_proj": (HIDDEN, HIDDEN)}
        shapes |= {"gate_proj": (HIDDEN, MLP), "up_proj": (HIDDEN, MLP), "down_proj": (MLP, HIDDEN)}
        weights |= {f"layers.{layer}.{name}.weight": random(*shape) for name, shape in shapes.items()}
        weights |= {f"layers.{layer}.norm{number}.weight": 1 + random(HIDDEN) / 4 for number in (1, 2)}
    return weights | {"lm_head.weight": random(HIDDEN, VOCABULARY)}


def rank_slice(name: str, value: Tensor, rank: int, ranks: int) -> Tensor:
    """Return a rank's share of a weight."""
    if ranks == 1:
        return value
    if "qkv_proj" in name:
        return torch.cat([part.chunk(ranks, -1)[rank] for part in value.chunk(3, -1)], -1).contiguous()
    if "gate_proj" in name or "up_proj" in name:
        return value.chunk(ranks, -1)[rank].contiguous()
    if "o_proj" in name or "down_proj" in name:
        return value.chunk(ranks, 0)[rank].contiguous()
    return value


def rotated(heads: Tensor, positions: Tensor, shift: int = 0) -> Tensor:
    """Return heads [rows, heads, dim] with rotary embeddings of the positions."""
    angles = (positions + shift)[:, None] * 100.0 ** (-torch.arange(0, DIM, 2) / DIM)
    cosine, sine = angles.cos()[:, None, :], angles.sin()[:, None, :]
    first, second = heads[..., : DIM // 2], heads[..., DIM // 2 :]
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


class Pages:
    """Keys and values of all tokens so far, in pages that requests take in turn.

    Args:
        heads: Number of heads of a rank.
        tokens: Largest number of tokens.
    """

    def __init__(self, heads: int, tokens: int, requests: int) -> None:
        pages = -(-tokens // PAGE) + requests
        self.values = torch.zeros(pages, PAGE, 2, heads, DIM)
        self.index = np.full((pages, PAGE, 2), -1)
        self._slots: dict[int, list[int]] = {}
        self._free = 0

    def write(self, request: int, position: int, keys: Tensor, values: Tensor) -> None:
        """Write the row of a token."""
        slots = self._slots.setdefault(request, [])
        if len(slots) % PAGE == 0:
            self._free += 1
        slot = (self._free - 1) * PAGE if len(slots) % PAGE == 0 else slots[-1] + 1
        slots.append(slot)
        self.values.view(-1, *self.values.shape[2:])[slot] = torch.stack([keys, values])
        self.index.reshape(-1, 2)[slot] = request, position

    def read(self, request: int) -> Tensor:
        """Return the rows of a request, [tokens, 2, heads, dim]."""
        return self.values.view(-1, *self.values.shape[2:])[self._slots[request]]


@dataclass(kw_only=True)
class Run:
    """A run with its recorders, one for each rank.

    Args:
        weights: The weights.
        recorders: A recorder for each rank.
        fault: The fault.
        blocks: Number of parts in which products are summed.
        lead: Leading extents of recorded rows; None to record the rows as they are.
    """

    weights: Mapping[str, Tensor]
    recorders: list[Recorder]
    fault: Fault = SOUND
    blocks: int = 1
    lead: tuple[int, ...] | None = None

    @property
    def ranks(self) -> int:
        return len(self.recorders)

    def node(
        self,
        name: str,
        op: str,
        inputs: tuple[str, ...],
        compute: Callable[..., Tensor],
        *,
        rank: int | None = None,
        **attrs: Any,
    ) -> Tensor:
        """Compute a node, broken if it has the fault, and record it: in all ranks, or in one."""
        value = self.fault.change(compute) if name == self.fault.site else compute()
        array = value.detach().numpy()
        if self.lead is not None:
            array = array.reshape(*self.lead, *array.shape[1:])
        for recorder in self.recorders if rank is None else [self.recorders[rank]]:
            recorder.put(name, array, node=name, op=op or None, inputs=inputs, attrs=attrs)
        return value

    def product(self, x: Tensor, weight: Tensor) -> Tensor:
        """Return a product that sums in as many parts as the run has."""
        parts = zip(x.chunk(self.blocks, -1), weight.chunk(self.blocks, 0), strict=True)
        return sum(a @ b for a, b in parts)  # type: ignore[return-value]

    def weight(self, name: str, rank: int = 0) -> Tensor:
        return rank_slice(name, self.weights[f"{name}.weight"], rank, self.ranks)

    def norm(self, name: str, source: str, x: Tensor) -> Tensor:
        weight = self.weight(name)

        def compute(epsilon: float = EPSILON) -> Tensor:
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + epsilon) * weight

        return self.node(name, "RMSNormalization", (source, f"{name}.weight"), compute, axis=-1, epsilon=EPSILON)

    def reduced(self, name: str, source: str, shares: list[Tensor]) -> Tensor:
        """Return the sum of all ranks' products."""

        def compute(ranks: int = self.ranks) -> Tensor:
            parts = [self.product(share, self.weight(name, rank)) for rank, share in enumerate(shares)]
            return sum(parts[:ranks])  # type: ignore[return-value]

        return self.node(name, "MatMul", (source, f"{name}.weight"), compute)

    def forward(self, tokens: Tensor, positions: Tensor, attend: Callable[..., Tensor]) -> None:
        """Run all layers on rows.

        Args:
            tokens: Token of each row.
            positions: Position of each row.
            attend: Returns what a layer attends to, from layer, rank, queries, keys, values and options.
        """
        ids = tokens.numpy().reshape(self.lead or tokens.shape)
        for recorder in self.recorders:
            recorder.put("ids", ids)
        x = self.node("embed", "Gather", ("embed.weight", "ids"), lambda: self.weights["embed.weight"][tokens])
        name = "embed"
        for layer in range(LAYERS):
            x, name = self.layer(f"layers.{layer}", name, x, positions, attend)
        x = self.norm("norm", name, x)
        self.node("lm_head", "MatMul", ("norm", "lm_head.weight"), lambda: self.product(x, self.weight("lm_head")))

    def layer(
        self, at: str, source: str, x: Tensor, positions: Tensor, attend: Callable[..., Tensor]
    ) -> tuple[Tensor, str]:
        """Run a layer. Return its rows and their name."""
        normed, shares = self.norm(f"{at}.norm1", source, x), []
        for rank in range(self.ranks):
            qkv = self.share(f"{at}.qkv_proj", f"{at}.norm1", normed, rank)
            queries, keys, values = (part.reshape(len(x), -1, DIM) for part in qkv.chunk(3, -1))
            rotary = [
                self.node(
                    f"{at}.{kind}_rope", "", (f"{at}.qkv_proj",),
                    lambda shift=0, part=part: rotated(part, positions, shift), rank=rank,
                )
                for kind, part in (("q", queries), ("k", keys))
            ]  # fmt: skip
            inputs = (f"{at}.q_rope", f"{at}.k_rope", f"{at}.qkv_proj")
            attended = partial(attend, at, rank, *rotary, values)
            shares.append(self.node(f"{at}.attn", "", inputs, attended, rank=rank))
        projected = self.reduced(f"{at}.o_proj", f"{at}.attn", shares)
        added = self.node(f"{at}.add1", "Add", (source, f"{at}.o_proj"), lambda: x + projected)
        normed, shares = self.norm(f"{at}.norm2", f"{at}.add1", added), []
        for rank in range(self.ranks):
            gate = self.share(f"{at}.gate_proj", f"{at}.norm2", normed, rank)
            up = self.share(f"{at}.up_proj", f"{at}.norm2", normed, rank)
            act = self.node(
                f"{at}.act", "Swish", (f"{at}.gate_proj",),
                lambda kind=functional.silu, gate=gate: kind(gate), rank=rank,
            )  # fmt: skip
            inputs = (f"{at}.act", f"{at}.up_proj")
            shares.append(self.node(f"{at}.mul", "Mul", inputs, lambda act=act, up=up: act * up, rank=rank))
        down = self.reduced(f"{at}.down_proj", f"{at}.mul", shares)
        inputs = (f"{at}.add1", f"{at}.down_proj")
        return self.node(f"{at}.add2", "Add", inputs, lambda times=1: added * times + down), f"{at}.add2"

    def share(self, name: str, source: str, x: Tensor, rank: int) -> Tensor:
        """Return a rank's columns of a product."""
        weight = self.weight(name, rank)
        return self.node(name, "MatMul", (source, f"{name}.weight"), lambda: self.product(x, weight), rank=rank)


def attention(queries: Tensor, memory: Tensor, first: int, scale: float) -> Tensor:
    """Return rows [tokens, heads * dim] that attend to all rows of a memory up to their own position."""
    keys, values = memory[:, 0], memory[:, 1]
    scores = torch.einsum("thd,shd->hts", queries, keys) * scale
    places = torch.arange(len(queries))[:, None] + first
    scores = scores.masked_fill(torch.arange(len(memory))[None, :] > places, -math.inf)
    return torch.einsum("hts,shd->thd", scores.softmax(-1), values).reshape(len(queries), -1)


def put_constants(run: Run) -> None:
    """Record the weights, each rank its own share."""
    for rank, recorder in enumerate(run.recorders):
        for name in run.weights:
            recorder.constant(name, run.weight(name.removesuffix(".weight"), rank).numpy())
        recorder.outputs("lm_head")


def record_trainer(path: Path, requests: Mapping[int, list[int]], weights: Mapping[str, Tensor]) -> Path:
    """Record a padded batch of whole requests."""
    longest = max(map(len, requests.values()))
    tokens = torch.tensor([tokens + [0] * (longest - len(tokens)) for tokens in requests.values()])
    index = [[[name, p] if p < len(row) else [-1, -1] for p in range(longest)] for name, row in requests.items()]

    def attend(at: str, rank: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float = DIM**-0.5) -> Tensor:
        memory = torch.stack([keys, values], 1)
        run.recorders[0].put(f"{at}.kv_cache", memory.numpy().reshape(*tokens.shape, *memory.shape[1:]))
        rows = zip(queries.split(longest), memory.split(longest), strict=True)
        return torch.cat([attention(*row, 0, scale) for row in rows])

    with Recorder(path, backend="trainer") as recorder, torch.no_grad():
        run = Run(weights=weights, recorders=[recorder], lead=tuple(tokens.shape))
        put_constants(run)
        recorder.put("token_index", np.array(index))
        run.forward(tokens.reshape(-1), torch.arange(longest).repeat(len(tokens)), attend)
    return path


def record_engine(
    folder: Path,
    requests: Mapping[int, list[int]],
    weights: Mapping[str, Tensor],
    *,
    ranks: int = 2,
    prompt: int = 5,
    fault: Fault = SOUND,
    keep: str | None = None,
    blocks: int = 1,
) -> Path:
    """Record packed prompts and steps of decoding, and join the ranks.

    Args:
        folder: Where the recordings go.
        requests: Tokens by request.
        weights: The weights.
        ranks: Number of ranks.
        prompt: Most tokens of a request in the first step.
        fault: What is broken.
        keep: What is kept of each tensor; None for all.
        blocks: Number of parts in which products are summed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank{rank}.h5" for rank in range(ranks)]
    with ExitStack() as stack, torch.no_grad():
        recorders = [stack.enter_context(Recorder(path, backend="engine", keep=keep, force=True)) for path in paths]
        run = Run(weights={**weights, **fault.weights}, recorders=recorders, fault=fault, blocks=blocks)
        put_constants(run)
        total = sum(map(len, requests.values()))
        caches = {
            (f"layers.{layer}", rank): Pages(HEADS // ranks, total, len(requests))
            for layer in range(LAYERS)
            for rank in range(ranks)
        }
        steps = [{name: (0, tokens[:prompt]) for name, tokens in requests.items()}]
        steps += [
            {name: (position, [row[position]]) for name, row in requests.items() if position < len(row)}
            for position in range(prompt, max(map(len, requests.values())))
        ]
        for number, step in enumerate(steps):
            for recorder in recorders:
                recorder.at(0, number)
            _engine_step(run, step, caches, number, has_values=keep is None)
    out = folder / "run.json"
    join(paths, out, by="shards", axes=AXES, force=True)
    return out if ranks > 1 else paths[0]


def _engine_step(
    run: Run,
    step: Mapping[int, tuple[int, list[int]]],
    caches: Mapping[tuple[str, int], Pages],
    number: int,
    *,
    has_values: bool,
) -> None:
    """Run one step of all requests that have a token left."""
    lengths = [len(tokens) for _, tokens in step.values()]

    def attend(at: str, rank: int, queries: Tensor, keys: Tensor, values: Tensor, scale: float = DIM**-0.5) -> Tensor:
        pages = caches[at, rank]
        rows = zip(step.items(), queries.split(lengths), keys.split(lengths), values.split(lengths), strict=True)
        parts = []
        for (request, (first, tokens)), own_queries, own_keys, own_values in rows:
            for offset in range(len(tokens)):
                pages.write(request, first + offset, own_keys[offset], own_values[offset])
            parts.append(attention(own_queries, pages.read(request), first, scale))
        if run.fault.cache_step == number and at == "layers.0":
            pages.values[0, 1] += 0.5
        run.recorders[rank].put(f"{at}.kv_cache", pages.values.numpy().copy())
        if at == "layers.0" and has_values:
            run.recorders[rank].put("token_index:*.kv_cache", pages.index.copy())
        return torch.cat(parts)

    index = [[name, first + offset] for name, (first, tokens) in step.items() for offset in range(len(tokens))]
    for recorder in run.recorders:
        if has_values:
            recorder.put("token_index", np.array(index))
    tokens = torch.tensor([token for _, row in step.values() for token in row])
    run.forward(tokens, torch.tensor([position for _, position in index]), attend)
