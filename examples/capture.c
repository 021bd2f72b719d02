/*
 * Work of a CUDA stream is captured into a graph, with memory that is allocated and freed inside of
 * the capture, and the graph is launched several times.
 *
 * A graph uses its memory whenever it is launched. So it has a pool of its own, which lives as long
 * as the graph does. The capture is announced: the library then makes no call that would end it.
 * The program takes the driver's functions by their names, so it needs no header of CUDA; without a
 * GPU it says so.
 */
#include <dlfcn.h>
#include <stdio.h>

#include <umf.h>
#include <umf/capture.h>
#include <umf/copy.h>
#include <umf/queue.h>
#include <umf/reason.h>
#include <umf/text.h>

enum { LAUNCHES = 3, SIZE = 1 << 16, NON_BLOCKING = 1, THREAD_LOCAL = 1 };

/* As in cuda.h: each gives 0 on success; a stream, a graph and what runs it are pointers. */
static int (*init)(unsigned flags);
static int (*retain_context)(void **context, int device);
static int (*set_context)(void *context);
static int (*create_stream)(void **stream, unsigned flags);
static int (*begin_capture)(void *stream, int mode);
static int (*end_capture)(void *stream, void **graph);
static int (*instantiate)(void **ready, void *graph, unsigned long long flags);
static int (*launch)(void *ready, void *stream);
static int (*synchronize)(void *stream);
static int (*destroy_ready)(void *ready);
static int (*destroy_graph)(void *graph);
static int (*destroy_stream)(void *stream);

static int start_cuda(void) {
    const struct {
        const char *name;
        void *function;
    } functions[] = {
        {"cuInit", &init},
        {"cuDevicePrimaryCtxRetain", &retain_context},
        {"cuCtxSetCurrent", &set_context},
        {"cuStreamCreate", &create_stream},
        {"cuStreamBeginCapture_v2", &begin_capture},
        {"cuStreamEndCapture", &end_capture},
        {"cuGraphInstantiateWithFlags", &instantiate},
        {"cuGraphLaunch", &launch},
        {"cuStreamSynchronize", &synchronize},
        {"cuGraphExecDestroy", &destroy_ready},
        {"cuGraphDestroy", &destroy_graph},
        {"cuStreamDestroy_v2", &destroy_stream},
    };
    void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
    for (size_t i = 0; driver && i < sizeof(functions) / sizeof(*functions); i++) {
        void **function = functions[i].function;
        *function = dlsym(driver, functions[i].name);
        if (!*function) {
            return 0;
        }
    }
    return driver && !init(0) && !retain_context(&context, 0) && !set_context(context);
}

static int fails(const char *what) {
    fprintf(stderr, "%s: %s\n", what, umfLastErrorText());
    return 1;
}

/* Puts work on the stream: fills memory that only this work needs, and copies it to the result. */
static int work(umf_memory_pool_handle_t pool, unsigned char *result, unsigned char value,
                void *stream) {
    umf_copy_params_t on_stream = UMF_COPY_PARAMS_INIT;
    on_stream.queue = stream;
    unsigned char *scratch = umfPoolMallocOn(pool, SIZE, 0, stream);
    if (!scratch) {
        return fails("umfPoolMallocOn");
    }
    int failed = umfFill(scratch, &value, 1, SIZE, &on_stream) != UMF_RESULT_SUCCESS ||
                 umfCopy(result, scratch, SIZE, &on_stream) != UMF_RESULT_SUCCESS;
    umfFreeOn(scratch, stream); /* the next allocation of the capture may have it */
    return failed ? fails("work on the stream") : 0;
}

/* The graph of the work, or NULL. */
static void *capture(umf_memory_pool_handle_t pool, unsigned char *result, void *stream) {
    void *graph = NULL;
    if (umfCaptureBegins(stream) != UMF_RESULT_SUCCESS) {
        return NULL;
    }
    if (begin_capture(stream, THREAD_LOCAL) == 0) {
        int failed = work(pool, result, 6, stream) || work(pool, result + SIZE, 7, stream);
        if (end_capture(stream, &graph) != 0) {
            graph = NULL;
        }
        if (graph && failed) {
            destroy_graph(graph);
            graph = NULL;
        }
    }
    umfCaptureEnds(stream); /* also after a capture that failed */
    return graph;
}

/* Each launch does the captured work again, in the same memory. */
static int replay(void *graph, unsigned char *result, void *stream) {
    void *ready;
    if (instantiate(&ready, graph, 0) != 0) {
        return 1;
    }
    int failed = 0;
    for (int round = 1; round <= LAUNCHES && !failed; round++) {
        unsigned char last[2] = {0, 0};
        failed = umfFill(result, last, 1, 2 * SIZE, NULL) || launch(ready, stream) ||
                 synchronize(stream) || umfCopy(&last[0], result + SIZE - 1, 1, NULL) ||
                 umfCopy(&last[1], result + 2 * SIZE - 1, 1, NULL);
        printf("launch %d: %d and %d\n", round, last[0], last[1]);
        failed = failed || last[0] != 6 || last[1] != 7;
    }
    destroy_ready(ready);
    return failed;
}

int main(void) {
    void *stream, *graph;
    umf_memory_pool_handle_t pool;
    if (!start_cuda()) {
        puts("no graph is captured: there is no driver of CUDA 11.4 or newer, or no GPU");
        return 0;
    }
    if (umfPoolCreateFromText("coalescing over cuda_vmm:device=0", &pool) != UMF_RESULT_SUCCESS) {
        printf("no graph is captured: %s\n", umfLastErrorText());
        return 0;
    }
    unsigned char *result = umfPoolMalloc(pool, 2 * SIZE);
    if (!result || create_stream(&stream, NON_BLOCKING) != 0) {
        return fails("the result and a stream");
    }
    graph = capture(pool, result, stream);
    int failed = !graph || replay(graph, result, stream);
    if (graph) {
        destroy_graph(graph);
    }
    umfQueueEnds(stream); /* before the driver gives its handle to another one */
    destroy_stream(stream);
    umfFree(result);
    umfPoolDestroy(pool); /* after the graph */
    return failed;
}
