"""Use each file named on standard input as a recording, and print what became of it, one JSON line a file.

A line is {"outcome": "read" | "refused" | "broken", "what": text}: "refused" is a typed error, "broken" any other.
The last line is {"peak_mb": number}.
"""

import faulthandler
import json
import re
import resource
import sys
import traceback
from pathlib import Path

import numpy as np

from qdebug.errors import RecordingError
from qdebug.recording.reading.read import FileRecording

ADDRESS_SPACE = 4 << 30


def use(path):
    """Do with a file all that a recording is for; give the sum of its values' bytes, as proof."""
    total = 0
    with FileRecording(path) as recording:
        _ = recording.content_hash, recording.tensor_bytes, recording.info.to_dict()
        graph = recording.graph
        for node in graph.nodes:
            graph.consumers(node.name)
        events = list(recording.events())
        for sample in range(min(recording.samples, 4)):
            for name in recording.names:
                if recording.has(name, sample):
                    array = np.ascontiguousarray(recording.load(name, sample))
                    total += int(array.reshape(-1).view(np.uint8).sum())
        for number in range(len(events)):
            recording.check_payload(number)
        recording.check_datasets()
    return total


def outcome(path):
    """Return what using a file came to."""
    try:
        return {"outcome": "read", "what": str(use(path))}
    except RecordingError as error:
        fine = error.hint and error.message.endswith(".") and "\n" not in str(error)
        return {"outcome": "refused" if fine else "broken", "what": str(error)}
    except Exception:  # noqa: BLE001  what this is about
        return {"outcome": "broken", "what": traceback.format_exc()}


def peak_mb():
    """Return the most memory this program held; on Linux what getrusage says includes the program that started it."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / (1 << 10)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << 20)


def main():
    faulthandler.enable()
    faulthandler.dump_traceback_later(240, exit=True)
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    for path in sys.stdin.read().splitlines():
        print(json.dumps(outcome(path)), flush=True)
    print(json.dumps({"peak_mb": peak_mb()}))


if __name__ == "__main__":
    main()
