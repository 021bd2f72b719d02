"""Functions for tests of users."""

from .utils import is_xpu

__all__ = ["empty_cache", "get_and_print_gpu_memory", "get_device", "is_xpu"]


def get_device() -> str:
    """Name of the kind of device that torch computes on."""
    return "xpu" if is_xpu() else "cuda"


def empty_cache() -> None:
    """Lets torch release unused memory."""
    import torch

    (torch.xpu if is_xpu() else torch.cuda).empty_cache()


def get_and_print_gpu_memory(message: str, gpu_id: int = 0) -> int:
    """Prints and returns how many bytes of a GPU are in use, by all processes."""
    import torch

    module = torch.xpu if is_xpu() else torch.cuda
    available, total = module.mem_get_info(gpu_id)
    used = int(total - available)
    print(f"GPU {gpu_id} memory: {used / (1 << 30):.2f} GB ({message})", flush=True)
    return used
