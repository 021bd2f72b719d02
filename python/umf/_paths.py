"""Folders of the package for programs in C and C++."""

import os  # pathlib takes longer to import than the package

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def _existing(name: str, what: str) -> str:
    path = os.path.join(_PACKAGE, name)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{what} are in wheels only; there is no {path}")
    return path


def get_include() -> str:
    """The folder of the C and C++ headers: ``-I``.

    Raises:
        FileNotFoundError: the package was not installed from a wheel.
    """
    return _existing("include", "headers")


def get_library() -> str:
    """The shared library, for a linker; programs find it by an rpath to its folder.

    Raises:
        FileNotFoundError: the package was not installed from a wheel.
    """
    return _existing("libumf_python.so.1", "libraries")


def get_cmake_dir() -> str:
    """The folder of ``umf-config.cmake``, for ``CMAKE_PREFIX_PATH``; its target is ``umf::umf``.

    Raises:
        FileNotFoundError: the package was not installed from a wheel.
    """
    return _existing("cmake", "files of CMake")
