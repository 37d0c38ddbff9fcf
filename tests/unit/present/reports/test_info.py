"""What a recording holds, as table and as Markdown."""

import io

import numpy as np
import pytest
from rich.console import Console

from qdebug.model import Graph, MemoryRecording, Node, RunInfo, TensorInfo
from qdebug.present.contents import Contents
from qdebug.present.reports.info import info_document
from qdebug.present.reports.markdown import markdown
from qdebug.present.reports.terminal import terminal


@pytest.fixture
def contents():
    graph = Graph(
        [Node(name="a|b\x1b[2J", op="Relu", inputs=("x",), outputs=("y",))],
        tensors=[TensorInfo(name="y", shape=(1, 2), dtype="float32")],
        inputs=["x"],
        outputs=["y"],
    )
    recording = MemoryRecording.single(graph, {"y": np.zeros((1, 2), np.float32)}, RunInfo(backend="npu_[bold]"))
    return Contents(recording=recording, path="run.h5", size=2048)


def test_the_report_lists_facts_and_tensors_on_request(contents):
    console = Console(file=io.StringIO(), width=100, highlight=False)
    console.print(terminal(info_document(contents)))
    assert "npu_[bold]" in console.file.getvalue()
    assert "Relu a|b" not in console.file.getvalue()
    console.print(terminal(info_document(contents, tensors=True)))
    assert r"Relu a|b\x1b[2J" in console.file.getvalue()


def test_markdown_shows_names_literally(contents):
    text = markdown(info_document(contents, tensors=True))
    assert r"- **backend**: npu\_\[bold\]" in text
    assert r"`Relu a\|b\x1b[2J`" in text
    assert "| tensor |" not in markdown(info_document(contents))
