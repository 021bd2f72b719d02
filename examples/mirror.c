/*
 * A mirror lets the CPU work on memory that may be on a GPU.
 *
 * Where the CPU can access the memory, the mirror is that memory: nothing is copied. Elsewhere it
 * is memory of the named pool, and only ranges that the program has marked are copied back. The
 * code is the same.
 */
#include <stdio.h>

#include <umf.h>
#include <umf/copy.h>
#include <umf/text.h>

enum { COUNT = 100000 };

/* Adds one to a few of the numbers, wherever they are. */
static umf_result_t add_one(int *numbers, umf_memory_pool_handle_t host) {
    umf_mirror_handle_t mirror;
    void *ptr;
    umf_result_t result = umfMirrorCreate(numbers, COUNT * sizeof(int), host, &mirror);
    if (result != UMF_RESULT_SUCCESS) {
        return result;
    }
    umfMirrorPtr(mirror, &ptr);
    int *view = ptr;
    result = umfMirrorPull(mirror, 0, COUNT * sizeof(int), NULL);
    for (size_t i = 0; i < COUNT && result == UMF_RESULT_SUCCESS; i += 10000) {
        view[i]++;
        result = umfMirrorMark(mirror, i * sizeof(int), sizeof(int));
    }
    if (result == UMF_RESULT_SUCCESS) {
        result = umfMirrorPush(mirror, 0, UMF_MIRROR_DIRTY, NULL);
    }
    printf("the mirror is %s\n", view == numbers ? "the memory itself" : "other memory");
    umfMirrorDestroy(mirror);
    return result;
}

static int run(const char *text, umf_memory_pool_handle_t host) {
    umf_memory_pool_handle_t pool;
    int seven = 7, found[2] = {0, 0};
    if (umfPoolCreateFromText(text, &pool) != UMF_RESULT_SUCCESS) {
        printf("%s: not here\n", text);
        return 0;
    }
    int *numbers = umfPoolMalloc(pool, COUNT * sizeof(int));
    umf_result_t result = umfFill(numbers, &seven, sizeof(seven), COUNT * sizeof(int), NULL);
    if (result == UMF_RESULT_SUCCESS) {
        result = add_one(numbers, host);
    }
    umfCopy(found, numbers + 20000, sizeof(found), NULL);
    printf("%s: %d %d\n", text, found[0], found[1]);
    umfFree(numbers);
    umfPoolDestroy(pool);
    return result == UMF_RESULT_SUCCESS && found[0] == 8 && found[1] == 7 ? 0 : 1;
}

int main(void) {
    umf_memory_pool_handle_t host;
    if (umfPoolCreateFromText("disjoint over os", &host) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    int failed = run("proxy over os", host) || run("proxy over cuda:memory_type=device", host);
    umfPoolDestroy(host);
    return failed;
}
