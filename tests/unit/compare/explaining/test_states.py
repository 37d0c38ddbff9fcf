"""States of a net that runs step by step are what was written a step before."""

from __future__ import annotations

import numpy as np
import pytest

import qdebug

SCALE, ZERO = 0.1, 3


def stream(steps=4, *, wrong=None, read_op="READ_VARIABLE", write_op="ASSIGN_VARIABLE", first=ZERO):
    """Record a net that hands on what it was fed a step before, as codes."""
    rng = np.random.default_rng(2)
    fed = rng.integers(-128, 128, (steps, 1, 8)).astype(np.int8)
    by_name = {"attrs": {"variable_id": "s"}} if read_op == "ReadValue" else {}
    state = () if by_name else ("s",)
    with qdebug.Recorder(None, backend="mine") as rec:
        for step in range(steps):
            if step:
                rec.next_step()
            before = fed[step - 1] if step else np.full((1, 8), first, np.int8)
            if step == wrong:
                before = np.roll(before, 1, -1)
            rec.put("x", fed[step], scale=SCALE, zero_point=ZERO)
            rec.put("r", before, node="read", op=read_op, inputs=state, scale=SCALE, zero_point=ZERO, **by_name)
            rec.put("w", fed[step], node="write", op=write_op, inputs=(*state, "x"), **by_name)
            rec.outputs("r")
    return rec.recording


def read(recording):
    return next(node for node in qdebug.explain(recording).nodes if node.node == "read")


@pytest.mark.parametrize(("read_op", "write_op"), [("READ_VARIABLE", "ASSIGN_VARIABLE"), ("ReadValue", "Assign")])
def test_what_is_read_is_what_was_written_a_step_before(read_op, write_op):
    answer = read(stream(read_op=read_op, write_op=write_op))
    assert answer.status == "explained"
    assert answer.elements == 4 * 8


def test_a_state_that_was_lost_on_the_way_is_unexplained():
    answer = read(stream(wrong=2))
    assert answer.status == "unexplained"
    assert "of 32 elements differ from 'x' at the previous step" in answer.reason


def test_a_state_before_the_first_step_is_known_only_where_it_is_zero():
    assert read(stream(steps=1)).status == "explained"
    answer = read(stream(steps=1, first=7))
    assert answer.status == "no_input"
    assert "before the first step" in answer.reason
    assert read(stream(first=7)).elements == 3 * 8
