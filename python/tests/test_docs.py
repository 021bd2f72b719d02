"""The programs of the documentation that need no GPU."""

import os
import subprocess
import sys

import pytest
from helpers import programs_of_pages

PROGRAMS = {place: code for place, code in programs_of_pages() if "torch" not in code}


@pytest.mark.parametrize("place", PROGRAMS)
def test_a_program_of_a_page(place, tmp_path):
    pytest.importorskip("numpy")
    if "umf.vault" in PROGRAMS[place] and not os.access(os.environ.get("UMF_UMFD", ""), os.X_OK):
        pytest.skip("the service of vaults is not built")
    script = tmp_path / "program.py"
    script.write_text(PROGRAMS[place])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
