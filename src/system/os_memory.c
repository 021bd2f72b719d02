/* The system: mappings of memory. See os.h. */

#include <errno.h>
#include <linux/futex.h>
#include <linux/mempolicy.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "system/os_own.h"

int umf_os_map(void **addr, size_t size, int prot, int flags, int fd, size_t offset) {
    int error = os_fault("map");
    off_t off;
    if (error != 0) {
        return error;
    }
    if (!os_to_off(offset, &off)) {
        return EOVERFLOW;
    }
    void *ptr = mmap(*addr, size, prot, flags, fd, off);
    if (ptr == MAP_FAILED) {
        return errno;
    }
    *addr = ptr;
    return 0;
}

int umf_os_unmap(void *addr, size_t size) {
    int error = os_fault("unmap");
    return error != 0 ? error : os_result(munmap(addr, size));
}

int umf_os_map_again(void *addr, size_t size, void **again) {
    int error = os_fault("map_again");
    if (error != 0) {
        return error;
    }
    void *made = mremap(addr, 0, size, MREMAP_MAYMOVE);
    if (made == MAP_FAILED) {
        return errno;
    }
    *again = made;
    return 0;
}

int umf_os_protect(void *addr, size_t size, int prot) {
    int error = os_fault("protect");
    return error != 0 ? error : os_result(mprotect(addr, size, prot));
}

size_t umf_os_address_limit(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) != 0) {
        return 0;
    }
    return limit.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)limit.rlim_cur;
}

int umf_os_advise(void *addr, size_t size, int advice) {
    int error = os_fault("advise");
    return error != 0 ? error : os_result(madvise(addr, size, advice));
}

/* No system has the advice -1. One that accepts it accepts anything. */
bool umf_os_knows_advice(int advice) {
    return umf_os_advise(NULL, 0, advice) == 0 && umf_os_advise(NULL, 0, -1) != 0;
}

/* Uses a system call that writes so many bytes and has no other effect. */
int umf_os_probe_write(void *addr) {
    int error = os_fault("probe_write");
    return error != 0 ? error : os_result(syscall(SYS_getcpu, addr, NULL, NULL));
}

/* Uses a system call that reads its argument before it refuses the unknown operation. */
int umf_os_probe_read(void *addr) {
    int error = os_fault("probe_read");
    if (error == 0) {
        error = os_result(syscall(SYS_rt_sigprocmask, -1, addr, NULL, sizeof(uint64_t)));
    }
    return error == EINVAL ? 0 : error;
}

/* Uses a system call that adds 0 to a word. */
int umf_os_probe_change(void *addr) {
    enum { ADD_NOTHING = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0) };
    uint32_t none = 0;
    int error = os_fault("probe_change");
    long result = error != 0
                      ? 0
                      : syscall(SYS_futex, &none, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, NULL,
                                umf_align_down((uintptr_t)addr, sizeof(uint32_t)), ADD_NOTHING);
    return error != 0 ? error : result < 0 ? errno : 0;
}

/* Uses a system call that looks at the pages of a mapping and has no effect. */
bool umf_os_is_mapped(uintptr_t addr, size_t size) {
    uintptr_t begin = umf_align_down(addr, umf_os_page_size());
    return msync((void *)begin, addr + size - begin, MS_ASYNC) == 0;
}

enum { OS_WORD_BITS = 8 * sizeof(unsigned long) };

bool umf_os_nodes(unsigned long nodes[UMF_OS_NODE_WORDS]) {
    memset(nodes, 0, UMF_OS_NODE_WORDS * sizeof(*nodes));
    return syscall(SYS_get_mempolicy, NULL, nodes, UMF_OS_NODE_WORDS * OS_WORD_BITS, NULL,
                   MPOL_F_MEMS_ALLOWED) == 0;
}

/* The kernel ignores nodes that do not exist, have no memory or are not allowed, if one other node
 * is valid. So the nodes are checked here. On a system that does not list its nodes all are
 * accepted. */
static bool os_has_nodes(const unsigned long *mask, unsigned long max_node) {
    unsigned long there[UMF_OS_NODE_WORDS], missing = 0;
    if (!mask || max_node > UMF_OS_NODE_WORDS * OS_WORD_BITS || !umf_os_nodes(there)) {
        return true;
    }
    for (unsigned long i = 0; i * OS_WORD_BITS < max_node; i++) {
        missing |= mask[i] & ~there[i];
    }
    return missing == 0;
}

int umf_os_mbind(void *addr, size_t size, int mode, const unsigned long *mask,
                 unsigned long max_node) {
    int error = os_fault("mbind");
    if (error != 0) {
        return error;
    }
    if (!os_has_nodes(mask, max_node)) {
        return ENODEV;
    }
    /* The kernel reads one bit less than `max_node` says. */
    return os_result(syscall(SYS_mbind, addr, size, mode, mask, mask ? max_node + 1 : 0, 0));
}
