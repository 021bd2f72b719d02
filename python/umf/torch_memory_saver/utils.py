"""Environment, and where the hook libraries are."""

import contextlib
import os
from pathlib import Path
from typing import Iterator, Optional


@contextlib.contextmanager
def change_env(key: str, value: str) -> Iterator[None]:
    """Sets a variable of the environment inside, and restores what was there."""
    before = os.environ.get(key)
    os.environ[key] = value
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(key, None)
        else:
            os.environ[key] = before


def is_xpu() -> bool:
    """Whether torch computes on GPUs by Intel, and none by NVIDIA or AMD is here."""
    import torch

    return torch.version.cuda is None and torch.version.hip is None and _has_xpu()


def _has_xpu() -> bool:
    import torch

    return hasattr(torch, "xpu") and torch.xpu.is_available()


def _cuda_major() -> Optional[str]:
    import torch

    version = torch.version.cuda
    return version.split(".", 1)[0] if version else None


def get_binary_path_from_package(stem: str) -> Path:
    """The one library of that name for torch's CUDA, beside this file or in the folder above.

    Raises:
        RuntimeError: there is none, or more than one.
    """
    major = _cuda_major()
    pattern = f"{stem}_cu{major}.*.so" if major else f"{stem}.*.so"
    here = Path(__file__).parent
    for folder in (here, here.parent):
        found = sorted(folder.glob(pattern))
        if len(found) == 1:
            return found[0]
        if len(found) > 1:
            raise RuntimeError(f"more than one file is called {pattern}: {found}")
    raise RuntimeError(
        f"no file is called {pattern} in {here} or {here.parent}: was libumf built with CUDA?"
    )
