/*
 * The system behind a few primitives. Each is the system call of the same name with these promises:
 * it is retried on EINTR where that is right, returns 0 or an errno value (never sets meaning
 * through errno), and calls the fault hook first, so that a test can make the n-th call fail on any
 * path.
 */
#ifndef UMF_SRC_SYSTEM_OS_H
#define UMF_SRC_SYSTEM_OS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "system/atomic.h"
#include "system/common.h"

/* NULL in production. `call` is the name below without "umf_os_", or "meta_alloc" (base/meta.h),
 * "dl_open" or "dl_symbol" (base/dl.h). Returns 0 to let the call happen, or the errno value with
 * which it shall fail. */
typedef int (*umf_os_fault_t)(const char *call);
extern UMF_HIDDEN _Atomic(umf_os_fault_t) umf_os_fault;
void umf_os_set_fault(umf_os_fault_t fault);

/* The system's text for an errno value, without locks or allocation; `buffer` may be
 * used for it. */
const char *umf_os_error_text(int error, char *buffer, size_t size);

size_t umf_os_page_size(void);
size_t umf_os_cache_line_size(void); /* L1 data cache line; 64 if unknown */
size_t umf_os_cpu_count(void);       /* CPUs that are online at the first call */
size_t umf_os_memory(void);          /* bytes of the machine's memory */

/* Memory. `*addr` is the requested address on entry (NULL: any) and the actual one on success. */
int umf_os_map(void **addr, size_t size, int prot, int flags, int fd, size_t offset);
int umf_os_unmap(void *addr, size_t size);
/* Maps the same memory once more, with the same access; only of shared mappings, and not in all
 * emulators. */
int umf_os_map_again(void *addr, size_t size, void **again);
int umf_os_protect(void *addr, size_t size, int prot);
int umf_os_advise(void *addr, size_t size, int advice);
bool umf_os_knows_advice(int advice); /* false for systems that accept any, as some emulators do */
size_t umf_os_address_limit(void);    /* RLIMIT_AS; SIZE_MAX: none, 0: unknown */
/* EFAULT if the CPU cannot write to the 4 bytes at `addr`; if it can they are overwritten. */
int umf_os_probe_write(void *addr);
/* EFAULT if it cannot change the word that holds `addr`; nothing is changed */
int umf_os_probe_change(void *addr);
bool umf_os_is_mapped(uintptr_t addr, size_t size); /* all of it, with whatever access */
int umf_os_probe_read(void *addr); /* EFAULT if it cannot read the 8 bytes; nothing is changed */
/* The NUMA nodes that have memory and are allowed to the process. false: the system does not say.
 */
#define UMF_OS_NODE_WORDS 64 /* 4096 nodes; kernels are built for at most 1024 */
bool umf_os_nodes(unsigned long nodes[UMF_OS_NODE_WORDS]);
/* NUMA policy of a range; `mask` has `max_node` bits. ENODEV: a node does not exist. */
int umf_os_mbind(void *addr, size_t size, int mode, const unsigned long *mask,
                 unsigned long max_node);

/* Files. Descriptors are close-on-exec. */
int umf_os_open(const char *path, int flags, mode_t mode, int *fd);
int umf_os_close(int fd);
/* Those of an array that are not -1. Many adjacent numbers take one call, where the system has it
 * and no filter of system calls watches the process: some filters end it for a call that is new. */
void umf_os_close_many(const int *fds, unsigned count);
int umf_os_dup(int fd, int *copy);
/* Locks the open file until its last descriptor is closed. EWOULDBLOCK: another process has the
 * lock. */
int umf_os_flock(int fd);
int umf_os_unlock_file(int fd);
int umf_os_memfd(const char *name, bool secret, int *fd);
int umf_os_shm_open(const char *name, int flags, mode_t mode, int *fd); /* name without '/' */
int umf_os_shm_unlink(const char *name);
/* Makes an object without a name, and gives it its name when its content is complete. */
int umf_os_shm_make(mode_t mode, int *fd);
int umf_os_shm_link(int fd, const char *name);
/* Visits the name of every shared memory object until `visit` returns false. Objects created or
 * removed meanwhile may be missed. */
int umf_os_shm_each(bool (*visit)(const char *name, void *arg), void *arg);
int umf_os_truncate(int fd, uint64_t size);
int umf_os_punch(int fd, uint64_t offset, uint64_t size);
/* Reserves space for a range, so that a write cannot fail for lack of space. A shorter file grows;
 * it never shrinks, and its content stays. EOPNOTSUPP: the file system has no such call. */
