"""Hooks that see each allocation and free of Python."""

from typing import Tuple, TypeVar

from . import _core
from ._memory import Pool

_Self = TypeVar("_Self", bound="MemoryHook")


class MemoryHook:
    """Sees each allocation and free of buffers inside a ``with``: a subclass overrides methods.

    It is for all threads, unlike CuPy's, and for the memory of ``Pool.allocate`` and its like: not
    for allocations by C, PyTorch or CuPy. Hooks nest, and are called in the order in which
    they were entered. No hook is called for allocations and frees by a hook.

    An exception in a hook of malloc reaches the caller of ``allocate``, and nothing stays allocated.
    One in a hook of free goes to ``sys.unraisablehook``, and the memory is freed.
    """

    def malloc_preprocess(self, pool: Pool, nbytes: int) -> None:
        """Before an allocation."""

    def malloc_postprocess(self, pool: Pool, nbytes: int, ptr: int) -> None:
        """After an allocation that has not failed."""

    def free_preprocess(self, pool: Pool, nbytes: int, ptr: int) -> None:
        """Before a free, by whatever thread drops the last reference."""

    def free_postprocess(self, pool: Pool, nbytes: int, ptr: int) -> None:
        """After a free: the address may be in use again."""

    def __enter__(self: _Self) -> _Self:
        if any(each is self for each in _hooks):
            raise ValueError("the hook is in use already: make another")
        _change((*_hooks, self))
        return self

    def __exit__(self, *error: object) -> None:
        _change(tuple(each for each in _hooks if each is not self))


_hooks: Tuple[MemoryHook, ...] = ()


def _change(hooks: Tuple[MemoryHook, ...]) -> None:
    global _hooks
    _hooks = hooks
    _core.hook_set(_call if hooks else None)


def _call(event: int, pool: Pool, nbytes: int, ptr: int) -> None:
    for hook in _hooks:
        if event == 0:
            hook.malloc_preprocess(pool, nbytes)
        elif event == 1:
            hook.malloc_postprocess(pool, nbytes, ptr)
        elif event == 2:
            hook.free_preprocess(pool, nbytes, ptr)
        else:
            hook.free_postprocess(pool, nbytes, ptr)
