/*
 * Sleep to look at: two models work alternately, and the one without requests releases its memory:
 *
 *     UMF_RECORD=sleep.umfrec,stacks ./umf_example_record_sleep
 *     umfctl trace sleep.umfrec --html sleep.html
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/record.h>
#include <umf/suspend.h>
#include <umf/text.h>

/* Stays a function of its own when it is compiled, so that stacks have its name. */
#define FUNCTION static __attribute__((noinline))

#define MIB ((size_t)1 << 20)
enum { LAYERS = 12, TURNS = 4 };

typedef struct model_t {
    const char *name;
    umf_memory_pool_handle_t pool;
    char *layers[LAYERS];
} model_t;

FUNCTION int load_weights(model_t *model, const char *text) {
    if (umfPoolCreateFromText(text, &model->pool) != UMF_RESULT_SUCCESS) {
        return 0;
    }
    for (int i = 0; i < LAYERS; i++) {
        model->layers[i] = umfPoolMalloc(model->pool, 2 * MIB);
        if (!model->layers[i]) {
            return 0;
        }
        memset(model->layers[i], i, 2 * MIB);
    }
    return 1;
}

/* A few answers, each with a buffer of its own. */
FUNCTION int answer(model_t *model) {
    umfRecordMark(model->name);
    int sum = 0;
    for (int i = 0; i < 50; i++) {
        char *buffer = umfPoolMalloc(model->pool, MIB / 2);
        if (!buffer) {
            return -1;
        }
        memcpy(buffer, model->layers[i % LAYERS], MIB / 2);
        sum += buffer[0];
        umfFree(buffer);
    }
    return sum;
}

int main(void) {
    model_t models[2] = {{.name = "large answers"}, {.name = "small answers"}};
    if (!load_weights(&models[0], "coalescing:name=large over linux_vmm") ||
        !load_weights(&models[1], "coalescing:name=small over linux_vmm")) {
        return 1;
    }
    int wrong = 0;
    for (int turn = 0; turn < TURNS; turn++) {
        model_t *awake = &models[turn % 2], *asleep = &models[(turn + 1) % 2];
        wrong |= umfPoolsSuspend(&asleep->pool, 1, NULL, NULL) != UMF_RESULT_SUCCESS;
        wrong |= answer(awake) < 0;
        wrong |= umfPoolsResume(&asleep->pool, 1, NULL, NULL) != UMF_RESULT_SUCCESS;
    }
    umfPoolDestroy(models[0].pool);
    umfPoolDestroy(models[1].pool);
    puts(wrong ? "something failed" : "two models took turns");
    return wrong;
}
