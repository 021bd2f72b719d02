/*
 * Common parts of the fuzz targets.
 *
 * Inputs come from chance: they may name files, shared memory, sizes of any kind. So a target works
 * in an empty folder of its own, opens no file outside of it and no shared memory, and its pools
 * stand on a provider with little memory.
 */
#ifndef UMF_TEST_FUZZ_SUPPORT_H
#define UMF_TEST_FUZZ_SUPPORT_H

#include <stddef.h>
#include <stdint.h>

#include <umf.h>

/* libFuzzer calls it for every input. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/*
 * Calls `run` with the input as text, in memory of exactly its size with the NUL, and cleans up.
 * Aborts when each of several runs leaves metadata of the library behind.
 */
void fuzz_run(const uint8_t *data, size_t size, void (*run)(char *text, size_t length));

/* Cuts the next line off the front of `*text`; NULL when nothing is left. */
char *fuzz_line(char **text);

/* A provider of 32 MiB. */
umf_memory_provider_handle_t fuzz_provider(void);

/* Uses a pool a little; what it gives must be usable and freeable. */
void fuzz_use_pool(umf_memory_pool_handle_t pool);

/* Prints the error and aborts. */
_Noreturn void fuzz_fail(const char *what);
#define FUZZ_CHECK(condition) ((condition) ? (void)0 : fuzz_fail(#condition))

#endif
