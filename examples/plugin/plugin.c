/* Loads a plugin and creates its provider from text, as a program with a
 * configuration file would. */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/plugin.h>
#include <umf/text.h>

int main(int argc, char *argv[]) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s path-of-the-plugin\n", argv[0]);
        return 2;
    }
    umf_result_t result = umfLoadPlugin(argv[1]);
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "cannot load %s: %s\n", argv[1], umfResultText(result));
        return 1;
    }

    const char *text = "disjoint:capacity=8 over example_file:directory=/tmp";
    umf_memory_pool_handle_t pool;
    result = umfPoolCreateFromText(text, &pool);
    if (result != UMF_RESULT_SUCCESS) {
        fprintf(stderr, "cannot create \"%s\": %s\n", text, umfTextError());
        return 1;
    }
    char *memory = umfPoolMalloc(pool, 4096);
    if (!memory) {
        fprintf(stderr, "no memory\n");
        return 1;
    }
    strcpy(memory, "memory of a plugin");
    printf("\"%s\" gave %p: %s\n", text, (void *)memory, memory);
    umfFree(memory);
    umfPoolDestroy(pool);

    /* A mistake is explained, with its position. */
    result = umfPoolCreateFromText("disjoint:capacty=8 over os", &pool);
    printf("a typing error gives: %s\n", umfTextError());
    return result == UMF_RESULT_SUCCESS;
}
