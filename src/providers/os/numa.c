/*
 * NUMA placement by mbind. The policy is set on memory that was not touched yet, so no page has to
 * move.
 *
 * Nodes have the kernel's numbers. A node that does not exist is noticed when memory is bound to
 * it, and in a text at creation, too.
 */
#include "providers/os/numa.h"

#include <errno.h>
#include <limits.h>
#include <linux/mempolicy.h>
#include <stdio.h>
#include <string.h>

#include "base/last_error.h"
#include "base/log.h"
#include "base/meta.h"
#include "system/os.h"

/* Since Linux 5.15; not in all headers. */
#define NUMA_PREFERRED_MANY 5

#define NUMA_WORD_BITS (CHAR_BIT * sizeof(unsigned long))
#define NUMA_MASK_BITS (UMF_OS_NODE_WORDS * NUMA_WORD_BITS)

typedef struct numa_mask_t {
    unsigned long words[UMF_OS_NODE_WORDS];
    unsigned long bits; /* highest node + 1 */
} numa_mask_t;

static const char *const numa_mode_names[] = {
    [UMF_NUMA_MODE_DEFAULT] = "default",       [UMF_NUMA_MODE_BIND] = "bind",
    [UMF_NUMA_MODE_INTERLEAVE] = "interleave", [UMF_NUMA_MODE_PREFERRED] = "preferred",
    [UMF_NUMA_MODE_SPLIT] = "split",           [UMF_NUMA_MODE_LOCAL] = "local",
};

/* --- checks at creation ----------------------------------------------------------------------- */

static bool numa_list_fits_mode(const umf_os_params_t *params) {
    bool fits;
    switch (params->numa_mode) {
    case UMF_NUMA_MODE_DEFAULT:
    case UMF_NUMA_MODE_LOCAL:
        fits = params->numa_list_len == 0;
        break;
    case UMF_NUMA_MODE_BIND:
    case UMF_NUMA_MODE_INTERLEAVE:
    case UMF_NUMA_MODE_SPLIT:
        fits = params->numa_list_len != 0;
        break;
    case UMF_NUMA_MODE_PREFERRED:
        return true;
    default:
        UMF_LOG_ERROR("NUMA mode %d does not exist", (int)params->numa_mode);
        return false;
    }
    if (!fits) {
        UMF_LOG_ERROR("NUMA mode \"%s\" needs %s list of nodes; this one has %u",
                      numa_mode_names[params->numa_mode], params->numa_list_len ? "an empty" : "a",
                      params->numa_list_len);
    }
    return fits;
}

static bool numa_list_has(const umf_os_params_t *params, unsigned node) {
    for (unsigned i = 0; i < params->numa_list_len; i++) {
        if (params->numa_list[i] == node) {
            return true;
        }
    }
    return false;
}

static bool numa_partitions_are_valid(const umf_os_params_t *params) {
    for (unsigned i = 0; i < params->partitions_len; i++) {
        const umf_numa_split_partition_t *partition = &params->partitions[i];
        if (partition->weight == 0 || !numa_list_has(params, partition->target)) {
            UMF_LOG_ERROR(
                "partition %u has weight %u and target %u: the weight must be above 0, the "
                "target in the list of nodes",
                i, partition->weight, partition->target);
            return false;
        }
    }
    return true;
}

static bool numa_part_size_round(const umf_os_params_t *params, size_t page_size,
                                 size_t *part_size) {
    *part_size = 0;
    if (params->numa_mode != UMF_NUMA_MODE_INTERLEAVE ||
        umf_round_up(params->part_size, page_size, part_size)) {
        return true;
    }
    UMF_LOG_ERROR("a part size of %zu bytes cannot be rounded up to pages", params->part_size);
    return false;
}

/* --- creation --------------------------------------------------------------------------------- */

/* Mode SPLIT: copies the given partitions, or makes one of weight 1 for each node. */
static void numa_fill_partitions(umf_os_numa_t *numa, const umf_os_params_t *params) {
    for (unsigned i = 0; i < numa->partition_count; i++) {
        numa->partitions[i] =
            params->partitions_len
                ? params->partitions[i]
                : (umf_numa_split_partition_t){.weight = 1, .target = params->numa_list[i]};
        numa->weight_sum += numa->partitions[i].weight;
    }
}

