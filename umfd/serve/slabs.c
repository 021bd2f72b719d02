/* Slabs that clients hand over. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "serve/content.h"

/* The memory file of a client becomes immutable, for as long as it exists. The
 * descriptor that is kept cannot write: kernels before 6.7 refuse to map others shared. */
static umf_vault_answer_t seal(int fd, uint64_t size, int *kept) {
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);
    int fixed = F_SEAL_SHRINK | F_SEAL_GROW;
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_size < 0 ||
        (uint64_t)about.st_size != size || seals == -1) {
        return UMF_VAULT_UNSEALED;
    }
    if (!(seals & F_SEAL_SEAL)) {
        if (fcntl(fd, F_ADD_SEALS, fixed | F_SEAL_WRITE | F_SEAL_SEAL) != 0) {
            return errno == EBUSY ? UMF_VAULT_WRITABLE : UMF_VAULT_UNSEALED;
        }
    } else if ((seals & (fixed | F_SEAL_WRITE)) != (fixed | F_SEAL_WRITE)) {
        return UMF_VAULT_UNSEALED;
    }
    char path[40];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    *kept = open(path, O_RDONLY | O_CLOEXEC);
    if (*kept == -1) {
        *kept = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    }
    return *kept == -1 ? UMF_VAULT_DESCRIPTORS : UMF_VAULT_OK;
}

/* The descriptor of a driver is a file of its device. The daemon has no driver, so readers find out
 * whether it is memory of that size. Sockets and pipes, which can hold other descriptors, are not
 * kept. */
umf_vault_answer_t umfd_device_keep(int fd, int *kept) {
    struct stat about;
    if (fstat(fd, &about) != 0 || (!S_ISCHR(about.st_mode) && !S_ISREG(about.st_mode))) {
        return UMF_VAULT_FOREIGN;
    }
    *kept = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return *kept == -1 ? UMF_VAULT_DESCRIPTORS : UMF_VAULT_OK;
}

/* The file of a copy. It has no seals: clients compare its sum whenever they read it. The
 * descriptor cannot write, and stays that of this file, whatever happens to its name. */
