/*
 * Providers of virtual memory for the tests of suspend and resume: how to make one, how to look at
 * its memory, how much of it there is.
 */
#ifndef UMF_TEST_FAKES_VMM_KINDS_H
#define UMF_TEST_FAKES_VMM_KINDS_H

#include <cstdio>
#include <cstring>
#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include <dirent.h>
#include <unistd.h>

#include <umf/memory_provider.h>
#include <umf/providers/provider_linux_vmm.h>

struct VmmKind {
    const char *name;
    bool has_peer; // memory of another device can keep content
    unsigned schedules;
    std::function<std::string()> start; // "" or why it cannot be tested here
    std::function<void()> stop;
    std::function<umf_memory_provider_handle_t(size_t piece_size)> create; // 0: the default
    std::function<void(void *to, const void *from, size_t size)> write;
    std::function<void(void *to, const void *from, size_t size)> read;
    std::function<size_t()> held;   // physical memory of providers, in any unit
    std::function<size_t()> pinned; // bytes of the host
};

inline std::ostream &operator<<(std::ostream &out, const VmmKind *kind) {
    return out << kind->name;
}

// Each piece with memory is one memory file.
inline size_t count_memory_files() {
    size_t count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (dirent *entry = folder ? readdir(folder) : nullptr) {
        char target[256] = "";
        std::string path = std::string("/proc/self/fd/") + entry->d_name;
        ssize_t length = readlink(path.c_str(), target, sizeof(target) - 1);
        count += length > 0 && strstr(target, "umf_vmm") != nullptr;
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

inline umf_memory_provider_handle_t create_linux_vmm(size_t piece_size) {
    umf_linux_vmm_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umfLinuxVmmMemoryProviderParamsCreate(&params);
    if (piece_size) {
        umfLinuxVmmMemoryProviderParamsSetPieceSize(params, piece_size);
    }
    umfMemoryProviderCreate(umfLinuxVmmMemoryProviderOps(), params, &provider);
    umfLinuxVmmMemoryProviderParamsDestroy(params);
    return provider;
}

inline std::vector<const VmmKind *> vmm_kinds() {
    static const VmmKind linux_vmm = {
        "linux_vmm",      false,  100,    [] { return std::string(); }, [] {},
        create_linux_vmm, memcpy, memcpy, count_memory_files,           [] { return size_t{0}; },
    };
    return {&linux_vmm};
}

#endif
