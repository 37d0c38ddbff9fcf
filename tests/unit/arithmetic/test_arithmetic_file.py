"""Arithmetic files: what is written is read back, and what is no arithmetic is refused by name."""

import pytest

from qdebug.arithmetic.arithmetic_file import arithmetic_text, find_arithmetic, read_arithmetic
from qdebug.arithmetic.presets import preset
from qdebug.errors import UsageError
from qdebug.replay import parse_variant

DOUBLE = parse_variant("m=q31:d:xw/y steps=shl,mulhi.up,shr.away,zp,sat")
ADD = parse_variant("form=fold-fma steps=even,sat")


def write(tmp_path, text, name="a.toml"):
    path = tmp_path / name
    path.write_text(text)
    return path


def test_what_is_written_is_read_back(tmp_path):
    variants = {"conv": DOUBLE, "add:uint8,uint8,uint8": ADD}
    text = arithmetic_text(variants, name='my "npu" \u00e9 \U0001f600', comments={"conv": "53 nodes,\n9 witnesses"})
    assert "# 53 nodes, 9 witnesses" in text.splitlines()
    found = read_arithmetic(write(tmp_path, text))
    assert dict(found.arithmetic.variants) == variants
    assert found.name == found.arithmetic.name == 'my "npu" \u00e9 \U0001f600'
    assert found.provenance == "file"
    assert not found.fused


def test_a_function_has_its_own_line(tmp_path):
    own = parse_variant("form=hswish16 steps=shr.away,zp,sat")
    text = arithmetic_text({"lookup.HardSwish": own, "lookup.HardSwish:int8,int8": own}, name="x", base="glow-cpu")
    found = read_arithmetic(write(tmp_path, text))
    assert found.arithmetic.variants["lookup.HardSwish"] == own
    assert found.arithmetic.variants["lookup.HardSwish:int8,int8"] == own
    with pytest.raises(UsageError, match="unknown kind of unit 'look'"):
        read_arithmetic(write(tmp_path, text.replace("lookup.", "look.")))


def test_a_base_says_what_is_left_out(tmp_path):
    text = arithmetic_text({"conv": DOUBLE}, name="x", base="glow-cpu")
    found = read_arithmetic(write(tmp_path, text))
    assert found.variant("conv") == DOUBLE
    assert found.variant("linear") == preset("glow-cpu").variant("linear")
    assert found.fused
    plain = arithmetic_text({}, name="x", base="glow-cpu", fused=False)
    assert not read_arithmetic(write(tmp_path, plain)).fused


def test_what_a_file_says_of_a_kind_goes_before_its_base(tmp_path):
    # The base tells the types of a convolution apart, the file does not.
    found = read_arithmetic(write(tmp_path, arithmetic_text({"conv": DOUBLE}, name="x", base="ort-mlas-avx2-nonvnni")))
    assert [key for key in found.states if key.startswith("conv")] == ["conv"]
    assert any(key.startswith("linear:") for key in found.states)


@pytest.mark.parametrize("name", ["plain", 'quote"d', "tab\tnew\nline", "back\\slash", "del\x7f", "\u2028"])
def test_any_name_survives(tmp_path, name):
    assert read_arithmetic(write(tmp_path, arithmetic_text({}, name=name))).name == name


def test_a_name_or_a_file_may_be_given(tmp_path, monkeypatch):
    path = write(tmp_path, arithmetic_text({"conv": DOUBLE}, name="mine"))
    assert find_arithmetic("gemmlowp") is preset("gemmlowp")
    assert find_arithmetic("ruy") is preset("ruy")
    assert find_arithmetic(str(path)).name == "mine"
    monkeypatch.chdir(tmp_path)
    assert find_arithmetic("a.toml").name == "mine"
    path.rename(tmp_path / "bare")
    assert find_arithmetic("bare").name == "mine"
    with pytest.raises(UsageError, match="no arithmetic 'other'"):
        find_arithmetic("other")
    with pytest.raises(UsageError, match=r"'other\.toml'"):
        find_arithmetic("other.toml")


GOOD = 'format = "qdebug.arithmetic"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nonsense", "not valid TOML"),
        ("a = 1", "its format is None"),
        ('format = "other"', "its format is 'other'"),
        (GOOD + "version = 2", "version 2"),
        (GOOD + "colour = 2", "an unknown key 'colour'"),
        (GOOD + "fused = 1", "fused is 1"),
        (GOOD + 'base = "nobody"', "no arithmetic 'nobody'"),
        (GOOD + "[variants]\nconv = 3", "must be a string, but is 3"),
        (GOOD + '[variants]\n"conv:uint8,int9" = ""', "an unknown type 'int9'"),
        (GOOD + '[variants]\n"conv:" = ""', "an unknown type ''"),
        (GOOD + '[variants]\nconvolution = ""', "unknown kind of unit 'convolution'"),
        (GOOD + '[variants]\nconv = "steps=sideways"', "unknown step 'sideways'"),
        (GOOD + '[roundings]\nAdd = "result=even"', "'Add' has no format"),
        (
            GOOD + '[roundings]\n"Add:bfloat16" = "result=even;result=zero"',
            "'result=zero' cannot be parsed as a placement",
        ),
        (GOOD + '[roundings]\n"node:s" = "result=even"', "'node:s' has no format"),
        (GOOD + '[roundings]\nAddition = "result=even"', "no roundings are known for 'Addition'"),
        (GOOD + '[roundings]\n"Add:bfloat15" = "result=even"', "has no format"),
        (GOOD + '[roundings]\n"Add:bfloat16" = "result=sideways"', "'result=sideways' cannot be parsed as a placement"),
        (GOOD + '[roundings]\n"Add:bfloat16" = "flush"', "does not state how results are rounded"),
        (GOOD + '[roundings]\n"Add:bfloat16" = 3', "must be a string, but is 3"),
    ],
)
def test_what_is_no_arithmetic_is_refused(tmp_path, text, said):
    with pytest.raises(UsageError, match=said):
        read_arithmetic(write(tmp_path, text))


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_arithmetic(tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="not valid TOML"):
        read_arithmetic(tmp_path / "binary.toml")
    (tmp_path / "huge.toml").write_bytes(b"#" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="more than"):
        read_arithmetic(tmp_path / "huge.toml")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (f"version = {'9' * 5000}", "not valid TOML"),
        (f"name = {'[' * 50_000}", "nested too deeply"),
        ("x = 1\0", "not valid TOML"),
    ],
)
def test_numbers_and_nesting_of_any_size_are_refused_in_one_sentence(tmp_path, line, said):
    with pytest.raises(UsageError, match=said) as caught:
        read_arithmetic(write(tmp_path, line))
    assert "\n" not in caught.value.message
