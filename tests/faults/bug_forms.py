"""Say how often `diff` names the cause of a wrong kernel in each form in which such a bug reaches a user.

    python tests/faults/bug_forms.py [FORM ...]             all forms, or those given
    python tests/faults/bug_forms.py --every N              one case in N, of those of `operator_bugs.py --further`
    python tests/faults/bug_forms.py --only PATTERN         the cases whose title matches
    python tests/faults/bug_forms.py --show                 with what is said of each case whose cause is not named

Each case is put between right nodes, and recorded as in most public reports: an ONNX file and a folder of dumped
tensors, imported. The device rounds, hides or encodes its tensors, see `FORMS`. A line for each form says in how many
cases the node and the cause are right, no cause is named, another one is, and how many pass. In the forms that begin
with "random", the errors have no cause. It ends with 1 if a random error gets a cause, or if more than one case of 20
gets another cause than the stated one, or passes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
from onnx import helper, numpy_helper
from operator_bugs import MICROSOFT, Case, Values, computed, selected_cases

import qdebug
from qdebug.importing import import_dump
from qdebug.model import operators

SHORT = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
GAIN, OFFSET, OFFSET_STEPS = 0.25, 0.25, 20.4
"""What the node before a case multiplies by, and the node after it adds: a number, or steps of codes."""
LEAST_WRONG, LEAST_ERROR_SHARE = 8, 1 / 64
"""Elements that have to be far off, and how far relative to the largest: otherwise a form hides the mistake."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a device stores its tensors, and which of them it shows.

    Args:
        noise: Whether the device sums in another order, so that results differ by a rounding.
        stored: The format that the device rounds all tensors to, or "".
        half_net: Whether the net itself computes in float16.
        samples: Number of samples.
        blank: Whether the first sample is all zeros.
        hidden: Tensors that the device does not show, of "x" (inputs of the node) and "out0" (its result).
        codes: Type of the codes that the net quantizes to around the node, or "".
        dequantized: Whether the device of a real net shows real values of 8-bit codes.
        named: Whether the dump has names alone, without a graph.
        part: Whether only the last elements along the last long axis are wrong.
        random: Whether the device adds random errors instead of computing wrongly, so that there is no cause to name.
    """

    noise: bool = False
    stored: str = ""
    half_net: bool = False
    samples: int = 1
    blank: bool = False
    hidden: tuple[str, ...] = ()
    codes: str = ""
    dequantized: bool = False
    named: bool = False
    part: bool = False
    random: bool = False


FORMS: dict[str, Form] = {
    "net": Form(samples=3),
    "blank": Form(samples=3, blank=True),
    "noise": Form(samples=3, noise=True),
    "inputs": Form(samples=3, noise=True, hidden=("x",)),
    "output": Form(samples=3, noise=True, hidden=("out0",)),
    "inside": Form(samples=3, noise=True, hidden=("x", "out0")),
    "half": Form(samples=3, stored="float16"),
    "bf16": Form(samples=3, stored="bfloat16"),
    "half-net": Form(samples=3, half_net=True),
    "half-inside": Form(samples=3, half_net=True, hidden=("x", "out0")),
    "half-output": Form(samples=3, half_net=True, hidden=("out0",)),
    "int8": Form(samples=3, codes="int8"),
    "uint8": Form(samples=3, codes="uint8"),
    "int16": Form(samples=3, codes="int16"),
    "uint16": Form(samples=3, codes="uint16"),
    "int8-output": Form(samples=3, codes="int8", hidden=("out0",)),
    "dequantized": Form(samples=3, dequantized=True),
    "names": Form(samples=3, named=True),
    "names-noise": Form(samples=3, named=True, noise=True),
    "names-half": Form(samples=3, named=True, stored="float16"),
    "part": Form(samples=3, part=True, noise=True),
    "part-half": Form(samples=3, part=True, half_net=True),
    "part-int8": Form(samples=3, part=True, codes="int8"),
    "part-inside": Form(samples=3, part=True, noise=True, hidden=("x", "out0")),
    "random": Form(samples=3, random=True),
    "random-part": Form(samples=3, random=True, part=True),
    "random-half": Form(samples=3, random=True, half_net=True, hidden=("out0",)),
    "random-inside": Form(samples=3, random=True, blank=True, hidden=("x", "out0")),
    "random-int8": Form(samples=3, random=True, codes="int8"),
    "random-int8-output": Form(samples=3, random=True, codes="int8", hidden=("out0",)),
    "random-dequantized": Form(samples=3, random=True, dequantized=True),
}


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Two recordings of a case, and the nodes of which one has to be the origin."""

    reference: Path
    device: Path
    origins: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class _Code:
    """Scale and zero point of a type of codes."""

    scale: np.ndarray
    zero: np.ndarray

    def codes(self, values: np.ndarray) -> np.ndarray:
        ends = np.iinfo(self.zero.dtype)
        with np.errstate(invalid="ignore"):
            steps = np.rint(values.astype(np.float32) / self.scale) + int(self.zero)
        return np.clip(steps, ends.min, ends.max).astype(self.zero.dtype)

    def reals(self, codes: np.ndarray) -> np.ndarray:
        return ((codes.astype(np.float32) - np.float32(self.zero)) * self.scale).astype(np.float32)


