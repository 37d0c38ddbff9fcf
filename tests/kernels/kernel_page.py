"""The page of kernels: formula, NumPy and users of each arithmetic that a preset or a fingerprint states.

`guide_tables.py` writes it into the guide. Each line of NumPy stands for one word of the variant (see `kernel_words`).
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import kernel_functions
import kernel_words as words

from qdebug.arithmetic.canonical import canonical
from qdebug.arithmetic.fingerprints import packaged
from qdebug.arithmetic.presets import PROVENANCES, Preset, known_presets
from qdebug.numerics.rounding import ROUNDINGS
from qdebug.replay.scaling import NUMBERS, Multiplier
from qdebug.replay.steps import STEPS, Step
from qdebug.replay.unit import KINDS
from qdebug.replay.variant import BIASES, Variant, kind_of

LOADED = {"sum": "acc", "raw": "raw", "offset": "raw"}
"""Forms that take sums as they are, and what the sums are called."""
OPERANDS = {
    "ls": "operands shifted left by {shift} bits",
    "each": "each operand brought to the output scale",
    "leaky": "one multiplier for each sign",
    "slopes": "one multiplier for each sign, of products with the slope below 0",
}
"""Forms that run a program on each operand first, and what they are called."""
COUNTED = {2: "two", 3: "three", 4: "four"}
SECTIONS = {
    "Products": ("conv", "linear", "mul"),
    "Sums, quotients and slopes of two tensors": ("add", "sub", "div", "prelu", "squared_difference"),
    "Averages": ("average_pool", "global_average_pool", "reduce_mean"),
    "Functions of one code": ("lookup",),
    "Softmax": ("softmax",),
    "Codes that move or change their scale": (
        "concat", "where", "max_pool", "resize", "pad", "requantize", "quantize", "dequantize",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Use:
    """One preset that computes one kind of node so.

    Args:
        kind: The kind.
        where: The kind with its branch, and with its types where the preset tells them apart.
        preset: The preset's name.
        known: How it is known: a key of `PROVENANCES`.
        fits: How many arithmetics fit the measurement, this one among them; 1 if it alone does.
        sums: How products are summed, where that is not in 32 bits.
        types: The types of both operands, where `sums` is for these.
        some: Whether the preset computes only some nodes of the kind so.
    """

    kind: str
    where: str
    preset: str
    known: str
    fits: int = 1
    sums: str = ""
    types: str = ""
    some: bool = False


@dataclass(frozen=True)
class Kernel:
    """One arithmetic.

    Args:
        variant: Its variant, with sums in 32 bits.
        uses: Who computes so.
    """

    variant: Variant
    uses: list[Use] = field(default_factory=list)

    @cached_property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of node that are computed so, in the package's order."""
        found = {use.kind for use in self.uses}
        return tuple(kind for kind in KINDS if kind in found)

    @property
    def known(self) -> str:
        """How it is known at best."""
        return min((use.known for use in self.uses), key=list(PROVENANCES).index)


def kernels() -> list[Kernel]:
    """Return the arithmetics that presets and fingerprints state, by section."""
    found: dict[Variant, Kernel] = {}
    for preset in known_presets().values():
        for variant, use in _uses(preset):
            uses = found.setdefault(variant, Kernel(variant)).uses
            if use not in uses:
                uses.append(use)
    order = [kind for kinds in SECTIONS.values() for kind in kinds]
    return sorted(found.values(), key=lambda each: (min(map(order.index, each.kinds)), str(each.variant)))


