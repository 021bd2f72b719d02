/*
 * A defect to put in front of the library: LD_PRELOAD=broken.so BROKEN=crash|hang.
 *
 * The first lookup of properties crashes or hangs. The file BROKEN_ONCE is made then, so that later
 * lookups, also those of other processes, reject it as foreign.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <umf/experimental/memory_properties.h>

umf_result_t umfGetMemoryPropertiesHandle(const void *ptr,
                                          umf_memory_properties_handle_t *props_handle) {
    (void)ptr, (void)props_handle;
    const char *once = getenv("BROKEN_ONCE"), *what = getenv("BROKEN");
    if (once && what && open(once, O_CREAT | O_EXCL | O_WRONLY, 0600) >= 0) {
        if (strcmp(what, "crash") == 0) {
            abort();
        }
        for (;;) {
            pause();
        }
    }
    return UMF_RESULT_ERROR_UNKNOWN;
}
