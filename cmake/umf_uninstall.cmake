# Removes all that the last `cmake --install` of this build folder installed.
#
#   cmake -DMANIFEST=<build>/install_manifest.txt -P umf_uninstall.cmake
#
# Of the manifests only this one: those of single components may name files
# that the system's package manager owns. Folders that are ours alone go once they are empty.

if(NOT EXISTS "${MANIFEST}")
    message(FATAL_ERROR "Nothing was installed from this build folder: ${MANIFEST} is not there.")
endif()

set(stage "$ENV{DESTDIR}")
file(STRINGS "${MANIFEST}" files)
set(folders)
foreach(file IN LISTS files)
    if(EXISTS "${stage}${file}" OR IS_SYMLINK "${stage}${file}")
        message(STATUS "Removing ${stage}${file}")
        file(REMOVE "${stage}${file}")
    endif()
    cmake_path(GET file PARENT_PATH folder)
    while(folder MATCHES "/(include|cmake|doc)/(umf|umem)(/|$)")
        list(APPEND folders "${folder}")
        cmake_path(GET folder PARENT_PATH folder)
    endwhile()
endforeach()

list(REMOVE_DUPLICATES folders)
# The deeper ones are the longer ones, and come first in the reverse order of their names.
list(SORT folders ORDER DESCENDING)
foreach(folder IN LISTS folders)
    file(GLOB rest LIST_DIRECTORIES true "${stage}${folder}/*" "${stage}${folder}/.*")
    list(FILTER rest EXCLUDE REGEX "/\\.\\.?$")
    if(IS_DIRECTORY "${stage}${folder}" AND NOT rest)
        file(REMOVE_RECURSE "${stage}${folder}")
    endif()
endforeach()
