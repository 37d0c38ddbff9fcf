"""Make the fingerprints that come with the package.

python tests/kernels/make_fingerprints.py [BACKEND[:OPTION=VALUE] ...]

Each installed backend is probed, with the kernels that it offers. The answers go to qdebug/data/fingerprints, in files
named by backend, version, kernels and processor. What was measured elsewhere stays as it is. Run it in a clone.
"""

import json
import sys
from pathlib import Path

from qdebug.arithmetic.fingerprints import fingerprint_name
from qdebug.cli.record import backend_choice
from qdebug.errors import MissingExtraError
from qdebug.probe.run import run_probe

FOLDER = Path(__file__).parents[2] / "qdebug" / "data" / "fingerprints"
BACKENDS = (
    "onnxruntime",
    "litert:kernels=xnnpack",
    "litert:kernels=builtin",
    "litert:kernels=reference",
    "tflm",
    "openvino",
    "executorch",
    "torch:compile=inductor",
)
KEPT_FACTS = ("backend", "versions", "cpu_flags", "options")
KEPT_ROUNDINGS = ("op", "format", "status", "placements")
KEPT = ("kind", "title", "key", "status", "variants", "nodes", "elements", "runner_up", "runner_up_match")


def main():
    """Probe and write."""
    FOLDER.mkdir(exist_ok=True)
    for text in sys.argv[1:] or BACKENDS:
        choice = backend_choice(text)
        try:
            found = run_probe(choice.name, options=choice.options).to_dict()
        except MissingExtraError as error:
            print(f"{text}: {error.message}")
            continue
        kinds = [{name: kind[name] for name in KEPT} for kind in found["kinds"] if kind["status"] == "explained"]
        run = {name: found["backend"][name] for name in KEPT_FACTS}
        roundings = [
            {name: rounding[name] for name in KEPT_ROUNDINGS}
            for rounding in found["roundings"]
            if rounding["status"] == "explained" and rounding["placements"]
        ]
        plain = {
            "format": found["format"],
            "version": found["version"],
            "backend": run,
            "kinds": kinds,
            "roundings": roundings,
        }
        path = FOLDER / f"{fingerprint_name(found['backend'])}.json"
        path.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
        print(f"{text}: {len(kinds)} of {len(found['kinds'])} kinds explained, {path.name}")


if __name__ == "__main__":
    main()
