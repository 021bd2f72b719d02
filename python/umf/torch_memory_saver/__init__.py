"""torch_memory_saver's interface over libumf: GPU memory that is given back between steps.

    from umf.torch_memory_saver import torch_memory_saver

    with torch_memory_saver.region("weights", enable_cpu_backup=True):
        model = Model().cuda()
    torch_memory_saver.pause("weights")   # the memory is free for others, addresses stay
    torch_memory_saver.resume("weights")  # the same bytes are back

A pause and a resume are all or nothing and raise RuntimeError. A paused tag stays paused.
"""

from .entrypoint import TorchMemorySaver, configure_subprocess

torch_memory_saver = TorchMemorySaver()

__all__ = ["TorchMemorySaver", "configure_subprocess", "torch_memory_saver"]
