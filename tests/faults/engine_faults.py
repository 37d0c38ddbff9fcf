"""Plant faults into the engine of `engine_runs.py`, and count how often the right node is named.

    python tests/faults/engine_faults.py FOLDER [--bugs] [--faults 200 [--ranks 2]]

`--bugs` plants ten bugs of float engines one at a time into two ranks with pages, joins and compares them with the
trainer by tokens, in full and with the limits that qdebug derives. It prints the node that is named and the reason.

`--faults N` plants N random faults, and compares sketches of the faulty engine with those of a sound one that sums its
products in another order. With `--ranks 2`, it compares two joined ranks with the trainer by tokens instead, in full:
sketches of slices and of packed rows cannot be paired. The limits are those that `qdebug diff --suggest-limits` writes
for two sound runs. It prints how often the first divergent tensor is the one with the fault. Needs torch; about a
second each, with two ranks four.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from engine_runs import DIM, LAYERS, SOUND, VOCABULARY, Change, Fault, make_weights, record_engine, record_trainer
from torch.nn import functional

import qdebug
from qdebug.limits.limits_file import load_limits
from qdebug.limits.suggest import suggest_limits

Tensor = torch.Tensor


def make_requests(lengths: dict[int, int]) -> dict[int, list[int]]:
    generator = torch.Generator().manual_seed(1)
    return {
        request: torch.randint(0, VOCABULARY, (length,), generator=generator).tolist()
        for request, length in lengths.items()
    }


REQUESTS = make_requests({0: 9, 3: 6, 4: 8})


def float_bugs() -> dict[str, Fault]:
    """Return ten bugs of float engines, one node each."""
    weight = make_weights()["layers.2.gate_proj.weight"].clone()
    weight[:, 7] *= 1.5
    return {
        "another epsilon": Fault(site="layers.1.norm1", change=lambda compute: compute(epsilon=1e-2)),
        "GELU for SiLU": Fault(
            site="layers.2.act", change=lambda compute: compute(kind=lambda x: functional.gelu(x, approximate="tanh"))
        ),
        "bfloat16 result": Fault(site="layers.0.up_proj", change=lambda compute: compute().bfloat16().float()),
        "float16 result": Fault(site="layers.3.down_proj", change=lambda compute: compute().half().float()),
        "a rank is missing": Fault(site="layers.1.o_proj", change=lambda compute: compute(ranks=1)),
        "another weight": Fault(site="layers.2.gate_proj", weights={"layers.2.gate_proj.weight": weight}),
        "residual twice": Fault(site="layers.2.add2", change=lambda compute: compute(times=2)),
        "positions off by one": Fault(site="layers.1.q_rope", change=lambda compute: compute(shift=1)),
        "overwritten page": Fault(site="layers.0.kv_cache", cache_step=2),
        "unscaled attention": Fault(site="layers.2.attn", change=lambda compute: compute(scale=1.0)),
    }


BUGS = float_bugs()


def named_node(trainer: Path, folder: Path, fault: Fault) -> tuple[str, str]:
    """Return the node that a comparison with the trainer names, and what is wrong with it.

    Results in a shorter format are within the limits: then the node is the first one with a finding that says so.
    """
    engine = record_engine(folder, REQUESTS, make_weights(), fault=fault)
    result = qdebug.diff(trainer, engine)
    node = result.first_divergence
    if node is not None:
        causes = [entry.why for entry in result.diagnosis if entry.node == node]
        return node, next(iter(causes), result[node].reason or "")
    notes = [(entry.node, finding.sentence) for entry in result for finding in entry.findings]
    return next(iter(notes), ("", str(result.status)))


KINDS: dict[str, Callable[[Tensor, np.random.Generator], Tensor]] = {
    "all scaled": lambda x, rng: x * float(1 + 2.0 ** -rng.integers(5, 9)),
    "a channel scaled": lambda x, rng: _at_channel(x, rng, lambda part: part * 1.25),
    "a channel zero": lambda x, rng: _at_channel(x, rng, torch.zeros_like),
    "a channel negated": lambda x, rng: _at_channel(x, rng, torch.neg),
    "two channels swapped": lambda x, rng: x[..., _swapped(x.shape[-1], rng)],
    "offset": lambda x, rng: x + 0.02 * x.square().mean().sqrt(),
    "bfloat16": lambda x, rng: x.bfloat16().float(),
    "rows turned": lambda x, rng: x.roll(1, 0) if len(x) > 1 else -x,
    "clipped": lambda x, rng: x.clamp(-1.5 * x.std().item(), 1.5 * x.std().item()),
    "a row zero": lambda x, rng: torch.cat([torch.zeros_like(x[:1]), x[1:]]),
}


def _at_channel(x: Tensor, rng: np.random.Generator, change: Callable[[Tensor], Tensor]) -> Tensor:
    changed, channel = x.clone(), int(rng.integers(x.shape[-1]))
    changed[..., channel] = change(x[..., channel])
    return changed


def _swapped(count: int, rng: np.random.Generator) -> list[int]:
    first, second = rng.choice(count, 2, replace=False).tolist()
    order = list(range(count))
    order[first], order[second] = second, first
    return order


NAMES = [
    *("norm1", "qkv_proj", "q_rope", "k_rope", "attn", "o_proj", "add1"),
    *("norm2", "gate_proj", "up_proj", "act", "mul", "down_proj", "add2"),
]
SITES = ["embed", *(f"layers.{layer}.{name}" for layer in range(LAYERS) for name in NAMES), "norm", "lm_head"]


def random_faults(count: int) -> Iterator[tuple[str, str, Fault]]:
    """Yield sites, kinds and faults, the same for each call."""
    rng = np.random.default_rng(7)
    for _ in range(count):
        site, kind, seed = str(rng.choice(SITES)), str(rng.choice(list(KINDS))), int(rng.integers(1 << 30))
        yield site, kind, Fault(site=site, change=_change(kind, seed))


def _change(kind: str, seed: int) -> Change:
    def change(compute: Callable[..., Tensor]) -> Tensor:
        return KINDS[kind](compute(), np.random.default_rng(seed))

    return change


def first_divergences(folder: Path, count: int, ranks: int = 1) -> Iterator[tuple[str, str, str]]:
    """Yield the site, the kind and the first divergent tensor of random faults.

    Args:
        folder: Where the recordings go.
        count: Number of faults.
        ranks: Ranks of the engine: one is compared by sketches with a sound one, more by tokens with the trainer.
    """
    weights, keep = make_weights(), "sketch" if ranks == 1 else None

    def record(name: str, blocks: int, fault: Fault = SOUND) -> Path:
        return record_engine(folder / name, REQUESTS, weights, ranks=ranks, blocks=blocks, fault=fault, keep=keep)

    sound = record("sound", 1) if ranks == 1 else record_trainer(folder / "trainer.h5", REQUESTS, weights)
    other = record("other", 2)
    limits_file = folder / "limits.toml"
    limits_file.write_text(suggest_limits({"other": qdebug.diff(sound, other, quick=True)}))
    limits = load_limits(limits_file)
    for site, kind, fault in random_faults(count):
        result = qdebug.diff(sound, record("faulty", 2, fault), limits=limits, quick=True)
        yield site, kind, result.first_divergence or ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--bugs", action="store_true")
    parser.add_argument("--faults", type=int, default=0)
    parser.add_argument("--ranks", type=int, choices=(1, 2), default=1, help="ranks of the engine with random faults")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.bugs:
        trainer = record_trainer(arguments.folder / "trainer.h5", REQUESTS, make_weights())
        sound = named_node(trainer, arguments.folder / "engine", SOUND)
        print(f"{'sound':22}  {sound[0] or '-':20}  {sound[1]}")
        right = 0
        for name, fault in BUGS.items():
            node, reason = named_node(trainer, arguments.folder / "engine", fault)
            right += node == fault.site
            print(f"{name:22}  {node:20}  {'right' if node == fault.site else 'WRONG'}  {reason}")
        print(f"node right in {right} of {len(BUGS)}")
    if arguments.faults:
        results = list(first_divergences(arguments.folder, arguments.faults, arguments.ranks))
        for site, kind, node in results:
            if node != site:
                print(f"{kind:22}  {site:20}  named {node or 'nothing'}")
        right = sum(site == node for site, _, node in results)
        print(f"first divergent tensor right in {right} of {len(results)} faults: {right / len(results):.1%}")
    shutil.rmtree(arguments.folder)


if __name__ == "__main__":
    assert DIM > 0
    main()
