/* Mapping memory with any alignment, and with huge pages where they help. */
#ifndef UMF_SRC_BASE_ALIGNED_MAP_H
#define UMF_SRC_BASE_ALIGNED_MAP_H

#include "system/common.h"

/* `size` is a multiple of the page size; `alignment` is 0, a divisor of the page size, or a
 * multiple of it. The memory is anonymous, private and zero. Returns 0 or an errno value. */
int umf_os_map_aligned(size_t size, size_t alignment, int prot, void **ptr);

/* The same, without a request for huge pages. */
int umf_os_map_aligned_plain(size_t size, size_t alignment, int prot, void **ptr);

/* Advise the kernel whether memory of umf_os_map_aligned_plain should have huge pages from now on.
 */
void umf_os_advise_small_pages(void *ptr, size_t size);
void umf_os_advise_huge_pages(void *ptr, size_t size);

/* Maps a range of a file, shared. */
int umf_os_map_aligned_file(size_t size, size_t alignment, int prot, int fd, uint64_t offset,
                            void **ptr);

/* Reserves addresses: nothing else is mapped there, and access faults. `size` and `alignment` are
 * as above. umf_os_unmap gives them back, also in parts. */
int umf_os_reserve_aligned(size_t size, size_t alignment, void **ptr);

/* Tells that `ptr` was unmapped: a good address for the next mapping of that size. */
void umf_os_map_freed(const void *ptr, size_t size);

#endif
