# Links the Python sources of FROM into TO, which has the built libraries.
file(GLOB_RECURSE sources RELATIVE "${FROM}" "${FROM}/*.py" "${FROM}/*.pyi" "${FROM}/py.typed")
foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    file(MAKE_DIRECTORY "${TO}/${folder}")
    file(CREATE_LINK "${FROM}/${source}" "${TO}/${source}" SYMBOLIC)
endforeach()