def code_for(arrays: Sequence[np.ndarray], kind: str) -> _Code:
    """Return a scale and zero point that cover some arrays."""
    low = min(0.0, *(float(array.min()) for array in arrays))
    high = max(0.0, *(float(array.max()) for array in arrays))
    ends = np.iinfo(kind)
    scale = np.float32((high - low) / (ends.max - ends.min) or 1.0)
    zero = np.clip(np.rint(ends.min - low / scale), ends.min, ends.max).astype(kind)
    return _Code(scale=np.asarray(scale), zero=np.asarray(zero))


class _Net:
    """A case between right nodes, computed by a reference and by a device."""

    def __init__(self, tried: Case, form: Form) -> None:
        self.tried, self.form, self.rng = tried, form, np.random.default_rng(3)
        used = dict.fromkeys(filter(None, tried.inputs))
        self.data = [name for name in used if name.startswith("x")]
        self.real_data = [name for name in self.data if tried.values[name].dtype == np.float32]
        self.constants = {name: self._in_net(tried.values[name], name) for name in used if name not in self.data}
        self.code: dict[str, _Code] = {}
        row = operators.of(tried.op)
        self.is_exact = row.rounds_nothing or row.dequantizes or row.casts
        self.offset = np.float32(OFFSET)  # what the node after the case adds

    def _in_net(self, values: np.ndarray, name: str) -> np.ndarray:
        """Return values in the format of the net. The scales of a Resize are always float32."""
        converted = (
            self.form.half_net and values.dtype == np.float32 and not (self.tried.op == "Resize" and name != "x")
        )
        with np.errstate(over="ignore"):
            return values.astype(np.float16) if converted else values

    def fed(self, sample: int) -> dict[str, np.ndarray]:
        """Return the inputs of the net in a sample, of which the node reads GAIN times the real numbers."""
        fed = {}
        for name in self.data:
            values = self.tried.values[name]
            if values.dtype == np.float32:
                factors = self.rng.uniform(0.7, 1.3, values.shape).astype(np.float32) if sample else np.float32(1)
                values = values * factors * np.float32(0 if self.form.blank and not sample else 1 / GAIN)
                for kind in SHORT.values() if self.form.stored else ():
                    values = values.astype(kind).astype(np.float32)
            fed[name] = self._in_net(values, name)
        return fed

    def stored(self, values: np.ndarray, *, rounds: bool = True) -> np.ndarray:
        """Return what the device keeps of real numbers, with a rounding of its own if it computed them."""
        if values.dtype != np.float32:
            return values
        if self.form.noise and rounds and np.isfinite(values).all():
            typical = np.sqrt(np.mean(np.square(values, dtype=np.float64)))
            off = self.rng.normal(size=values.shape) * 2.0**-24 * (np.abs(values) + typical * (values != 0))
            values = (values + off).astype(np.float32)
        if self.form.stored:
            return values.astype(SHORT[self.form.stored]).astype(np.float32)
        return values

    def computed(self, data: Values, *, wrong: bool) -> list[np.ndarray]:
        """Return the results of the node, in the format of the net."""
        values = {name: widened(array) for name, array in {**self.constants, **data}.items()}
        tried = self.tried
        if wrong:
            made = tried.wrong(values)
            made = [np.asarray(each) for each in (made if isinstance(made, list) else [made])]
        else:
            names, attrs = tried.inputs, tried.attrs
            made = computed(tried.op, names, tried.outs, values, opset=tried.opset, domain=tried.domain, **attrs)
        return [self._in_net(each, "x") for each in made]


def widened(values: np.ndarray) -> np.ndarray:
    """Return float16 numbers in float32."""
    return values.astype(np.float32) if values.dtype == np.float16 else values


