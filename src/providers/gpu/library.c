/* Libraries of drivers. */
#include "providers/gpu/library.h"

#include <stdio.h>

#include "base/dl.h"

void umf_gpu_library_load(umf_gpu_library_t *library) {
    char reason[256] = "";
    void *opened = umf_dl_find(library->name, reason, sizeof(reason));
    if (!opened) {
        snprintf(library->why, sizeof(library->why), "no %s: %s; %s", library->what, reason,
                 library->install);
        return;
    }
    const char *missing = library->fill(opened);
    if (missing) {
        snprintf(library->why, sizeof(library->why), "%.200s has no function %s: %s", library->name,
                 missing, library->update);
    }
    library->is_there = !missing;
}

bool umf_gpu_library_is_there(const umf_gpu_library_t *library, char *why, size_t why_size) {
    if (!library->is_there && why && why_size > 0) {
        snprintf(why, why_size, "%s", library->why);
    }
    return library->is_there;
}
