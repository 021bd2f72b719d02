# For programs in C and C++ over the library of the Python package:
#
#   cmake -DCMAKE_PREFIX_PATH=$(python -c 'import umf; print(umf.get_cmake_dir())') ...
#   find_package(umf CONFIG REQUIRED) and target_link_libraries(program PRIVATE umf::umf)
if(NOT TARGET umf::umf)
    get_filename_component(umf_package "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
    file(GLOB umf_library "${umf_package}/libumf*.so.1")
    add_library(umf::umf SHARED IMPORTED)
    set_target_properties(umf::umf PROPERTIES
        IMPORTED_LOCATION "${umf_library}"
        INTERFACE_INCLUDE_DIRECTORIES "${umf_package}/include")
endif()
