"""Types: the package, the programs of the documentation and one that uses every public name, by mypy --strict and pyright."""

import importlib.util
import inspect
import json
import re
import shutil
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


@pytest.fixture
def pages(tmp_path):
    """Files of the programs in the documentation."""
    for place, code in programs_of_pages():
        if "Model()" not in code:  # a class of the reader
            (tmp_path / (re.sub(r"\W", "_", place) + ".py")).write_text(code)
    return tmp_path


def test_programs_of_pages_are_typed(pages):
    check(*pages.glob("*.py"))


def test_pyright_accepts_the_typed_program_and_those_of_pages(pages):
    """Its wheel has pyright itself; the JavaScript is run by a node of the system, so nothing is fetched."""
    pyright = pytest.importorskip("pyright")
    node = shutil.which("node")
    if node is None:
        pytest.skip("pyright needs node (scripts/install-deps.sh installs nodejs)")
    shutil.copy(CLIENT, pages)
    config = {"include": ["."], "extraPaths": [str(PACKAGE.parent), *filter(None, sys.path)]}
    if importlib.util.find_spec("torch") is None:
        for page in [one for one in pages.glob("*.py") if "torch" in one.read_text() and one.name != CLIENT.name]:
            page.unlink()
    (pages / "pyrightconfig.json").write_text(json.dumps(config))
    program = Path(pyright.__file__).parent / "dist" / "index.js"
    done = subprocess.run(
        [node, program, "--project", pages, "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
    )
    report = json.loads(done.stdout)
    found = [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in report["generalDiagnostics"]
    ]
    assert found == []
    assert report["summary"]["filesAnalyzed"] == len(list(pages.glob("*.py")))


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
