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
