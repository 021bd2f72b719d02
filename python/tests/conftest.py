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


@pytest.fixture(scope="module")
def service():
    """The folder of a service of vaults."""
    from umf import vault

    program = os.environ.get("UMF_UMFD", "")
    if not os.access(program, os.X_OK):
        pytest.skip("the service of vaults is not built: UMF_UMFD=%r" % program)
    folder = tempfile.mkdtemp(prefix="umf_vault_")  # a path of a socket is short
    yield folder
    vault.stop(folder, drop=True)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def model(service, request):
    """A vault of the test alone."""
    from umf import vault

    name = request.node.originalname + str(abs(hash(request.node.name)))
    with vault.Vault(name, folder=service) as made:
        yield made
