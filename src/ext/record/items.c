#include "ext/record/items.h"

#include <sys/mman.h>

#include "system/os.h"

static void *map(size_t size) {
    void *memory = NULL;
    int error =
        umf_os_map(&memory, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return error == 0 ? memory : NULL;
}

static size_t table_bytes(void) {
    return UMF_ITEMS_BLOCKS * sizeof(void *);
}

static bool grow(umf_items_t *items) {
    if (!items->blocks && !(items->blocks = map(table_bytes()))) {
        return false;
    }
    items->per_block = UMF_ITEMS_BLOCK / items->size;
    size_t block = items->count / items->per_block;
    return block < UMF_ITEMS_BLOCKS && (items->blocks[block] = map(UMF_ITEMS_BLOCK)) != NULL;
}

void *umf_items_add(umf_items_t *items) {
    bool is_full = !items->blocks || items->count % items->per_block == 0;
    if (is_full && !grow(items)) {
        return NULL;
    }
    return umf_items_at(items, items->count++);
}

void umf_items_fini(umf_items_t *items) {
    for (size_t i = 0; items->blocks && i < UMF_ITEMS_BLOCKS && items->blocks[i]; i++) {
        umf_os_unmap(items->blocks[i], UMF_ITEMS_BLOCK);
    }
    if (items->blocks) {
        umf_os_unmap(items->blocks, table_bytes());
    }
    *items = (umf_items_t){.size = items->size};
}

int umf_items_write(const umf_items_t *items, int fd, uint64_t offset) {
    int error = 0;
    for (size_t done = 0; done < items->count && error == 0; done += items->per_block) {
        size_t left = items->count - done;
        size_t count = left < items->per_block ? left : items->per_block;
        error = umf_os_write_at(fd, items->blocks[done / items->per_block], count * items->size,
                                offset + done * items->size);
    }
    return error;
}
