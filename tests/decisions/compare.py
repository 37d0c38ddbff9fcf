"""Say in plain words what two sets of decisions differ in. Keys that only the newer one has are no difference."""

from __future__ import annotations

from collections import Counter

SHOWN_VALUE = 70
MISSING = "nothing"


def differences(old: object, new: object, path: str = "") -> list[tuple[str, object, object]]:
    """List the fields that differ: (field, old, new). Keys that the old value lacks are passed over."""
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key, value in old.items():
            place = f"{path}.{key}" if path else str(key)
            found += differences(value, new[key], place) if key in new else [(place, value, MISSING)]
        return found
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            each for at, pair in enumerate(zip(old, new, strict=True)) for each in differences(*pair, f"{path}[{at}]")
        ]
    same = type(old) is type(new) and (old == new) and repr(old) == repr(new)  # repr: -0.0 is not 0.0
    return [] if same else [(path, old, new)]


def by_tensor(nodes: list[dict]) -> dict[str, dict]:
    """Return entries of nodes by node and tensor."""
    found: dict[str, dict] = {}
    for node in nodes:
        name = f"{node['node']!r}" + (f" (tensor {node['tensor']!r})" if node["tensor"] != node["node"] else "")
        while name in found:
            name += " again"
        found[name] = node
    return found


def case_differences(old: dict, new: dict) -> list[tuple[str, str, object, object]]:
    """List what differs in one case: (node or "", field, old, new)."""
    if "diffs" in old and "diffs" in new and len(old["diffs"]) == len(new["diffs"]):
        rest = [{key: value for key, value in side.items() if key != "diffs"} for side in (old, new)]
        found = case_differences(*rest)
        for at, pair in enumerate(zip(old["diffs"], new["diffs"], strict=True)):
            found += [(f"backend {at + 1} {node}".strip(), *rest) for node, *rest in case_differences(*pair)]
        return found
    plain = [{key: value for key, value in side.items() if key not in ("nodes", "unmatched")} for side in (old, new)]
    found = [("", *each) for each in differences(*plain)]
    if "unmatched" in old and "unmatched" in new:
        before, after = (Counter(map(tuple, side["unmatched"])) for side in (old, new))
        found += [("", "unmatched", " ".join(map(str, entry)), MISSING) for entry in (before - after).elements()]
        found += [("", "unmatched", MISSING, " ".join(map(str, entry))) for entry in (after - before).elements()]
    if "nodes" in old and "nodes" in new:
        before, after = by_tensor(old["nodes"]), by_tensor(new["nodes"])
        for name, node in before.items():
            if name not in after:
                found.append((name, "node", "compared", MISSING))
            else:
                found += [(name, *each) for each in differences(node, after[name])]
        found += [(name, "node", MISSING, "compared") for name in after if name not in before]
        common = [[name for name in side if name in before and name in after] for side in (before, after)]
        if common[0] != common[1]:
            found.append(("", "order of the nodes", "one", "another"))
    elif ("nodes" in old) != ("nodes" in new):
        found.append(("", "nodes", *("compared" if "nodes" in side else MISSING for side in (old, new))))
    return found


def _shown(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN_VALUE else f"{text[:SHOWN_VALUE]}..."


def report(old: dict, new: dict, *, most: int = 15) -> tuple[list[str], int]:
    """Return the lines that say what differs, at most so many a case, and how many cases differ."""
    if old["digest"] != new["digest"]:
        return ["The two sets of decisions are over different corpora: decide again."], 1
    lines, changed, fields = [], 0, Counter()
    for case, before in old["cases"].items():
        found = case_differences(before, new["cases"][case])
        if not found:
            continue
        changed += 1
        lines.append(f"{case}: {len(found)} field{'s' if len(found) > 1 else ''} differ")
        fields.update(field.partition("[")[0] for _, field, _, _ in found)
        for node, field, one, other in found[:most]:
            lines.append(f"    {f'node {node}, ' if node else ''}{field}: {_shown(one)} -> {_shown(other)}")
        if len(found) > most:
            lines.append(f"    and {len(found) - most} more")
    total = len(old["cases"])
    if changed:
        lines.append("by field: " + ", ".join(f"{field} {count}" for field, count in fields.most_common(12)))
    lines.append(f"{changed} of {total} cases differ." if changed else f"All {total} cases decide the same.")
    return lines, changed
