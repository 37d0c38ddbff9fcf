"""Say how often qdebug names the right origin and the right cause: plant faults into nets, record them, diff them.

    python tests/faults/rates.py CACHE                                   known nets, all kinds, two faults of each
    python tests/faults/rates.py CACHE --nets mobile unet --seeds 1      some nets, one fault of each kind
    python tests/faults/rates.py CACHE --kinds weight_transposed in_float16 --forms float
    python tests/faults/rates.py CACHE --group held-out                  nets that came after the rules were frozen
    python tests/faults/rates.py CACHE --json OUT.json                   every case, with what was said of it
    python tests/faults/rates.py CACHE --list                            nets, forms and kinds

Nets are made, or fetched out of packages, into the folder CACHE; nothing else is left there. A fault is planted in one
of two ways. In the graph: a constant, an attribute, an operator, an operand is wrong, and the faulty model runs. In a
kernel: the graph stays, one node gives wrong values, and everything below runs again on them. Each fault says
beforehand at which node it is and which kinds of finding name it. The forms of a net take turns; the form openvino is
the float net in OpenVINO, where that is installed. A form whose outputs have less than 20 dB before anything is planted
takes no fault: what is wrong with it then has two answers. Such forms are listed. The rates count

    origin        the node named as the origin is one that has the fault
    cause         and its first finding is of an expected kind, about the constant or the attribute that is wrong
    false alarm   a healthy form whose every output has 20 dB or more, each part of a Concat for itself, is said to be
                  anything but identical or within; one with less must be said to be accumulated, one with a NaN or an
                  infinity that the float net does not have, nonfinite

It ends with 1 if a rate misses its goal: 95 % of origins, 90 % of causes, no false alarm.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

import forms as quantizers  # noqa: E402
import held_out_nets  # noqa: E402
import known_nets  # noqa: E402
import later_known_nets  # noqa: E402
from planting import KINDS, Bench, BrokenDownError, Case  # noqa: E402

from qdebug.compare.result.node_result import NodeResult  # noqa: E402
from qdebug.model import Recording  # noqa: E402
from qdebug.numerics.affine import dequantize  # noqa: E402

FAULTY_FORMS = ("float", "qdq.channel", "qoperator.tensor", "dynamic", "openvino")
LEVELS = {
    "float": ("basic", "extended", "all"),
    "qdq.tensor": ("extended", "all"),
    "qoperator.tensor": ("extended", "all"),
}
GOOD_DB = 20.0
SAMPLES = 6


def groups() -> dict[str, Mapping]:
    """Return the nets by group."""
    return {"known": {**known_nets.NETS, **later_known_nets.NETS}, "held-out": held_out_nets.NETS}


def prepared(name: str, net: tuple, cache: Path) -> tuple[dict[str, Path], dict]:
    """Make the forms of a net; those that a tool cannot make are left out, and said."""
    build, inputs = net
    feeds = inputs(SAMPLES)
    found = {}
    for form in quantizers.FORMS:
        try:
            found[form] = quantizers.made(name, build(cache), form, feeds, cache)
        except Exception as error:  # noqa: BLE001  the tools' own errors
            print(f"{name}: no form {form}: {type(error).__name__}: {str(error)[:100]}", file=sys.stderr)
    if importlib.util.find_spec("openvino") is not None:
        found["openvino"] = found["float"]
    return found, feeds


def healthy_pairs(bench: Bench, forms: Sequence[str], unable: set[str]) -> list[dict]:
    """Compare all healthy forms of a net with the float net; those that the runtime cannot run join the unable ones."""
    pairs = []
    for form in forms:
        for level in LEVELS.get(form, ("all",)):
            try:
                bench.recording(form, level)
            except Exception as error:  # noqa: BLE001  the runtime's own errors, said
                print(f"{bench.name}: {form} does not run at {level}: {str(error)[:100]}", file=sys.stderr)
                unable.add(form)
                continue
            pairs.append({"net": bench.name, "form": form, "level": level} | judged(bench, form, level))
    return pairs


def judged(bench: Bench, form: str, level: str) -> dict:
    """Say of a healthy form how good its outputs are, what the comparison makes of it, and whether that is right."""
    try:
        result = bench.healthy(form, level)
    except BrokenDownError as error:
        broken = {"sqnr_db": float("nan"), "good": True, "status": "broke down", "right": False}
        return {**broken, "origin": None, "sentence": str(error)}
    backend = bench.recording(form, level)
    ends = {*bench.reference.graph.outputs, *backend.graph.outputs}  # one may be compared as another form of a tensor
    outputs = [row for row in result.nodes if not ends.isdisjoint((row.reference_tensor, row.tensor))]
    known = (row.metrics.sqnr_db for row in outputs if row.metrics is not None)
    parts = (level for row in outputs for level in part_levels(bench.reference, backend, row))
    worst = min((*known, *parts), default=float("inf"))
    status, good = str(result.verdict.status), worst >= GOOD_DB
    expected = ("identical", "within") if good else ("accumulated",)
    if not finite(backend) and finite(bench.reference):
        good, expected = False, ("nonfinite",)
    return {
        "sqnr_db": worst,
        "good": good,
        "status": status,
        "right": status in expected,
        "origin": result.verdict.origin,
        "sentence": result.verdict.sentence,
    }


def finite(recording: Recording) -> bool:
    """Tell whether no recorded value is NaN or infinite."""
    arrays = (recording.load(name, number) for number in range(recording.samples) for name in recording.names)
    return all(bool(np.isfinite(array).all()) for array in arrays if array.dtype.kind == "f")


def part_levels(reference: Recording, backend: Recording, row: NodeResult) -> list[float]:
    """Return the SQNR of each tensor that an output of the reference is a Concat of, in dB."""
    node = reference.graph.producer(row.reference_tensor)
    if node is None or node.op != "Concat":
        return []
    axis = int(node.attrs["axis"])
    ends = np.cumsum([reference.load(name).shape[axis] for name in node.inputs])[:-1]
    quant, levels = backend.graph.tensors[row.tensor].quant, []
    theirs = np.concatenate([reference.load(row.reference_tensor, number) for number in range(reference.samples)])
    ours = np.concatenate([dequantize(backend.load(row.tensor, number), quant) for number in range(reference.samples)])
    for one, other in zip(np.split(theirs, ends, axis), np.split(ours, ends, axis), strict=True):
        noise, signal = float(np.sum(np.square(one - other, dtype=float))), float(np.sum(np.square(one, dtype=float)))
        levels.append(10 * math.log10(signal / noise) if noise and signal else math.inf)
    return levels


def rate(right: int, count: int) -> str:
    """Write a rate."""
    return f"{right:4} of {count:4} {100 * right / count:6.1f} %" if count else "   0 of    0        "


def table(title: str, cases: Sequence[Case], key: str) -> list[str]:
    """Write the rates of some cases, by one of their fields."""
    rows = defaultdict(list)
    for case in cases:
        rows[getattr(case, key)].append(case)
    width = max([len(title), *map(len, rows)], default=8)
    lines = [f"{title:{width}}  {'origin':>21}  {'cause':>21}"]
    for name, found in (*sorted(rows.items()), ("all", list(cases))):
        origin, cause = (sum(getattr(case, what) for case in found) for what in ("origin_right", "cause_right"))
        lines.append(f"{name:{width}}  {rate(origin, len(found)):>21}  {rate(cause, len(found)):>21}")
    return lines


def wrong_lines(cases: Sequence[Case], pairs: Sequence[dict]) -> list[str]:
    """Write each wrong origin, wrong cause and false alarm."""
    lines = []
    for case in cases:
        if case.cause_right:
            continue
        what = "cause" if case.origin_right else "origin"
        lines += [
            f"wrong {what}: {case.net} {case.form} {case.level}, {case.kind} {case.seed} ({case.way}: {case.what})",
            f"    expected {'|'.join(case.kinds)} at {'|'.join(case.nodes)} {'|'.join(case.names)[:120]}".rstrip(),
            f"    found {case.status}, {case.found} at {case.origin}, {case.name}: {case.said}",
            f"    {case.sentence}",
        ]
    for pair in pairs:
        if not pair["right"]:
            lines += [
                "false alarm: {net} {form} {level}, {sqnr_db:.1f} dB: {status}".format(**pair),
                f"    {pair['sentence']}",
            ]
    return lines


def report(group: str, cases: Sequence[Case], pairs: Sequence[dict]) -> list[str]:
    """Write the tables of a group of nets."""
    good = [pair for pair in pairs if pair["good"]]
    others = [pair for pair in pairs if not pair["good"]]
    poor = {f"{pair['net']} {pair['form']}" for pair in others}
    alarms, misread = (sum(not pair["right"] for pair in each) for each in (good, others))
    lines = [
        f"== {group} nets: {len(cases)} faults of {len({c.kind for c in cases})} kinds, {len(pairs)} healthy pairs"
    ]
    for key in ("kind", "way", "form", "net"):
        lines += ["", *table(key, cases, key)]
    lines += [
        "",
        f"false alarms: {alarms} of {len(good)} healthy pairs with {GOOD_DB:.0f} dB or more at every output",
        f"misread: {misread} of {len(others)} with less, which must read accumulated, or with NaN: nonfinite",
        "forms with less, without a planted fault: " + (", ".join(sorted(poor)) or "none"),
    ]
    return lines


def missed(cases: Sequence[Case], pairs: Sequence[dict]) -> bool:
    """Tell whether a rate misses its goal."""
    count = len(cases)
    few = sum(c.origin_right for c in cases) < 0.95 * count or sum(c.cause_right for c in cases) < 0.9 * count
    return few or any(not pair["right"] for pair in pairs)


def measured(name: str, net: tuple, options: argparse.Namespace) -> tuple[list[Case], list[dict]]:
    """Plant faults into one net, and compare its healthy forms."""
    files, feeds = prepared(name, net, options.cache)
    cases: list[Case | None] = []
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(name, files, feeds, Path(folder))
        broken: set[str] = set()
        pairs = [] if options.no_healthy else healthy_pairs(bench, list(files), broken)
        broken |= {pair["form"] for pair in pairs if not pair["good"]}
        able = [form for form in options.forms if form in files and form not in broken]
        for number, kind in enumerate(options.kinds):
            for seed in range(options.seeds if able else 0):
                turned = able[(number + seed) % len(able) :] + able[: (number + seed) % len(able)]
                tried = (bench.plant(form, kind, seed) for form in turned)
                cases += [next((case for case in tried if case is not None), None)]
    cases = [case for case in cases if case is not None]
    taken = time.monotonic() - started
    print(f"{name}: {len(cases)} faults, {len(pairs)} healthy pairs in {taken:.0f} s", file=sys.stderr)
    return cases, pairs


def main() -> int:
    """Measure what was asked for."""
    nets = groups()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cache", type=Path, metavar="CACHE", help="folder for nets and their forms")
    parser.add_argument("--group", choices=[*nets, "all"], default="known", help="which nets")
    parser.add_argument("--nets", nargs="+", metavar="NET", help="these nets of the group alone")
    parser.add_argument("--kinds", nargs="+", metavar="KIND", default=KINDS, choices=KINDS, help="these kinds alone")
    parser.add_argument("--forms", nargs="+", metavar="FORM", default=FAULTY_FORMS, help="forms to plant faults into")
    parser.add_argument("--seeds", type=int, default=2, metavar="N", help="faults of each kind in a net")
    parser.add_argument("--no-healthy", action="store_true", help="leave the healthy pairs out")
    parser.add_argument("--wrong", action="store_true", help="list every wrong answer below the tables")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every case and pair to a file, net by net")
    parser.add_argument("--list", action="store_true", help="name nets, forms and kinds, and end")
    options = parser.parse_args()
    if options.list:
        rows = [*nets.items(), ("forms", quantizers.FORMS), ("kinds", KINDS)]
        print(*(f"{title}: {', '.join(names)}" for title, names in rows), sep="\n")
        return 0
    options.cache.mkdir(parents=True, exist_ok=True)
    out, failed = {}, False
    for group in nets if options.group == "all" else [options.group]:
        cases, pairs = [], []
        for name, net in nets[group].items():
            if options.nets is None or name in options.nets:
                more = measured(name, net, options)
                cases, pairs = cases + more[0], pairs + more[1]
                out[group] = {"cases": [case.to_dict() for case in cases], "healthy": pairs}
                if options.json is not None:
                    options.json.write_text(json.dumps(out, indent=1, default=str), encoding="utf-8")
        print(*report(group, cases, pairs), sep="\n")
        if options.wrong:
            print("", *wrong_lines(cases, pairs), sep="\n")
        failed |= missed(cases, pairs)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