def _uses(preset: Preset) -> Iterator[tuple[Variant, Use]]:
    """Yield the arithmetics of a preset, with sums in 32 bits, each with what is computed so."""
    measured = packaged()[preset.name].kinds if preset.name in packaged() else {}
    for stated, some in ((preset.variants, False), (preset.also, True)):
        for key, variant in stated.items():
            sums = "" if variant.accumulate == "wrap32" else variant.accumulate
            yield (
                replace(canonical(variant), accumulate="wrap32"),
                Use(
                    kind=kind_of(key),
                    where=_said(key, stated),
                    preset=preset.name,
                    known=preset.provenance if some else preset.known(kind_of(key)),
                    fits=len(measured.get(key, ())) or 1,
                    sums=sums,
                    types=" x ".join(key.partition(":")[2].split(",")[:2]) if sums else "",
                    some=some,
                ),
            )


def _said(key: str, variants: Mapping[str, Variant]) -> str:
    """Return a key without its types, unless the preset states other variants for other types."""
    name, _, types = key.partition(":")
    same = {
        replace(variants[other], accumulate="wrap32")
        for other in variants
        if other.partition(":")[0] == name or other == kind_of(key)
    }
    return f"{name} of {types.replace(',', '/')}" if len(same) > 1 and types else name


def _order(multiplier: Multiplier, x: str = "sx", w: str = "", y: str = "sy", *, averages: bool = False) -> str:
    """Return the quotient of the scales as NumPy; without a second scale or a count, these are left out."""
    text = words.ORDERS[multiplier.expression]
    if not averages:
        text = text.replace(" / n", "").replace("(sy * n)", "sy")
    if not w:
        text = text.replace(" * sw", "")
    for name, other in (("sx", x), ("sw", w), ("sy", y)):
        text = re.sub(rf"\b{name}\b", other, text)
    return text


def _multiplier(multiplier: Multiplier, real: str) -> list[str]:
    lines = [line.format(real=real) for line in words.NUMBERS[multiplier.number]]
    return [line.replace("np.float64(np.float64(sx) * sw / sy)", "np.float64(sx) * sw / sy") for line in lines]


def multiplies(steps: Iterable[Step]) -> bool:
    """Tell whether the multiplier decides what some steps do."""
    return any(STEPS[step.op].multiplies for step in steps)


def _amount(steps: tuple[Step, ...], number: str) -> int | str:
    """Return the bits that the step `shr` shifts by."""
    ops = {step.op for step in steps}
    if number == "glow":
        return "r"
    if number == "p8":
        return words.BITS[number]
    if "mulhi" in ops:
        return "max(-e, 0)" if "shl" in ops else "-e"
    return f"{words.BITS[number]} - e" if words.BITS[number] else "-e"


def _steps(steps: tuple[Step, ...], number: str, *, real: bool, shift: int | str = "") -> Iterator[str]:
    """Yield the lines of a program, each with its word."""
    for step in steps:
        lines = [*_real_step(step)] if real else [*_whole_step(step, steps, number, shift)]
        yield from lines[:-1]
        yield f"{lines[-1]}  # {step}"


def _real_step(step: Step) -> Iterator[str]:
    if step.op != "round":
        yield words.REAL_STEPS[step.op]
        return
    text = ROUNDINGS[step.rounding].real_text
    if text.count("np.abs(v)") > 1:
        yield "a = np.abs(v)"
        text = text.replace("np.abs(v)", "a")
    yield f"v = {text}"


def _whole_step(step: Step, steps: tuple[Step, ...], number: str, shift: int | str) -> Iterator[str]:
    if step.op == "avg":
        yield words.AVERAGES[step.rounding]
    elif step.op == "mulhi":
        yield f"v = {words.shifted(step.rounding, words.BITS[number], 'v * m')}"
    elif step.op == "pre":
        yield f"v = {words.shifted(step.rounding, 'pre')}"
    elif step.op == "shr":
        bits = shift or _amount(steps, number)
        if isinstance(bits, str) and bits != "r":
            yield f"r = {bits}"
            bits = "r"
        yield f"v = {words.shifted(step.rounding, bits)}"
    else:
        yield words.WHOLE_STEPS[step.op]


