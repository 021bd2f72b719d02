"""The C functions of a hook library."""

import ctypes
from typing import Any, Dict, List, Optional, Union

_TEXT, _FLAG, _SECONDS = ctypes.c_char_p, ctypes.c_bool, ctypes.c_double

_SIGNATURES: Dict[str, "tuple[Any, List[Any]]"] = {
    "tms_set_interesting_region": (None, [_FLAG]),
    "tms_get_interesting_region": (_FLAG, []),
    "tms_set_enable_cpu_backup": (None, [_FLAG]),
    "tms_get_enable_cpu_backup": (_FLAG, []),
    "tms_set_enable_disk_backup": (None, [_FLAG]),
    "tms_get_enable_disk_backup": (_FLAG, []),
    "tms_set_retain_cpu_backup": (None, [_FLAG]),
    "tms_get_retain_cpu_backup": (_FLAG, []),
    "tms_set_backup_lease": (_FLAG, [_SECONDS]),
    "tms_get_backup_lease": (_SECONDS, []),
    "tms_set_current_tag": (None, [_TEXT]),
    "tms_get_current_tag": (_TEXT, []),
    "tms_set_cpu_backup_backend": (None, [_TEXT]),
    "tms_get_cpu_backup_backend": (_TEXT, []),
    "tms_set_disk_backup_dir": (None, [_TEXT]),
    "set_memory_margin_bytes": (None, [ctypes.c_uint64]),
    "tms_pause": (ctypes.c_int, [_TEXT]),
    "tms_resume": (ctypes.c_int, [_TEXT]),
    "tms_get_cpu_backup_pointer": (ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_uint64]),
    "tms_last_error": (_TEXT, []),
    "tms_state_of": (ctypes.c_int, [ctypes.c_void_p]),
}


class _Library(ctypes.CDLL):
    """Functions that the library lacks, such as those of the CUDA runtime, come from the process."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name.startswith("__"):
                raise
            return getattr(ctypes.CDLL(None), name)


class BinaryWrapper:
    """A hook library by path.

    Attributes:
        cdll: all of its functions, and those of the CUDA runtime in the process.
    """

    def __init__(self, path: Union[str, "Any"]) -> None:
        try:
            self.cdll = _Library(str(path))
        except OSError as error:
            raise RuntimeError(f"the hook library {path} cannot be loaded: {error}") from error
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(self.cdll, name)
            function.restype, function.argtypes = result, arguments

    def set_config(
        self,
        *,
        tag: str,
        interesting_region: bool,
        enable_cpu_backup: bool = False,
        enable_disk_backup: bool = False,
        cpu_backup_backend: Optional[str] = None,
    ) -> None:
        """Sets tag and backup of allocations by this thread from now on."""
        self.cdll.tms_set_current_tag(tag.encode())
        self.cdll.tms_set_interesting_region(interesting_region)
        self.cdll.tms_set_enable_cpu_backup(enable_cpu_backup)
        self.cdll.tms_set_enable_disk_backup(enable_disk_backup)
        self.cdll.tms_set_cpu_backup_backend((cpu_backup_backend or "").encode())

    def get_config(self) -> Dict[str, Any]:
        """The arguments with which ``set_config`` changes nothing."""
        return {
            "tag": self.cdll.tms_get_current_tag().decode(),
            "interesting_region": self.cdll.tms_get_interesting_region(),
            "enable_cpu_backup": self.cdll.tms_get_enable_cpu_backup(),
            "enable_disk_backup": self.cdll.tms_get_enable_disk_backup(),
            "cpu_backup_backend": self.cdll.tms_get_cpu_backup_backend().decode(),
        }

    def last_error(self) -> str:
        """Why the last call of this thread failed."""
        return str(self.cdll.tms_last_error().decode(errors="replace"))
