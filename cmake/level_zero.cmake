# Headers of Level Zero, for the providers of its memory. Nothing is linked: the loader is found at
# run time.
#
# Sets UMF_HAVE_LEVEL_ZERO, and UMF_LEVEL_ZERO_INCLUDE_DIR to the folder of level_zero/ze_api.h: the
# one given, or that of the package libze-dev. UMF's own build takes the folder of ze_api.h itself, so
# that may be given, too.

set(UMF_HAVE_LEVEL_ZERO 0)
if(NOT UMF_BUILD_LEVEL_ZERO_PROVIDER)
    return()
endif()

if(NOT UMF_LEVEL_ZERO_INCLUDE_DIR)
    unset(UMF_LEVEL_ZERO_INCLUDE_DIR CACHE) # empty would pass for found
    find_path(UMF_LEVEL_ZERO_INCLUDE_DIR level_zero/ze_api.h
        DOC "Folder of level_zero/ze_api.h, or of ze_api.h")
else()
    set(UMF_LEVEL_ZERO_INCLUDE_DIR "${UMF_LEVEL_ZERO_INCLUDE_DIR}" CACHE PATH
        "Folder of level_zero/ze_api.h, or of ze_api.h")
endif()

# A folder with these headers alone, whichever of the two was given: /usr/include would come before the headers of a
# compiler that has its own C library.
set(umf_level_zero_headers "${UMF_LEVEL_ZERO_INCLUDE_DIR}")
if(NOT EXISTS "${umf_level_zero_headers}/ze_api.h")
    string(APPEND umf_level_zero_headers "/level_zero")
endif()
if(EXISTS "${umf_level_zero_headers}/ze_api.h")
    set(umf_level_zero_link "${PROJECT_BINARY_DIR}/level_zero_headers")
    file(MAKE_DIRECTORY "${umf_level_zero_link}")
    file(CREATE_LINK "${umf_level_zero_headers}" "${umf_level_zero_link}/level_zero" SYMBOLIC)
    set(UMF_LEVEL_ZERO_INCLUDE_DIR "${umf_level_zero_link}")
endif()

if(EXISTS "${UMF_LEVEL_ZERO_INCLUDE_DIR}/level_zero/ze_api.h")
    set(UMF_HAVE_LEVEL_ZERO 1)
elseif(UMF_BUILD_LEVEL_ZERO_PROVIDER STREQUAL "AUTO")
    message(STATUS "No level_zero/ze_api.h: the library is built without the Level Zero provider"
        " (scripts/install-deps.sh installs libze-dev, UMF_LEVEL_ZERO_INCLUDE_DIR names the folder)")
else()
    message(FATAL_ERROR "UMF_BUILD_LEVEL_ZERO_PROVIDER is ON and no level_zero/ze_api.h was found."
        " Run scripts/install-deps.sh, install libze-dev, or set UMF_LEVEL_ZERO_INCLUDE_DIR to the"
        " folder that has level_zero/ze_api.h.")
endif()
