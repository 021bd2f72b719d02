/* Writes descriptions with fixed fields, behind plain functions: the headers are C11. */
#ifndef UMF_TEST_UNIT_HANDLE_BYTES_SHIM_H
#define UMF_TEST_UNIT_HANDLE_BYTES_SHIM_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SHIM_ROOM 1024

/* Each writes to a buffer of SHIM_ROOM bytes and returns the size of the description. */
size_t shim_write_os(const char *name, void *data);
size_t shim_write_vmm(void *data);
size_t shim_write_locator(const char *path, void *data);

#ifdef __cplusplus
}
#endif

#endif
