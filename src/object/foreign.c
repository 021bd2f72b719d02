#include "object/foreign.h"

static umf_foreign_finder_t *finders; /* Immutable after the constructors */

void umf_foreign_register(umf_foreign_finder_t *finder) {
    finder->next = finders;
    finders = finder;
}

bool umf_foreign_find(const void *ptr, umf_foreign_t *memory) {
    for (const umf_foreign_finder_t *finder = finders; finder; finder = finder->next) {
        if (finder->find(ptr, memory)) {
            return true;
        }
    }
    return false;
}
