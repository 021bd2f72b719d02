// What it costs to open memory of another process.
//
// The program starts itself again as the producer, which owns a pool and sends the bytes of the
// handles of its blocks through a socket.
#include "gpu.h"

#include <umf.h>
#include <umf/ipc.h>
#include <umf/text.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace gpu {
namespace {

constexpr int PEER_SOCKET = 100;
constexpr int BLOCKS = 8;
constexpr size_t HANDLE_MAX_SIZE = 2048;

struct Message {
    uint32_t size = 0; // of a handle; 0: the producer could not make one
    CUipcMemHandle raw = {};
    bool has_raw = false;
    unsigned char bytes[HANDLE_MAX_SIZE] = {};
};

// --- the producer --------------------------------------------------------------------------------

bool describe(umf_memory_pool_handle_t pool, size_t size, Message &message) {
    umf_ipc_handle_t handle = nullptr;
    size_t bytes = 0;
    void *ptr = umfPoolMalloc(pool, size);
    if (!ptr || umfGetIPCHandle(ptr, &handle, &bytes) != UMF_RESULT_SUCCESS ||
        bytes > HANDLE_MAX_SIZE) {
        return false;
    }
    memcpy(message.bytes, handle, bytes);
    message.size = static_cast<uint32_t>(bytes);
    message.has_raw =
        driver.cuIpcGetMemHandle &&
        driver.cuIpcGetMemHandle(&message.raw, reinterpret_cast<CUdeviceptr>(ptr)) == CUDA_SUCCESS;
    return umfPutIPCHandle(handle) == UMF_RESULT_SUCCESS;
}

// --- the consumer --------------------------------------------------------------------------------

class Producer {
    int socket = -1;
    pid_t pid = -1;

  public:
    std::vector<Message> messages;

    Producer(const std::string &text, size_t size) {
        int sockets[2];
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets)) {
            return;
        }
        socket = sockets[0];
        const std::string block = std::to_string(size);
        const char *argv[] = {"umf-bench-gpu", "--driver",   options.driver.c_str(),
                              "--produce",     text.c_str(), block.c_str(),
                              nullptr};
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, sockets[1], PEER_SOCKET);
        if (posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, const_cast<char *const *>(argv),
                        environ)) {
            pid = -1;
        }
        posix_spawn_file_actions_destroy(&actions);
        ::close(sockets[1]);
        Message message;
        while (pid > 0 && messages.size() < BLOCKS &&
               recv(socket, &message, sizeof(message), 0) == sizeof(message) && message.size) {
            messages.push_back(message);
        }
    }
    // It ends when its socket does.
    ~Producer() {
        ::close(socket);
        if (pid > 0) {
            waitpid(pid, nullptr, 0);
        }
    }
    Producer(const Producer &) = delete;
    Producer &operator=(const Producer &) = delete;
};

struct Times {
    double first = 0, again = 0, raw = 0; // ns; 0: failed, or there is none
};

// Opens and closes each block; the mean.
template <class Open, class Close>
double open_all(std::vector<Message> &messages, const Open &open, const Close &close) {
    std::vector<void *> opened(messages.size());
    const Stopwatch watch;
    bool good = !messages.empty();
    for (size_t i = 0; i < messages.size() && good; i++) {
        good = open(messages[i], &opened[i]);
    }
    for (size_t i = 0; i < messages.size() && good; i++) {
        good = close(opened[i]);
    }
    return good ? watch.seconds() * 1e9 / static_cast<double>(messages.size()) : 0;
}

double open_in_pool(umf_ipc_handler_handle_t handler, std::vector<Message> &messages) {
    return open_all(
        messages,
        [&](Message &message, void **ptr) {
            auto *handle = reinterpret_cast<umf_ipc_handle_t>(message.bytes);
            return umfOpenIPCHandle(handler, handle, ptr) == UMF_RESULT_SUCCESS;
        },
        [](void *ptr) { return umfCloseIPCHandle(ptr) == UMF_RESULT_SUCCESS; });
}

double open_raw(std::vector<Message> &messages) {
    return open_all(
        messages,
        [](Message &message, void **ptr) {
            CUdeviceptr at = 0;
            const bool good =
                message.has_raw &&
                driver.cuIpcOpenMemHandle(&at, message.raw, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
                    CUDA_SUCCESS;
            *ptr = reinterpret_cast<void *>(at);
            return good;
        },
        [](void *ptr) {
            return driver.cuIpcCloseMemHandle(reinterpret_cast<CUdeviceptr>(ptr)) == CUDA_SUCCESS;
        });
}

// Three producers, so three times each block is opened for the first time; the best.
Times measure(const std::string &text, size_t size) {
    Times best;
    const auto keep = [](double &to, double ns) { to = ns > 0 && (to == 0 || ns < to) ? ns : to; };
    for (int round = 0; round < 3; round++) {
        Producer producer("proxy over " + text, size);
        umf_memory_pool_handle_t pool = nullptr;
        umf_ipc_handler_handle_t handler = nullptr;
        if (producer.messages.empty() ||
            umfPoolCreateFromText(("proxy over " + text).c_str(), &pool) != UMF_RESULT_SUCCESS ||
            umfPoolGetIPCHandler(pool, &handler) != UMF_RESULT_SUCCESS) {
            umfPoolDestroy(pool);
            return best;
        }
        keep(best.first, open_in_pool(handler, producer.messages));
        for (int i = 0; i < 100; i++) {
            keep(best.again, open_in_pool(handler, producer.messages));
        }
        umfPoolDestroy(pool); // closes all that is kept open
        if (driver.cuIpcOpenMemHandle && driver.cuIpcCloseMemHandle) {
            keep(best.raw, open_raw(producer.messages));
        }
    }
    return best;
}

void print_time(double ns) {
    if (ns > 0) {
        printf(" %20.2f", ns / 1e3);
    } else {
        printf(" %20s", "-");
    }
}

} // namespace

int produce(const std::string &text, size_t size) {
    umf_memory_pool_handle_t pool = nullptr;
    umfPoolCreateFromText(text.c_str(), &pool);
    for (int i = 0; i < BLOCKS; i++) {
        Message message;
        if (!pool || !describe(pool, size, message)) {
            message.size = 0;
        }
        send(PEER_SOCKET, &message, sizeof(message), MSG_NOSIGNAL);
    }
    char end;
    while (recv(PEER_SOCKET, &end, 1, 0) > 0) {
    }
    return umfPoolDestroy(pool) == UMF_RESULT_SUCCESS ? 0 : 1;
}

void run_ipc() {
    printf("\nOpen and close of another process's memory, us per block\n%-40s %8s", "provider",
           "block");
    for (const char *column : {"first open", "opened before", "cuIpc of the driver"}) {
        printf(" %20s", column);
    }
    printf("\n");
    for (const size_t size : {size_t{2} << 20, size_t{64} << 20}) {
        for (const char *provider : {"cuda:memory_type=device", "cuda_vmm:share=fd"}) {
            const Times times = measure(provider, size);
            printf("%-40s %8s", provider, text(size).c_str());
            print_time(times.first);
            print_time(times.again);
            print_time(times.raw);
            printf("\n");
        }
    }
}

} // namespace gpu
