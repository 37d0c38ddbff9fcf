"""Filter expressions of the node list, such as `rel>1e-2 & op~conv | is=failing`: numpy masks over a node table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from qdebug.present.text import safe_text
from qdebug.tui.nodes.rows import NodeTable, State, column
from qdebug.tui.nodes.rows import sign as row_sign

__all__ = ["FLAGS", "NUMBERS", "TEXTS", "FilterError", "example_of_begun_field", "filter_rows", "valid_prefixes"]

NUMBERS = {
    "sqnr": "SQNR in dB",
    "rel": "relative error (rel L2)",
    "lsb": "largest difference in LSB",
    "abs": "largest difference",
    "cos": "cosine",
    "mismatches": "elements that differ",
    "introduced": "introduced error, relative",
    "propagated": "propagated error, relative",
    "gain": "propagated error by the largest error in",
    "clipped": "share of the reference's values that the codes cut off; 1% is a hundredth",
    "at_ends": "share of the codes at qmin or qmax",
    "worst_db": "SQNR in dB of an output if the node alone had its error",
    "row": "the number under #",
}
"""Fields that are compared with a number."""

TEXTS = {
    "name": "node",
    "tensor": "tensor of the backend",
    "ref": "tensor of the reference",
    "op": "operator",
    "dtype": "type of its elements",
    "match": "ground of the pair",
    "placement": "where the node ran",
    "state": "status in a word",
    "explained": "arithmetic that reproduces it",
}
"""Fields that are compared with a text: = matches the whole text, ~ a regular expression."""

FLAGS = ("failing", "cost", "missing", "pending", "marked", "acknowledged", "explained", "quantized")
"""Values for `is=`; `cost` is for nodes that are within their limit at a cost."""

_COLUMNS = {
    "sqnr": "sqnr_db",
    "rel": "rel_l2",
    "lsb": "max_lsb",
    "abs": "max_abs",
    "cos": "cosine",
    "mismatches": "mismatches",
    "introduced": "introduced",
    "propagated": "propagated",
    "gain": "gain",
}
_ALIASES = {
    **{column: field for field, column in _COLUMNS.items()},
    "differ": "mismatches",
    "intro": "introduced",
    "prop": "propagated",
    "saturated": "clipped",
    "sat": "clipped",
    "node": "name",
    "reference_tensor": "ref",
    "status": "state",
}
"""Aliases of fields: headings of the list, keys of the JSON, and short words."""
_TOKEN = re.compile(r"\s*(?:(<=|>=|!=|==|[=<>~])|([&|!()])|'([^']*)'?|([^\s&|!()<>=~']+))")
_COMPARISONS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_SHARES = ("clipped", "at_ends")
_UNITS = {"sqnr": "dB$", "worst_db": "dB$", "lsb": "LSB$"}
"""Units that may follow a number, as they do on the screen."""
_LAST_WORD = re.compile(r"[^\s&|!()<>=~']+$")
_SIGNS = ("<", ">", "=", "~", "!=")
_MAX_DEPTH = 50


class FilterError(ValueError):
    """The expression cannot be parsed, or is incomplete."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def filter_rows(
    expression: str, table: NodeTable, *, sample: int | None = None, marked_rows: Sequence[int] = ()
) -> np.ndarray:
    """Return for each row whether an expression holds.

    Terms are `FIELD OP VALUE` or a part of a name, joined by & (and), | (or), ! (not) and parentheses. Unknown values
    (not computed, not applicable) never match a comparison.

    Args:
        expression: The expression, not empty.
        table: The rows.
        sample: The sample whose numbers and states are used; None for all.
        marked_rows: Rows that the user marked.

    Returns:
        One bool for each row.

    Raises:
        FilterError: The expression cannot be parsed; the message states what is expected.
    """
    return _Evaluator(_tokenize(expression), table, sample, marked_rows).read()


