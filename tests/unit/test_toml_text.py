"""TOML that would take far more memory than its text is refused before it is parsed."""

import pytest

from qdebug.toml_text import parse_toml


@pytest.mark.parametrize(
    "text", ["a." * 20_000 + "b = 1", f"[{'a . ' * 40}b]", "x = {" + '"k".' * 40 + "z = 1}", "'a'." * 33 + "b = 1"]
)
def test_a_key_of_too_many_parts_is_refused(text):
    with pytest.raises(ValueError, match="has more than 32 parts"):
        parse_toml(text)


def test_dots_in_texts_and_comments_are_no_parts():
    text = "# " + '\n[tool.qdebug]\nnode = "m.' + "x." * 50 + '"\n"' + "y." * 50 + '".z = 1'
    assert parse_toml(text)["tool"]["qdebug"]["node"].count("x") == 50
