"""The faults that the tests are tried with are faults of the product as it is."""

import ast

import pytest

from tests.mutations.__main__ import PACKAGE, SUITES
from tests.mutations.faults import FAULTS


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_has_its_place_in_the_product(fault):
    """One whose text is not there any more would prove nothing."""
    text = (PACKAGE / fault.module).read_text()

    assert text.count(fault.old) == 1
    ast.parse(text.replace(fault.old, fault.new))


def test_faults_are_many_and_different():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) >= 15
    assert len(set(SUITES)) == len(SUITES)
