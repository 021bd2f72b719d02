"""Mode "torch": torch's own pluggable allocator calls the hook library."""

import functools
from pathlib import Path
from typing import Any

from ..utils import get_binary_path_from_package
from .base import HookUtilBase

_STEM = "torch_memory_saver_hook_mode_torch"


class HookUtilModeTorch(HookUtilBase):
    """The library in the package."""

    def get_path_binary(self) -> Path:
        """The library for the torch in use."""
        return get_binary_path_from_package(_STEM)

    @functools.lru_cache(maxsize=None)  # noqa: B019: one object for each process
    def get_allocator(self) -> Any:
        """An allocator of torch over the library, always the same."""
        from torch.cuda.memory import CUDAPluggableAllocator

        path = str(self.get_path_binary())
        made: Any = CUDAPluggableAllocator(path, "tms_torch_malloc", "tms_torch_free")
        return made.allocator()
