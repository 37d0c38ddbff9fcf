"""Names in a dump: rename them as requested, clean them as tools do, and match them to the tensors of a graph."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from qdebug.errors import UsageError
from qdebug.model import Graph

__all__ = ["NameMatch", "Rename", "cleaned", "few", "match_names", "renaming"]

Rename = Callable[[str], str]
"""Returns the new name of a dumped tensor."""

_ELSEWHERE = re.compile(r"[^A-Za-z0-9]")


@dataclass(frozen=True, slots=True)
class NameMatch:
    """The tensor of the graph that a name in the dump stands for.

    Args:
        name: The name in the dump.
        tensor: The tensor of the graph.
        how: "exact", "node" (the only output of the node with this name), "cleaned" or "cleaned node" (the same, with
            every character except letters and digits replaced by "_").
    """

    name: str
    tensor: str
    how: str


def cleaned(name: str) -> str:
    """Return a name as tools write it in file names, with `_` for every character except letters and digits."""
    return _ELSEWHERE.sub("_", name).strip("_")


def renaming(rules: Sequence[str]) -> Rename:
    """Return a function that applies rename rules in order.

    Args:
        rules: Rules "REGEX=TEXT" for `re.sub`. The last "=" of a rule is the separator.

    Raises:
        UsageError: A rule lacks "=", or its expression or text is invalid.
    """
    compiled: list[tuple[re.Pattern[str], str]] = []
    for rule in rules:
        expression, separator, text = rule.rpartition("=")
        try:
            if not separator or not expression:
                raise re.error("it is not REGEX=TEXT")
            compiled.append((re.compile(expression), text))
            compiled[-1][0].sub(text, "")
        except (re.error, IndexError) as error:
            raise UsageError(
                f"The rename {rule!r} cannot be understood: {error}.",
                hint=r"For example --rename '^output/=' or --rename 'layer_(\d+)=\1'.",
            ) from None

    def renamed(name: str) -> str:
        for expression, text in compiled:
            try:
                name = expression.sub(text, name)
            except (re.error, IndexError) as error:  # the replacement names a group that does not exist
                raise UsageError(
                    f"The rename to {text!r} cannot be understood: {error}.", hint=r"Groups are \1, \2 ..."
                ) from None
        return name

    return renamed


def match_names(names: Sequence[str], graph: Graph) -> tuple[list[NameMatch], dict[str, str]]:
    """Match the names of a dump to tensors of a graph.

    Args:
        names: The names.
        graph: The graph.

    Returns:
        The matches, and the unmatched names with the reason. A name that matches several tensors counts as unmatched.
    """
    single = {
        node.name: outputs[0] for node in graph.nodes if len(outputs := [name for name in node.outputs if name]) == 1
    }
    lookups = (
        ("exact", str, {name: [name] for name in graph.tensors}),
        ("node", str, {name: [tensor] for name, tensor in single.items()}),
        ("cleaned", cleaned, _grouped((cleaned(name), name) for name in graph.tensors)),
        ("cleaned node", cleaned, _grouped((cleaned(name), tensor) for name, tensor in single.items())),
    )
    matches: dict[str, NameMatch] = {}
    name_of_tensor: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for how, written, tensors in lookups:
        asking = _grouped((written(name), name) for name in names if name not in matches)
        for key, same_target in asking.items():
            fitting = [tensor for tensor in tensors.get(key, ()) if key]
            free = [tensor for tensor in fitting if tensor not in name_of_tensor]
            if len(same_target) == 1 and len(free) == 1:
                matches[same_target[0]], name_of_tensor[free[0]] = (
                    NameMatch(same_target[0], free[0], how),
                    same_target[0],
                )
            elif free:
                why = f"its name fits {few(free)}" if len(free) > 1 else f"{few(same_target)} fit {free[0]!r}"
                reasons |= dict.fromkeys(same_target, why)
            elif fitting:
                reasons |= dict.fromkeys(same_target, f"{name_of_tensor[fitting[0]]!r} is {fitting[0]!r} already")
    unmatched = [name for name in names if name not in matches]
    return [matches[name] for name in names if name in matches], {
        name: reasons.get(name, "the model has no tensor of this name") for name in unmatched
    }


def _grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return grouped


def few(names: Sequence[str]) -> str:
    """Return the first three names, and how many more there are."""
    return ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
