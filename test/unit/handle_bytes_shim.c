#include "handle_bytes_shim.h"

#include <string.h>

#include <umf/plugin.h>

#include "providers/file/locator.h"
#include "providers/os/handle.h"
#include "providers/vmm/handle.h"
#include "providers/vmm/own.h"

static umf_fd_ticket_t ticket_of(uint8_t first) {
    return (umf_fd_ticket_t){
        .boot_id = 0x0102030405060700 + first,
        .start_time = 0x1112131415161718,
        .dev = 0x2122232425262728,
        .ino = 0x3132333435363738,
        .born = 0x393a3b3c3d3e3f40,
        .pid = 0x41424344,
        .pid_ns = 0x45464748,
        .fd = 0x51525354,
        .version = UMF_TICKET_VERSION,
        .address_kind = 0x5758,
        .broker = {0x6162636465666768, 0x7172737475767778},
        .secret = {0x8182838485868788, 0x9192939495969798},
        .export_id = 0xa1a2a3a4a5a6a7a8,
    };
}

size_t shim_write_os(const char *name, void *data) {
    umf_os_handle_t handle = {
        .ticket = ticket_of(1),
        .offset = 0x0000000000100000,
        .size = 0x0000000000230000,
        .generation = 0xb1b2b3b4b5b6b7b8,
        .slot = 0x00000104,
        .header_size = 0x00100000,
        .protection = UMF_PROTECTION_READ | UMF_PROTECTION_WRITE,
        .visibility = UMF_MEM_MAP_SHARED,
        .name_length = (uint32_t)strlen(name),
    };
    umf_os_handle_write(&handle, name, data);
    return UMF_OS_HANDLE_SIZE;
}

size_t shim_write_vmm(void *data) {
    static const umf_vmm_backend_t ops = {.kind = 0x0203};
    umf_vmm_t vmm = {.ops = &ops};
    umf_vmm_handle_t handle = {
        .piece = ticket_of(2),
        .board = ticket_of(3),
        .piece_size = 0x0000000000400000,
        .offset = 0x0000000000200000,
        .size = 0x0000000000100000,
        .granule = 0x0000000000010000,
        .generation = 0xc1c2c3c4c5c6c7c8,
        .word = 0xd1d2d3d4,
        .maker = 0xe1e2e3e4,
        .piece_id = 0xf1f2f3f4f5f6f7f8,
    };
    for (size_t i = 0; i < sizeof(handle.token); i++) {
        handle.token[i] = (unsigned char)(i + 1);
    }
    umf_vmm_handle_write(&vmm, &handle, data);
    return sizeof(handle);
}

size_t shim_write_locator(const char *path, void *data) {
    umf_locator_t locator = {
        .kind = UMF_LOCATOR_DEVICE,
        .dev = 0x2122232425262728,
        .ino = 0x3132333435363738,
        .offset = 0x0000000000300000,
        .size = 0x0000000000123456,
        .granule = 0x0000000000200000,
        .protection = UMF_PROTECTION_READ,
        .visibility = UMF_MEM_MAP_SHARED,
    };
    umf_locator_write(&locator, path, data);
    return umf_locator_size(path);
}
