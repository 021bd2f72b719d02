/* The status of contexts, and the names of what there is. */
#include "umem/own.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

static const char *const status_names[] = {
    [umemOK] = "OK",
    [umemMemoryError] = "MemoryError",
    [umemRuntimeError] = "RuntimeError",
    [umemIOError] = "IOError",
    [umemValueError] = "ValueError",
    [umemTypeError] = "TypeError",
    [umemIndexError] = "IndexError",
    [umemNotImplementedError] = "NotImplementedError",
    [umemNotSupportedError] = "NotSupportedError",
    [umemAssertError] = "AssertError",
};

static const char *const device_names[] = {
    [umemVirtualDevice] = "Virtual",   [umemHostDevice] = "Host",
    [umemFileDevice] = "File",         [umemCudaDevice] = "Cuda",
    [umemCudaHostDevice] = "CudaHost", [umemCudaManagedDevice] = "CudaManaged",
    [umemMMapDevice] = "MMAP",         [umemRMMDevice] = "RMM",
};

static const char *name_of(const char *const *names, size_t count, unsigned type) {
    return type < count ? names[type] : NULL;
}

const char *umem_get_status_name(umemStatusType type) {
    return name_of(status_names, sizeof(status_names) / sizeof(*status_names), (unsigned)type);
}

const char *umem_get_device_name_from_type(umemDeviceType type) {
    return name_of(device_names, sizeof(device_names) / sizeof(*device_names), (unsigned)type);
}

static const char *name_or_none(umemStatusType type) {
    const char *name = umem_get_status_name(type);
    return name ? name : "(none)";
}

/* The old text, how the type changed, and the new text. NULL: no memory. */
static char *text_append(const umemStatus *old, umemStatusType type, const char *message) {
    char change[96] = "";
    if (old->type != type) {
        snprintf(change, sizeof(change), "\nstatus %s changed to %s", name_or_none(old->type),
                 name_or_none(type));
    }
    size_t size = strlen(old->message) + strlen(change) + strlen(message) + 2;
    char *text = malloc(size);
    if (text) {
        snprintf(text, size, "%s%s\n%s", old->message, change, message);
    }
    return text;
}

/* The message may be the status's own. Without memory for the new text the old one stays. */
void umem_set_status(void *const ctx, umemStatusType type, const char *message) {
    UMEM_KEEP_ERRNO;
    umemStatus *status = &((umemVirtual *)ctx)->status;
    char *text = NULL;
    if (message) {
        text = status->message ? text_append(status, type, message) : strdup(message);
    }
    status->type = type;
    if (text || !message) {
        free(status->message);
        status->message = text;
    }
}

void umem_clear_status(void *const ctx) {
    umem_set_status(ctx, umemOK, NULL);
}

void umem_format_status(void *const ctx, umemStatusType type, const char *format, ...) {
    UMEM_KEEP_ERRNO;
    char text[256];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    umem_set_status(ctx, type, length < 0 ? "" : text);
}

umemStatus umem_status_set_aside(umemVirtual *ctx) {
    umemStatus before = ctx->status;
    ctx->status = (umemStatus){umemOK, NULL};
    return before;
}

bool umem_status_put_back(umemVirtual *ctx, umemStatus before) {
    umemStatus added = ctx->status;
    ctx->status = before;
    if (added.type != umemOK) {
        umem_set_status(ctx, added.type, added.message);
    }
    free(added.message);
    return added.type == umemOK;
}
