"""A stop is heeded while a node is explained, which may take minutes."""

from types import SimpleNamespace

import numpy as np
import pytest

import qdebug
from qdebug.bisect.run import _Reporter


def test_a_stop_is_heeded_while_a_node_is_explained(tmp_path):
    with qdebug.Recorder(tmp_path / "a.h5", backend="mine") as recorder:
        recorder.put("x", np.ones(4, np.float32))
        recorder.put("y", np.ones(4, np.float32), node="n", op="Relu", inputs=("x",))

    def stop(label):
        raise KeyboardInterrupt(label)

    reporter = _Reporter(None, None, SimpleNamespace(note=stop), metric="output", every=False)
    with pytest.raises(KeyboardInterrupt, match="explaining y"):
        reporter._explain(tmp_path / "a.h5", "y")
