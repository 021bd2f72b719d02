"""Types: the package, the programs of the documentation and one that uses every public name, by mypy --strict."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, programs_of_pages

import umf

PACKAGE = Path(__file__).parents[1] / "umf"
CLIENT = Path(__file__).parent / "typed_client.py"


def check(*programs):
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir=/dev/null", *map(str, programs)],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("of", [PACKAGE, CLIENT])
def test_types_are_strict(of):
    check(of)


def test_programs_of_pages_are_typed(tmp_path):
    programs = []
    for place, code in programs_of_pages():
        if "Model()" not in code:  # a class of the reader
            programs.append(tmp_path / (re.sub(r"\W", "_", place) + ".py"))
            programs[-1].write_text(code)
    check(*programs)


def test_the_typed_program_uses_every_public_name():
    text = CLIENT.read_text()
    unused = [name for name in umf.__all__ if not re.search(rf"umf\.{name}\b", text)]
    for name in umf.__all__:
        of = getattr(umf, name)
        if inspect.isclass(of) and not issubclass(of, Exception):
            # Not those of tuple and list, which some are.
            names = set(dir(of)) - set(dir(tuple)) - set(dir(list))
            unused += [
                f"{name}.{one}"
                for one in sorted(names)
                if not one.startswith("_") and not re.search(rf"(\.|def ){one}\b", text)
            ]
    assert not unused
