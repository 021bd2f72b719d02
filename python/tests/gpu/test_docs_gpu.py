"""The programs of the documentation that need PyTorch."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpu_helpers import IS_REAL
from helpers import programs_of_pages

PROGRAMS = {
    place: code
    for place, code in programs_of_pages()
    if "torch" in code and "Model()" not in code
}
# A child that multiprocessing starts imports the program, too.
SOFT = """
import sys
sys.path.insert(0, {folder!r})
import soft_dispatch
soft_dispatch.SoftDispatch().__enter__()
"""


@pytest.mark.parametrize("place", PROGRAMS)
def test_a_program_of_a_page(place, tmp_path):
    if "umf.vault" in PROGRAMS[place] and not os.access(os.environ.get("UMF_UMFD", ""), os.X_OK):
        pytest.skip("the service of vaults is not built")
    folder = str(Path(__file__).resolve().parents[1] / "soft")
    script = tmp_path / "program.py"
    script.write_text(("" if IS_REAL else SOFT.format(folder=folder)) + PROGRAMS[place])
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