def code(kernel: Kernel) -> str:
    """Return a kernel as NumPy: from what its kind of node sums to the output's codes `y`."""
    variant = kernel.variant
    if variant.form in OPERANDS:
        lines = [*_with_operands(kernel)]
    elif variant.form in LOADED:
        lines = [*_loaded(kernel)]
    else:
        lines = [*_formed(variant)]
    lines = [*_in_half(kernel), *lines]
    lines[-1] = re.sub(r"^v = ", "y = ", lines[-1])
    return "\n".join(_spaced(lines)) + "\n"


def _in_half(kernel: Kernel) -> Iterator[str]:
    """Yield the lines that keep scales and a real bias in float16, where the program says so."""
    variant = kernel.variant
    if not any(STEPS[step.op].half for step in variant.requantize):
        return
    paired = bool(words.PAIRED & set(kernel.kinds))
    names = "sa sb" if variant.form == "deq" else "sx sw" if paired and variant.form in LOADED else "sx"
    yield from (f"{name} = to_half({name})" for name in names.split())
    if variant.bias == "float":
        yield "bias = to_half(bias)"


def _spaced(lines: list[str]) -> Iterator[str]:
    """Yield lines of code with two empty ones around each function, as formatters have it."""
    inside = False
    for number, line in enumerate(lines):
        begins = line.startswith("def ")
        if number and (begins or (inside and not line.startswith(" "))):
            yield from ("", "")
        inside = begins or (inside and line.startswith(" "))
        yield line


def _loaded(kernel: Kernel) -> Iterator[str]:
    """Yield the lines of a program that runs on sums."""
    variant, multiplier = kernel.variant, kernel.variant.multiplier
    paired, averages = (bool(words_of & set(kernel.kinds)) for words_of in (words.PAIRED, words.AVERAGED))
    if multiplies(variant.requantize):
        yield from _multiplier(multiplier, _order(multiplier, w="sw" if paired else "", averages=averages))
    sums = LOADED[variant.form]
    yield f"v = {sums}.astype(np.{multiplier.dtype.__name__})" if multiplier.real else f"v = {sums}"
    one = ", np.float32(1)," if scaled(variant.requantize) else ", sx * sw,"
    for step in _steps(variant.requantize, multiplier.number, real=multiplier.real):
        line = step.replace(", one,", one)
        text = line if paired else line.replace("(sx * sw)", "sx").replace(" sx * sw,", " sx,")
        if variant.form != "offset" or "v + zy " not in text:
            yield text
        elif multiplier.real:
            yield text.replace("v + zy ", "v + (zy - zx * sx / sy) ")
        else:  # a whole number, ties away from zero
            yield "z = np.float64(zx * sx / sy)"
            yield "z = int(np.copysign(np.floor(np.abs(z) + 0.5), z))"
            yield text.replace("v + zy ", "v + (zy - z) ")


def _formed(variant: Variant) -> Iterator[str]:
    """Yield the lines of a program that has a form of its own."""
    form, multiplier = words.FORMS[variant.form], variant.multiplier
    yield from form.code.strip("\n").replace("\n\n", "\n").splitlines()
    if form.real and multiplies(variant.requantize):
        yield from _multiplier(multiplier, _order(multiplier))
    number = multiplier.number if form.real else "q31"
    one = f", {words.ONES.get(variant.form, 'np.float32(1)')},"
    for step in _steps(variant.requantize, number, real=form.real, shift=form.shift):
        line = step.replace(", one,", one)
        yield line.replace("v + zy ", "v + low ") if variant.form in ("levels", "levels-raw") else line


def scaled(steps: tuple[Step, ...]) -> bool:
    """Tell whether a program scales sums to real units."""
    return any(step.op == "scale" for step in steps)


def _common_scale(kernel: Kernel, power: str) -> str:
    """Return the quotient of the scale that operands are brought to, or its square, and the output's."""
    squared, shift = "squared_difference" in kernel.kinds, kernel.variant.shift
    x, bits = ("twice", shift) if not squared else (f"twice{power}2", 2 * shift)
    return _order(kernel.variant.multiplier, x=x, y=f"(sy * 2{power}{bits})")


