"""Fixtures of all tests."""

import pytest


@pytest.fixture
def pool():
    import umf

    made = umf.Pool("disjoint over os")
    yield made
    made.close()
