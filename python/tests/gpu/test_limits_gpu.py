"""Limits of pools of a GPU as a fraction of its memory."""

import pytest

import umf


def limit_of(provider, fraction):
    with umf.Pool("coalescing", provider) as pool:
        pool.set_limit(fraction=fraction)
        return pool.get_limit()


@pytest.mark.parametrize("provider", ["cuda:device=0", "cuda:memory_type=shared,device=0", "cuda_vmm"])
def test_a_fraction_is_of_the_memory_of_the_gpu(provider):
    import torch

    total = torch.cuda.mem_get_info(0)[1]
    assert limit_of(provider, 0.5) == total // 2


def test_a_fraction_of_pinned_memory_is_of_the_host():
    assert limit_of("cuda:memory_type=host", 0.5) == limit_of("os", 0.5)
