"""The backend that ``--sleep-mode-backend umf`` chooses."""

import importlib
from typing import Any, List, Optional


class _Base:
    """The names of vLLM's base class, where vLLM is not installed."""

    def discard(self, tags: Any) -> None:
        raise RuntimeError(f"{type(self).__name__} cannot discard tags")


SleepModeBackend: Any = _Base
try:
    SleepModeBackend = importlib.import_module(
        "vllm.device_allocator.sleep_mode_backend"
    ).SleepModeBackend
except ImportError:
    pass


class UmfSleepModeBackend(SleepModeBackend):  # type: ignore[misc]
    """Sleep mode by CuMemAllocator. Nothing is touched before the first call."""

    def __init__(self) -> None:
        self._state = "RUNNING"

    def suspend(self, level: int = 1) -> None:
        """Level 1 keeps weights, runtime and cudagraph, others runtime and cudagraph."""
        kept = ("runtime", "cudagraph")
        _allocator().sleep(offload_tags=("weights", *kept) if level == 1 else kept)
        self._state = "SUSPENDED"

    def resume(self, tags: Optional[List[str]] = None) -> None:
        """Brings tags back; None: all."""
        before, self._state = self._state, "RESUMING"
        try:
            _allocator().wake_up(tags)
        except BaseException:
            self._state = before
            raise
        self._state = "RUNNING"

    def discard(self, tags: Any) -> None:
        """Gives the memory of tags back; their content is lost."""
        _allocator().discard(tuple(tags) if not isinstance(tags, str) else tags)
        self._state = "SUSPENDED"

    def state(self) -> str:
        """ "RUNNING", "SUSPENDED" or "RESUMING"."""
        return self._state

    @classmethod
    def verify_config(cls, vllm_config: Any) -> None:
        """Every configuration will do."""

    @classmethod
    def bind(cls, vllm_config: Any, models: Any) -> None:
        """Nothing to prepare."""

    @classmethod
    def is_supported(cls) -> bool:
        """True where libumf was built with CUDA."""
        from .cumem import cumem_available

        return bool(cumem_available)

    @classmethod
    def preserves_communicators(cls) -> bool:
        """True: only memory of pools goes."""
        return True

    @classmethod
    def preserves_compiled_artifacts(cls) -> bool:
        """False: vLLM compiles again."""
        return False

    @classmethod
    def preserves_graphs_with_communicators(cls) -> bool:
        """False: graphs with collectives are captured again."""
        return False

    @classmethod
    def preserves_graphs_with_nccl(cls) -> bool:
        """The older name of the above."""
        return False

    @classmethod
    def supports_durable_storage(cls) -> bool:
        """False: content is kept in memory of the host."""
        return False


def _allocator() -> Any:
    from .cumem import CuMemAllocator

    return CuMemAllocator.get_instance()
