"""From the launch of the terminal interface to the faulty node: one key, on faults seeded by graph surgery."""

from __future__ import annotations

import pytest

from qdebug.session import DiffSession
from qdebug.tui.application import QdebugApp
from qdebug.tui.reading.messages import Opening

pytest.importorskip("onnxruntime")

KEYS = ("W",)
"""What the user presses after the launch."""

KINDS = {
    "float": ("wrong_channel", "bias_dropped", "activation_removed", "pads_shifted", "stale_row", "empty_row"),
    "qdq.channel": ("zero_point_dropped", "scale_doubled", "output_clamped", "wrong_channel", "scales_rolled"),
}
QUICK = [("float", "wrong_channel"), ("float", "stale_row"), ("qdq.channel", "output_clamped")]


async def reached(reference, backend):
    """Launch the interface on two recordings, press the keys, and give the node under the cursor."""
    app = QdebugApp([Opening(compare=lambda: DiffSession(reference, backend))])
    async with app.run_test(size=(80, 24)) as pilot:
        main = app.screen_stack[0]
        for _ in range(20_000):
            await pilot.pause(0.01)
            if main.is_finished:
                break
        assert main.is_finished
        await pilot.press(*KEYS)
        await pilot.pause()
        return main.scene.plan_row.node


@pytest.fixture
def seeded(digits, bench_module, monkeypatch):
    """Return a function that seeds a fault and gives both recordings and the nodes that are right."""
    compared = []
    plain = bench_module.diff

    def diff(reference, backend):
        compared.append((reference, backend))
        return plain(reference, backend)

    monkeypatch.setattr(bench_module, "diff", diff)

    def seed(form, kind, number=0):
        outcome = digits.seed(form, kind, number)
        return *compared[-1], outcome.expected

    return seed


@pytest.mark.asyncio
@pytest.mark.parametrize(("form", "kind"), QUICK)
async def test_one_key_leads_to_the_faulty_node(seeded, form, kind):
    reference, backend, expected = seeded(form, kind)
    assert await reached(reference, backend) in expected


@pytest.mark.slow
@pytest.mark.asyncio
async def test_one_key_leads_to_the_faulty_node_in_95_of_100_cases(seeded, capsys):
    cases = [(form, kind, seed) for form, kinds in KINDS.items() for kind in kinds for seed in range(4)]
    wrong = []
    for case in cases:
        reference, backend, expected = seeded(*case)
        found = await reached(reference, backend)
        if found not in expected:
            wrong.append((*case, found, sorted(expected)))
    with capsys.disabled():
        print(f"\nthe key {KEYS[0]} led to the faulty node in {len(cases) - len(wrong)} of {len(cases)} cases", *wrong)
    assert len(cases) >= 40
    assert len(wrong) <= 0.05 * len(cases)
