"""Common parts of both hook modes."""

import abc
from pathlib import Path
from typing import Any, Optional


class HookUtilBase(abc.ABC):
    """One hook mode."""

    @staticmethod
    def create(mode: str) -> "HookUtilBase":
        """The hook of a mode: "preload" or "torch"."""
        if mode == "preload":
            from .mode_preload import HookUtilModePreload

            return HookUtilModePreload()
        if mode == "torch":
            from .mode_torch import HookUtilModeTorch

            return HookUtilModeTorch()
        raise ValueError(f"hook mode must be 'preload' or 'torch', it is {mode!r}")

    @abc.abstractmethod
    def get_path_binary(self) -> Path:
        """The hook library of this process."""

    def get_allocator(self) -> Optional[Any]:
        """Allocator of torch's pools; None: cudaMalloc."""
        return None
