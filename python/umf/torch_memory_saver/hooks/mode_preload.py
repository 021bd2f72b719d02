"""Mode "preload": the hook library stands in LD_PRELOAD and sees every cudaMalloc."""

import os
from pathlib import Path
from typing import ContextManager

from ..utils import change_env, get_binary_path_from_package
from .base import HookUtilBase

_STEM = "torch_memory_saver_hook_mode_preload"


class HookUtilModePreload(HookUtilBase):
    """The library that LD_PRELOAD names."""

    def get_path_binary(self) -> Path:
        """The entry of LD_PRELOAD; AssertionError if there is not exactly one."""
        value = os.environ.get("LD_PRELOAD", "")
        found = [one for one in value.replace(" ", ":").split(":") if "torch_memory_saver" in one]
        assert len(found) == 1, (
            "in preload mode LD_PRELOAD must have exactly one entry with torch_memory_saver "
            f"(configure_subprocess sets it for children); LD_PRELOAD is {value!r}"
        )
        return Path(found[0])


def configure_subprocess() -> ContextManager[None]:
    """Processes that are started inside have the hook library in LD_PRELOAD.

    It stands first; other entries are kept, and the variable is restored.
    """
    path = str(get_binary_path_from_package(_STEM))
    before = os.environ.get("LD_PRELOAD", "")
    return change_env("LD_PRELOAD", f"{path}:{before}" if before else path)
