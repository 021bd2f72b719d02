#include "import_shim.h"

#include "track/span.h"

const void *shim_descriptor_of(const void *ptr) {
    return umf_span_find(&umf_map_global, (uintptr_t)ptr, NULL);
}
