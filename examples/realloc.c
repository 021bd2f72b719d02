/*
 * Realloc: an array that grows. Most pools move the content to a larger block, or grow the block in
 * place; a disjoint pool has no realloc and says so. On failure the old block is as it was.
 */
#include <stdio.h>

#include <umf.h>
#include <umf/text.h>

static int grow(const char *text) {
    enum { COUNT = 1 << 20 };
    umf_memory_pool_handle_t pool;
    if (umfPoolCreateFromText(text, &pool) != UMF_RESULT_SUCCESS) {
        printf("%-20s not here\n", text);
        return 0;
    }
    int *numbers = NULL, moves = 0, wrong = 0;
    size_t room = 0;
    for (int i = 0; i < COUNT; i++) {
        if ((size_t)i == room) {
            room = room ? 2 * room : 16;
            int *larger = umfPoolRealloc(pool, numbers, room * sizeof(int)); /* NULL: as malloc */
            if (!larger) {
                umf_result_t why = umfPoolGetLastAllocationError(pool);
                printf("%-20s %s\n", text, umfResultText(why));
                umfFree(numbers); /* still there */
                umfPoolDestroy(pool);
                return why == UMF_RESULT_ERROR_NOT_SUPPORTED ? 0 : 1;
            }
            moves += larger != numbers;
            numbers = larger;
        }
        numbers[i] = i;
    }
    for (int i = 0; i < COUNT; i++) {
        wrong += numbers[i] != i;
    }
    printf("%-20s %d numbers, moved %d times, %d wrong\n", text, COUNT, moves, wrong);
    umfFree(numbers);
    umfPoolDestroy(pool);
    return wrong;
}

int main(void) {
    return grow("disjoint over os") || grow("coalescing over os") || grow("jemalloc over os") ||
           grow("scalable over os");
}
