"""Probing: the arithmetic of a backend is named, what differs from it is not."""

import json
from contextlib import contextmanager
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

from qdebug.backends import load_backend
from qdebug.errors import BackendError, UsageError
from qdebug.model import MemoryRecording
from qdebug.present import probed
from qdebug.present.reports.markdown import markdown
from qdebug.present.reports.probe import probe_document
from qdebug.present.reports.schema import load_schema
from qdebug.present.reports.terminal import terminal
from qdebug.probe import run as probe
from qdebug.probe.run import run_probe

QUICK = ("quantize", "concat")


@pytest.fixture(scope="module")
def glow():
    return run_probe("interpreter", options={"arithmetic": "glow-cpu"}, kinds=("quantize", "average_pool"))


def test_the_arithmetic_of_the_interpreter_is_named(glow):
    assert {entry.status for entry in glow.entries} == {"explained"}
    assert glow.exit_code == 0
    assert next(score.name for score in glow.scores if score.stands) == "glow-cpu"
    for entry in glow.entries:
        assert "glow-cpu" in entry.presets
        assert "ort-mlas" in entry.conflicts
        assert entry.match == 1.0
        assert entry.nodes >= 4
        assert entry.runner_up_match < 1.0
    assert glow.run.options["arithmetic"] == "glow-cpu"


def test_progress_is_told():
    seen = []
    run_probe("interpreter", kinds=["quantize"], on_progress=lambda *step: seen.append(step))
    assert [done for done, _, _ in seen] == [0, 1, 2]
    assert {total for _, total, _ in seen} == {2}


def planted(monkeypatch, fault):
    """Make the interpreter wrong in every node."""
    backend = load_backend("interpreter")
    plain = type(backend).open

    def broken(self, model, **given):
        return plain(self, model, faults={node.name: fault for node in model.graph.nodes}, **given)

    monkeypatch.setattr(type(backend), "open", broken)


def test_what_no_arithmetic_explains_is_said(monkeypatch):
    def fault(arrays):
        codes = arrays[0].copy()
        codes.reshape(-1)[5::32] ^= 64
        return (codes,)

    planted(monkeypatch, fault)
    result = run_probe("interpreter", kinds=["quantize"])
    assert result.exit_code == 1
    for entry in result.entries:
        assert entry.status == "unexplained"
        assert 0.9 < entry.match < 1.0
        assert entry.presets == ()
        assert entry.reason
    assert "no known arithmetic fits" in probed.headline(result)
    assert not [score for score in result.scores if score.stands]


def test_a_mixture_is_no_bug(tmp_path):
    # An average of stored codes is defined only where input and output share their scale.
    result = run_probe("interpreter", options={"arithmetic": "tflite-reference"}, kinds=["average_pool"])
    assert result.exit_code == 0
    for entry in result.entries:
        assert entry.status == "mixed"
        assert len(entry.variants) == 2
        assert "tflite-reference" in entry.presets
        assert entry.reason.startswith("9 nodes: ") or "nodes: " in entry.reason


def test_what_cannot_be_run_is_said_and_does_not_stop_the_rest(monkeypatch):
    plain = probe._record

    def recorded(backend, model, options, folder):
        if "int8" in model.title.split():
            raise BackendError("no kernel for this type")
        return plain(backend, model, options, folder)

    monkeypatch.setattr(probe, "_record", recorded)
    result = run_probe("interpreter", kinds=["concat"])
    assert [(entry.title, entry.status, entry.reason) for entry in result.entries if entry.status == "failed"] == [
        ("concat int8", "failed", "no kernel for this type")
    ]
    assert result.exit_code == 0
    monkeypatch.setattr(probe, "_record", lambda *_: (_ for _ in ()).throw(BackendError("broken")))
    nothing = run_probe("interpreter", kinds=["concat"])
    assert nothing.exit_code == 2
    assert "no probe could be run" in probed.headline(nothing)


def test_nothing_computed_on_codes_is_no_answer(glow):
    unfused = replace(
        glow.entries[0], status="unfused", variants=(), presets=(), conflicts=(), reason="in floating point"
    )
    lost = replace(unfused, status="failed")
    assert replace(glow, entries=(unfused, lost)).exit_code == 3
    assert replace(glow, entries=(unfused, *glow.entries)).exit_code == 0
    assert replace(glow, entries=(lost,)).exit_code == 2


