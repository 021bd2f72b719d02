"""Shapes and types of tensors: notes of vault entries, and the heads of safetensors files."""

import json
import os
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

# Names of safetensors: bits of an element, and NumPy's name where it has the type.
_TYPES: Dict[str, Tuple[int, Optional[str]]] = {
    "BOOL": (8, "?"),
    "U8": (8, "<u1"),
    "I8": (8, "<i1"),
    "U16": (16, "<u2"),
    "I16": (16, "<i2"),
    "U32": (32, "<u4"),
    "I32": (32, "<i4"),
    "U64": (64, "<u8"),
    "I64": (64, "<i8"),
    "F16": (16, "<f2"),
    "F32": (32, "<f4"),
    "F64": (64, "<f8"),
    "C64": (64, "<c8"),
    "BF16": (16, None),
    "F8_E4M3": (8, None),
    "F8_E5M2": (8, None),
    "F8_E8M0": (8, None),
    "F4": (4, None),
    "F6_E2M3": (6, None),
    "F6_E3M2": (6, None),
}
# Codes of DLPack for types whose elements are whole bytes.
_DLPACK: Dict[str, int] = {
    **{f"I{bits}": 0 for bits in (8, 16, 32, 64)},
    **{f"U{bits}": 1 for bits in (8, 16, 32, 64)},
    **{f"F{bits}": 2 for bits in (16, 32, 64)},
    "BF16": 4,
    "C64": 5,
    "BOOL": 6,
    "F8_E4M3": 10,
    "F8_E5M2": 12,
    "F8_E8M0": 14,
}
_MOST_HEAD = 100_000_000  # bytes, as the format says


