/* The steps of umfctl check about other processes, and about suspend and resume. */
#include <dlfcn.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/suspend.h>

#include "steps_own.h"
#include "umfctl.h"

/* --- processes -------------------------------------------------------------------------------- */

/* Forks a process that ends with this one at the latest. Returns 0 in the new process. */
static pid_t fork_child(void) {
    pid_t parent = getpid();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) {
            _exit(1);
        }
    }
    return child;
}

/* 0 if the process ended well. */
static int wait_for(pid_t child) {
    int status;
    while (waitpid(child, &status, 0) != child) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return status;
}

report_state_t step_fork(const step_t *step, char *why) {
    umf_memory_pool_handle_t pool;
    TRY(step_pool_create(step->pool, step->provider, &pool));
    void *memory = umfPoolMalloc(pool, 10000);
    EXPECT(memory, "no memory");
    step_fill(memory, 10000, 1);

    pid_t child = fork_child();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        bool kept = step_is_filled(memory, 10000, 1) && umfFree(memory) == UMF_RESULT_SUCCESS;
        _exit(kept && step_use_sizes(pool, why) == REPORT_OK ? 0 : 1);
    }
    EXPECT(wait_for(child) == 0, "a pool did not work in a child of fork");
    EXPECT(step_is_filled(memory, 10000, 1),
           "memory changed when a child of fork wrote to its own");
    TRY(umfFree(memory));
    return step_use_pool(pool, why);
}

enum { SHARED_SIZE = 100000 };

/* Shares memory that is filled with one pattern, and waits until it is filled with another. */
static report_state_t produce(const step_t *step, int consumer, char *why) {
    umf_memory_pool_handle_t pool;
    umf_ipc_handle_t handle;
    size_t size;
    char done;
    TRY(step_pool_create("disjoint", step->provider, &pool));
    void *memory = umfPoolMalloc(pool, SHARED_SIZE);
    EXPECT(memory, "no memory to share");
    step_fill(memory, SHARED_SIZE, 1);
    TRY(umfGetIPCHandle(memory, &handle, &size));
    EXPECT(send(consumer, handle, size, 0) == (ssize_t)size, "sending a handle: %s",
           strerror(errno));
    TRY(umfPutIPCHandle(handle));
    if (recv(consumer, &done, 1, 0) == 1) {
        EXPECT(step_is_filled(memory, SHARED_SIZE, 2), "the data of the consumer did not arrive");
    }
    TRY(umfFree(memory));
    TRY(umfPoolDestroy(pool));
    return REPORT_OK;
}

static int ptrace_scope(void) {
    int scope = 0;
    FILE *file = fopen("/proc/sys/kernel/yama/ptrace_scope", "re");
    if (file && fscanf(file, "%d", &scope) != 1) {
        scope = 0;
    }
    if (file) {
        fclose(file);
    }
    return scope;
}

static report_state_t consume(const step_t *step, int producer, char *why) {
    static char handle[65536];
    umf_memory_pool_handle_t pool;
    umf_ipc_handler_handle_t handler;
    void *memory;
    ssize_t size = recv(producer, handle, sizeof(handle), 0);
    EXPECT(size > 0, "the producer sent no handle");
    TRY(step_pool_create("disjoint", step->consumer, &pool));
    TRY(umfPoolGetIPCHandler(pool, &handler));
    umfLastErrorClear();
    umf_result_t result = umfOpenIPCHandleSized(handler, handle, (size_t)size, &memory);
    if (result != UMF_RESULT_SUCCESS && ptrace_scope() >= 2) {
        snprintf(why, STEP_WHY_SIZE, "ptrace scope %d forbids it", ptrace_scope());
        return REPORT_SKIPPED;
    }
    EXPECT(result == UMF_RESULT_SUCCESS, "opening a handle: %s", umfctl_reason(result));
    EXPECT(step_is_filled(memory, SHARED_SIZE, 1),
           "the opened memory is not shared with the producer");
    step_fill(memory, SHARED_SIZE, 2);
    TRY(umfCloseIPCHandle(memory));
    EXPECT(send(producer, "", 1, 0) == 1, "the producer has gone");
    TRY(umfPoolDestroy(pool));
    return REPORT_OK;
}

