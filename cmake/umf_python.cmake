# The Python package: whether it is built, and by which Python. Nothing is linked to it; one build serves CPython
# 3.9 and all newer ones.
#
# Sets UMF_HAVE_PYTHON, and UMF_PYTHON_MISSING to why it is 0.

set(UMF_HAVE_PYTHON 0)
set(UMF_PYTHON_MISSING "UMF_BUILD_PYTHON is OFF")
if(NOT UMF_BUILD_PYTHON)
    return()
endif()

if(UMF_BUILD_PYTHON STREQUAL "AUTO")
    if(NOT PROJECT_IS_TOP_LEVEL OR NOT UMF_BUILD_TESTS OR CMAKE_CROSSCOMPILING OR UMF_SANITIZED
            OR UMF_USE_COVERAGE OR NOT UMF_BUILD_SHARED_LIBRARY)
        set(UMF_PYTHON_MISSING "the package is for builds of a shared library for this machine, without sanitizers")
        return()
    endif()
    find_package(Python 3.9 QUIET COMPONENTS Interpreter Development.Module)
    if(NOT Python_Development.Module_FOUND)
        set(UMF_PYTHON_MISSING "no Python 3.9 or newer with its headers was found (Debian: python3-dev)")
        return()
    endif()
else()
    find_package(Python 3.9 REQUIRED COMPONENTS Interpreter Development.Module)
    if(NOT UMF_BUILD_SHARED_LIBRARY)
        message(FATAL_ERROR "UMF_BUILD_PYTHON needs UMF_BUILD_SHARED_LIBRARY=ON: the package and its hooks share"
            " one libumf.so.1")
    endif()
endif()
set(UMF_HAVE_PYTHON 1)
set(UMF_PYTHON_MISSING "")