def valid_prefixes(expression: str) -> Iterator[str]:
    """Yield an expression and its prefixes, longest first, to find one that can be parsed while the user types.

    Prefixes that end inside a word, or between a field and its comparison, are left out.
    """
    yield expression
    for end in range(len(expression) - 1, -1, -1):
        prefix, remainder = expression[:end], expression[end:]
        is_inside_word = prefix[-1:].isspace() is False and _LAST_WORD.match(remainder[:1]) is not None
        if not (_last_name(prefix) and (is_inside_word or remainder.lstrip().startswith(_SIGNS))):
            yield prefix


def example_of_begun_field(expression: str) -> str | None:
    """Return an example comparison if an expression ends with the beginning of a field name; else None."""
    name = _last_name(expression).lower()
    examples = [*(f"{field}>1" for field in NUMBERS), *(f"{field}~conv" for field in TEXTS), f"is={FLAGS[0]}"]
    return next((example for example in examples if example.startswith(name)), None) if name else None


def _last_name(expression: str) -> str:
    """Return the word at the end of an expression, unless it is the value of a comparison; else ""."""
    text = expression.rstrip()
    word = _LAST_WORD.search(text)
    if word is None or text[: word.start()].rstrip().endswith(_SIGNS):
        return ""
    return word.group()


def _tokenize(expression: str) -> list[_Token]:
    tokens, position = [], 0
    text = expression.rstrip()
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise FilterError(f"cannot read {safe_text(text[position:], limit=20)!r}")
        kind = ("compare", "sign", "quoted", "word")[next(n for n in range(4) if match[n + 1] is not None)]
        tokens.append(_Token(kind, match[match.lastindex or 1]))
        position = match.end()
    return tokens


