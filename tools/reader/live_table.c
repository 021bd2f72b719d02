#include <stdlib.h>

#include "live_table.h"

#define FIRST_BITS 10u

static size_t home_of(const live_table_t *table, uint64_t address) {
    return (size_t)(address * UINT64_C(0x9e3779b97f4a7c15) >> table->shift);
}

static bool make(live_table_t *table, unsigned bits) {
    umf_reader_live_t *slots = calloc((size_t)1 << bits, sizeof(*slots));
    if (!slots) {
        return false;
    }
    *table = (live_table_t){slots, ((size_t)1 << bits) - 1, 0, 64 - bits};
    return true;
}

bool live_table_init(live_table_t *table) {
    *table = (live_table_t){0};
    return make(table, FIRST_BITS);
}

void live_table_free(live_table_t *table) {
    free(table->slots);
}

umf_reader_live_t *live_table_find(const live_table_t *table, uint64_t address, uint32_t object) {
    for (size_t at = home_of(table, address); table->slots[at].address;
         at = (at + 1) & table->mask) {
        umf_reader_live_t *slot = &table->slots[at];
        if (slot->address == address && (slot->object == object || object == 0)) {
            return slot;
        }
    }
    return NULL;
}

static void put(live_table_t *table, const umf_reader_live_t *what) {
    size_t at = home_of(table, what->address);
    while (table->slots[at].address) {
        at = (at + 1) & table->mask;
    }
    table->slots[at] = *what;
    table->count++;
}

static bool grow(live_table_t *table) {
    live_table_t more;
    if (!make(&more, 64 - table->shift + 1)) {
        return false;
    }
    for (size_t i = 0; i <= table->mask; i++) {
        if (table->slots[i].address) {
            put(&more, &table->slots[i]);
        }
    }
    free(table->slots);
    *table = more;
    return true;
}

bool live_table_add(live_table_t *table, const umf_reader_live_t *what) {
    if (table->count >= table->mask / 2 && !grow(table)) {
        return false;
    }
    put(table, what);
    return true;
}

/* Those after it move up, as far as their hash lets them. */
void live_table_remove(live_table_t *table, const umf_reader_live_t *slot) {
    size_t hole = (size_t)(slot - table->slots);
    for (size_t at = (hole + 1) & table->mask; table->slots[at].address;
         at = (at + 1) & table->mask) {
        size_t home = home_of(table, table->slots[at].address);
        if (((at - home) & table->mask) >= ((at - hole) & table->mask)) {
            table->slots[hole] = table->slots[at];
            hole = at;
        }
    }
    table->slots[hole].address = 0;
    table->count--;
}