def runs_of(tried: Case, form: Form, folder: Path) -> Runs | None:
    """Record a case in a form, and return None if the form does not apply or hides the mistake."""
    if any(array.dtype.isbuiltin != 1 for array in tried.values.values()):
        return None  # numpy's files have no name for such a type
    net = _Net(tried, form)
    fed = [net.fed(sample) for sample in range(form.samples)]
    read = [{name: _scaled(values) for name, values in each.items()} for each in fed]
    with np.errstate(all="ignore"):
        right = [net.computed(each, wrong=False) for each in read]
        if (form.codes or form.dequantized) and not _quantize(net, read, right):
            return None
        return _record(net, fed, read, folder)


def _scaled(values: np.ndarray) -> np.ndarray:
    return values * values.dtype.type(GAIN) if values.dtype.kind == "f" else values


def _quantize(net: _Net, read: Sequence[Values], right: Sequence[Sequence[np.ndarray]]) -> bool:
    """Choose the codes of a net, and tell whether it can have them: it has one real result."""
    kind = net.form.codes or "int8"
    if len(right[0]) > 1 or right[0][0].dtype != np.float32 or not all(np.isfinite(each[0]).all() for each in right):
        return False
    for name in net.real_data:
        if not all(np.isfinite(each[name]).all() for each in read):
            return False
        net.code[name] = code_for([each[name] for each in read], kind)
    net.code["out0"] = code_for([each[0] for each in right], kind)
    if net.form.dequantized:  # far more than a step, or adding it may change nothing
        net.offset = np.float32(OFFSET_STEPS * net.code["out0"].scale)
    net.code["moved"] = code_for([each[0] + net.offset for each in right], kind)
    net.code["last"] = code_for([np.asarray([-1.0, 1.0])], kind)
    return True


def _record(net: _Net, fed: Sequence[Values], read: Sequence[Values], folder: Path) -> Runs | None:
    form = net.form
    reference: list[dict[str, np.ndarray]] = []
    device: list[dict[str, np.ndarray]] = []
    shown = False
    earlier: list[np.ndarray] = []
    for sample, data in enumerate(read):
        own = {name: net.stored(values, rounds=False) for name, values in data.items()}
        runs = []
        for is_device, given in ((False, data), (True, own)):
            arrays = {f"{name} fed": fed[sample][name] for name in net.real_data}
            arrays |= {name: given[name] for name in net.data}
            inputs = _coded(net, arrays, given, is_device=is_device)
            try:
                results = net.computed(inputs, wrong=False)
                if is_device:
                    made = _with_errors(results, net.rng) if form.random else net.computed(inputs, wrong=True)
                    if any(a.shape != b.shape for a, b in zip(made, results, strict=True)):
                        return None
                    made = [a.astype(b.dtype) for a, b in zip(made, results, strict=True)]
                    if form.part:
                        made = [_partly(a, b) for a, b in zip(made, results, strict=True)]
                    shown |= _is_far_off(made[0], results[0])
                    earlier.append(made[0])
                    results = [net.stored(each, rounds=not net.is_exact) for each in made]
            except (ValueError, IndexError):
                return None
            arrays |= {f"out{at}": each for at, each in enumerate(results)}
            _finish(net, arrays, is_device=is_device)
            runs.append(arrays)
        reference.append(runs[0])
        device.append(runs[1])
    if not shown:
        return None
    ignores_data = len(read) > 1 and not form.blank and all(np.array_equal(earlier[0], each) for each in earlier[1:])
    if ignores_data and not np.array_equal(reference[0]["out0"], reference[1]["out0"]):
        return None  # the wrong result is of one sample alone
    return _written(net, reference, device, folder)