class Tensor(NamedTuple):
    """Type, by the name that safetensors has for it, and shape."""

    dtype: str
    shape: Tuple[int, ...]

    def nbytes(self) -> int:
        bits = _TYPES[self.dtype][0]
        for length in self.shape:
            bits *= length
        return -(-bits // 8)

    def dlpack(self) -> Optional[Tuple[int, int]]:
        """Code and bytes of an element; None: DLPack has none of whole bytes."""
        code = _DLPACK.get(self.dtype)
        return None if code is None else (code, _TYPES[self.dtype][0] // 8)

    def typestr(self) -> Optional[str]:
        """As ``__cuda_array_interface__`` names the type; None: it has no name there."""
        name = "|b1" if self.dtype == "BOOL" else _TYPES[self.dtype][1]
        return name.replace("<", "|") if name and name[-1] == "1" else name

    def note(self) -> bytes:
        return json.dumps({"dtype": self.dtype, "shape": self.shape}).encode()


def tensor_of(about: Any, what: str) -> Tensor:
    """The tensor that JSON describes. ValueError names the wrong member."""
    dtype, shape = (about.get("dtype"), about.get("shape")) if isinstance(about, dict) else (None, None)
    if not isinstance(dtype, str) or dtype not in _TYPES:
        raise ValueError(f"{what}: unknown type {dtype!r:.40}")
    if not isinstance(shape, list) or len(shape) > 64 or not all(type(n) is int and 0 <= n < 1 << 63 for n in shape):
        raise ValueError(f"{what}: its shape is no list of numbers: {shape!r:.80}")
    return Tensor(dtype, tuple(shape))


def tensor_of_note(note: bytes) -> Optional[Tensor]:
    """None: the note is another one."""
    try:
        return tensor_of(json.loads(note.decode()), "")
    except (ValueError, RecursionError):
        return None


def tensor_of_array(array: Any) -> Optional[Tensor]:
    """None: of another type."""
    found = array.dtype.newbyteorder("<") if array.dtype.byteorder == "=" else array.dtype
    for name, (_, numpy_name) in _TYPES.items():
        if numpy_name and found == numpy_name:
            return Tensor(name, array.shape)
    return None


def tensor_of_dlpack(code: int, bits: int, lanes: int, shape: Tuple[int, ...]) -> Optional[Tensor]:
    """None: of a type that has no name here."""
    for name, known in _DLPACK.items():
        if known == code and lanes == 1 and bits == _TYPES[name][0]:
            return Tensor(name, shape)
    return None


def tensor_of_interface(about: Dict[str, Any]) -> Tuple[int, Optional[Tensor]]:
    """Bytes and tensor of a ``__cuda_array_interface__``."""
    shape = tuple(about["shape"])
    for name in _TYPES:
        tensor = Tensor(name, shape)
        if about["typestr"] == tensor.typestr():
            return tensor.nbytes(), tensor
    return int(about["typestr"][2:]) * count_of(shape), None


def count_of(shape: Tuple[int, ...]) -> int:
    """Elements of a shape."""
    count = 1
    for length in shape:
        count *= length
    return count


def bytes_of_array(array: Any) -> Any:
    """The bytes of a NumPy array; a copy if it is not contiguous."""
    array = array if array.flags.c_contiguous else array.copy(order="C")
    return array.reshape(-1).view("uint8")


def numpy_name(dtype: str) -> str:
    """The name that NumPy has for a type. TypeError if there is none."""
    name = _TYPES[dtype][1]
    if name is None:
        raise TypeError(f"NumPy has no type {dtype}: name one of the same size, such as numpy('uint16')")
    return name


class Source(NamedTuple):
    """A tensor in an open file: `nbytes` bytes at `offset`."""

    name: str
    tensor: Tensor
    offset: int
    nbytes: int


def _unique(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is there twice")
    return found


def read_head(file: Any, path: str) -> Iterator[Source]:
    """The tensors of a safetensors file in the order of their bytes. ValueError if it is none."""
    total = os.fstat(file.fileno()).st_size
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or length > min(_MOST_HEAD, total - 8):
        raise ValueError(f"{path}: no safetensors file, its head would have {length} of {total} bytes")
    try:
        head = json.loads(file.read(length).decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: no safetensors file, its head is not read: {error}") from None
    if not isinstance(head, dict):
        raise ValueError(f"{path}: no safetensors file, its head is a {type(head).__name__}")
    begin, found = 8 + length, []
    for name, about in head.items():
        if name == "__metadata__":
            continue
        tensor = tensor_of(about, f"{path}: {name!r:.80}")
        place = about.get("data_offsets")
        if not isinstance(place, list) or len(place) != 2 or not all(type(n) is int for n in place):
            raise ValueError(f"{path}: {name!r:.80} has no place: {place!r:.80}")
        if place[1] - place[0] != tensor.nbytes():
            raise ValueError(f"{path}: {name!r:.80} of {tensor.nbytes()} bytes has {place[1] - place[0]}")
        found.append(Source(name, tensor, begin + place[0], tensor.nbytes()))
    found.sort(key=lambda one: (one.offset, one.nbytes))
    at = begin
    for one in found:
        if one.offset != at:
            raise ValueError(f"{path}: {one.name!r:.80} begins at byte {one.offset}, not at {at}")
        at += one.nbytes
    if at != total:
        raise ValueError(f"{path}: its tensors end at byte {at} of {total}")
    return iter(found)


def files_of(path: str) -> List[str]:
    """The file, or the safetensors files of a folder, by name."""
    if not os.path.isdir(path):
        return [path]
    names = sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
    if not names:
        raise FileNotFoundError(f"{path}: no file whose name ends in .safetensors")
    return [os.path.join(path, name) for name in names]


def fill_from(file: Any, address: int, nbytes: int, name: str) -> None:
    """Fills memory that the CPU does not reach."""
    from ._copy import copy  # which NumPy's part of this package does not need

    with memoryview(bytearray(min(nbytes, 16 << 20))) as part:
        at = 0
        while at < nbytes:
            got = file.readinto(part[: nbytes - at])
            if not got:
                raise ValueError(f"{name}: it has become shorter")
            copy(address + at, part[:got])
            at += got


def read_all(file: Any, memory: memoryview, name: str) -> None:
    """Fills the memory, and releases it."""
    with memory:
        at = 0
        while at < memory.nbytes:
            with memory[at : at + (64 << 20)] as part:
                got = file.readinto(part)
            if not got:
                raise ValueError(f"{name}: it has become shorter")
            at += got
