/* Names of shared heaps under /dev/shm. */
#ifndef UMF_LIB_PROXY_SHM_H
#define UMF_LIB_PROXY_SHM_H

#include <sys/types.h>

#define UMF_PROXY_SHM_NAME_SIZE 48

/* The name of a process's heap. Consumers of the memory use it. */
void umf_proxy_shm_name(pid_t pid, char name[UMF_PROXY_SHM_NAME_SIZE]);

/* Removes the names of killed processes. */
void umf_proxy_shm_sweep(void);

#endif
