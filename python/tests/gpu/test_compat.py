"""umf.compat: programs that import other names."""

import os
import subprocess
import sys

import pytest
from helpers import run_python

import umf.compat


def test_a_program_gets_our_modules(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        """
import sys
import torch_memory_saver
import torch_memory_saver.hooks.base
from torch_memory_saver import torch_memory_saver as saver
from torch_memory_saver.entrypoint import TorchMemorySaver
import umf.torch_memory_saver
assert torch_memory_saver is umf.torch_memory_saver
assert torch_memory_saver.hooks.base is umf.torch_memory_saver.hooks.base
assert type(saver) is TorchMemorySaver is umf.torch_memory_saver.TorchMemorySaver
assert umf.torch_memory_saver.__name__ == "umf.torch_memory_saver"
print(sys.argv)
"""
    )
    command = [sys.executable, "-m", "umf.compat", "torch_memory_saver,vllm", "--", str(script), "a"]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str([str(script), "a"])


CHILDREN = """
import multiprocessing, subprocess, sys
import torch_memory_saver


def child(sender):
    import torch_memory_saver.hooks.base

    sender.send(torch_memory_saver.__name__)


if __name__ == "__main__":
    names = []
    for start in ("spawn", "forkserver", "fork"):
        context = multiprocessing.get_context(start)
        ours, theirs = context.Pipe()
        process = context.Process(target=child, args=(theirs,))
        process.start()
        theirs.close()
        names.append(ours.recv())
        process.join()
    code = "import torch_memory_saver.utils as one; print(one.__name__, end='')"
    names.append(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout)
    print(*names)
    sys.exit(3)
"""


@pytest.mark.parametrize("how", ["script", "module"])
def test_processes_that_a_program_starts_get_our_modules(tmp_path, how):
    (tmp_path / "program.py").write_text(CHILDREN)
    program = ["-m", "program"] if how == "module" else ["program.py"]
    command = [sys.executable, "-m", "umf.compat", "torch_memory_saver", "--", *program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    ours = "umf.torch_memory_saver"
    assert done.stdout.split() == [ours, ours, ours, f"{ours}.utils"], done.stderr


def test_programs_that_are_none(tmp_path):
    for arguments in ([], ["torch_memory_saver", "--"], ["other", "--", "x"], ["vllm", "--", "-m"]):
        with pytest.raises(SystemExit, match="usage"):
            umf.compat.main(arguments)
    with pytest.raises(SystemExit, match="there is no file 'nowhere.py'"):
        umf.compat.main(["vllm", "--", "nowhere.py"])


def test_words_that_are_wrong():
    with pytest.raises(ValueError, match="torch_memory_saver, vllm"):
        umf.compat.install("other")
    with pytest.raises(SystemExit, match="usage"):
        umf.compat.main(["torch_memory_saver"])
    run_python(
        """
import sys, types, umf.compat
sys.modules["torch_memory_saver"] = types.ModuleType("torch_memory_saver")
try:
    umf.compat.install("torch_memory_saver")
except RuntimeError:
    sys.exit(0)
sys.exit("no error")
"""
    )
