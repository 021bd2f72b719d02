"""Folders of the package for programs in C and C++."""

from pathlib import Path

_PACKAGE = Path(__file__).parent


def _existing(path: Path, what: str) -> str:
    if not path.exists():
        raise FileNotFoundError(f"{what} are in wheels only; there is no {path}")
    return str(path)


def get_include() -> str:
    """The folder of the C and C++ headers: ``-I``.

    Raises:
        FileNotFoundError: the package was not installed from a wheel.
    """
    return _existing(_PACKAGE / "include", "headers")


def get_library() -> str:
    """The shared library, for a linker; programs find it by an rpath to its folder.

    Raises:
        FileNotFoundError: the package was not installed from a wheel.
    """
    return _existing(_PACKAGE / "libumf_python.so.1", "libraries")


def get_cmake_dir() -> str:
    """The folder of ``umf-config.cmake``, for ``CMAKE_PREFIX_PATH``; its target is ``umf::umf``.

    Raises:
        FileNotFoundError: the package was not installed from a wheel.
    """
    return _existing(_PACKAGE / "cmake", "files of CMake")
