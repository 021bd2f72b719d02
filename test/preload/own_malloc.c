/* A program with a malloc of its own, of the four functions without which glibc's manual allows
 * none. All memory must be from it, except what the C library's other functions allocate. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Alignas(16) char memory[1 << 20];
static size_t used;

typedef struct head_t {
    size_t size, unused;
} head_t;

void *malloc(size_t size) {
    size_t whole = (size + sizeof(head_t) + 15) & ~(size_t)15;
    if (size > sizeof(memory) || used + whole > sizeof(memory)) {
        return NULL;
    }
    head_t *head = (head_t *)(void *)(memory + used);
    used += whole;
    head->size = size;
    return head + 1;
}

void free(void *ptr) {
    (void)ptr;
}

void *calloc(size_t num, size_t size) {
    return malloc(num * size); /* nothing is used twice */
}

void *realloc(void *ptr, size_t size) {
    void *moved = malloc(size);
    if (ptr && moved) {
        size_t old = ((head_t *)ptr)[-1].size;
        memcpy(moved, ptr, old < size ? old : size);
    }
    return moved;
}

static int is_own(const void *ptr) {
    return (const char *)ptr >= memory && (const char *)ptr < memory + sizeof(memory);
}

int main(void) {
    char *text = strdup("some text");
    void *aligned = NULL;
    if (!text || !is_own(text) || posix_memalign(&aligned, 64, 100) != 0) {
        return 1;
    }
    memset(aligned, 1, 100);
    text = realloc(text, 5000);
    puts(is_own(text) && !is_own(aligned) ? text : "not of its own malloc");
    free(text);
    return 0;
}