int umf_os_allocate(int fd, uint64_t offset, uint64_t size);
/* Zeroes a range inside the file; its space stays. EOPNOTSUPP as above. */
int umf_os_zero(int fd, uint64_t offset, uint64_t size);
/* Makes a file at least `size` (not 0) bytes long, without space; never shrinks it. */
int umf_os_extend(int fd, uint64_t size);
/* Free bytes on the file system of an open file; UINT64_MAX if unknown. */
int umf_os_free_space(int fd, uint64_t *bytes);
int umf_os_add_seals(int fd, int seals);
/* Seals of a file that others get: it cannot be shortened, and no further seals can be added. */
#define UMF_OS_SEALS (F_SEAL_SHRINK | F_SEAL_SEAL)
/* Whether an anonymous file of another process keeps its length: 0, or EPERM. */
int umf_os_check_seals(int fd);
/* Whether an open file is made of huge pages. A mapping of it covers, and replaces, whole ones,
 * whatever size is asked for. true, too: not known. */
bool umf_os_is_huge(int fd);
/* Whether it is a file of this user that has no name. */
bool umf_os_is_own_unlinked(int fd);
int umf_os_read_at(int fd, void *buffer, size_t size,
                   uint64_t offset); /* EIO if the file is shorter */
int umf_os_write_at(int fd, const void *buffer, size_t size, uint64_t offset);
/* Content and size are on the disk afterwards, or the names of a folder. */
int umf_os_sync(int fd);
/* Identity and size of an open file. */
int umf_os_file_id(int fd, uint64_t *dev, uint64_t *ino, uint64_t *size);
/*
 * A file that is open. Device and inode distinguish it from all files that are open at the same
 * time. The time of its birth (0: unknown) distinguishes it from a later one that gets the same
 * inode. Process descriptors have one inode before Linux 6.9: there the last member is the process
 * (0: unknown).
 */
typedef struct umf_os_identity_t {
    uint64_t dev, ino, born, process;
} umf_os_identity_t;

int umf_os_identity(int fd, umf_os_identity_t *identity);
/* Whether both are of one file, as far as both are known. */
bool umf_os_is_identity(const umf_os_identity_t *a, const umf_os_identity_t *b);
/* Whether a number is open, and on that file. */
bool umf_os_has_identity(int fd, const umf_os_identity_t *identity);
/* 0 for a regular file; EISDIR for a folder, ENODEV for anything else. */
int umf_os_check_regular(int fd);
/* The kind of file at a path: 0: a regular file; ENOENT; EEXIST: anything else, such as a link or a
 * pipe. */
int umf_os_check_path(const char *path);
/* The next offset from `offset` on that is in no hole; `*end` is where the next hole begins.
 * UINT64_MAX: there is none. A file system without support for holes has none. */
uint64_t umf_os_next_data(int fd, uint64_t offset, uint64_t *end);
/* Whether it is a regular file of this process's user. */
bool umf_os_is_own_file(int fd);
int umf_os_getcwd(char *path, size_t size);
/* Changes the mode of a socket of this user; never that of another file under the name, also
 * through a symbolic link. ENOTSOCK, EPERM. */
int umf_os_chmod_socket(const char *path, mode_t mode);
/* EPERM for a folder to which all users may write, and whose files each of them may rename. */
int umf_os_check_shared_folder(const char *path);
int umf_os_fchmod(int fd, mode_t mode);
int umf_os_mkdir(const char *path, mode_t mode);
int umf_os_rename(const char *from, const char *to);
int umf_os_unlink(const char *path);
/* Seconds since a socket file was last changed; ENOTSOCK if it is anything else. */
int umf_os_socket_age(const char *path, uint64_t *seconds);
/* Calls `visit` for the entries of a folder until it returns false. */
int umf_os_each_entry(const char *path, bool (*visit)(const char *name, void *arg), void *arg);

/* DAX: files and devices whose memory is mapped directly. */
typedef struct umf_os_dax_t {
    uint64_t dev;   /* number of the device */
    uint64_t size;  /* in bytes; 0: unknown */
    uint64_t align; /* of offsets and sizes that can be mapped; 0: unknown */
} umf_os_dax_t;

