/*
 * Wire: packing and checking of IPC handles.
 */
#include "ipc/wire.h"

#include <string.h>

#include "base/log.h"
#include "system/checksum.h"

#define WIRE_MAGIC 0x48464d55u /* "UMFH" */

enum {
    AT_MAGIC = 0,
    AT_VERSION = 4,
    AT_HEADER = 6,
    AT_TOTAL = 8,
    AT_PID = 12,
    AT_KIND = 16,
    AT_BOOT = 24,
    AT_START = 32,
    AT_BASE = 40,
    AT_SIZE = 48,
    AT_EXPORT = 56,
    AT_PID_NS = 64,
    AT_DATA_SIZE = 68,
    AT_DATA_SUM = 72,
    AT_OFFSET = 80,
    AT_SUM = 88,
};

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define wire_le16(v) (v)
#define wire_le32(v) (v)
#define wire_le64(v) (v)
#else
#define wire_le16(v) __builtin_bswap16(v)
#define wire_le32(v) __builtin_bswap32(v)
#define wire_le64(v) __builtin_bswap64(v)
#endif

static void wire_put16(void *handle, size_t at, uint16_t v) {
    v = wire_le16(v);
    memcpy((char *)handle + at, &v, sizeof(v));
}

static void wire_put32(void *handle, size_t at, uint32_t v) {
    v = wire_le32(v);
    memcpy((char *)handle + at, &v, sizeof(v));
}

static void wire_put64(void *handle, size_t at, uint64_t v) {
    v = wire_le64(v);
    memcpy((char *)handle + at, &v, sizeof(v));
}

static uint16_t wire_get16(const void *handle, size_t at) {
    uint16_t v;
    memcpy(&v, (const char *)handle + at, sizeof(v));
    return wire_le16(v);
}

static uint32_t wire_get32(const void *handle, size_t at) {
    uint32_t v;
    memcpy(&v, (const char *)handle + at, sizeof(v));
    return wire_le32(v);
}

static uint64_t wire_get64(const void *handle, size_t at) {
    uint64_t v;
    memcpy(&v, (const char *)handle + at, sizeof(v));
    return wire_le64(v);
}

static uint64_t wire_header_sum(uint64_t fixed_sum, uint64_t offset) {
    return fixed_sum + umf_sum_mix(offset + 1);
}

bool umf_wire_size(size_t data_size, size_t *size) {
    return umf_add(data_size, UMF_WIRE_HEADER, size) && *size <= UINT32_MAX;
}

uint64_t umf_wire_pack(const umf_wire_t *wire, void *handle) {
    wire_put32(handle, AT_MAGIC, WIRE_MAGIC);
    wire_put16(handle, AT_VERSION, UMF_WIRE_VERSION);
    wire_put16(handle, AT_HEADER, UMF_WIRE_HEADER);
    wire_put32(handle, AT_TOTAL, UMF_WIRE_HEADER + wire->data_size);
    wire_put32(handle, AT_PID, wire->pid);
    wire_put64(handle, AT_KIND, wire->kind);
    wire_put64(handle, AT_BOOT, wire->boot_id);
    wire_put64(handle, AT_START, wire->start_time);
    wire_put64(handle, AT_BASE, wire->base);
    wire_put64(handle, AT_SIZE, wire->size);
    wire_put64(handle, AT_EXPORT, wire->export_id);
    wire_put32(handle, AT_PID_NS, wire->pid_ns);
    wire_put32(handle, AT_DATA_SIZE, wire->data_size);
    wire_put64(handle, AT_DATA_SUM, umf_sum((char *)handle + UMF_WIRE_HEADER, wire->data_size));
    uint64_t fixed_sum = umf_wire_fixed_sum(handle);
    umf_wire_set_offset(handle, fixed_sum, wire->offset);
    return fixed_sum;
}

uint64_t umf_wire_fixed_sum(const void *handle) {
    return umf_sum(handle, UMF_WIRE_FIXED);
}

void umf_wire_set_offset(void *handle, uint64_t fixed_sum, uint64_t offset) {
    wire_put64(handle, AT_OFFSET, offset);
    wire_put64(handle, AT_SUM, wire_header_sum(fixed_sum, offset));
}