static umf_vault_answer_t keep_file(const umfd_context_t *c, const umf_vault_slab_t *given, int fd,
                                    int *kept) {
    struct stat about;
    umf_vault_copied_t copied;
    memcpy(&copied, given->device, sizeof(copied));
    if (fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != c->lease->uid ||
        (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY || about.st_size < 0) {
        return UMF_VAULT_UNSEALED;
    }
    uint64_t size = (uint64_t)about.st_size;
    if (copied.sum == 0 || (copied.offset != UMF_VAULT_NO_CONTENT &&
                            (given->size > size || copied.offset > size - given->size))) {
        return UMF_VAULT_INVALID;
    }
    *kept = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return *kept == -1 ? UMF_VAULT_DESCRIPTORS : UMF_VAULT_OK;
}

umf_vault_answer_t umfd_slab_room(const umfd_context_t *c, uint32_t vault, uint64_t size,
                                  umfd_slab_t **slab) {
    umfd_state_t *state = c->state;
    uint64_t limit = state->vaults[vault].limit;
    uint32_t place = 0;
    while (place < state->slab_top && atomic_load(&state->slabs[place].state) != UMFD_FREE) {
        place++;
    }
    c->words[0] = UMFD_SLABS;
    if (place == UMFD_SLABS) {
        return UMF_VAULT_FULL;
    }
    uint64_t used = umfd_bytes_of(state, vault);
    c->words[0] = limit;
    c->words[1] = used;
    if (limit && (used > limit || size > limit - used)) {
        return UMF_VAULT_LIMIT;
    }
    c->words[0] = c->daemon->open_limit;
    c->words[1] = c->daemon->open;
    if (c->daemon->open >= c->daemon->open_limit) {
        return UMF_VAULT_DESCRIPTORS;
    }
    *slab = &state->slabs[place];
    memset(*slab, 0, sizeof(**slab));
    (*slab)->vault = vault;
    (*slab)->size = size;
    return UMF_VAULT_OK;
}

umf_vault_answer_t umfd_slab_keep(const umfd_context_t *c, umfd_slab_t *slab, int kept) {
    umfd_state_t *state = c->state;
    uint32_t place = (uint32_t)(slab - state->slabs);
    slab->serial = ++state->serial;
    state->slab_top = place == state->slab_top ? place + 1 : state->slab_top;
    umfd_step();
    if (!umfd_keep_fd(c->daemon, UMFD_SLOT_SLAB + place, slab->serial, kept)) {
        close(kept);
        return UMF_VAULT_DESCRIPTORS;
    }
    c->daemon->slabs[place] = kept;
    c->daemon->open++;
    umfd_step();
    atomic_store(&slab->state, UMFD_LIVE);
    umfd_step();
    return UMF_VAULT_OK;
}

umf_vault_answer_t umfd_slab_add(const umfd_context_t *c, uint32_t generation, uint32_t ordinal,
                                 const umf_vault_slab_t *requested, int fd, uint64_t *serial) {
    const umfd_generation_t *of = &c->state->generations[generation];
    umfd_slab_t *slab;
    bool is_file = requested->kind == UMF_VAULT_KIND_FILE;
    umf_vault_answer_t answer = umfd_slab_room(c, of->vault, is_file ? 0 : requested->size, &slab);
    if (answer != UMF_VAULT_OK) {
        return answer;
    }
    int kept;
    answer = is_file                                    ? keep_file(c, requested, fd, &kept)
             : requested->kind == UMF_VAULT_KIND_DEVICE ? umfd_device_keep(fd, &kept)
                                                        : seal(fd, requested->size, &kept);
    if (answer != UMF_VAULT_OK) {
        return answer;
    }
    slab->size = requested->size;
    umfd_step();
    slab->role = requested->role;
    slab->kind = requested->kind;
    memcpy(slab->device, requested->device, sizeof(slab->device));
    slab->draft = of->number;
    slab->ordinal = ordinal;
    umfd_set_add(&slab->generations, generation);
    answer = umfd_slab_keep(c, slab, kept);
    *serial = slab->serial;
    return answer;
}

umf_vault_answer_t umfd_slab_again(const umfd_context_t *c, uint32_t place, int fd) {
    umfd_t *daemon = c->daemon;
    umfd_slab_t *slab = &c->state->slabs[place];
    c->words[0] = daemon->open_limit;
    c->words[1] = daemon->open;
    if (daemon->open >= daemon->open_limit) {
        return UMF_VAULT_DESCRIPTORS;
    }
    const umfd_vault_t *vault = &c->state->vaults[slab->vault];
    uint64_t used = umfd_bytes_of(c->state, slab->vault);
    if (vault->limit && (used > vault->limit || slab->size > vault->limit - used)) {
        c->words[0] = vault->limit;
        c->words[1] = used;
        return UMF_VAULT_LIMIT;
    }
    int kept;
    umf_vault_answer_t answer = umfd_device_keep(fd, &kept);
    if (answer != UMF_VAULT_OK) {
        return answer;
    }
    umfd_slab_close(daemon, place); /* the evicted memory, which may not be closed yet */
    umfd_step();
    if (!umfd_keep_fd(daemon, UMFD_SLOT_SLAB + place, slab->serial, kept)) {
        close(kept);
        return UMF_VAULT_DESCRIPTORS;
    }
    daemon->slabs[place] = kept;
    daemon->open++;
    umfd_step();
    slab->is_fresh = 1;
    slab->is_again = 1;
    atomic_store(&slab->state, UMFD_LIVE);
    umfd_step();
    return UMF_VAULT_OK;
}

void umfd_slab_close(umfd_t *daemon, uint32_t place) {
    umfd_forget_fd(daemon, UMFD_SLOT_SLAB + place, daemon->state->slabs[place].serial);
    umfd_step();
    if (daemon->slabs[place] != -1) {
        close(daemon->slabs[place]);
        daemon->slabs[place] = -1;
        daemon->open--;
    }
}