def _with_errors(results: Sequence[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
    """Return results with random errors in a third of the elements, or in all."""
    changed = []
    for right in results:
        values = widened(right)
        if values.dtype == np.float32:
            typical = np.sqrt(np.mean(np.square(values[np.isfinite(values)], dtype=np.float64)))
            errors = rng.normal(size=values.shape) * typical * rng.uniform(0.1, 1)
            values = values + (errors * (rng.random(values.shape) < rng.choice([1 / 3, 1]))).astype(np.float32)
        changed.append(values.astype(right.dtype))
    return changed


def _partly(wrong: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return a result that is wrong only in the last quarter of its last long axis."""
    axes = [axis for axis, extent in enumerate(right.shape) if extent >= 4]
    if not axes:
        return right
    mixed = right.copy()
    extent = right.shape[axes[-1]]
    part = (*[slice(None)] * axes[-1], slice(extent - extent // 4, None))
    mixed[part] = wrong[part]
    return mixed


def _is_far_off(wrong: np.ndarray, right: np.ndarray) -> bool:
    if right.dtype.kind != "f":
        return not np.array_equal(wrong, right)
    finite = np.isfinite(right) & np.isfinite(wrong)
    top = float(np.abs(right[finite]).max(initial=0))
    off = np.abs(wrong.astype(np.float64) - right) > LEAST_ERROR_SHARE * top
    return bool(np.count_nonzero(off) >= min(LEAST_WRONG, right.size)) if top else not np.array_equal(wrong, right)


def _coded(net: _Net, arrays: dict[str, np.ndarray], inputs: Values, *, is_device: bool) -> dict[str, np.ndarray]:
    """Quantize what the node reads, and return it."""
    made = dict(inputs)
    for name in net.real_data:
        code = net.code.get(name)
        if code is not None and net.form.codes:
            arrays[f"{name} codes"] = code.codes(inputs[name])
            made[name] = arrays[f"{name} real"] = code.reals(arrays[f"{name} codes"])
        elif code is not None and is_device:
            made[name] = arrays[name] = code.reals(code.codes(inputs[name]))
    return made


def _finish(net: _Net, arrays: dict[str, np.ndarray], *, is_device: bool) -> None:
    """Add the results of the nodes after the case: an Add and a Tanh of a real result."""
    last = arrays["out0"]
    if last.dtype.kind != "f":
        return
    code = net.code.get("out0")
    if code is not None and net.form.codes:
        arrays["out0 codes"] = code.codes(last)
        last = arrays["out0 real"] = code.reals(arrays["out0 codes"])
    elif code is not None and is_device:
        last = arrays["out0"] = code.reals(code.codes(last))

    def kept(values: np.ndarray, name: str) -> np.ndarray:
        values = values.astype(last.dtype)
        if is_device and net.form.dequantized:
            return net.code[name].reals(net.code[name].codes(values))
        return net.stored(values, rounds=name != "moved") if is_device else values

    arrays["moved"] = kept(widened(last) + net.offset, "moved")
    arrays["last"] = kept(np.tanh(widened(arrays["moved"])), "last")


def _written(net: _Net, reference: Sequence[Values], device: Sequence[Values], folder: Path) -> Runs:
    """Write the net and the dumps, and import them."""
    form, real_result = net.form, "moved" in reference[0]
    model = _model(net, reference[0])
    onnx.save(model, folder / "net.onnx")
    hidden = set(net.real_data) if "x" in form.hidden else set()
    if "out0" in form.hidden and real_result:
        hidden |= {"out0", "out0 codes"}
    if form.codes:  # real numbers around codes are not computed
        hidden |= {"out0", "out0 real", *net.real_data, *(f"{name} real" for name in net.real_data)}
    for title, samples, left_out in (("reference", reference, set()), ("device", device, hidden)):
        (folder / title).mkdir()
        for at, arrays in enumerate(samples):
            np.savez(
                folder / title / f"{at}.npz", **{name: each for name, each in arrays.items() if name not in left_out}
            )
        graph = None if title == "device" and form.named else folder / "net.onnx"
        import_dump.import_dump(folder / title, folder / f"{title}.h5", graph=graph)
    origins = {"node"}
    if form.codes and "out0" not in form.hidden:
        origins |= {"out0 quantize"}
    if "out0" in form.hidden:
        origins |= {"add", "tanh", "out0 quantize", "out0 dequantize"}
    if form.named:
        origins |= {"out0", "add" if "out0" in hidden else "node"}
    return Runs(reference=folder / "reference.h5", device=folder / "device.h5", origins=frozenset(origins))


def _model(net: _Net, arrays: Values) -> onnx.ModelProto:
    """Return the net as ONNX."""
    tried, constants = net.tried, dict(net.constants)
    nodes, inputs = [], []
    renamed = {}
    for name in net.data:
        fed = f"{name} fed" if name in net.real_data else name
        inputs.append(_info(fed, arrays[fed]))
        if name in net.real_data:
            constants[f"{name} gain"] = np.asarray(GAIN, arrays[fed].dtype)
            nodes.append(helper.make_node("Mul", [fed, f"{name} gain"], [name], name=f"{name} mul"))
            if net.form.codes:
                renamed[name] = _add_codes(nodes, constants, net.code[name], name)
    results = [name for name in arrays if name.startswith("out") and " " not in name]
    read = [renamed.get(name, name) for name in tried.inputs]
    attrs = dict(tried.attrs)
    nodes.append(helper.make_node(tried.op, read, results, name="node", domain=tried.domain, **attrs))
    ends = results
    if "moved" in arrays:
        last = _add_codes(nodes, constants, net.code["out0"], "out0") if net.form.codes else "out0"
        constants["offset"] = np.asarray(net.offset, arrays["out0"].dtype)
        nodes.append(helper.make_node("Add", [last, "offset"], ["moved"], name="add"))
        nodes.append(helper.make_node("Tanh", ["moved"], ["last"], name="tanh"))
        ends = ["last", *results[1:]]
    outputs = [_info(name, arrays[name]) for name in ends]
    initializers = [
        numpy_helper.from_array(np.ascontiguousarray(each).reshape(each.shape), name)
        for name, each in constants.items()
    ]
    graph = helper.make_graph(nodes, "net", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", tried.opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10)


def _info(name: str, array: np.ndarray) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _add_codes(nodes: list[onnx.NodeProto], constants: dict[str, np.ndarray], code: _Code, name: str) -> str:
    """Add a quantization of a tensor and its inverse, and return the result."""
    constants |= {f"{name} scale": code.scale, f"{name} zero": code.zero}
    numbers = [f"{name} scale", f"{name} zero"]
    nodes.append(helper.make_node("QuantizeLinear", [name, *numbers], [f"{name} codes"], name=f"{name} quantize"))
    nodes.append(
        helper.make_node("DequantizeLinear", [f"{name} codes", *numbers], [f"{name} real"], name=f"{name} dequantize")
    )
    return f"{name} real"


CLAIMS = r"\((reproduces [^)]*)\)|likely: "
PLACE_CLAIMS = r"likely: (the tail of|the filters that are left over|elements that are never)"
NEVER = "(?!)"
MAX_OTHER_CAUSES, MAX_PASSED = 1 / 20, 1 / 20


def outcome_of(words: str, runs: Runs) -> tuple[str, bool, str]:
    """Return whether the cause is "named", "unnamed", "other" or "passed", if the node is right, and what is said."""
    result = json.loads(qdebug.diff(str(runs.reference), str(runs.device)).to_json())
    verdict = result["verdict"]
    sentences = [each["why"] for each in result["diagnosis"] if {each["node"], each["model_node"]} & runs.origins]
    sentences += [
        finding["sentence"] for node in result["nodes"] if node["node"] in runs.origins for finding in node["findings"]
    ]
    text = "; ".join(dict.fromkeys(sentences))
    origin = verdict["origin"] or verdict["first_divergence"]
    is_at_node = origin in runs.origins
    if re.search(words, text):
        return "named", is_at_node, text
    if verdict["status"] in ("identical", "within"):
        return "passed", is_at_node, verdict["sentence"]
    claims = re.search(CLAIMS, re.sub(PLACE_CLAIMS, "", text))
    return "other" if claims else "unnamed", is_at_node, f"origin {origin}: {text}"


def count_outcomes(title: str, cases: Sequence[Case], *, show: bool) -> Counter[str]:
    """Try all cases in a form, print a line on it, and return the numbers of outcomes."""
    counts: Counter[str] = Counter()
    for tried in cases:
        with tempfile.TemporaryDirectory() as folder:
            runs = runs_of(tried, FORMS[title], Path(folder))
            if runs is None:
                continue
            outcome, is_at_node, text = outcome_of(NEVER if FORMS[title].random else tried.words, runs)
        counts += Counter(["cases", outcome, *(["node"] if is_at_node else [])])
        counts["random"] += FORMS[title].random and outcome == "other"
        if show and (outcome != ("unnamed" if FORMS[title].random else "named") or not is_at_node):
            print(f"  {title}, {outcome}: {tried.title} | {text}", flush=True)
    kinds = ("cases", "node", "named", "unnamed", "other", "passed")
    print(f"{title:18} " + "".join(f"{counts[kind]:9}" for kind in kinds), flush=True)
    return counts


def main() -> int:
    """Try the forms; see the module docstring."""
    parser = argparse.ArgumentParser()
    parser.add_argument("forms", nargs="*", choices=[[], *FORMS])
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    cases = selected_cases(
        argparse.Namespace(patterns=[options.only], every=options.every, further=True, steps=False, tiles=False)
    )
    print(f"{'form':18}     cases     node    named  unnamed    other   passed", flush=True)
    counts = sum((count_outcomes(title, cases, show=options.show) for title in options.forms or FORMS), Counter())
    print(
        f"{'all':18} "
        + "".join(f"{counts[kind]:9}" for kind in ("cases", "node", "named", "unnamed", "other", "passed"))
    )
    is_good = counts["other"] <= MAX_OTHER_CAUSES * counts["cases"] and counts["passed"] <= MAX_PASSED * counts["cases"]
    return int(not is_good or counts["random"] > 0)


if __name__ == "__main__":
    sys.exit(main())