bool umf_wire_get_offset(const void *handle, uint64_t fixed_sum, uint64_t *offset) {
    *offset = wire_get64(handle, AT_OFFSET);
    return wire_get64(handle, AT_SUM) == wire_header_sum(fixed_sum, *offset);
}

static void wire_read(const void *handle, umf_wire_t *wire) {
    *wire = (umf_wire_t){
        .kind = wire_get64(handle, AT_KIND),
        .boot_id = wire_get64(handle, AT_BOOT),
        .start_time = wire_get64(handle, AT_START),
        .base = wire_get64(handle, AT_BASE),
        .size = wire_get64(handle, AT_SIZE),
        .export_id = wire_get64(handle, AT_EXPORT),
        .offset = wire_get64(handle, AT_OFFSET),
        .data_sum = wire_get64(handle, AT_DATA_SUM),
        .pid = wire_get32(handle, AT_PID),
        .pid_ns = wire_get32(handle, AT_PID_NS),
        .data_size = wire_get32(handle, AT_DATA_SIZE),
    };
}

/* Checks that this is a whole handle of this format. */
static umf_result_t wire_check_form(const void *handle, uint64_t *fixed_sum) {
    if (wire_get32(handle, AT_MAGIC) != WIRE_MAGIC) {
        UMF_LOG_ERROR(
            "these bytes are not an IPC handle (they begin with 0x%08x); give the bytes that "
            "umfGetIPCHandle made, unchanged",
            wire_get32(handle, AT_MAGIC));
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (wire_get16(handle, AT_VERSION) != UMF_WIRE_VERSION) {
        UMF_LOG_ERROR(
            "IPC handle of format %u, this library reads format %d; producer and consumer "
            "must use the same build of the library",
            (unsigned)wire_get16(handle, AT_VERSION), UMF_WIRE_VERSION);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    uint64_t offset, sum = umf_wire_fixed_sum(handle);
    if (!umf_wire_get_offset(handle, sum, &offset)) {
        UMF_LOG_ERROR("damaged IPC handle: wrong checksum of the header");
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *fixed_sum = sum;
    return UMF_RESULT_SUCCESS;
}

static bool wire_is_possible(const umf_wire_t *wire) {
    uint64_t end;
    return wire->pid != 0 && wire->export_id != 0 && wire->base != 0 && wire->offset < wire->size &&
           wire->size <= PTRDIFF_MAX && !__builtin_add_overflow(wire->base, wire->size, &end) &&
           end <= UINTPTR_MAX;
}

umf_result_t umf_wire_check(const void *handle, size_t data_limit, umf_wire_t *wire) {
    uint64_t fixed_sum;
    umf_result_t result = wire_check_form(handle, &fixed_sum);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umf_wire_t read;
    wire_read(handle, &read);
    read.fixed_sum = fixed_sum;
    uint32_t total = wire_get32(handle, AT_TOTAL);
    if (wire_get16(handle, AT_HEADER) != UMF_WIRE_HEADER || total < UMF_WIRE_HEADER ||
        total - UMF_WIRE_HEADER != read.data_size || read.data_size > data_limit) {
        UMF_LOG_ERROR(
            "IPC handle with impossible lengths: header %u, data %u (at most %zu), total %u",
            (unsigned)wire_get16(handle, AT_HEADER), read.data_size, data_limit, total);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    if (!wire_is_possible(&read)) {
        UMF_LOG_ERROR("IPC handle with impossible content: offset %llu in %llu bytes at 0x%llx, "
                      "process %u, export %llu",
                      (unsigned long long)read.offset, (unsigned long long)read.size,
                      (unsigned long long)read.base, read.pid, (unsigned long long)read.export_id);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *wire = read;
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_wire_check_data(const umf_wire_t *wire, const void *data) {
    if (umf_sum(data, wire->data_size) != wire->data_sum) {
        UMF_LOG_ERROR("damaged IPC handle: wrong checksum of the %u bytes of provider data",
                      wire->data_size);
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    return UMF_RESULT_SUCCESS;
}

uint32_t umf_wire_hint(const void *handle) {
    return (uint32_t)wire_get64(handle, AT_EXPORT) + wire_get32(handle, AT_PID) * 0x9e3779b1u;
}

uint64_t umf_wire_name_hash(const char *name) {
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *name; name++) {
        hash = (hash ^ (unsigned char)*name) * 0x100000001b3u;
    }
    return hash ? hash : 1;
}
