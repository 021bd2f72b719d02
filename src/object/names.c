#include "object/names.h"

#include <string.h>

#include "base/lock.h"
#include "base/log.h"
#include "ctl/text.h"
#include "object/object.h"
#include "system/os.h"
#include "system/pause.h"

static umf_lock_t names_lock;
static umf_list_t names_list; /* by age. Sync: names_lock */

/* The lock outlives teardown, because a pool may be destroyed later. */
void umf_names_init(void) {
    static bool ready;
    if (!ready) {
        umf_lock_init(&names_lock, UMF_RANK_POOLS);
        umf_list_init(&names_list);
        ready = true;
    }
}

static bool name_has(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

bool umf_name_is_valid(const char *name) {
    size_t length = 0;
    while (length <= UMF_NAMES_LENGTH && name_has(name[length])) {
        length++;
    }
    return length > 0 && length <= UMF_NAMES_LENGTH && name[length] == '\0';
}

static umf_memory_pool_handle_t pool_of(umf_list_t *link) {
    return UMF_CONTAINER_OF(link, struct umf_memory_pool_t, named.link);
}

void umf_names_add(const char *name, umf_memory_pool_handle_t pool) {
    if (!umf_name_is_valid(name)) {
        UMF_LOG_WARN(
            "pool name \"%s\" is not listed: by_name takes 1 to %d characters out of letters, "
            "digits, '_' and '-'",
            umf_text_show(name, strlen(name)).text, UMF_NAMES_LENGTH);
        return;
    }
    memcpy(pool->named.name, name, strlen(name) + 1);
    umf_lock(&names_lock);
    pool->named.listed = true;
    umf_list_add_tail(&names_list, &pool->named.link);
    umf_unlock(&names_lock);
}

static void pin_locked(umf_named_t *named) {
    umf_assert_locked(&names_lock);
    /* Pins of the parent mean nothing in a child of fork: their threads do not exist there. */
    int pid = umf_os_pid();
    if (named->pin_pid != pid) {
        named->pin_pid = pid;
        named->pins = 0;
    }
    named->pins++;
}

static void unpin_locked(umf_named_t *named) {
    umf_assert_locked(&names_lock);
    if (named->pin_pid == umf_os_pid()) {
        named->pins--;
    }
}

static bool is_pinned_locked(const umf_named_t *named) {
    umf_assert_locked(&names_lock);
    return named->pins && named->pin_pid == umf_os_pid();
}

void umf_names_remove(umf_memory_pool_handle_t pool) {
    umf_named_t *named = &pool->named;
    umf_lock(&names_lock);
    if (named->listed) {
        named->leaving = true; /* before the wait, so that no further query pins the pool */
        for (unsigned round = 0; is_pinned_locked(named); round++) {
            umf_unlock(&names_lock);
            umf_pause(round);
            umf_lock(&names_lock);
        }
        umf_list_remove(&named->link);
        named->listed = false;
    }
    umf_unlock(&names_lock);
}

/* The first usable pool of that name from `at` on, after `skip` others. */
static umf_memory_pool_handle_t find_locked(umf_list_t *at, const char *name, size_t skip) {
    umf_assert_locked(&names_lock);
    for (; at != &names_list; at = at->next) {
        umf_memory_pool_handle_t pool = pool_of(at);
        if (!pool->named.leaving && strcmp(pool->named.name, name) == 0 && skip-- == 0) {
            return pool;
        }
    }
    return NULL;
}

size_t umf_names_count(const char *name) {
    size_t count = 0;
    umf_lock(&names_lock);
    umf_memory_pool_handle_t pool = find_locked(names_list.next, name, 0);
    for (; pool; pool = find_locked(pool->named.link.next, name, 0)) {
        count++;
    }
    umf_unlock(&names_lock);
    return count;
}

umf_memory_pool_handle_t umf_names_get(const char *name, size_t index) {
    umf_lock(&names_lock);
    umf_memory_pool_handle_t pool = find_locked(names_list.next, name, index);
    if (pool) {
        pin_locked(&pool->named);
    }
    umf_unlock(&names_lock);
    return pool;
}

umf_memory_pool_handle_t umf_names_next(const char *name, umf_memory_pool_handle_t pinned) {
    umf_lock(&names_lock);
    umf_list_t *from = pinned ? pinned->named.link.next : names_list.next;
    umf_memory_pool_handle_t pool = find_locked(from, name, 0);
    if (pool) {
        pin_locked(&pool->named);
    }
    if (pinned) {
        unpin_locked(&pinned->named);
    }
    umf_unlock(&names_lock);
    return pool;
}

void umf_names_put(umf_memory_pool_handle_t pinned) {
    umf_lock(&names_lock);
    unpin_locked(&pinned->named);
    umf_unlock(&names_lock);
}
