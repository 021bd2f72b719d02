/* The CUDA driver, found at run time. */
#include "cuda.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

enum { MAX_DEVICES = 64 };

static cuda_t functions;
static bool is_here;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void find(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    is_here = library;
#define CUDA_FUNCTION(member, symbol, result, arguments)                                           \
    if (is_here) {                                                                                 \
        *(void **)&functions.member = dlsym(library, symbol);                                      \
        is_here = functions.member;                                                                \
    }
#include "cuda.def"
#undef CUDA_FUNCTION
    is_here = is_here && functions.init(0) == CUDA_SUCCESS;
}

const cuda_t *cuda(void) {
    pthread_once(&once, find);
    return is_here ? &functions : NULL;
}

const char *cuda_text(CUresult result) {
    const char *text = NULL;
    return cuda() && cuda()->error_text(result, &text) == CUDA_SUCCESS && text
               ? text
               : "no working CUDA driver";
}

int cuda_current_device(void) {
    CUdevice device = 0;
    if (cuda() && cuda()->current_device(&device) == CUDA_SUCCESS) {
        return device;
    }
    /* Without a context the runtime has the device of the thread. */
    int (*of_runtime)(int *);
    int number = 0;
    *(void **)&of_runtime = dlsym(RTLD_DEFAULT, "cudaGetDevice");
    return of_runtime && of_runtime(&number) == 0 ? number : 0;
}

CUresult cuda_enter(int device) {
    static CUcontext contexts[MAX_DEVICES]; /* held until the process ends */
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    if (!cuda()) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (device < 0 || device >= MAX_DEVICES) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    pthread_mutex_lock(&mutex);
    CUresult result = CUDA_SUCCESS;
    if (!contexts[device]) {
        result = cuda()->primary(&contexts[device], device);
    }
    pthread_mutex_unlock(&mutex);
    return result == CUDA_SUCCESS ? cuda()->push(contexts[device]) : result;
}

void cuda_leave(void) {
    CUcontext gone;
    cuda()->pop(&gone);
}

/* From the system, for drivers that do not report it. */
static int node_of_bus(int device) {
    char bus[32] = "", path[96];
    int node = -1;
    if (cuda()->bus(bus, sizeof(bus), device) != CUDA_SUCCESS) {
        return -1;
    }
    for (char *at = bus; *at; at++) {
        *at = (char)tolower((unsigned char)*at);
    }
    snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/numa_node", bus);
    FILE *file = fopen(path, "re");
    if (file) {
        node = fscanf(file, "%d", &node) == 1 ? node : -1;
        fclose(file);
    }
    return node;
}

int cuda_host_node(int device) {
    int node = -1;
    if (!cuda()) {
        return -1;
    }
    CUresult result = cuda()->attribute(&node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device);
    return result == CUDA_SUCCESS && node >= 0 ? node : node_of_bus(device);
}

CUresult cuda_drain(int device) {
    CUresult result = cuda_enter(device);
    if (result == CUDA_SUCCESS) {
        result = cuda()->synchronize();
        cuda_leave();
    }
    return result;
}
