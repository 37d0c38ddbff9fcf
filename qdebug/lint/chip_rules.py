"""Rules of a chip or a runtime for quantized models, from a TOML file, and the nodes and tensors that break them.

    format = "qdebug.rules"
    version = 1
    name = "my-npu"
    about = "data sheet 3.2, section 4"       # the source, optional
    operators = ["Conv", "Gemm", "Add"]       # the supported operators; all if left out

    [weights]                                 # constants in codes that a product reads
    dtypes = ["int8"]                         # allowed types of the codes
    codes = [-127, 127]                       # smallest and largest allowed code
    zero_point = 0                            # or by type: {int8 = 0, uint8 = 128}
    power_of_two = true                       # whether scales must be powers of two
    per_channel = ["Conv"]                    # operators that may have a scale for each channel; also true or false

    [biases]                                  # constants in codes that a product adds; the keys of [weights]
    dtypes = ["int32"]

    [activations]                             # inputs of the network and results in codes; the same keys except codes
    per_channel = false

Without a rule, everything is allowed. The rules of known runtimes are such files in `qdebug/data/rules`. A zero point
that a runtime ignores is checked in `qdebug.lint.rules`, which finds an input that shows the effect.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import numpy as np

from qdebug.errors import UsageError
from qdebug.lint.replay import LintModel, is_coded
from qdebug.model import Node, QuantParams, operators
from qdebug.model.dtypes import LOGICAL_DTYPES, is_integer
from qdebug.model.json_object import JsonObject, SchemaPart
from qdebug.regular_file import read_regular
from qdebug.toml_text import line_of, parse_toml

__all__ = ["ChipRules", "CodeRules", "RuleBreach", "find_breaches", "find_codes_of_input", "find_rules"]

_FORMAT, _VERSION = "qdebug.rules", 1
_MAX_BYTES = 1 << 20
_PARTS = ("weights", "biases", "activations")
_KEYS = ("dtypes", "codes", "zero_point", "power_of_two", "per_channel")
"""Keys of the rules of a kind of tensor, in the file."""
_RULES = ("operators", *(f"{part}.{key}" for part in _PARTS for key in _KEYS))
_POWER_OF_TWO = 0.5
"""The mantissa of a power of two, as `frexp` returns it."""
_HINT = "See the format: qdebug help rewrites."


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeRules:
    """Rules of one kind of tensor: weights, biases or activations in codes.

    Args:
        dtypes: Allowed types, or None for all.
        codes: Smallest and largest allowed code, or None for those of the type.
        zero_points: Required zero point by type; "" for every type that is not listed.
        power_of_two: Whether scales must be powers of two.
        per_channel: Operators that may have a scale for each channel, or None for all.
    """

    dtypes: frozenset[str] | None = None
    codes: tuple[int, int] | None = None
    zero_points: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    power_of_two: bool = False
    per_channel: frozenset[str] | None = None

    def zero_point(self, dtype: str) -> int | None:
        """Return the zero point that codes of a type must have, or None if they may have any."""
        return self.zero_points.get(dtype, self.zero_points.get(""))

    def find_broken(self, quant: QuantParams, codes: np.ndarray | None, op: str) -> Iterator[tuple[str, str, str]]:
        """Yield the rules that a tensor breaks: the key, what the tensor has, and what is allowed.

        Args:
            quant: Quantization of the tensor.
            codes: Codes of the tensor, or None if they are unknown or need no check.
            op: Operator that reads or computes the tensor, or "".
        """
        if self.dtypes is not None and quant.dtype not in self.dtypes:
            yield "dtypes", quant.dtype, " or ".join(sorted(self.dtypes))
        if self.codes is not None and codes is not None and codes.size:
            low, high = int(codes.min()), int(codes.max())
            if low < self.codes[0] or high > self.codes[1]:
                yield "codes", f"codes from {low} to {high}", f"{self.codes[0]} to {self.codes[1]}"
        zero_point = self.zero_point(quant.dtype)
        if zero_point is not None and (quant.zero_point != zero_point).any():
            other = quant.zero_point[quant.zero_point != zero_point][0]
            yield "zero_point", f"zero point {int(other)}", str(zero_point)
        if self.power_of_two:
            other_scales = quant.scale[np.frexp(quant.scale)[0] != _POWER_OF_TWO]
            if other_scales.size:
                yield "power_of_two", f"scale {float(other_scales[0]):.6g}", "a power of two"
        if quant.per_channel and self.per_channel is not None and op not in self.per_channel:
            names = f", or one for each channel of {', '.join(sorted(self.per_channel))}" if self.per_channel else ""
            yield "per_channel", f"{quant.scale.size} scales", f"one scale{names}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipRules:
    """Rules of a chip or a runtime.

    Args:
        name: Name of the chip or the runtime.
        about: Source of the rules, or "".
        operators: The supported operators, or None for all.
        weights: Rules of constants that products read.
        biases: Rules of constants that products add.
        activations: Rules of inputs and results.
    """

    name: str
    about: str = ""
    operators: frozenset[str] | None = None
    weights: CodeRules = CodeRules()
    biases: CodeRules = CodeRules()
    activations: CodeRules = CodeRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleBreach(JsonObject):
    """A tensor or a node that breaks a rule.

    Args:
        rule: The rule: "operators", or the kind of tensor and the key in the file, such as "weights.dtypes".
        node: The node, or "" for an input of the network.
        op: Operator of the node.
        tensor: The tensor, or "" if the operator breaks the rule.
        value: What the model has.
        allowed: What the rules allow.
    """

    json_keys = "rule node|null op|null tensor|null value allowed"

    rule: Annotated[str, SchemaPart(enum=[*_RULES])]
    node: str
    op: str
    tensor: str
    value: str
    allowed: str


# -- reading -------------------------------------------------------------------------------------------------


def find_rules(text: str) -> ChipRules:
    """Return the rules of a runtime by its name, or those in a file.

    Raises:
        UsageError: There are no such rules, or the file is invalid.
    """
    packaged = _packaged_rules()
    if text in packaged:
        return packaged[text]
    path = Path(text)
    if path.suffix != ".toml" and not path.is_file():
        raise UsageError(
            f"The requirements of {text!r} are not known.",
            hint=f"Choose from: {', '.join(packaged)}; or write a rules file: qdebug help rewrites.",
        )
    try:
        content = read_regular(path, _MAX_BYTES).decode("utf-8")
    except OSError as error:
        raise UsageError(f"{text!r}: {error.strerror or 'it cannot be read'}.", hint=_HINT) from error
    except ValueError as error:
        raise UsageError(f"{text!r}: {error}.", hint=_HINT) from error
    return _RulesText(text, content).rules()


@cache
def _packaged_rules() -> Mapping[str, ChipRules]:
    folder = files("qdebug.data").joinpath("rules")
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    all_rules = (_RulesText(entry.name, entry.read_text()).rules() for entry in entries if entry.name.endswith(".toml"))
    return MappingProxyType({rules.name: rules for rules in all_rules})


class _RulesText:
    """Reader of a rules file, with errors that name the line.

    Args:
        file: Name of the file, as the user wrote it.
        text: Content of the file.
    """

    def __init__(self, file: str, text: str) -> None:
        self._file, self._text = file, text

    def rules(self) -> ChipRules:
        """Return the rules.

        Raises:
            UsageError: The text is not valid TOML, or a key or a value is invalid.
        """
        try:
            tables = parse_toml(self._text)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{self._file!r} is not valid TOML: {error}.", hint="Correct that line.") from error
        for key, value, text in (("format", _FORMAT, f'"{_FORMAT}"'), ("version", _VERSION, str(_VERSION))):
            if tables.get(key) != value:
                problem = f"is {tables[key]!r}" if key in tables else "is missing"
                raise self._error("", key, problem, f"Write {key} = {text}.")
        self._check_keys(tables, ("format", "version", "name", "about", "operators", *_PARTS), "")
        return ChipRules(
            name=self._read_string(tables, "", "name", default=Path(self._file).stem),
            about=self._read_string(tables, "", "about", default=""),
            operators=self._read_operators(tables, "", "operators") if "operators" in tables else None,
            **{part: self._read_code_rules(tables, part) for part in _PARTS if part in tables},
        )

    def _read_code_rules(self, tables: Mapping[str, Any], part: str) -> CodeRules:
        table = tables[part]
        if not isinstance(table, dict):
            raise self._error("", part, "is not a table", f"Write [{part}].")
        self._check_keys(table, [key for key in _KEYS if key != "codes" or part != "activations"], part)
        codes, power_of_two = table.get("codes"), table.get("power_of_two", False)
        if codes is not None and not (_are_integers(codes) and len(codes) == 2 and codes[0] < codes[1]):
            raise self._error(
                part, "codes", f"is {codes!r}", "Write the smallest and the largest: codes = [-127, 127]."
            )
        if not isinstance(power_of_two, bool):
            raise self._error(part, "power_of_two", f"is {power_of_two!r}", "Write power_of_two = true.")
        per_channel = table.get("per_channel", True)
        operators_with_channels = frozenset[str]() if per_channel is False else None
        if not isinstance(per_channel, bool):
            operators_with_channels = self._read_operators(table, part, "per_channel")
        return CodeRules(
            dtypes=self._read_dtypes(table, part) if "dtypes" in table else None,
            codes=None if codes is None else (codes[0], codes[1]),
            zero_points=self._read_zero_points(table, part),
            power_of_two=power_of_two,
            per_channel=operators_with_channels,
        )

    def _read_dtypes(self, table: Mapping[str, Any], part: str) -> frozenset[str]:
        names = self._read_names(table, part, "dtypes", 'dtypes = ["int8"]')
        for name in names:
            self._check_dtype(name, part, "dtypes")
        return frozenset(names)

    def _check_dtype(self, name: str, part: str, key: str) -> None:
        if name not in LOGICAL_DTYPES or not is_integer(name):
            integers = [dtype for dtype in LOGICAL_DTYPES if is_integer(dtype)]
            raise self._error(part, key, f"names an unknown type {name!r}", f"Choose from: {', '.join(integers)}.")

    def _read_zero_points(self, table: Mapping[str, Any], part: str) -> Mapping[str, int]:
        value = table.get("zero_point", {})
        by_dtype = value if isinstance(value, dict) else {"": value}
        if not _are_integers(list(by_dtype.values())):
            hint = "Write zero_point = 0, or by type: zero_point = {int8 = 0, uint8 = 128}."
            raise self._error(part, "zero_point", f"is {value!r}", hint)
        for name in by_dtype:
            if name:
                self._check_dtype(name, part, "zero_point")
        return MappingProxyType(dict(by_dtype))

    def _read_operators(self, table: Mapping[str, Any], part: str, key: str) -> frozenset[str]:
        """Read a list of operators, as their names in ONNX. Names with a domain, such as "my:Op", stay as they are."""
        names = self._read_names(table, part, key, f'{key} = ["Conv", "Gemm"]')
        known_operators = operators.names_where(lambda _: True)
        for name in names:
            if ":" not in name and operators.named(name).name not in known_operators:
                similar = get_close_matches(name, known_operators, n=1)
                suggestion = f"Did you mean {similar[0]}? " if similar else ""
                hint = f"{suggestion}Write an operator of your own with its domain: my.domain:{name}."
                raise self._error(part, key, f"names an unknown operator {name!r}", hint)
        return frozenset(name if ":" in name else _plain_name(operators.named(name).name) for name in names)

    def _read_names(self, table: Mapping[str, Any], part: str, key: str, example: str) -> list[str]:
        names = table[key]
        if not isinstance(names, list) or not all(isinstance(name, str) and name for name in names):
            raise self._error(part, key, f"must be a list of names, but is {names!r}", f"Write {example}.")
        return names

    def _read_string(self, table: Mapping[str, Any], part: str, key: str, *, default: str) -> str:
        value = table.get(key, default)
        if not isinstance(value, str):
            raise self._error(part, key, f"must be a string, but is {value!r}", f'Write {key} = "...".')
        return value

    def _check_keys(self, table: Mapping[str, Any], keys: Sequence[str], part: str) -> None:
        for key in table:
            if key not in keys:
                similar = get_close_matches(key, keys, n=1)
                suggestion = f"Did you mean {similar[0]}? " if similar else ""
                raise self._error(part, key, "means nothing", f"{suggestion}Give one of: {', '.join(keys)}.")

    def _error(self, part: str, key: str, problem: str, hint: str) -> UsageError:
        line = line_of(self._text, part, key)
        location = f"{self._file!r}" if line is None else f"{self._file!r}, line {line}"
        return UsageError(f"{location}: {'.'.join(name for name in (part, key) if name)} {problem}.", hint=hint)


def _are_integers(values: object) -> bool:
    return isinstance(values, list) and all(isinstance(value, int) and not isinstance(value, bool) for value in values)


def _plain_name(op: str) -> str:
    return operators.plain(Node(name="", op=op, inputs=(), outputs=())).name


# -- checking ------------------------------------------------------------------------------------------------


def find_codes_of_input(model: LintModel, node: Node, slot: int) -> tuple[str, QuantParams | None]:
    """Return the tensor of codes that a node reads, possibly through a dequantize node, and its quantization."""
    name = node.inputs[slot] if slot < len(node.inputs) else ""
    producer = model.graph.producer(name) if name else None
    if producer is not None and operators.of(producer.op).dequantizes:
        return producer.inputs[0], model.declared_quant(producer, 0) or model.quant(producer.inputs[0])
    return name, (model.declared_quant(node, slot) or model.quant(name)) if name else None


def find_breaches(model: LintModel, rules: ChipRules) -> list[RuleBreach]:
    """Return the nodes and tensors of a model that break rules, in the order of the graph.

    Zero points are left to `qdebug.lint.rules` where a witness can show the effect: in weights and in quantizers.
    """
    breaches, seen_parts = list[RuleBreach](), set[str]()
    for name in model.graph.inputs:
        breaches += _tensor_breaches(model, rules, "activations", None, (name, model.quant(name)))
    for node in model.graph.nodes:
        if not any(node.outputs[:1]) or all(model.graph.is_constant(name) for name in node.outputs if name):
            continue
        plain, row = operators.plain(node), operators.of(node.op)
        converts = row.quantizes or row.dequantizes
        if rules.operators is not None and not converts and not _has_operator(rules.operators, node):
            allowed = f"one of its {len(rules.operators)} operators"
            breaches.append(
                RuleBreach(rule="operators", node=node.name, op=node.op, tensor="", value=plain.name, allowed=allowed)
            )
        slots = operators.coded_inputs(node.op, len(node.inputs))
        weight_slot = slots[1] if len(slots) > 1 else 1
        bias_slot = row.bias if row.bias is not None else plain.bias
        for part, slot in (("weights", weight_slot), ("biases", bias_slot)):
            if not plain.product or slot is None:
                continue
            name, quant = find_codes_of_input(model, node, slot)
            if name not in seen_parts and model.constant(name) is not None:
                seen_parts.add(name)
                breaches += _tensor_breaches(model, rules, part, node, (name, quant))
        result = node.outputs[0]
        quant = model.declared_quant(node, -1) or model.quant(result)
        if not row.dequantizes:
            breaches += _tensor_breaches(model, rules, "activations", node, (result, quant))
    return breaches


def _has_operator(names: frozenset[str], node: Node) -> bool:
    plain = operators.plain(node).name
    return plain in names or node.op in names or f"{node.domain}:{node.op}" in names


def _tensor_breaches(
    model: LintModel, rules: ChipRules, part: str, node: Node | None, tensor: tuple[str, QuantParams | None]
) -> Iterator[RuleBreach]:
    """Yield the rules that a tensor in codes breaks."""
    name, quant = tensor
    if quant is None or not is_coded(quant):
        return
    part_rules: CodeRules = getattr(rules, part)
    has_witness = part == "weights" or (node is not None and operators.of(node.op).quantizes)
    codes = model.constant(name) if part_rules.codes is not None else None
    op = "" if node is None else operators.plain(node).name
    for key, value, allowed in part_rules.find_broken(quant, codes, op):
        if key != "zero_point" or not has_witness:
            yield RuleBreach(
                rule=f"{part}.{key}",
                node="" if node is None else node.name,
                op="" if node is None else node.op,
                tensor=name,
                value=value,
                allowed=allowed,
            )
