# Refuses values that an option cannot have: if() would take "perhaps" for OFF and say nothing.

set(umf_truth "^([Oo][Nn]|[Oo][Ff][Ff]|[Tt][Rr][Uu][Ee]|[Ff][Aa][Ll][Ss][Ee]|[Yy][Ee][Ss]|[Nn][Oo]|[YyNn01]|)$")

get_cmake_property(umf_cache CACHE_VARIABLES)
list(FILTER umf_cache INCLUDE REGEX "^UMF_")
foreach(name IN LISTS umf_cache)
    get_property(umf_type CACHE ${name} PROPERTY TYPE)
    if(umf_type STREQUAL "BOOL" AND NOT "${${name}}" MATCHES "${umf_truth}")
        message(FATAL_ERROR "${name} is '${${name}}'; it can be ON or OFF.")
    endif()
endforeach()
foreach(name UMF_BUILD_CUDA_PROVIDER UMF_BUILD_LEVEL_ZERO_PROVIDER UMF_BUILD_PYTHON)
    if(NOT "${${name}}" STREQUAL "AUTO" AND NOT "${${name}}" MATCHES "${umf_truth}")
        message(FATAL_ERROR "${name} is '${${name}}'; it can be AUTO, ON or OFF.")
    endif()
endforeach()
