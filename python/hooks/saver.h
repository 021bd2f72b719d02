/*
 * The memory saver: allocations with tags that are paused and resumed together, and what each
 * thread has configured for those that it is about to make. Behind both hooks of
 * torch_memory_saver.
 *
 * All functions are thread-safe. Those that return an int return 0 on success; otherwise
 * saver_error has the reason.
 */
#ifndef UMF_PYTHON_HOOKS_SAVER_H
#define UMF_PYTHON_HOOKS_SAVER_H

#include "backup.h"

enum { SAVER_TAG_SIZE = 256 };

/* Of one thread. A thread that sets nothing has the values of the environment. */
typedef struct saver_config_t {
    bool is_read; /* from the environment */
    bool is_interesting;
    bool has_cpu_backup;
    bool has_disk_backup;
    backup_kind_t cpu_kind;
    char tag[SAVER_TAG_SIZE];
} saver_config_t;

saver_config_t *saver_config(void);

/* Of the process. */
void saver_set_margin(uint64_t bytes);
void saver_set_retain(bool retain);
bool saver_get_retain(void);
void saver_set_folder(const char *folder);

/* NULL if there is no memory. Tag and kind are those of the thread. */
void *saver_malloc(size_t size, int device);
/* False if it is no allocation of the saver. */
bool saver_free(void *ptr);
int saver_pause(const char *tag);
int saver_resume(const char *tag);
/* Where the content of `size` bytes is kept in memory of the host; NULL if it is not. */
uint8_t *saver_backup_of(const uint8_t *ptr, uint64_t size);

typedef enum saver_state_t {
    SAVER_UNKNOWN,
    SAVER_AWAKE,
    SAVER_PAUSED_LOST, /* without a backup */
    SAVER_PAUSED_HOST,
    SAVER_PAUSED_DISK,
} saver_state_t;

saver_state_t saver_state_of(const void *ptr);
/* Why the last call of this thread failed; "" if none did. */
const char *saver_error(void);

#endif
