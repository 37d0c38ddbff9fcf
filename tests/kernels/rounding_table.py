"""Print where runtimes round floats, as the table of the guide.

    qdebug probe --backend BACKEND --kind float16 --kind bfloat16 --json -o FILE.json
    python tests/kernels/rounding_table.py FILE.json ...

A row has the operators with the same answer. The version, options and processor are those of the run.
"""

import json
import sys
from pathlib import Path

from qdebug.arithmetic.fingerprints import describe_run

ANSWERS = {"in_band": "in band", "unexplained": "unexplained", "not_run": "not run"}


def answer_of(entry: dict) -> str:
    """Return where an operator rounds, or why no placement is named."""
    if entry["status"] == "explained":
        return entry["words"]
    reason = entry["reason"] if entry["status"] != "not_run" else None
    return f"{ANSWERS[entry['status']]}{f': {reason}' if reason else ''}"


def main() -> None:
    """Print the rows of each file."""
    print("| runtime | format | rounding | operators |\n|---|---|---|---|")
    for path in sys.argv[1:]:
        probed = json.loads(Path(path).read_text(encoding="utf-8"))
        rows: dict[tuple[str, str], list[str]] = {}
        for entry in probed["roundings"]:
            rows.setdefault((entry["format"], answer_of(entry)), []).append(entry["op"])
        for (short, answer), ops in rows.items():
            print(f"| {describe_run(probed['backend'])} | {short} | {answer} | {', '.join(ops)} |")


if __name__ == "__main__":
    main()
