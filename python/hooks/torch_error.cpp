/*
 * Exceptions of c10, thrown without its headers or linking it: c10::Error is made by its exported
 * constructor, and thrown under the type that is wanted, whose classes add nothing to it.
 */
#include "torch_error.hpp"

#include <cstdint>
#include <cstring>
#include <cxxabi.h>
#include <dlfcn.h>
#include <stdexcept>
#include <typeinfo>

namespace {

struct source_location_t { /* c10::SourceLocation */
    const char *function, *file;
    uint32_t line;
};

using construct_t = void (*)(void *self, source_location_t where, std::string text);

constexpr size_t ERROR_SIZE = 1024; /* more than c10::Error has */
constexpr const char *CONSTRUCTOR =
    "_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE";

void *symbol(const char *library, const char *name) {
    void *handle = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    return handle ? dlsym(handle, name) : nullptr;
}

/* The first entry of its table of virtual functions. */
void destroy(void *error) {
    void (***functions)(void *) = static_cast<void (***)(void *)>(error);
    (*functions)[0](error);
}

/* Returns if the layout of this build of torch is unknown. */
void try_throw(const char *library, const char *type_name, const std::string &text) {
    void *found = symbol("libc10.so", CONSTRUCTOR);
    void *type = symbol(library, type_name);
    if (!found || !type) {
        return;
    }
    construct_t construct;
    memcpy(&construct, &found, sizeof(construct));
    void *error = abi::__cxa_allocate_exception(ERROR_SIZE);
    construct(error, {"umf_torch_process_malloc", "umf", 0}, text);
    abi::__cxa_throw(error, static_cast<std::type_info *>(type), destroy);
}

} // namespace

void throw_out_of_memory(const std::string &text) {
    try_throw("libc10_cuda.so", "_ZTIN3c1016OutOfMemoryErrorE", text);
    throw std::bad_alloc();
}

void throw_error(const std::string &text) {
    try_throw("libc10.so", "_ZTIN3c105ErrorE", text);
    throw std::runtime_error(text);
}
