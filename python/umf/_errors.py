"""Results of the library as exceptions."""

from typing import Dict, Type


class Error(RuntimeError):
    """A call of the library failed.

    Attributes:
        code: the ``umf_result_t`` as a number.
        name: its name in the headers, "UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY".
        text: the reason in words; the message of the driver, if there is one.
        missing: bytes of memory that were missing for a resume; 0 if that is not known.
        reason: for programs, the name of its ``umf_reason_t``, "UMF_REASON_STALE"; "" if it has none.
    """

    def __init__(
        self,
        message: str,
        code: int = 0x7FFFFFFE,
        name: str = "",
        text: str = "",
        missing: int = 0,
        reason: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.text = text
        self.missing = missing
        self.reason = reason

    def __reduce__(self) -> "tuple[object, ...]":
        return type(self), (str(self), self.code, self.name, self.text, self.missing, self.reason)


class OutOfMemoryError(Error, MemoryError):
    """There is no memory, of the host or of a device."""


class ProviderError(Error):
    """A driver or the system failed; ``text`` is its message."""


class InvalidArgumentError(Error, ValueError):
    """An argument does not fit; ``text`` names it and a right one."""


class InvalidAlignmentError(InvalidArgumentError):
    """The alignment cannot be honoured."""


class NotSupportedError(Error):
    """The operation is not there, for this kind or in this build."""


class CallbackError(Error):
    """A callback of the program refused."""


class DependencyError(Error):
    """A library that is found at run time, such as a driver, is missing."""


class OutOfResourcesError(Error):
    """Something is in use or suspended, or a limit is reached."""


class InvalidPathError(Error, KeyError):
    """There is no such setting or counter."""

    __str__ = RuntimeError.__str__


_BY_CODE: Dict[int, Type[Error]] = {
    1: OutOfMemoryError,
    2: ProviderError,
    3: InvalidArgumentError,
    4: InvalidAlignmentError,
    5: NotSupportedError,
    6: CallbackError,
    7: DependencyError,
    8: OutOfResourcesError,
    9: InvalidPathError,
}


def make(code: int, what: str, name: str, meaning: str, text: str, missing: int, reason: str = "") -> Error:
    """The exception for a result of the library."""
    text = text or meaning
    message = f"{what}: {text}"
    if missing:
        message += f" ({missing} bytes are missing)"
    return _BY_CODE.get(code, Error)(message, code, name, text, missing, reason)