umf_result_t umf_os_numa_init(umf_os_numa_t *numa, const umf_os_params_t *params,
                              size_t page_size) {
    size_t part_size;
    if (!numa_list_fits_mode(params) || !numa_partitions_are_valid(params) ||
        !numa_part_size_round(params, page_size, &part_size)) {
        return UMF_RESULT_ERROR_INVALID_ARGUMENT;
    }
    *numa = (umf_os_numa_t){
        .mode = params->numa_mode,
        .page_size = page_size,
        .node_count = params->numa_list_len,
        .part_size = part_size,
        .mbind = umf_os_mbind,
    };
    if (numa->mode == UMF_NUMA_MODE_SPLIT) {
        numa->partition_count =
            params->partitions_len ? params->partitions_len : params->numa_list_len;
    }
    size_t nodes_bytes = numa->node_count * sizeof(*numa->nodes);
    numa->nodes = umf_meta_alloc(nodes_bytes);
    numa->partitions = umf_meta_alloc(numa->partition_count * sizeof(*numa->partitions));
    if (!numa->nodes || !numa->partitions) {
        UMF_LOG_ERROR("no memory for a list of %u nodes", numa->node_count);
        umf_os_numa_fini(numa);
        return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
    }
    if (nodes_bytes) {
        memcpy(numa->nodes, params->numa_list, nodes_bytes);
    }
    numa_fill_partitions(numa, params);
    return UMF_RESULT_SUCCESS;
}

static bool node_is_in(const unsigned long *nodes, unsigned node) {
    return node < NUMA_MASK_BITS && nodes[node / NUMA_WORD_BITS] >> node % NUMA_WORD_BITS & 1;
}

/* Writes "0-3, 7", as far as there is room. */
static void nodes_text(const unsigned long *nodes, char *text, size_t size) {
    size_t used = 0;
    text[0] = '\0';
    for (unsigned node = 0; node < NUMA_MASK_BITS && used < size; node++) {
        unsigned last = node;
        if (!node_is_in(nodes, node)) {
            continue;
        }
        while (node_is_in(nodes, last + 1)) {
            last++;
        }
        const char *comma = used ? ", " : "";
        int length = last > node ? snprintf(text + used, size - used, "%s%u-%u", comma, node, last)
                                 : snprintf(text + used, size - used, "%s%u", comma, node);
        used += (size_t)length;
        node = last;
    }
}

umf_result_t umf_os_numa_check(const umf_os_numa_t *numa) {
    unsigned long there[UMF_OS_NODE_WORDS];
    char text[128];
    if (numa->node_count == 0 || !umf_os_nodes(there)) {
        return UMF_RESULT_SUCCESS;
    }
    for (unsigned i = 0; i < numa->node_count; i++) {
        if (!node_is_in(there, numa->nodes[i])) {
            nodes_text(there, text, sizeof(text));
            return UMF_FAIL(UMF_REASON_ABSENT, UMF_RESULT_ERROR_INVALID_ARGUMENT,
                            "NUMA node %u does not exist, has no memory or is not allowed to this "
                            "process; it can use: %s",
                            numa->nodes[i], text);
        }
    }
    return UMF_RESULT_SUCCESS;
}

void umf_os_numa_fini(umf_os_numa_t *numa) {
    umf_meta_free(numa->nodes, numa->node_count * sizeof(*numa->nodes));
    umf_meta_free(numa->partitions, numa->partition_count * sizeof(*numa->partitions));
    numa->nodes = NULL;
    numa->partitions = NULL;
}

/* --- placement -------------------------------------------------------------------------------- */

/* EINVAL: no kernel has such a node, so it does not exist. */
static int mask_add(numa_mask_t *mask, unsigned node) {
    if (node >= NUMA_MASK_BITS) {
        return EINVAL;
    }
    mask->words[node / NUMA_WORD_BITS] |= 1ul << (node % NUMA_WORD_BITS);
    if (node >= mask->bits) {
        mask->bits = node + 1ul;
    }
    return 0;
}

static int numa_bind_list(const umf_os_numa_t *numa, void *base, size_t size, int mode,
                          const unsigned *nodes, unsigned count) {
    numa_mask_t mask = {0};
    for (unsigned i = 0; i < count; i++) {
        int error = mask_add(&mask, nodes[i]);
        if (error) {
            return error;
        }
    }
    return numa->mbind(base, size, mode, count ? mask.words : NULL, mask.bits);
}

static bool numa_nodes_can_be(const umf_os_numa_t *numa) {
    numa_mask_t mask = {0};
    unsigned i = 0;
    while (i < numa->node_count && mask_add(&mask, numa->nodes[i]) == 0) {
        i++;
    }
    return i == numa->node_count;
}

static int numa_place_preferred(const umf_os_numa_t *numa, void *base, size_t size) {
    int error = EINVAL;
    if (!numa_nodes_can_be(numa)) {
        return error;
    }
    if (numa->node_count > 1) {
        error =
            numa_bind_list(numa, base, size, NUMA_PREFERRED_MANY, numa->nodes, numa->node_count);
    }
    /* Only the first node: there is one, or the kernel cannot prefer several. */
    return error == EINVAL ? numa_bind_list(numa, base, size, MPOL_PREFERRED, numa->nodes,
                                            numa->node_count ? 1 : 0)
                           : error;
}

/* Binds part after part to the nodes in turn, beginning with nodes[index]. */
static int numa_bind_parts(const umf_os_numa_t *numa, char *base, size_t size, size_t index) {
    while (size) {
        size_t part = size < numa->part_size ? size : numa->part_size;
        int error = numa_bind_list(numa, base, part, MPOL_BIND, &numa->nodes[index], 1);
        if (error) {
            return error;
        }
        base += part;
        size -= part;
        index = (index + 1) % numa->node_count;
    }
    return 0;
}

