#include "early.h"

#include <stdlib.h>
#include <string.h>

early_t early;

static void take_pieces(void) {
    for (int i = 0; i < EARLY_PIECES; i++) {
        early.pieces[i] = malloc(EARLY_PIECE_SIZE);
        if (early.pieces[i]) {
            memset(early.pieces[i], i, EARLY_PIECE_SIZE);
        }
    }
}

__attribute__((constructor)) static void allocate(void) {
    free(NULL);
    free(malloc(10));
    early.text = strdup(EARLY_TEXT);
    early.moved = strdup(EARLY_TEXT);
    early.moved = realloc(early.moved, 5000);
    early.zeroes = calloc(10, 100);
    early.aligned = aligned_alloc(4096, 4096);
    early.empty = malloc(0);
    early.resolved = realpath("/", NULL);
    take_pieces();
}
