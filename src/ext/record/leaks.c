/* Live allocations at the end of a recording, and those of destroyed pools, by stack. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/meta.h"
#include "ext/record/recording.h"

#define STACKS_SHOWN 20u
#define FRAMES_SHOWN 16u
#define GROUPS 65536u

/* Allocations of one stack and pool. */
typedef struct group_t {
    uint64_t key;          /* the upper bits of umf_record_event_t::what */
    uint64_t count, bytes; /* count 0: not used */
} group_t;

typedef struct sums_t {
    group_t *groups; /* NULL: no memory */
    uint64_t count, bytes;
} sums_t;

static void add(const umf_record_event_t *item, void *arg) {
    sums_t *sums = arg;
    uint64_t key = item->what >> 16, hash = umf_record_hash(key);
    sums->count++;
    sums->bytes += item->size;
    for (uint64_t i = 0; sums->groups && i < GROUPS; i++) {
        group_t *group = &sums->groups[(hash + i) % GROUPS];
        if (group->count == 0 || group->key == key) {
            group->key = key;
            group->count++;
            group->bytes += item->size;
            return;
        }
    }
}

static group_t *largest(group_t *groups) {
    group_t *found = groups;
    for (group_t *group = groups; group < groups + GROUPS; group++) {
        found = group->bytes > found->bytes ? group : found;
    }
    return found->count > 0 ? found : NULL;
}

/* With a request by the environment there may be no log. */
__attribute__((format(printf, 2, 3))) static void say(const umf_recording_t *r, const char *format,
                                                      ...) {
    char line[512];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(line, sizeof(line) - 1, format, args);
    va_end(args);
    if (!r->by_environment) {
        UMF_LOG_WARN("%s", line);
    } else if (length > 0) {
        length = length < (int)sizeof(line) - 1 ? length : (int)sizeof(line) - 2;
        line[length] = '\n';
        ssize_t ignored = write(STDERR_FILENO, line, (size_t)length + 1);
        (void)ignored;
    }
}

static void say_frame(const umf_recording_t *r, unsigned number, uint64_t address) {
    uint64_t count = umf_record_count(r, UMF_RECORD_MODULES);
    for (uint64_t i = count; i-- > 0;) { /* the last that was mapped there */
        const umf_record_module_t *module = &r->modules[i];
        if (address - module->base < module->size) {
            int length;
            const char *path = umf_record_text_at(r, module->path, &length);
            say(r, "    #%-2u %.*s+0x%llx", number, length, path,
                (unsigned long long)(address - module->base + module->file_offset));
            return;
        }
    }
    say(r, "    #%-2u 0x%llx", number, (unsigned long long)address);
}

static void say_group(const umf_recording_t *r, const group_t *group) {
    uint32_t object = UMF_RECORD_EVENT_OBJECT(group->key << 16);
    uint32_t stack = UMF_RECORD_EVENT_STACK(group->key << 16);
    bool is_known = object != 0 && object < umf_record_count(r, UMF_RECORD_OBJECTS);
    say(r, "  %llu bytes in %llu allocations of pool %u (%.*s)", (unsigned long long)group->bytes,
        (unsigned long long)group->count, object, (int)sizeof(r->objects[object].name),
        is_known ? r->objects[object].name : "");
    uint64_t words = r->stacks ? umf_record_count(r, UMF_RECORD_STACKS) : 0;
    uint64_t frames = stack && stack < words ? r->stacks[stack] : 0;
    frames = frames < words - stack ? frames : 0;
    for (unsigned i = 0; i < frames && i < FRAMES_SHOWN; i++) {
        say_frame(r, i, r->stacks[stack + 1 + i]);
    }
}

static void say_groups(const umf_recording_t *r, group_t *groups) {
    group_t *group;
    unsigned shown = 0;
    while (shown < STACKS_SHOWN && (group = largest(groups)) != NULL) {
        say_group(r, group);
        group->bytes = group->count = 0;
        shown++;
    }
    if (shown == STACKS_SHOWN && largest(groups)) {
        say(r, "  and more, of other stacks");
    }
}

static void say_all(const umf_recording_t *r, const sums_t *sums, const char *end) {
    if (sums->count > 0) {
        say(r, "umf: %llu bytes in %llu allocations %s", (unsigned long long)sums->bytes,
            (unsigned long long)sums->count, end);
    }
    if (sums->groups) {
        say_groups(r, sums->groups);
    }
}

static void tell_live(umf_recording_t *r, group_t *groups) {
    sums_t sums = {.groups = groups};
    umf_record_live_each(r, false, add, &sums);
    say_all(r, &sums, "were not freed");
}

/* Items that other allocations have replaced are counted, without a stack. */
static void tell_ended(umf_recording_t *r, group_t *groups) {
    sums_t sums = {.groups = groups,
                   .count = atomic_load(&r->ended_count),
                   .bytes = atomic_load(&r->ended_bytes)};
    uint64_t replaced = sums.count;
    umf_record_live_each(r, true, add, &sums);
    say_all(r, &sums, "lived when their pools were destroyed");
    if (replaced > 0) {
        say(r, "  and %llu of them without a stack: 'umfctl leaks' finds it in the events",
            (unsigned long long)replaced);
    }
}

void umf_record_leaks_tell(umf_recording_t *r) {
    size_t size = GROUPS * sizeof(group_t);
    group_t *groups = umf_meta_alloc(size);
    tell_live(r, groups);
    uint64_t dropped = atomic_load(&r->live_dropped);
    if (dropped > 0) {
        say(r,
            "umf: %llu allocations had no room in the table of live allocations: a larger size "
            "of the recording has more",
            (unsigned long long)dropped);
    }
    if (!r->allows_ended) {
        if (groups) {
            memset(groups, 0, size);
        }
        tell_ended(r, groups);
    }
    umf_meta_free(groups, size);
}
