"""Environment, and where the hook libraries are."""

import contextlib
import os
from pathlib import Path
from typing import Iterator


_WORDS = ("", "1", "true", "TRUE", "yes", "YES", "0", "false", "FALSE", "no", "NO")
_FLAGS = (
    "TMS_INIT_ENABLE",
    "TMS_INIT_ENABLE_CPU_BACKUP",
    "TMS_INIT_ENABLE_DISK_BACKUP",
    "TMS_RETAIN_CPU_BACKUP",
)


def check_environment() -> None:
    """ValueError if a variable of the hook libraries has a value that they would refuse."""
    for name in _FLAGS:
        value = os.environ.get(name, "")
        if value not in _WORDS:
            raise ValueError(f"{name} must be one of {', '.join(_WORDS[1:])}; it is {value!r}")
    name = "TMS_DISK_BACKUP_CHUNK_MB"
    value = os.environ.get(name, "")
    most = 65536  # of backup.h
    if value and not (value.isdecimal() and 0 < int(value) <= most):
        raise ValueError(f"{name} must be a number of MiB from 1 to {most}, it is {value!r}")


@contextlib.contextmanager
def change_env(key: str, value: str) -> Iterator[None]:
    """Sets a variable of the environment inside, and restores its value."""
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

    return torch.version.cuda is None and not _is_rocm() and _has_xpu()


def _has_xpu() -> bool:
    import torch

    return hasattr(torch, "xpu") and torch.xpu.is_available()


def _is_rocm() -> bool:
    import torch

    return getattr(torch.version, "hip", None) is not None


def _pattern(stem: str) -> str:
    import torch

    if is_xpu() or _is_rocm():
        return f"{stem}.*.so"
    if not torch.version.cuda:
        raise RuntimeError(f"no {stem} is for this torch: it computes on the CPU only")
    return f"{stem}_cu{torch.version.cuda.split('.', 1)[0]}.*.so"


def get_binary_path_from_package(stem: str) -> Path:
    """The one library of that name for torch's CUDA, beside this file or in the folder above.

    Raises:
        RuntimeError: there is none, or more than one.
    """
    pattern = _pattern(stem)
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