/* Shared and synchronous; EOPNOTSUPP if the file is not DAX. As umf_os_map otherwise. */
int umf_os_map_sync(void **addr, size_t size, int prot, int flags, int fd, size_t offset);
int umf_os_dax_open(const char *path, int flags, int *fd);
/* ENODEV if it is not a character device. */
int umf_os_dax_info(int fd, umf_os_dax_t *info);
/* Whether the machine has a DAX device; ENOENT if not. */
int umf_os_dax_probe(void);
/*
 * For tests on machines without DAX: while `dir` is not NULL, /dev/<name> opens <dir>/<name>, a
 * regular file that is not empty counts as a device of its size, and any file can be mapped
 * synchronously. `dir` is kept, not copied.
 */
void umf_os_set_dax_dir(const char *dir);

/* A mapping of this process, as /proc/self/maps has it. */
typedef struct umf_os_region_t {
    uint64_t base, size;
    uint64_t offset;  /* in the file */
    bool is_code;     /* it can be executed */
    const char *path; /* "" if it has none */
} umf_os_region_t;

/* Visits all mappings by ascending address until `visit` returns false. `buffer` has room for a
 * line. Allocates nothing and takes no lock. */
int umf_os_each_region(char *buffer, size_t size,
                       bool (*visit)(const umf_os_region_t *mapping, void *arg), void *arg);
/* Reads memory of this process; an error if it is not there. Some sandboxes refuse it. */
int umf_os_read_memory(uint64_t address, void *buffer, size_t size);

/* Does the address lie in the heap of malloc that grows by brk? Such memory is there. */
bool umf_os_is_in_heap(uintptr_t addr, size_t size);
/* Is it in variables of the program itself? */
bool umf_os_is_in_data(uintptr_t addr, size_t size);

/* Processes. */
int umf_os_pid(void);
int umf_os_tid(void);
/* Whether this process has no thread of that number. */
bool umf_os_thread_has_ended(int tid);
uint32_t umf_os_user(void);
/* Whether a number that the kernel shows is that of this process's user. The number that stands for
 * all users without one in this namespace (overflowuid) belongs to no user there. */
bool umf_os_is_own_user(uint32_t uid);
/* Whether the process has rights that its starter has not (set-user-ID, set-group-ID, file
 * capabilities): the environment must not decide then. */
bool umf_os_is_privileged(void);
/* The rights of a process, as /proc shows them: ids are real, effective, saved, and that of the
 * file system; `depth` counts its pid namespaces. `process`: "self", "thread-self" or a number. */
typedef struct umf_os_rights_t {
    uint32_t uids[4], gids[4];
    uint64_t permitted, effective; /* capabilities, bits by number */
    unsigned depth;
} umf_os_rights_t;
int umf_os_rights(const char *process, umf_os_rights_t *rights);
/* Whether the process is in the user namespace of this one. false: also if that is not certain. */
bool umf_os_shares_users(const char *process);
bool umf_os_is_dumpable(void); /* processes of its user may ptrace it */
/* Makes every running thread of this process pass a full memory fence before it returns. The first
 * call may take milliseconds. false: the kernel has no such call, or refuses it. */
bool umf_os_fence_all(void);
/* Whether only threads of this library are left, and the first thread has ended. Each of them says
 * when it begins and ends. */
bool umf_os_is_last_thread(void);
void umf_os_own_thread_begins(void);
void umf_os_own_thread_ends(void);
/* Random bytes that cannot be guessed. */
int umf_os_random(void *bytes, size_t size);
/* Start time of a process in clock ticks since boot. ESRCH: it has ended, even if its exit status
 * is left. With the pid it identifies one process until the next boot. */
int umf_os_start_time(int pid, uint64_t *ticks);
/* A number derived from the kernel's boot id: it differs between boots and between machines. 0: the
 * id cannot be read. */
uint64_t umf_os_boot_id(void);
/* The TCP ports from which the kernel chooses that of a process which connects. false: unknown. */
bool umf_os_connecting_ports(unsigned *low, unsigned *high);
/* Whether this process runs under a system call filter. A refused call may be recorded, or end the
 * process. */
bool umf_os_has_filter(void);
/* Whether attaching to another process of this user is ordinary here: nothing restricts it (Yama),
 * and this process runs under no system call filter. */
bool umf_os_may_attach(void);
int umf_os_pidfd_open(int pid, int *fd);
int umf_os_pidfd_getfd(int pidfd, int target, int *fd);
/* A number that the kernel has given to no other process since boot. It is never UMF_OS_PIDFD_ID
 * itself, a bit that all of these numbers have and no start time has. ENOSYS: the kernel has no
 * such numbers (before Linux 6.9). */
#define UMF_OS_PIDFD_ID ((uint64_t)1 << 63)
int umf_os_pidfd_id(int pidfd, uint64_t *id);

#endif
