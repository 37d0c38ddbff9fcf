"""Print how large the guide is, by group: `python tests/contracts/guide_sizes.py [--pages] [GUIDE ...]`.

GUIDE is the folder of another version's pages, such as `qdebug/guide` of a worktree; pages that no group has come last.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from qdebug.cli.topics import GENERATED, GROUPS

GUIDE = Path(__file__).parents[2] / "qdebug" / "guide"


def sizes(folder: Path) -> dict[str, dict[str, int]]:
    """Return the bytes of each page of a folder, by group. The page of kernels is read in parts, and counts apart."""
    left = {page.stem: page.stat().st_size for page in sorted(folder.glob("*.md"))}
    groups = {group: {name: left.pop(name) for name in topics if name in left} for group, topics in GROUPS.items()}
    groups["generated"] = {name: groups["reference"].pop(name) for name in GENERATED if name in groups["reference"]}
    return groups | {"other": left}


def main() -> None:
    """Print a table for each folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", type=Path, default=[GUIDE])
    parser.add_argument("--pages", action="store_true", help="list the pages too")
    options = parser.parse_args()
    for folder in options.folders:
        groups = sizes(folder)
        print(f"{folder}: {sum(sum(pages.values()) for pages in groups.values()):,} bytes")
        for group, pages in groups.items():
            print(f"  {group:11}{sum(pages.values()):9,}  {len(pages)} pages")
            if options.pages:
                for name, size in pages.items():
                    print(f"    {name:20}{size:8,}")
        reader = [*GROUPS][:6]
        print(f"  user guide ({', '.join(reader)}): {sum(sum(groups[group].values()) for group in reader):,} bytes")


if __name__ == "__main__":
    main()
