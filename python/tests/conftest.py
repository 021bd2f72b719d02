"""Fixtures of all tests."""

import os
import shutil
import tempfile

import pytest


@pytest.fixture(scope="session", autouse=True)
def place_of_vaults():
    """No test meets the vaults of the user. The program of the service is that of the build tree."""
    import umf

    built = os.path.join(os.path.dirname(umf.__file__), "..", "..", "umfd", "umfd")
    if os.access(built, os.X_OK):
        os.environ.setdefault("UMF_UMFD", os.path.abspath(built))
    folder = tempfile.mkdtemp(prefix="umf_place_")
    os.environ["UMF_VAULT_DIR"] = folder
    yield
    shutil.rmtree(folder, ignore_errors=True)  # a service ends with its folder


@pytest.fixture
def pool():
    import umf

    made = umf.Pool("disjoint over os")
    yield made
    made.close()