def _with_operands(kernel: Kernel) -> Iterator[str]:
    """Yield the lines of a program that brings each operand to one scale first."""
    variant = kernel.variant
    multiplier, number = variant.multiplier, variant.multiplier.number
    leaky, shifts = variant.form in ("leaky", "slopes"), variant.form == "ls"
    if leaky:
        yield "def bring(v, slope):"
        real = _order(multiplier, x="sa" if variant.form == "slopes" else "sx", w="slope")
    else:
        if shifts:
            yield "twice = 2 * max(sa, sb)"
        yield "def bring(q, z, s):"
        real = _order(multiplier, x="s", y="twice" if shifts else "sy")
    inner = _multiplier(multiplier, real)
    if not leaky:
        inner.append(f"v = (q - z) << {variant.shift}" if shifts else "v = q - z")
    inner += _steps(variant.operand, number, real=False)
    yield from (f"    {line}" for line in [*inner, "return v"])
    if variant.form == "slopes":
        yield "below = bring((a - za) * (b - zb), sb)"
        yield "v = np.where(a >= za, bring(a - za, np.float32(1)), below)"
    elif leaky:
        yield "v = np.where(x >= zx, bring(x - zx, np.float32(1)), bring(x - zx, alpha))"
    else:
        yield "v = op(bring(a, za, sa), bring(b, zb, sb))"
    if multiplies(variant.requantize):
        yield from _multiplier(multiplier, _common_scale(kernel, "**"))
    yield from _steps(variant.requantize, number, real=False)


def formula(kernel: Kernel) -> list[str]:
    """Return a kernel as plain mathematics, in lines."""
    variant, multiplier = kernel.variant, kernel.variant.multiplier
    form = words.FORMS.get(variant.form)
    paired, averages = (bool(words_of & set(kernel.kinds)) for words_of in (words.PAIRED, words.AVERAGED))
    loaded = variant.form in LOADED
    lines = []
    if loaded and multiplies(variant.requantize):
        lines.append(_quotient(multiplier, _order(multiplier, w="sw" if paired else "", averages=averages)))
    elif form is not None:
        lines += form.formula.splitlines()
        if form.real and multiplies(variant.requantize):
            lines.append(_quotient(multiplier, _order(multiplier)))
    elif not loaded:
        lines += _operand_formula(kernel)
    if any(step.op.startswith("lev") for step in variant.requantize):
        one = words.ONES.get(variant.form, "1") if form or scaled(variant.requantize) else "(sx sw)" if paired else "sx"
        half = any(STEPS[step.op].half for step in variant.requantize)
        lines += [line.format(one=one).replace(" / 1", "") for line in words.LEVELS]
        lines += ["scales, bias, least and most as float16 holds them"] if half else []
    real = form.real if form else loaded and multiplier.real
    number = "q31" if form and not real else multiplier.number
    if not real and (not form or not form.shift):
        lines += _shifts(variant.requantize, number)
    first = LOADED.get(variant.form, "v")
    value = _folded(first, variant.requantize, number, real=real, shift=form.shift if form else "")
    if variant.form == "offset":
        inside = "zx sx / sy" if real else "away(zx sx / sy)"
        value = value.replace("+ zy", f"+ (zy - {inside})")
    if variant.form in ("levels", "levels-raw"):
        value = value.replace("+ zy", "+ low")
    return [*lines, f"y = {value if paired else value.replace('(sx sw)', 'sx')}"]


def _quotient(multiplier: Multiplier, real: str) -> str:
    """Return how a multiplier is made, as a formula."""
    precision = "float64" if "np.float64" in real or multiplier.number == "f64" else "float32"
    plain = re.sub(r"np\.float64\((\w+)\)", r"\1", real).replace("np.float64(", "float32(")
    return words.NUMBER_FORMULAS[multiplier.number].format(real=f"{plain.replace(' * ', ' ')} in {precision}")


