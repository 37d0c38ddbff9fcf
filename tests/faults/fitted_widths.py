"""Say how often `explain` finds the width of a chip's multiplier, and whether it fits a width to a bug.

    python tests/faults/fitted_widths.py                              the digits net, widths 6 to 31, 50 bugs
    python tests/faults/fitted_widths.py --onnx cls.onnx --cache DIR  an ONNX net as well, quantized per channel
    python tests/faults/fitted_widths.py --widths 8 12 16 --structures pre-shift --bugs 10

The interpreter plays a chip with a multiplier of that width in one of three structures. A case is

    right    all products of codes are explained, most of them by this width alone
    set      all are explained by several widths that no recorded code tells apart, this one among them
    other    all are explained, most of them by listed arithmetics that give the same codes
    doubt    a product is left unexplained, because this width fits too few elements to rule out chance
    wrong    a product is left unexplained, or is explained by other widths alone

Then bugs are planted into the 12-bit chip, one at a time. A false fit is a node with a bug that is explained, or of
which another width is said, or another multiplier although the bug is none. It ends with 1 if fewer than 95 % of the
cases are right, a set or other, or if there is a false fit. Single elements tell widths of 14 bits and more apart, so
the share depends on the number of samples.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import arithmetic_bugs  # noqa: E402
import forms  # noqa: E402

from qdebug import data  # noqa: E402
from qdebug.arithmetic.fitted import PRODUCTS  # noqa: E402
from qdebug.backends import load_backend  # noqa: E402
from qdebug.compare.explaining.explain import explain_recording  # noqa: E402
from qdebug.compare.explaining.explanation import ExplainStatus  # noqa: E402
from qdebug.replay.variant import parse_variant  # noqa: E402
from qdebug.running.feeds import ArrayFeeds  # noqa: E402
from qdebug.running.record import record_feeds  # noqa: E402
from qdebug.session import open_recording  # noqa: E402

STRUCTURES: Mapping[str, str] = {
    "one rounding": "m=q{}:d:xw/y steps=mul,shr.up,zp,sat",
    "two roundings": "m=q{}:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat",
    "pre-shift": "m=q{}:d:xw/y pre=3 steps=pre.floor,mul,shr.up,zp,sat",
}
GOAL = 0.95
CHIP_WIDTH = 12
"""Bits of the multiplier of the chip with planted bugs."""
SCALE_BUGS = ("scale", "multiplier")
"""Words in the names of bugs that are other multipliers."""


def recorded(model: Path, feeds: Mapping[str, np.ndarray], samples: int, variant: str, scratch: Path) -> Path:
    """Record a net on a chip that converts the sums of its products by a variant."""
    arithmetic, out = scratch / "chip.toml", scratch / "chip.h5"
    lines = ['format = "qdebug.arithmetic"', "version = 1", 'name = "chip"', 'base = "gemmlowp"', "[variants]"]
    arithmetic.write_text("\n".join([*lines, *(f'{kind} = "{variant}"' for kind in PRODUCTS)]) + "\n")
    out.unlink(missing_ok=True)
    source = open_recording(model) if model.suffix == ".h5" else model
    run = load_backend("interpreter").open(source, options={"arithmetic": str(arithmetic)})
    record_feeds(run, ArrayFeeds(dict(feeds), run.inputs, samples=samples), out)
    run.close()
    return out


def judged(path: Path, width: int) -> tuple[str, float]:
    """Return what explain makes of a chip of a width, and the seconds for each product."""
    began = time.perf_counter()
    run = explain_recording(open_recording(path))
    products = [node for node in run.nodes if node.kind in PRODUCTS]
    seconds = (time.perf_counter() - began) / max(len(products), 1)
    left = [node for node in products if node.status is not ExplainStatus.EXPLAINED]
    if left:
        return "doubt" if all(
            any(f"m=q{width}:" in text for text in node.members) for node in left
        ) else "wrong", seconds
    verdicts: Counter[str] = Counter()
    for node in products:
        numbers = {parse_variant(text).multiplier.number for text in node.members or node.variants}
        own_width = [number.rstrip("te") == f"q{width}" for number in numbers]
        ours, alone = any(own_width), all(own_width)
        fitted = all(number.startswith("q") and number[1:].rstrip("te") not in LISTED for number in numbers)
        verdicts["right" if alone else "set" if ours else "wrong" if fitted else "other"] += 1
    return "wrong" if verdicts["wrong"] else verdicts.most_common(1)[0][0], seconds


DIGITS = HERE.parents[1] / "samples" / "digits" / "digits_test.npz"
LISTED = ("31", "24", "16", "15", "8", "7")
"""Widths that are tried for every node."""


def false_fits(chip: Path, count: int, scratch: Path) -> list[str]:
    """Plant bugs into a chip one at a time and return the false fits."""
    twin = arithmetic_bugs.Twin(chip, scratch)
    planted, wrong = 0, []
    for repeat in range(count):
        for name, bug in arithmetic_bugs.BUGS.items():
            rng = np.random.default_rng([repeat, *map(ord, name)])
            for source, codes, _ in arithmetic_bugs.places(twin, bug, rng):
                faulty = twin.recorded(scratch / "faulty.h5", source.tensor, codes)
                nodes = explain_recording(open_recording(faulty), tensors=None).nodes
                node = next(node for node in nodes if node.tensor == source.tensor)
                cause = "" if node.residual is None else f"{node.residual.pattern}: {node.residual.likely}"
                is_multiplier = any(word in name for word in SCALE_BUGS)
                is_own_width = f": {CHIP_WIDTH}-bit multiplier" in cause  # the bug is how its products are rounded
                planted += 1
                if node.status is ExplainStatus.EXPLAINED or (
                    not (is_multiplier or is_own_width)
                    and ("-bit multiplier" in cause or cause.startswith("multiplier"))
                ):
                    wrong.append(f"{name} in {node.node}: {cause or '; '.join(node.variants[:1])}")
                break
            if planted == count:
                print(f"{planted} bugs planted, {len(wrong)} false fits")
                return wrong
    return wrong


def main(words: Sequence[str] | None = None) -> int:
    """Print a row for each net and structure, and the false fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--onnx", type=Path, nargs="*", default=[])
    parser.add_argument("--cache", type=Path, default=Path("nets"))
    parser.add_argument("--widths", type=int, nargs="+", default=[*range(6, 32)])
    parser.add_argument("--structures", nargs="+", choices=STRUCTURES, default=[*STRUCTURES])
    parser.add_argument("--samples", type=int, default=60, help="of the digits net")
    parser.add_argument("--bugs", type=int, default=50)
    options = parser.parse_args(words)
    digits = dict(np.load(DIGITS))["x"][: options.samples].astype(np.float32).reshape(-1, 1, 1, 8, 8)
    nets = {"digits": (data.INT8_NET, {"x": digits}, options.samples)}
    for path in options.onnx:
        nets[path.stem] = quantized(path, options.cache)
    total: Counter[str] = Counter()
    print("| net | structure | right | set | other | doubt | wrong | s a product |\n|---|---|---|---|---|---|---|---|")
    with TemporaryDirectory() as folder:
        scratch = Path(folder)
        for title, (model, feeds, samples) in nets.items():
            for structure in options.structures:
                variants = {width: STRUCTURES[structure].format(width) for width in options.widths}
                cases = [
                    (width, *judged(recorded(model, feeds, samples, variant, scratch), width))
                    for width, variant in variants.items()
                ]
                counts = Counter(word for _, word, _ in cases)
                total.update(counts)
                cells = [counts[word] for word in ("right", "set", "other", "doubt", "wrong")]
                wrong = [width for width, word, _ in cases if word in ("doubt", "wrong")]
                seconds = np.median([each for *_, each in cases])
                print(
                    f"| {title} | {structure} | {' | '.join(map(str, cells))} {wrong or ''} | {seconds:.2f} |",
                    flush=True,
                )
        share = 1 - (total["wrong"] + total["doubt"]) / max(total.total(), 1)
        print(f"{share:.1%} of {total.total()} chips")
        chip = recorded(*nets["digits"], STRUCTURES["one rounding"].format(CHIP_WIDTH), scratch)
        wrong = false_fits(chip, options.bugs, scratch) if options.bugs else []
    print("\n".join(wrong))
    return int(share < GOAL or bool(wrong))


def quantized(path: Path, cache: Path) -> tuple[Path, dict[str, np.ndarray], int]:
    """Return an ONNX net in int8, quantized per channel, with two random samples."""
    import onnx

    model = onnx.load(path)
    rng, feeds = np.random.default_rng(0), {}
    for info in model.graph.input:
        shape = [extent.dim_value or DEFAULT_EXTENTS[at] for at, extent in enumerate(info.type.tensor_type.shape.dim)]
        shape[0] = 1
        feeds[info.name] = rng.uniform(-1, 1, (2, *shape)).astype(np.float32)
    return forms.made(path.stem, model, "qdq.channel", feeds, cache), feeds, 2


DEFAULT_EXTENTS = (1, 3, 48, 192)
"""Extents of free dimensions: those of a line of text."""


if __name__ == "__main__":
    raise SystemExit(main())