def test_float_operators_alone_are_counted_and_give_the_exit_code(monkeypatch):
    monkeypatch.setattr(probe, "ROUNDED_OPS", ("Add", "MatMul"))
    seen = []
    result = run_probe("interpreter", kinds=["bfloat16"], on_progress=lambda *step: seen.append(step))
    assert seen == [(0, 2, "Add bfloat16"), (1, 2, "MatMul bfloat16"), (2, 2, "")]
    assert (result.entries, result.exit_code) == ((), 0)
    assert [entry.title for entry in result.roundings] == ["Add bfloat16", "MatMul bfloat16"]
    assert result.run.backend == "interpreter"
    assert probed.headline(result) == "roundings of 2 of 2 float operators named"
    first = result.roundings[0]
    refused = replace(first, status="not_run", placements=(), words=None, confirmed=False, reason="no\x1bkernel")
    in_band = replace(refused, status="in_band", reason=None)
    assert replace(result, roundings=(first, refused)).exit_code == 0
    assert replace(result, roundings=(refused,)).exit_code == 2
    assert replace(result, roundings=(refused, in_band)).exit_code == 3
    assert replace(result, roundings=(first, replace(refused, status="unexplained"))).exit_code == 1
    text = markdown(probe_document(replace(result, roundings=(first, refused, in_band))))
    assert "Float roundings" in text
    assert "| not run | Add |" in text
    assert "\x1b" not in text


def test_a_file_format_without_float_operators_is_not_run(monkeypatch):
    monkeypatch.setattr(type(load_backend("interpreter")), "models", (".tflite",))
    monkeypatch.setattr(probe, "ROUNDED_OPS", ("Add",))
    (entry,) = run_probe("interpreter", kinds=["float16"]).roundings
    assert (entry.status, entry.reason) == ("not_run", ".tflite models of operators in float16 are not written")


def test_a_result_that_was_not_recorded_is_not_run(monkeypatch):
    monkeypatch.setattr(probe, "ROUNDED_OPS", ("Add",))
    plain = probe.opened_recording

    @contextmanager
    def without_results(path):
        with plain(path) as recording:
            graph = recording.graph
            yield MemoryRecording(graph, {}, recording.info)

    monkeypatch.setattr(probe, "opened_recording", without_results)
    (entry,) = run_probe("interpreter", kinds=["float16"]).roundings
    assert (entry.status, entry.reason) == ("not_run", "the result was not recorded")


def test_what_does_not_exist_is_refused():
    with pytest.raises(UsageError, match="kind 'cinema'"):
        run_probe("interpreter", kinds=["cinema"])
    with pytest.raises(UsageError, match="no option 'speed'"):
        run_probe("interpreter", options={"speed": "high"}, kinds=QUICK)
    with pytest.raises(UsageError, match="Unknown backend 'npu'"):
        run_probe("npu", kinds=QUICK)


def test_the_json_validates(glow):
    plain = json.loads(json.dumps(glow.to_dict(), allow_nan=False))
    validator = jsonschema.Draft202012Validator(load_schema("probe"))
    validator.validate(plain)
    assert plain["summary"]["explained"] == 4
    assert plain["presets"][0]["name"] == "glow-cpu"
    assert list(validator.iter_errors(plain | {"kinds": [{"kind": "conv"}]}))


def test_the_report_says_kinds_presets_and_classes(glow):
    from rich.console import Console

    console = Console(width=400, no_color=True)
    with console.capture() as capture:
        console.print(terminal(probe_document(glow)))
    text = capture.get()
    assert "computes like glow-cpu" in text
    assert "source: glow libjit_defs.h" in text
    assert "ort-mlas" not in text.partition("arithmetic  ")[0]
    everything = markdown(probe_document(glow, everything=True))
    assert "| ort-mlas |" in everything
    assert "| ort-mlas |" not in markdown(probe_document(glow))


def test_names_of_a_backend_are_shown_as_text():
    entry = probe.ProbeEntry(kind="conv", title="conv\x1b[31m", status="failed", reason="\x1b]0;x\x07")
    result = probe.ProbeResult(run=probe.RunInfo(backend="a\x1bb"), entries=(entry,))
    assert "\x1b" not in markdown(probe_document(result))
    assert not any("\x1b" in cell for row in probed.kind_rows(result) for cell in row)
    assert np.array([probed.notes(result)]).size == 1


def test_a_backend_that_no_model_can_be_made_for_is_refused(monkeypatch):
    monkeypatch.setattr(type(load_backend("interpreter")), "models", (".hef",))
    with pytest.raises(UsageError, match=r"cannot be probed: it runs \.hef files, but probe writes \.onnx, \.tflite, "):
        run_probe("interpreter")