def _shifts(steps: tuple[Step, ...], number: str) -> list[str]:
    """Return how far a program shifts, as a formula, where its multiplier does not say it."""
    ops = {step.op for step in steps}
    amount = _amount(steps, number)
    if "shr" not in ops or amount == "r" or isinstance(amount, int):
        return []
    return [f"l = max(e, 0), r = {amount}" if "shl" in ops else f"r = {amount}"]


def _folded(value: str, steps: tuple[Step, ...], number: str, *, real: bool, shift: int | str = "") -> str:
    """Return a program as one formula."""
    table = words.REAL_FORMULAS if real else words.WHOLE_FORMULAS
    fixed = shift or (words.BITS[number] if number == "p8" else "r")
    for step in steps:
        if step.op == "round":
            value = f"{step.rounding}({value})"
            continue
        bare = step.op == "sat" or step.op in words.ADDING
        inner = f"({value})" if not bare and _is_sum(value) else value
        amount = fixed if isinstance(fixed, int) else "r"
        value = table[step.op].format(v=inner, rounding=step.rounding, bits=words.BITS.get(number), amount=amount)
    return value


def _is_sum(value: str) -> bool:
    """Tell whether a formula adds outside of parentheses."""
    while (shorter := re.sub(r"\([^()]*\)", "", value)) != value:
        value = shorter
    return " + " in value


def _operand_formula(kernel: Kernel) -> Iterator[str]:
    """Yield how operands are brought to one scale, as formulas."""
    variant = kernel.variant
    multiplier, scaled = variant.multiplier, variant.form == "ls"
    if variant.form == "leaky":
        first, said, real = "t", "v", _order(multiplier, w="s")
        yield "t = x - zx; s = 1 where t >= 0, else alpha"
    elif variant.form == "slopes":
        first, said, real = "t", "v", _order(multiplier, x="sa", w="s")
        yield "t = a - za, s = 1 where a >= za, else t = (a - za) (b - zb), s = sb"
    else:
        first, said = f"(q - z) 2^{variant.shift}" if scaled else "(q - z)", "B(q, z, s)"
        real = _order(multiplier, x="s", y="twice" if scaled else "sy")
    yield f"{said} = {_folded(first, variant.operand, multiplier.number, real=False)}"
    yield f"    {_quotient(multiplier, real)}"
    yield from (f"    {line}" for line in _shifts(variant.operand, multiplier.number))
    if said != "v":
        yield "v = B(a, za, sa) op B(b, zb, sb)"
    if scaled:
        yield "    twice = 2 max(sa, sb)"
        yield _quotient(multiplier, _common_scale(kernel, "^"))


def titles(found: list[Kernel]) -> list[str]:
    """Return what kernels are called; of those that would share a title each names its multiplier."""
    short = [_title(each.variant) for each in found]
    return [
        f"{title} ({each.variant.multiplier})" if short.count(title) > 1 else title
        for title, each in zip(short, found, strict=True)
    ]


def _title(variant: Variant) -> str:
    steps, ops = variant.requantize, [step.op for step in variant.requantize]
    parts = []
    if variant.form in words.FORMS:
        parts.append(words.FORMS[variant.form].title)
    elif variant.form in OPERANDS:
        parts.append(OPERANDS[variant.form].format(shift=variant.shift))
    if multiplies((*steps, *variant.operand)) and variant.form not in words.FORMS:
        parts.append(NUMBERS[variant.multiplier.number].words)
    parts += [
        STEPS[op].words
        for op in ("scale", "div", "inv", "lev", "lev-fma", "lev16", "lev16-fma")
        if op in ops and (variant.form == "sum" or op != "div")
    ]
    parts.append(BIASES[variant.bias])
    if variant.form == "offset":
        parts.append("zero points at the end")
    if "avg" in ops:
        parts.append("sum of codes divided by the count")
    roundings = [ROUNDINGS[step.rounding].words for step in (*variant.operand, *steps) if step.rounding]
    if len(roundings) > 1:
        parts.append(f"{COUNTED[len(roundings)]} roundings ({', '.join(roundings)})")
    else:
        parts += roundings
    if "round" in ops and "zp" in ops and ops.index("zp") < ops.index("round"):
        parts.append("zero point before rounding")
    return ", ".join(part for part in parts if part)


