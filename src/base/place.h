/* Mapping memory at the right place: any alignment, and huge pages where they help. */
#ifndef UMF_SRC_BASE_PLACE_H
#define UMF_SRC_BASE_PLACE_H

#include "system/common.h"

/* `size` is in whole pages; `alignment` is 0, a divisor of the page size, or a multiple of it. The
 * memory is anonymous, private and zero. 0 or an errno value. */
int umf_os_place(size_t size, size_t alignment, int prot, void **ptr);

/* The same, without asking for huge pages. */
int umf_os_place_plain(size_t size, size_t alignment, int prot, void **ptr);

/* Whether memory that was placed plainly shall have huge pages: hints, from now on. */
void umf_os_place_small_pages(void *ptr, size_t size);
void umf_os_place_huge_pages(void *ptr, size_t size);

/* The same for a range of a file, shared. */
int umf_os_place_file(size_t size, size_t alignment, int prot, int fd, uint64_t offset, void **ptr);

/* Addresses alone: nothing else is mapped there, and nothing can be read or written. `size` and
 * `alignment` are as above. umf_os_unmap gives them back, also in parts. */
int umf_os_place_reserve(size_t size, size_t alignment, void **ptr);

/* `ptr` was given back: a good place for the next mapping of that size. */
void umf_os_place_freed(const void *ptr, size_t size);

#endif
