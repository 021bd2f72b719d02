/* What records an address, behind a plain function: its header is C11 with atomics. */
#ifndef UMF_TEST_UNIT_IMPORT_SHIM_H
#define UMF_TEST_UNIT_IMPORT_SHIM_H

#ifdef __cplusplus
extern "C" {
#endif

const void *shim_descriptor_of(const void *ptr);

#ifdef __cplusplus
}
#endif

#endif
