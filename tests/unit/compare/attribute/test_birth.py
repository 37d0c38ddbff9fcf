"""What is said of the birth of a NaN or an infinity."""

import math
from dataclasses import replace

import pytest

from qdebug.compare.attribute.birth import Birth, BirthOperand, BirthRule


@pytest.mark.parametrize("rule", list(BirthRule))
def test_every_rule_has_its_words(rule):
    one = BirthOperand(tensor="a", value=0.5)
    plain = Birth(node="n", op="Op", tensor="t", sample=0, step=0, index=(), value=math.nan, elements=1, rule=rule)
    for found in (plain, replace(plain, operands=(one, one), exact=2.0, largest=1.0)):
        assert found.sentence.startswith("the only element is NaN because ")
        assert found.to_dict()["rule"] == rule.value