/* An allocation continues after the bytes allocated before it. A failed one does not count. */
static int numa_place_parts(umf_os_numa_t *numa, char *base, size_t size, size_t requested) {
    size_t before = __atomic_fetch_add(&numa->allocated, requested, __ATOMIC_RELAXED);
    int error = numa_bind_parts(numa, base, size, before / numa->part_size % numa->node_count);
    if (error) {
        __atomic_fetch_sub(&numa->allocated, requested, __ATOMIC_RELAXED);
    }
    return error;
}

/* Binds `count` pages from page `first` on to the nodes of partitions `low`..`high`. */
static int numa_bind_pages(const umf_os_numa_t *numa, char *base, size_t first, size_t count,
                           unsigned low, unsigned high) {
    numa_mask_t mask = {0};
    for (unsigned i = low; i <= high; i++) {
        int error = mask_add(&mask, numa->partitions[i].target);
        if (error) {
            return error;
        }
    }
    return numa->mbind(base + first * numa->page_size, count * numa->page_size, MPOL_BIND,
                       mask.words, mask.bits);
}

__extension__ typedef unsigned __int128 numa_wide_t;

/* Where a partition ends: inside page `page`, or at its start if `exact`. */
typedef struct numa_end_t {
    size_t page;
    bool exact;
} numa_end_t;

static numa_end_t numa_partition_end(const umf_os_numa_t *numa, size_t pages,
                                     uint64_t weight_so_far) {
    numa_wide_t product = (numa_wide_t)pages * weight_so_far;
    return (numa_end_t){
        .page = (size_t)(product / numa->weight_sum),
        .exact = product % numa->weight_sum == 0,
    };
}

/*
 * Each partition gets its share of the pages, one partition after the other. A page that lies
 * wholly in one partition goes to that node. A page in which partitions end goes to all nodes that
 * have a share in it.
 */
static int numa_place_split(const umf_os_numa_t *numa, char *base, size_t pages) {
    size_t page = 0;
    unsigned i = 0;
    uint64_t weight = numa->partitions[0].weight;
    while (page < pages) {
        numa_end_t end = numa_partition_end(numa, pages, weight);
        if (end.page > page) {
            int error = numa_bind_pages(numa, base, page, end.page - page, i, i);
            if (error) {
                return error;
            }
            page = end.page;
        }
        unsigned first = i;
        while (!end.exact && end.page == page) {
            weight += numa->partitions[++i].weight;
            end = numa_partition_end(numa, pages, weight);
        }
        if (i > first) {
            int error = numa_bind_pages(numa, base, page, 1, first, i);
            if (error) {
                return error;
            }
            page++;
        }
        if (end.exact && end.page == page && page < pages) {
            weight += numa->partitions[++i].weight;
        }
    }
    return 0;
}

static int numa_place_by_mode(umf_os_numa_t *numa, void *base, size_t size, size_t requested) {
    switch (numa->mode) {
    case UMF_NUMA_MODE_BIND:
        return numa_bind_list(numa, base, size, MPOL_BIND, numa->nodes, numa->node_count);
    case UMF_NUMA_MODE_INTERLEAVE:
        return numa->part_size ? numa_place_parts(numa, base, size, requested)
                               : numa_bind_list(numa, base, size, MPOL_INTERLEAVE, numa->nodes,
                                                numa->node_count);
    case UMF_NUMA_MODE_PREFERRED:
        return numa_place_preferred(numa, base, size);
    case UMF_NUMA_MODE_SPLIT:
        return numa_place_split(numa, base, size / numa->page_size);
    case UMF_NUMA_MODE_LOCAL:
        return numa_bind_list(numa, base, size, MPOL_LOCAL, NULL, 0);
    case UMF_NUMA_MODE_DEFAULT:
    default:
        return 0;
    }
}

static const char *numa_hint(int error) {
    switch (error) {
    case EINVAL:
    case ENODEV:
        return " (do all its nodes exist and have memory?)";
    case EPERM:
        return " (containers often forbid mbind: allow it, or give CAP_SYS_NICE)";
    case ENOMEM:
        return " (each part is a mapping of its own: see vm.max_map_count)";
    default:
        return "";
    }
}

int umf_os_numa_place(umf_os_numa_t *numa, void *base, size_t size, size_t requested) {
    int error = numa_place_by_mode(numa, base, size, requested);
    if (error == ENOSYS) {
        UMF_LOG_DEBUG("this kernel has no NUMA policies; memory is placed anywhere");
        return 0;
    }
    if (error) {
        umf_log_write(UMF_LOG_LEVEL_ERROR, error, __func__,
                      "placing %zu bytes by NUMA mode \"%s\" failed%s", size,
                      numa_mode_names[numa->mode], numa_hint(error));
    }
    return error;
}