class _Evaluator:
    """Parses an expression by recursive descent and evaluates it at the same time."""

    def __init__(
        self, tokens: Sequence[_Token], table: NodeTable, sample: int | None, marked_rows: Sequence[int]
    ) -> None:
        self._tokens, self._table, self._sample, self._marked_rows = tokens, table, sample, marked_rows
        self._position = self._depth = 0

    def read(self) -> np.ndarray:
        if not self._tokens:
            raise FilterError("an expression, such as rel>1e-2 & op~conv")
        mask = self._read_or()
        if self._position < len(self._tokens):
            raise FilterError(f"expected & or | before {safe_text(self._tokens[self._position].text, limit=20)!r}")
        return mask

    def _read_or(self) -> np.ndarray:
        mask = self._read_and()
        while self._take("sign", "|"):
            mask = mask | self._read_and()
        return mask

    def _read_and(self) -> np.ndarray:
        mask = self._read_not()
        while self._take("sign", "&"):
            mask = mask & self._read_not()
        return mask

    def _read_not(self) -> np.ndarray:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise FilterError("too many parentheses")
        try:
            if self._take("sign", "!"):
                return ~self._read_not()
            if self._take("sign", "("):
                mask = self._read_or()
                if not self._take("sign", ")"):
                    raise FilterError("expected )")
                return mask
            return self._read_term()
        finally:
            self._depth -= 1

    def _read_term(self) -> np.ndarray:
        token = self._next_token("a field or a part of a name")
        next_token = self._tokens[self._position] if self._position < len(self._tokens) else None
        if token.kind == "word" and next_token is not None and next_token.kind == "compare":
            self._position += 1
            return self._compare(token.text.lower(), next_token.text)
        if token.kind not in {"word", "quoted"}:
            raise FilterError(f"expected a field or a part of a name, not {safe_text(token.text, limit=20)!r}")
        return self._table.rows_containing(token.text)

    def _compare(self, name: str, sign: str) -> np.ndarray:
        value = self._next_token(f"a value after {name}{sign}").text
        name = _ALIASES.get(name, name)
        if name == "is":
            return self._flag_mask(value.lower(), sign)
        if name in NUMBERS:
            return self._compare_number(name, sign, value)
        if name in TEXTS:
            return self._compare_text(name, sign, value)
        close_names = get_close_matches(name, (*NUMBERS, *TEXTS, *_ALIASES, "is"), n=1)
        hint = f"did you mean {close_names[0]}?" if close_names else "such as sqnr, rel, op, name; ? lists all"
        raise FilterError(f"no field {safe_text(name, limit=20)!r}; {hint}")

    def _compare_number(self, name: str, sign: str, value: str) -> np.ndarray:
        if sign not in _COMPARISONS:
            raise FilterError(f"{name} is a number: compare it with < <= > >= = or !=")
        number_text = re.sub(_UNITS.get(name, "$"), "", value, flags=re.IGNORECASE)
        try:
            number = float(number_text.removesuffix("%")) / (100 if number_text.endswith("%") else 1)
        except ValueError:
            shown_value = safe_text(value, limit=20)
            raise FilterError(f"expected a number after {name}{sign}, not {shown_value!r}") from None
        if name in _SHARES and number > 1:
            raise FilterError(f"{name} is a fraction (0 to 1) or a percentage, such as {name}>1%")
        column = self._column(name)
        if np.isinf(number) and sign in {"=", "=="}:
            return np.asarray(column == number)
        return np.asarray(_COMPARISONS[sign](column, number) & ~np.isnan(column))

    def _column(self, name: str) -> np.ndarray:
        if name == "row":
            return self._table.compared_numbers
        if name in _SHARES:
            return self._table.values(name)
        if name == "worst_db":
            column = np.full(self._table.size, np.nan)
            column[list(self._table.costs)] = list(self._table.costs.values())
            return column
        try:
            return self._table.values(_COLUMNS[name], self._sample)
        except KeyError:
            raise FilterError(f"{name} is not known for a single sample; sqnr and abs are") from None

    def _compare_text(self, name: str, sign: str, value: str) -> np.ndarray:
        if sign == "~":
            try:
                regex = re.compile(value, re.IGNORECASE)
            except re.error as error:
                raise FilterError(f"not a valid regular expression yet: {error.msg}") from error
            return self._table.rows_matching(name, regex.search, self._sample)
        if sign not in {"=", "==", "!="}:
            raise FilterError(f"{name} is text: compare it with = != or ~ (a regular expression)")
        lowered = value.lower()
        mask = self._table.rows_matching(name, lambda text: text.lower() == lowered, self._sample)
        return ~mask if sign == "!=" else mask

    def _flag_mask(self, flag: str, sign: str) -> np.ndarray:
        if flag not in FLAGS or sign not in {"=", "==", "!="}:
            raise FilterError(f"is= takes one of {' '.join(FLAGS)}")
        table, states = self._table, self._table.states(self._sample)
        if flag == "failing":
            mask = np.isin(states, (State.DIVERGED, State.NONFINITE)) & ~table.acknowledged
        elif flag == "cost":  # nodes with the sign +
            mask = np.array([row_sign(table, row, int(state)) == "+" for row, state in enumerate(states)], dtype=bool)
        elif flag == "missing":
            mask = states == State.INCOMPARABLE
        elif flag == "pending":
            mask = states == State.PENDING
        elif flag == "acknowledged":
            mask = table.acknowledged.copy()
        elif flag == "marked":
            mask = np.zeros(table.size, dtype=bool)
            mask[list(self._marked_rows)] = True
        elif flag == "quantized":
            mask = np.array([quant is not None for quant in column(table.rows, "quant")], dtype=bool)
        else:
            mask = table.rows_matching("explained", bool, self._sample)
        return ~mask if sign == "!=" else mask

    def _take(self, kind: str, text: str) -> bool:
        if self._position < len(self._tokens) and self._tokens[self._position] == _Token(kind, text):
            self._position += 1
            return True
        return False

    def _next_token(self, expected: str) -> _Token:
        if self._position >= len(self._tokens):
            raise FilterError(f"expected {expected}")
        self._position += 1
        return self._tokens[self._position - 1]
