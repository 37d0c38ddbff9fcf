"""What exceeds a limit is one decision: the evidence that chooses a replay by it agrees with the checks of errors."""

from dataclasses import replace
from itertools import product

from qdebug.compare.attribute.attribute import Attribution
from qdebug.compare.checks.table import ERROR_CHECKS
from qdebug.compare.evidence import excess
from qdebug.compare.evidence.measured import Error
from qdebug.compare.result.finding import FindingKind, FindingRole
from qdebug.compare.result.limits import Limits
from qdebug.numerics.accumulate import ErrorAccumulator

STATS = replace(ErrorAccumulator().stats(), count=10, mismatches=3, max_abs=0.3, rmse=0.1, rel_l2=0.01)
TOTALS = [None, replace(STATS, sqnr_db=40.0), replace(STATS, sqnr_db=9.0), replace(STATS, sqnr_db=9.0, max_lsb=1.5)]
TOTALS += [replace(STATS, nonfinite=1), replace(STATS, mismatches=0, max_abs=0.0, rmse=0.0)]
OWN = [None, STATS, replace(STATS, max_lsb=1.0), replace(STATS, max_lsb=2.5), replace(STATS, nonfinite=2)]
BOUNDS = [(None, None), (1.0, None), (0.001, None), (None, 0), (None, 1)]


def errors():
    attributions = [
        Attribution(arithmetic_unsaturated=own, allowed=allowed, max_integer_error=whole, unexplained_elements=wrong)
        for own, (allowed, whole), wrong in product(OWN, BOUNDS, (0, 2))
    ]
    for stats, attribution, excused, exact in product(TOTALS, [None, *attributions], (False, True), (False, True)):
        yield Error(stats=stats, attribution=attribution, limits=Limits(), excused=excused, exact=exact)


def test_an_error_exceeds_a_derived_limit_if_a_check_finds_a_breach():
    answers = []
    for error in errors():
        findings = filter(None, (check(error) for check in ERROR_CHECKS))
        kinds = [found.kind for found in findings if found.role is FindingRole.BREACH]
        answers.append(excess.exceeds_derived_limit(error))
        assert answers[-1] == (bool(kinds) and FindingKind.NONFINITE not in kinds), error
    assert {True, False} == set(answers)
