/* umfRemoteOpen for ext/fetch, which must end a wait. */
#ifndef UMF_SRC_EXT_REMOTE_OPEN_H
#define UMF_SRC_EXT_REMOTE_OPEN_H

#include <stdbool.h>

#include <umf/remote.h>

/* Calls `goes_on` in each slice of the wait. If it returns false, the result is USER_SPECIFIC. */
umf_result_t umf_remote_open_while(umf_remote_handle_t remote, const void *bytes, size_t size,
                                   uint64_t slice_ms, bool (*goes_on)(void *arg), void *arg,
                                   umf_remote_memory_handle_t *memory);

#endif