/* A buffer that a forked child can write to. NULL: no memory. */
static char *shared_why(void) {
    void *text =
        mmap(NULL, STEP_WHY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return text == MAP_FAILED ? NULL : text;
}

/* The producer is a child of the consumer, because systems allow that direction most often. */
report_state_t step_sharing(const step_t *step, char *why) {
    int ends[2];
    char *cause = shared_why(); /* of the producer's failure; unmapped at exit */
    EXPECT(cause, "shared memory for a child: %s", strerror(errno));
    EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) == 0, "socketpair: %s", strerror(errno));
    pid_t child = fork_child();
    EXPECT(child >= 0, "fork: %s", strerror(errno));
    if (child == 0) {
        close(ends[0]);
        _exit(produce(step, ends[1], cause) == REPORT_OK ? 0 : 1);
    }
    close(ends[1]);
    report_state_t state = consume(step, ends[0], why);
    close(ends[0]);
    int status = wait_for(child);
    EXPECT(!*cause, "the producer: %s", cause);
    if (state == REPORT_OK) {
        EXPECT(status == 0, "the producer did not end well");
    }
    return state;
}

/* --- suspend and resume ----------------------------------------------------------------------- */

report_state_t step_suspend(const step_t *step, char *why) {
    enum { SIZE = 4 << 20 };
    umf_memory_pool_handle_t pool;
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    umf_residency_t residency = UMF_RESIDENCY_INIT;
    TRY(step_pool_create(step->pool, step->provider, &pool));
    void *memory = umfPoolMalloc(pool, SIZE);
    EXPECT(memory, "no memory");
    step_fill(memory, SIZE, 1);

    TRY(umfPoolsSuspend(&pool, 1, NULL, &report));
    EXPECT(report.bytes >= SIZE && report.kept >= SIZE, "%zu bytes were released, %zu kept",
           report.bytes, report.kept);
    TRY(umfPoolGetResidency(pool, &residency));
    EXPECT(residency.resident == 0, "%zu bytes are left while it is suspended", residency.resident);
    EXPECT(!umfPoolMalloc(pool, 100), "a pool allocates while it is suspended");

    TRY(umfPoolsResume(&pool, 1, NULL, &report));
    EXPECT(step_is_filled(memory, SIZE, 1), "memory changed while it slept");
    TRY(umfFree(memory));
    return step_use_pool(pool, why);
}

/* Free memory of GPU 0 by the driver's count. false: the driver has no such query. */
static bool cuda_free_memory(size_t *bytes) {
    static int (*retain)(void **, int), (*set_current)(void *), (*get_info)(size_t *, size_t *);
    static void *context;
    size_t total;
    if (!context) {
        void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        void *found[3] = {driver ? dlsym(driver, "cuDevicePrimaryCtxRetain") : NULL,
                          driver ? dlsym(driver, "cuCtxSetCurrent") : NULL,
                          driver ? dlsym(driver, "cuMemGetInfo_v2") : NULL};
        memcpy(&retain, &found[0], sizeof(retain));
        memcpy(&set_current, &found[1], sizeof(set_current));
        memcpy(&get_info, &found[2], sizeof(get_info));
        if (!retain || !set_current || !get_info || retain(&context, 0) != 0) {
            return false;
        }
    }
    return set_current(context) == 0 && get_info(bytes, &total) == 0;
}

/* Memory that a pool returns must be free for others by the driver's own count. Some systems have
 * failed to do that. */
report_state_t step_suspend_cuda(const step_t *step, char *why) {
    enum { SIZE = 64 << 20 };
    umf_memory_pool_handle_t pool;
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    size_t before, suspended, again, freed;
    TRY(step_pool_create(step->pool, step->provider, &pool)); /* this starts the driver */
    void *memory = umfPoolMalloc(pool, SIZE);
    EXPECT(memory, "no %d bytes of GPU memory", (int)SIZE);
    EXPECT(cuda_free_memory(&before), "the driver does not report its free memory");
    TRY(umfPoolsSuspend(&pool, 1, NULL, &report));
    EXPECT(report.bytes >= SIZE, "%zu bytes were released", report.bytes);
    EXPECT(cuda_free_memory(&suspended) && suspended >= before + report.bytes,
           "%zu bytes were released, but the driver has %zu more than before", report.bytes,
           suspended > before ? suspended - before : 0);
    TRY(umfPoolsResume(&pool, 1, NULL, &report));
    EXPECT(cuda_free_memory(&again) && again <= suspended - report.bytes,
           "%zu bytes came back from nowhere", report.bytes);
    TRY(umfFree(memory));
    TRY(umfPoolDestroy(pool));
    EXPECT(cuda_free_memory(&freed) && freed >= suspended, "freed memory does not come back");
    return REPORT_OK;
}
