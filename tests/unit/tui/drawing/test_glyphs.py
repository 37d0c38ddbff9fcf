import locale
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sweeps import drawn

from qdebug.tui.drawing.glyphs import ASCII, UNICODE, locale_glyphs


@drawn(150)
@given(st.text(max_size=50), st.integers(1, 30), st.sampled_from([UNICODE, ASCII]))
def test_fitting_gives_exactly_the_width(text, width, glyphs):
    fitted = glyphs.fit(text, width)
    assert cell_len(fitted) == width
    assert not {unicodedata.category(character) for character in fitted} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert glyphs is UNICODE or fitted.isascii()


def test_the_middle_is_taken_out_and_the_end_kept():
    assert UNICODE.fit("model/layer4/block2/conv1", 15).endswith("ock2/conv1")
    assert ".." in ASCII.fit("model/layer4/block2/conv1", 15)


def test_wide_characters_are_counted_as_two_cells():
    assert cell_len(UNICODE.fit("畳み込み層の出力", 9)) == 9


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("5.51e-36", 7, "5.5e-36"),
        ("-5.57e-36", 7, "-6e-36"),
        ("5.51e-36 LSB", 11, "5.5e-36 LSB"),
        ("5.51e-36 LSB", 9, "6e-36 LSB"),
        ("0.00123 rel", 12, " 0.00123 rel"),
        ("0.00123 rel", 9, "0.00123…"),
        ("1.23e-300", 4, "1e-…"),
        ("-", 3, "  -"),
    ],
)
def test_a_number_without_room_loses_digits_but_none_of_its_power_of_ten(text, width, shown):
    assert UNICODE.align_right(text, width) == shown.rjust(width)
    assert cell_len(ASCII.align_right(text, width)) == width


def test_nothing_hostile_passes():
    assert "\x1b" not in UNICODE.fit("\x1b[31mred", 40)
    assert UNICODE.fit("[@click=app.quit]x[/]", 40).startswith("[@click=app.quit]x[/]")


@pytest.mark.parametrize(
    ("encoding", "glyphs"), [("UTF-8", UNICODE), ("utf8", UNICODE), ("ANSI_X3.4-1968", ASCII), ("ISO-8859-1", ASCII)]
)
def test_the_locale_decides(monkeypatch, encoding, glyphs):
    monkeypatch.setattr(locale, "getencoding", lambda: encoding)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert locale_glyphs() is glyphs


@pytest.mark.parametrize(
    ("term", "glyphs"), [("linux", ASCII), ("vt220", ASCII), ("tmux-256color", UNICODE), ("screen", UNICODE)]
)
def test_a_console_without_braille_gets_ascii(monkeypatch, term, glyphs):
    monkeypatch.setattr(locale, "getencoding", lambda: "UTF-8")
    monkeypatch.setenv("TERM", term)
    assert locale_glyphs() is glyphs


def test_the_ascii_set_is_ascii():
    drawn = ASCII.eighths + ASCII.levels + ASCII.rule + ASCII.bar + ASCII.limit + ASCII.cursor + ASCII.position_mark
    assert drawn.isascii()
    assert len(ASCII.eighths) == len(UNICODE.eighths)


def test_names_are_cut_from_the_left_so_that_they_differ():
    long = "net/conv2d_1/Squeeze1", "net/conv2d_1_2/Squeeze1"
    assert UNICODE.fit_distinct(["block/conv", *long], 10) == ["block/conv", "…conv2d_1…", "…nv2d_1_2…"]
    assert ASCII.fit_distinct(["model/layer4/conv1"], 8) == ["../conv1"]


@drawn(150)
@given(st.lists(st.text(max_size=20), max_size=5), st.integers(1, 12), st.sampled_from([UNICODE, ASCII]))
def test_no_name_is_wider_than_its_room(names, width, glyphs):
    cut = glyphs.fit_distinct(names, width)
    assert len(cut) == len(names)
    assert all(cell_len(text) <= width for text in cut)
    assert glyphs is UNICODE or all(map(str.isascii, cut))


def test_names_that_share_both_ends_keep_as_much_as_tells_them_apart():
    ends = ("quantized", "scale", "zero_point")
    names = [f"{node}_{end}" for node in ("x", "ConvBnFusion_W_conv1_weights", "batch_norm_0.tmp_2") for end in ends]
    for width in (8, 10, 12):
        cut = UNICODE.fit_distinct(names, width)
        assert len(set(cut)) == len(names), (width, cut)
        assert cut[2].startswith("x_zero_"), "what there is room for stays"


def test_a_long_name_loses_the_operator_at_its_end_before_its_own_letters():
    shown = [UNICODE.fit_name(f"relu_10.tmp_0_{op}", op, 16).strip() for op in ("QuantizeLinear", "DequantizeLinear")]
    assert shown == ["relu_10.tmp_0_Q…", "relu_10.tmp_0_D…"]
    assert UNICODE.fit_name("relu_QuantizeLinear", "QuantizeLinear", 20) == "relu_QuantizeLinear "
    assert UNICODE.fit_name("block.Conv", "Conv", 8) == UNICODE.fit("block.Conv", 8)
