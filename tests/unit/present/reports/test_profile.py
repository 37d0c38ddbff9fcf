"""One tensor in full detail, for a terminal, for Markdown and as JSON."""

import io
import json

import numpy as np
import pytest
from rich.console import Console

from qdebug.numerics.profile import profile_tensor
from qdebug.present.reports.markdown import markdown_blocks
from qdebug.present.reports.profile import profile_blocks
from qdebug.present.reports.terminal import terminal

F32 = np.float32


@pytest.fixture(scope="module")
def profile():
    generator = np.random.default_rng(0)
    a = generator.standard_normal((3, 50)).astype(F32)
    return profile_tensor(a, a + generator.standard_normal(a.shape).astype(F32) * F32(1e-3), axis=0)


def shown(parts, width=100):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    console.print(terminal(parts))
    return console.file.getvalue()


def test_a_terminal_shows_every_part(profile):
    text = shown(profile_blocks(profile))
    for part in ("ULP  at most", "abs(difference)  ", "abs(difference)/abs(reference)", "ULP apart", "values"):
        assert part in text
    assert "worst of 3 channels along axis 0" in text
    assert "\u2588" * 20 in text
    assert max(map(len, shown(profile_blocks(profile), width=80).splitlines())) <= 80


def test_markdown_has_the_same_parts(profile):
    lines = markdown_blocks(profile_blocks(profile))
    assert any(line.startswith("- **ULP**: at most") for line in lines)
    assert "### Worst of 3 channels along axis 0" in lines
    assert sum(line.startswith("|---") for line in lines) == 5


def test_what_is_not_there_takes_no_table():
    codes = profile_tensor(np.int8([1, 2]), np.int8([1, 3]))
    text = shown(profile_blocks(codes))
    assert "ULP" not in text
    assert "channels" not in text
    assert all("channels" not in line for line in markdown_blocks(profile_blocks(codes)))


def test_plain_values_add_up_and_are_json(profile):
    plain = profile.to_dict()
    json.dumps(plain, allow_nan=False)
    for name in ("errors_by_exponent", "relative_by_exponent"):
        assert sum(plain[name]["counts"]) + plain[name]["zeros"] == 150
    assert sum(plain["ulp_counts"]) == 150
    assert plain["ulp_type"] == "float32"
    assert plain["shape"] == [3, 50]
    assert [len(plain[f"channel_{name}"]) for name in ("max_abs", "rmse", "sqnr_db", "nonfinite")] == [3, 3, 3, 3]
    codes = profile_tensor(np.int8([1]), np.int8([1])).to_dict()
    assert {codes[name] for name in ("max_ulp", "ulp_counts", "channel_axis", "channel_rmse")} == {None}
