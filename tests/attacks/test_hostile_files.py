"""What is no regular file is refused at once, whatever asks for it: a pipe would block, a device never end."""

import itertools
import json
import os
import re
import socket
from pathlib import Path

import numpy as np
import pytest
from sweeps import sweep

from qdebug.errors import RecordingError
from qdebug.recording.reading.opening import open_recording, read_manifest

WHERE = {
    "info": ["info", "ODD"],
    "diff": ["diff", "ODD", "ODD"],
    "explain": ["explain", "ODD"],
    "choose": ["scales", "choose", "ODD"],
    "profile": ["scales", "profile", "ODD"],
    "csv": ["export", "csv", "ODD", "ODD", "-o", "out.csv"],
    "npz": ["export", "npz", "ODD", "-o", "out.npz"],
    "verify": ["file", "verify", "ODD"],
    "recover": ["file", "recover", "ODD"],
    "pack": ["file", "pack", "ODD", "-o", "packed.h5"],
    "join": ["file", "join", "ODD", "-o", "joined.json"],
    "part": ["info", "manifest.json"],
    "record": ["record", "ODD", "--backend", "interpreter", "--inputs", "ODD", "-o", "out.h5"],
    "inputs": ["record", "RUN", "--backend", "interpreter", "--inputs", "ODD", "-o", "out.h5"],
    "arithmetic": ["record", "RUN", "--backend", "interpreter:arithmetic=ODD", "--inputs", "ODD", "-o", "out.h5"],
    "limits": ["diff", "RUN", "RUN", "--limits", "ODD"],
    "map": ["diff", "RUN", "RUN", "--map", "ODD"],
    "dump": ["import", "FOLDER/odd.npy", "-o", "out.h5"],
    "graph": ["import", "RUN.npz", "--graph", "ODD", "-o", "out.h5"],
    "untrusted": ["info", "ODD", "--untrusted"],
}


ODD = ("pipe", "socket", "directory", "device")


@pytest.fixture(params=ODD)
def odd(request, tmp_path):
    """A path with something else than a file."""
    path = tmp_path / "odd.h5"
    if request.param == "pipe":
        os.mkfifo(path)
    elif request.param == "socket":
        with socket.socket(socket.AF_UNIX) as server:
            here = Path.cwd()
            os.chdir(tmp_path)  # the name of a socket must be short
            try:
                server.bind(path.name)
            finally:
                os.chdir(here)
    elif request.param == "directory":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero")
    return path


@pytest.mark.parametrize(("where", "odd"), sweep(itertools.product(WHERE, ODD), 24), indirect=["odd"])
@pytest.mark.parametrize("innocent", [2], indirect=True)
def test_it_is_refused_at_once(run_verb, odd, innocent, tmp_path, where):
    parts = [{"path": odd.name}]
    manifest = {"format": "qdebug.manifest", "version": 1, "parts": parts}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    np.savez(f"{innocent}.npz", a=np.zeros(1))
    (tmp_path / "odd.npy").symlink_to("odd.h5")
    places = {"ODD": str(odd), "RUN": str(innocent), "FOLDER": str(tmp_path)}
    words = [re.sub("|".join(places), lambda found: places[found[0]], word) for word in WHERE[where]]
    done = run_verb(*words)
    assert done.code == 2, done.out + done.err
    assert done.err.startswith("qdebug: ")
    assert not re.search("invalid argument|no such device|Errno", done.err, re.IGNORECASE)


@pytest.mark.parametrize("folder", [".", "..", "/"])
@pytest.mark.parametrize("verb", ["info", "explain", "lint", "verify"])
def test_a_folder_without_a_name_is_called_a_directory(run_verb, folder, verb):
    done = run_verb(*(["file", "verify"] if verb == "verify" else [verb]), folder)
    assert (done.code, done.out) == (2, "")
    assert re.match(f"qdebug: {folder!r} (is|cannot be opened: it is) a directory", done.err)


def test_a_part_that_a_link_leads_out_of_the_folder_is_no_part(innocent, tmp_path):
    folder = tmp_path / "bundle"
    folder.mkdir()
    (folder / "part.h5").symlink_to(innocent)
    path = folder / "all.json"
    path.write_text(json.dumps({"format": "qdebug.manifest", "version": 1, "parts": [{"path": "part.h5"}]}))
    with pytest.raises(RecordingError, match="points outside its folder"):
        read_manifest(path)


def test_a_link_to_a_recording_is_read(innocent, tmp_path):
    (tmp_path / "latest.h5").symlink_to(innocent)
    with open_recording(tmp_path / "latest.h5") as recording:
        assert recording.names
