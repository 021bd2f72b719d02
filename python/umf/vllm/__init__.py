"""vLLM's sleep mode over libumf.

Installed beside vLLM, `register` runs in each of its processes (entry point "vllm.general_plugins"):
vLLM's module ``cumem_allocator`` and its ``CuMemAllocator`` become those of this package, and
``--sleep-mode-backend umf`` is known where vLLM has backends. ``VLLM_PLUGINS`` leaves it out.

The submodules have the names of vLLM's: ``umf.vllm.cumem_allocator``,
``umf.vllm.device_allocator.cumem``.
"""

import importlib
import logging
import sys

BACKEND = "umf"

_NAMES = ("cumem_allocator", "device_allocator.cumem")
_logger = logging.getLogger(__name__)


def register() -> None:
    """Puts our modules in the place of vLLM's, and registers the backend. May be called again."""
    try:
        importlib.import_module(f"{__name__}.cumem_allocator")
    except ModuleNotFoundError as error:
        _logger.warning("libumf was built without CUDA, so vLLM keeps its allocator: %s", error)
        return
    for name in _NAMES:
        _replace(name)
    try:
        backends = importlib.import_module("vllm.device_allocator.sleep_mode_backend")
    except ImportError:
        return  # older than backends
    try:
        backends.SleepModeBackendFactory.register_backend(
            BACKEND, "umf.vllm.device_allocator.sleep_mode_backend", "UmfSleepModeBackend"
        )
    except ValueError:
        pass  # it was registered before


def _replace(name: str) -> None:
    """Before vLLM imports it: code that holds vLLM's own module continues with that."""
    theirs, ours = f"vllm.{name}", f"{__name__}.{name}"
    if theirs in sys.modules and sys.modules[theirs] is not sys.modules.get(ours):
        _logger.warning("%s was imported before umf.vllm.register: vLLM keeps it", theirs)
        return
    sys.modules[theirs] = importlib.import_module(ours)
