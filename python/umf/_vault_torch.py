"""Tensors of PyTorch in vaults: entries, and the parameters and buffers of a module."""

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch

from . import _core
from ._tensors import Tensor, count_of

if TYPE_CHECKING:
    from .vault import Draft, Entry, View

_NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
}
_TYPES: Dict[str, Any] = {
    name: getattr(torch, there) for name, there in _NAMES.items() if hasattr(torch, there)
}
_OF_TORCH = {there: name for name, there in _TYPES.items()}


class _Bytes:
    """The bytes of an entry, for ``torch.from_dlpack``: torch has no read-only tensors in any version."""

    def __init__(self, entry: "Entry") -> None:
        self._entry = entry

    def __dlpack_device__(self) -> Tuple[int, int]:
        return self._entry.__dlpack_device__()

    def __dlpack__(self, *, max_version: Optional[Tuple[int, int]] = None, **ignored: Any) -> object:
        return self._entry._capsule(None, max_version is not None and max_version[0] >= 1)


def tensor_of_entry(entry: "Entry") -> Any:
    found = torch.from_dlpack(_Bytes(entry))
    about = entry.tensor
    if about is None:
        return found
    if about.dtype not in _TYPES:
        raise TypeError(f"{entry.key!r}: this PyTorch has no type {about.dtype}")
    if about.nbytes() > entry.nbytes:
        raise ValueError(f"{entry.key!r}: its note is of {about.nbytes()} bytes, it has {entry.nbytes}")
    return found[: about.nbytes()].view(_TYPES[about.dtype]).reshape(about.shape)


def _about(key: str, tensor: Any) -> Tensor:
    if tensor.layout is not torch.strided or tensor.is_meta or tensor.dtype not in _OF_TORCH:
        raise TypeError(f"{key!r}: no tensor that a vault can keep: {tensor.dtype}, {tensor.layout}, {tensor.device}")
    return Tensor(_OF_TORCH[tensor.dtype], tuple(tensor.shape))


def put_tensor(
    draft: "Draft", key: str, tensor: Any, note: Optional[bytes], private: bool, device: Any
) -> "Entry":
    about = _about(key, tensor)
    with draft._call() as number:
        note = about.note() if note is None else note
        entry = draft._make(number, key, max(1, about.nbytes()), note, 1 if private else 0, device)
        if about.nbytes():
            rows = torch.from_dlpack(_Bytes(entry))
            with torch.no_grad():
                rows[: about.nbytes()].view(tensor.dtype).reshape(about.shape).copy_(tensor)
            del rows
        draft._put(number, entry)
    return entry


class _Place(NamedTuple):
    """A parameter or buffer of a module."""

    name: str
    owner: Any
    member: str
    tensor: Any
    is_parameter: bool


def _places(module: Any, prefix: str) -> Iterator[_Place]:
    """Those of all modules in it, under each of their names."""
    for path, owner in module.named_modules(remove_duplicate=False):
        for member, tensor in owner._parameters.items():
            if tensor is not None:
                yield _Place(f"{prefix}{path}.{member}" if path else prefix + member, owner, member, tensor, True)
        for member, tensor in owner._buffers.items():
            if tensor is not None:
                yield _Place(f"{prefix}{path}.{member}" if path else prefix + member, owner, member, tensor, False)


def put_module(draft: "Draft", module: Any, prefix: str, device: Any) -> int:
    places = list(_places(module, prefix))
    for place in places:  # before anything is copied
        _about(place.name, place.tensor)
    entries: Dict[int, "Entry"] = {}
    for place in places:
        known = entries.get(id(place.tensor))
        if known is None:
            tensor = place.tensor.detach()
            entries[id(place.tensor)] = put_tensor(draft, place.name, tensor, None, not place.is_parameter, device)
        else:
            with draft._call() as number:
                _core.vault_put(
                    number, place.name.encode("utf-8", "surrogateescape"), known.ptr, known.nbytes, known.note, known.flags
                )
    return len(places)


def _missing(names: List[str]) -> KeyError:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return KeyError(f"the view has no entry {', '.join(names[:3])}{more}")


def _tensor_for(place: _Place, entry: "Entry") -> Any:
    about, wanted = entry.tensor, place.tensor
    if about is None or _TYPES.get(about.dtype) != wanted.dtype or about.shape != tuple(wanted.shape):
        found = "bytes" if about is None else f"{about.dtype} {list(about.shape)}"
        raise ValueError(f"{place.name!r}: the module has {wanted.dtype} {list(wanted.shape)}, the view {found}")
    if count_of(about.shape) == 0:
        return torch.empty(about.shape, dtype=wanted.dtype)
    return tensor_of_entry(entry)


def fill_module(view: "View", module: Any, prefix: str) -> Any:
    places = list(_places(module, prefix))
    made: Dict[Tuple[int, bool], Any] = {}  # by address: one tensor for all names of a memory
    of_old: Dict[int, Any] = {}  # by the tensor that it replaces
    absent = []
    for place in places:
        entry = view.get(place.name)
        if entry is None:
            absent.append(place)
            continue
        found = _tensor_for(place, entry)
        key = entry.ptr, place.is_parameter
        if key not in made:
            if entry.private and not place.is_parameter:
                found = found.clone()  # other modules of the view have the same pages
            made[key] = torch.nn.Parameter(found, requires_grad=False) if place.is_parameter else found
        elif made[key].shape != found.shape:
            raise ValueError(f"{place.name!r}: another name of the memory has another shape")
        of_old[id(place.tensor)] = made[key]
    missing = [
        one.name for one in absent if id(one.tensor) not in of_old and (one.is_parameter or one.tensor.is_meta)
    ]
    if missing:
        raise _missing(missing)
    for place in places:
        new = of_old.get(id(place.tensor))
        if new is not None:
            (place.owner._parameters if place.is_parameter else place.owner._buffers)[place.member] = new
    return module