def page() -> str:
    """Return the generated part of the page: how many there are, an index by kind, what is summed, each kernel."""
    found = kernels()
    named = list(zip(range(1, len(found) + 1), titles(found), found, strict=True))
    counts = [(sum(each.known == known for each in found), known) for known in PROVENANCES]
    said = ", ".join(f"{count} {known}" for count, known in counts if count)
    lines = ["## The arithmetics", "", f"{len(found)} arithmetics are known, from {len(known_presets())} presets."]
    lines[-1] += f" By the best evidence of each: {said}."
    lines += ["", "### By kind of node", ""]
    for kind in KINDS:
        numbers = [str(number) for number, _, each in named if kind in each.kinds]
        if numbers:
            lines += _wrapped(f"- {kind}: {', '.join(numbers)}")
    lines += ["", "### What is summed", ""]
    for kinds, text in words.SUMS.items():
        lines += [f"{kinds}:", "", "```python", text.strip("\n"), "```", ""]
    lines += ["### Functions that several kernels call", "", "```python"]
    lines += ["\n\n\n".join(text.strip("\n") for text in kernel_functions.HELPERS.values()), "```"]
    for section, kinds in SECTIONS.items():
        lines += ["", f"## {section}"]
        for number, title, each in named:
            if each.kinds[0] in kinds or _section(each) == section:
                lines += ["", f"### {number}. {title}", "", *_entry(each)]
    return "\n".join([*lines, ""])


def _section(kernel: Kernel) -> str:
    return next(section for section, kinds in SECTIONS.items() if set(kinds) & set(kernel.kinds))


def _entry(kernel: Kernel) -> Iterator[str]:
    yield f"`{kernel.variant}`"
    yield from ("", "```text", *formula(kernel), "```", "", "```python", *code(kernel).splitlines(), "```", "")
    form = words.FORMS.get(kernel.variant.form)
    for note in (form.note if form else "", *(words.NOTES.get(str(step), "") for step in kernel.variant.requantize)):
        if note:
            yield from (*_wrapped(note), "")
    yield from _users(kernel.uses)


def _users(uses: list[Use]) -> Iterator[str]:
    """Yield a line for each way of knowing, with the presets and the kinds that they compute so."""
    stated: dict[tuple[str, str, bool], list[Use]] = defaultdict(list)
    for use in uses:
        stated[use.known, use.preset, use.some].append(use)
    lists: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for (known, preset, some), own in stated.items():
        kinds = ("some nodes of " if some else "") + ", ".join(dict.fromkeys(use.where for use in own))
        lists[known]["; ".join([kinds, *_remarks(own)])].append(f"`{preset}`")
    for known in filter(lists.__contains__, PROVENANCES):
        said = "; ".join(f"{', '.join(presets)} ({where})" for where, presets in lists[known].items())
        yield from _wrapped(f"- {known}: {said}")


def _remarks(uses: list[Use]) -> Iterator[str]:
    """Yield how sums are computed otherwise than in 32 bits, and how many arithmetics fit what was measured."""
    for sums in sorted({use.sums for use in uses if use.sums}):
        types = dict.fromkeys(use.types for use in uses if use.sums == sums)
        yield f"`acc={sums}` for {' and '.join(types)}"
    most = max(use.fits for use in uses)
    if most > 1:
        yield f"up to {most} fit"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 118, subsequent_indent="  " if text.startswith("- ") else "", break_on_hyphens=False)
