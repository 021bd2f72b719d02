"""Programs that import torch_memory_saver or vLLM's allocator get those of umf.

    python -m umf.compat torch_memory_saver,vllm -- script.py arguments
    python -m umf.compat torch_memory_saver -- -m module arguments

does so for one program and the Python processes that it starts; `install` does it from code, for one
process, before the names are imported.
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import List, Optional, Sequence, Tuple

_USAGE = "usage: python -m umf.compat torch_memory_saver,vllm -- script.py|-m module [argument...]"

NAMES = ("torch_memory_saver", "vllm")


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """torch_memory_saver and its submodules are ours."""

    _OURS = "umf.torch_memory_saver"
    _THEIRS = "torch_memory_saver"

    def find_spec(
        self, name: str, path: Optional[Sequence[str]], target: Optional[ModuleType] = None
    ) -> Optional[importlib.machinery.ModuleSpec]:
        if name != self._THEIRS and not name.startswith(self._THEIRS + "."):
            return None
        ours = self._OURS + name[len(self._THEIRS) :]
        try:
            is_package = hasattr(importlib.import_module(ours), "__path__")
        except ModuleNotFoundError:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=is_package)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return importlib.import_module(self._OURS + spec.name[len(self._THEIRS) :])

    def exec_module(self, module: ModuleType) -> None:
        """It was executed under its own name."""


def install(*names: str) -> None:
    """From now on imports of these names get umf's modules.

    Args:
        names: of ``NAMES``; none: all.

    Raises:
        ValueError: a name is not known.
        RuntimeError: a name was imported before, and is not ours.
    """
    for name in names or NAMES:
        if name == "torch_memory_saver":
            _install_torch_memory_saver()
        elif name == "vllm":
            importlib.import_module("umf.vllm").register()
        else:
            raise ValueError(f"the names are {', '.join(NAMES)}; not {name!r}")


def _install_torch_memory_saver() -> None:
    ours = importlib.import_module("umf.torch_memory_saver")
    if sys.modules.get("torch_memory_saver", ours) is not ours:
        raise RuntimeError("torch_memory_saver was imported before umf.compat.install")
    if not any(isinstance(one, _Finder) for one in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
    importlib.import_module("torch_memory_saver")


def _tell_children() -> None:
    """Python processes that the program starts look for the names in a folder of ours first: those
    of multiprocessing take over the path, others the environment."""
    folder = str(Path(__file__).parent / "_names")
    sys.path.insert(1, folder)
    rest = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = folder if not rest else folder + os.pathsep + rest


def _split(arguments: List[str]) -> Tuple[List[str], List[str]]:
    """The names, and the program with its arguments."""
    names = arguments[0].split(",") if arguments else []
    if len(arguments) < 3 or arguments[1] != "--" or not set(names) <= set(NAMES):
        raise SystemExit(_USAGE)
    return names, arguments[2:]


def main(arguments: List[str]) -> None:
    """Runs a program with the names replaced, in the Python processes that it starts, too."""
    names, program = _split(arguments)
    is_module = program[0] == "-m"
    if is_module and len(program) == 1:
        raise SystemExit(_USAGE)
    if not is_module and not os.path.exists(program[0]):
        raise SystemExit(f"umf.compat: there is no file {program[0]!r}")
    install(*names)
    if "torch_memory_saver" in names:
        _tell_children()
    sys.argv = program[1:] if is_module else program
    if is_module:
        runpy.run_module(program[1], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(program[0]))
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
