"""Names in a dump: rename them as requested, clean them as tools do, and match them to the tensors of a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from qdebug.errors import UsageError
from qdebug.model import Graph

__all__ = ["NameMatch", "Rename", "clean_name", "list_first", "make_renamer", "match_names"]

Rename = Callable[[str], str]
"""Returns the new name of a dumped tensor."""

_SPECIAL_CHARACTER = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class NameMatch:
    """The tensor of the graph that a name in the dump stands for.

    Args:
        name: The name in the dump.
        tensor: The tensor of the graph.
        how: "exact", "node" (the only output of the node with this name), "cleaned" or "cleaned node" (the same, with
            every character except letters and digits replaced by "_"), or "with operator" (followed by the operator
            that makes the tensor).
    """

    name: str
    tensor: str
    how: str


def clean_name(name: str) -> str:
    """Return a name as tools write it in file names, with `_` for every character except letters and digits."""
    return _SPECIAL_CHARACTER.sub("_", name).strip("_")


def make_renamer(rules: Sequence[str]) -> Rename:
    """Return a function that applies rename rules in order.

    Args:
        rules: Rules "REGEX=TEXT" for `re.sub`. The last "=" of a rule is the separator.

    Raises:
        UsageError: A rule lacks "=", or its expression or text is invalid.
    """
    compiled_rules: list[tuple[re.Pattern[str], str]] = []
    for rule in rules:
        expression, separator, text = rule.rpartition("=")
        try:
            if not separator or not expression:
                raise re.error("it is not REGEX=TEXT")
            compiled_rules.append((re.compile(expression), text))
            compiled_rules[-1][0].sub(text, "")
        except (re.error, IndexError) as error:
            raise UsageError(
                f"The rename {rule!r} cannot be parsed: {error}.",
                hint=r"Write it like this: --rename '^output/=' or --rename 'layer_(\d+)=\1'.",
            ) from None

    def rename(name: str) -> str:
        for expression, text in compiled_rules:
            try:
                name = expression.sub(text, name)
            except (re.error, IndexError) as error:  # the replacement names a group that does not exist
                raise UsageError(
                    f"The rename to {text!r} cannot be parsed: {error}.", hint=r"Groups are \1, \2 ..."
                ) from None
        return name

    return rename


def match_names(names: Sequence[str], graph: Graph) -> tuple[list[NameMatch], dict[str, str]]:
    """Match the names of a dump to tensors of a graph.

    Args:
        names: The names.
        graph: The graph.

    Returns:
        The matches, and the unmatched names with the reason. A name that matches several tensors counts as unmatched.
    """
    single_outputs = {
        node.name: outputs[0] for node in graph.nodes if len(outputs := [name for name in node.outputs if name]) == 1
    }
    lookups = (
        ("exact", str, {name: [name] for name in graph.tensors}),
        ("node", str, {name: [tensor] for name, tensor in single_outputs.items()}),
        ("cleaned", clean_name, _group_pairs((clean_name(name), name) for name in graph.tensors)),
        (
            "cleaned node",
            clean_name,
            _group_pairs((clean_name(name), tensor) for name, tensor in single_outputs.items()),
        ),
        (
            "with operator",  # TPU-MLIR names a tensor TENSOR_OPERATOR
            clean_name,
            _group_pairs(
                (clean_name(f"{name}_{node.op}"), name) for node in graph.nodes for name in node.outputs if name
            ),
        ),
    )
    matches: dict[str, NameMatch] = {}
    name_of_tensor: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for match_kind, key_of, tensors in lookups:
        names_by_key = _group_pairs((key_of(name), name) for name in names if name not in matches)
        for key, names_of_key in names_by_key.items():
            fitting_tensors = [tensor for tensor in tensors.get(key, ()) if key]
            free_tensors = [tensor for tensor in fitting_tensors if tensor not in name_of_tensor]
            if len(names_of_key) == 1 and len(free_tensors) == 1:
                matches[names_of_key[0]], name_of_tensor[free_tensors[0]] = (
                    NameMatch(names_of_key[0], free_tensors[0], match_kind),
                    names_of_key[0],
                )
            elif free_tensors:
                reason = (
                    f"its name fits {list_first(free_tensors)}"
                    if len(free_tensors) > 1
                    else f"{list_first(names_of_key)} fit {free_tensors[0]!r}"
                )
                reasons |= dict.fromkeys(names_of_key, reason)
            elif fitting_tensors:
                reasons |= dict.fromkeys(
                    names_of_key, f"{name_of_tensor[fitting_tensors[0]]!r} is already matched to {fitting_tensors[0]!r}"
                )
    unmatched_names = [name for name in names if name not in matches]
    return [matches[name] for name in names if name in matches], {
        name: reasons.get(name, "the model has no tensor with this name") for name in unmatched_names
    }


def _group_pairs(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return grouped


def list_first(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
