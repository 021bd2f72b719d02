// Who may share memory of which kind with whom: every cell of the table in docs/ipc.md, with real
// processes.
//
// The program starts itself again as producer and as consumer. A peer goes first where the row
// wants it (another user, another namespace, behind a filter of system calls) and then does what it
// is requested: see `serve`. Only the bytes of the handle travel between the two.
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/pools/pool_proxy.h>
#include <umf/providers/provider_fixed_memory.h>
#include <umf/text.h>

#if UMF_WITH_CUDA
#include "gpu/gpu.h"
#endif
#if UMF_WITH_LEVEL_ZERO
#include "level_zero/level_zero.h"
#endif

#include "fakes/content.h"
#include "fakes/fork_at_rest.h"
#include "fakes/log_file.h"
#include "fakes/namespaces.h"
#include "fakes/one_tbb.h"
#include "fakes/pidfd_filter.h"
#include "fakes/role.h"

namespace {

// --- the table ---

// What may come of a cell. The log says one of the texts, separated by '|'.
struct Outcome {
    umf_result_t result;
    const char *log;
};

const std::map<std::string, Outcome> outcomes = {
    {"yes", {UMF_RESULT_SUCCESS, ""}},
    {"base", {UMF_RESULT_SUCCESS, ""}},
    {"later", {UMF_RESULT_SUCCESS, ""}},
    {"user", {UMF_RESULT_ERROR_INVALID_ARGUMENT, "serves its own user and root"}},
    {"path", {UMF_RESULT_ERROR_INVALID_ARGUMENT, "opening the file|opening /dev/shm/"}},
    {"name", {UMF_RESULT_ERROR_UNKNOWN, "opening /dev/shm/"}},
    {"driver", {UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, "CUDA_ERROR_"}},
    {"gone", {UMF_RESULT_ERROR_INVALID_ARGUMENT, "has ended"}},
    {"pid", {UMF_RESULT_ERROR_INVALID_ARGUMENT, "was given to another process"}},
    {"freed",
     {UMF_RESULT_ERROR_INVALID_ARGUMENT,
      "has freed that memory|has freed the memory|has closed the descriptor"}},
    {"damaged",
     {UMF_RESULT_ERROR_INVALID_ARGUMENT, "damaged|not an IPC handle|this library reads format"}},
    {"-", {UMF_RESULT_SUCCESS, ""}}, // not tried
};

// In the order of the cells.
const char *const columns[] = {"os",        "os, named", "file",     "fixed",
                               "linux_vmm", "cuda",      "cuda_vmm", "level_zero"};
constexpr size_t column_count = sizeof(columns) / sizeof(columns[0]);

struct Row {
    const char *name;
    const char *where; // the consumer is
    const char *event; // before it opens
    const char *cells[column_count];
};

// docs/ipc.md has the same table.
const Row rows[] = {
    {"the same process",
     "same",
     "", //
     {"yes", "yes", "yes", "base", "yes", "yes", "yes", "yes"}},
    {"a child made before",
     "child before",
     "",
     {"yes", "yes", "yes", "base", "yes", "yes", "yes", "yes"}},
    {"a child made after", "child after", "", {"yes", "yes", "yes", "base", "yes", "-", "-", "-"}},
    {"an unrelated process", "here", "", {"yes", "yes", "yes", "base", "yes", "yes", "yes", "yes"}},
    {"another user",
     "user",
     "",
     {"user", "path", "path", "user", "user", "driver", "user", "user"}},
    {"another user, both consent",
     "user, any",
     "",
     {"yes", "path", "path", "base", "yes", "driver", "yes", "yes"}},
    {"behind a filter of pidfd_getfd",
     "filter",
     "",
     {"yes", "yes", "yes", "base", "yes", "yes", "yes", "yes"}},
    {"another pid namespace",
     "pid",
     "",
     {"yes", "yes", "yes", "base", "yes", "driver", "yes", "yes"}},
    {"another user namespace",
     "userns",
     "",
     {"yes", "yes", "yes", "base", "yes", "driver", "yes", "yes"}},
    {"a container, shared folder",
     "container",
     "",
     {"yes", "name", "path", "base", "yes", "driver", "yes", "yes"}},
    {"the producer was killed",
     "here",
     "kill",
     {"gone", "gone", "gone", "gone", "gone", "gone", "gone", "gone"}},
    {"its process id was given again",
     "here",
     "recycle pid",
     {"pid", "pid", "pid", "pid", "pid", "pid", "pid", "pid"}},
    {"the memory was freed",
     "here",
     "free",
     {"freed", "freed", "later", "freed", "freed", "driver", "freed", "freed"}},
    {"its address was given again",
     "here",
     "recycle address",
     {"freed", "freed", "later", "freed", "freed", "later", "freed", "freed"}},
    {"a bit of the handle was flipped",
     "here",
     "flip",
     {"damaged", "damaged", "damaged", "damaged", "damaged", "damaged", "damaged", "damaged"}},
};
constexpr size_t row_count = sizeof(rows) / sizeof(rows[0]);

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr size_t MiB = size_t{1} << 20;
constexpr size_t whole = 2 * MiB; // an allocation
constexpr size_t at = 12288;      // where the pointer of the handle lies in it
constexpr size_t part = 8192;     // bytes written and read there

// --- kinds of memory ---

// Of the producer; UMF_TEST_POOL names another one than proxy.
std::string pool_kind() {
    const char *name = getenv("UMF_TEST_POOL");
    return name ? name : "proxy";
}

// Other pools keep freed memory. Then the producer keeps its handle, too, which keeps the object
// from being handed out again.
bool keeps_freed() {
    return pool_kind() != "proxy";
}

// TBB keeps data of its own in the memory, jemalloc needs a provider that can split.
bool pool_can_serve(const std::string &kind) {
    bool is_of_device = kind.find("cuda") == 0 || kind == "level_zero";
    return pool_kind() == "scalable"   ? !is_of_device
           : pool_kind() == "jemalloc" ? UMF_WITH_JEMALLOC && kind != "cuda" && kind != "level_zero"
                                       : true;
}

std::string producer_text(const std::string &kind, const std::string &folder) {
    std::string name = folder.substr(folder.rfind('/') + 1);
    return pool_kind() + " over " +
           (kind == "os" || kind == "fixed" ? "os:visibility=shared"
            : kind == "os, named"           ? "os:visibility=shared,shm_name=" + name
            : kind == "file"      ? "file:visibility=shared,path=" + folder + "/f/producer"
            : kind == "linux_vmm" ? "linux_vmm:piece_size=8M"
            : kind == "cuda"      ? "cuda:memory_type=device,device=0"
            : kind == "cuda_vmm"  ? "cuda_vmm:share=fd,piece_size=8M,device=0"
                                  : kind);
}

// The consumer needs the kind; what it opens is in the handle.
std::string consumer_text(const std::string &kind, const std::string &folder) {
    return kind == "os, named" ? "proxy over os:visibility=shared"
           : kind == "file"    ? "proxy over file:visibility=shared,path=" + folder + "/consumer"
                               : producer_text(kind, folder);
}

bool is_cuda(const std::string &kind) {
    return kind == "cuda" || kind == "cuda_vmm";
}

void load_driver(const std::string &kind) {
#if UMF_WITH_CUDA
    if (is_cuda(kind)) {
        driver();
    }
#endif
#if UMF_WITH_LEVEL_ZERO
    if (kind == "level_zero") {
        ze().control()->touchable = 1;
    }
#endif
    (void)kind;
}

void start_driver(const std::string &kind) {
#if UMF_WITH_CUDA
    CUcontext context;
    if (is_cuda(kind)) {
        driver().cuInit(0);
        driver().cuDevicePrimaryCtxRetain(&context, 0);
        driver().cuCtxSetCurrent(context);
    }
#endif
    (void)kind;
}

void write_bytes(const std::string &kind, void *to, const std::string &bytes) {
#if UMF_WITH_CUDA
    if (is_cuda(kind)) {
        driver().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(to), bytes.data(), bytes.size());
        return;
    }
#endif
    (void)kind;
    memcpy(to, bytes.data(), bytes.size());
}

std::string read_bytes(const std::string &kind, const void *from, size_t size) {
    std::string bytes(size, '\0');
#if UMF_WITH_CUDA
    if (is_cuda(kind)) {
        driver().cuMemcpyDtoH(bytes.data(), reinterpret_cast<CUdeviceptr>(from), size);
        return bytes;
    }
#endif
    (void)kind;
    memcpy(bytes.data(), from, size);
    return bytes;
}

std::string pattern(unsigned seed) {
    std::string made(part, '\0');
    fill(made.data(), made.size(), seed);
    return made;
}

constexpr unsigned question = 1, answer = 2, other = 3;

// --- where a consumer can be ---

// This machine does not let a process go there; the test says why and skips.
[[noreturn]] void leave(Socket &socket, const std::string &why) {
    socket.send("skip " + why + ": " + strerror(errno));
    _exit(0);
}

void leave_other_users(Socket &socket) {
    if (!enter_user_namespace(true)) {
        leave(socket, "there is no new user namespace");
    }
}

void leave_other_processes(Socket &socket, int more_flags) {
    if (!enter_pid_namespace(CLONE_NEWNS | more_flags, [&] { socket.close(); })) {
        leave(socket, "there is no new pid namespace");
    }
    if (!hide_mounts() || mount("proc", "/proc", "proc", 0, nullptr) != 0) {
        leave(socket, "there is no /proc of a new pid namespace");
    }
}

// Its own process ids, network, /dev/shm and files; with the others it has one folder, and that
// under another name.
void enter_container(Socket &socket, const std::string &folder) {
    std::string here = folder + "/here", files = folder + "/f", sockets = folder + "/s";
    leave_other_processes(socket, CLONE_NEWNET | CLONE_NEWIPC);
    if (mount(sockets.c_str(), here.c_str(), nullptr, MS_BIND, nullptr) != 0 ||
        mount("none", sockets.c_str(), "tmpfs", 0, nullptr) != 0 ||
        mount("none", files.c_str(), "tmpfs", 0, nullptr) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, nullptr) != 0) {
        leave(socket, "a container cannot be furnished");
    }
}

void enter_filter(Socket &socket) {
    if (!deny_pidfd_getfd() || !is_pidfd_getfd_denied()) {
        leave(socket, "system calls cannot be filtered");
    }
}

void enter_user(Socket &socket) {
    if (geteuid() != 0) {
        errno = EPERM;
        leave(socket, "changing the user needs root");
    }
    if (!become_nobody()) {
        leave(socket, "the user cannot be changed");
    }
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0); // as after exec
}

void set_socket_dir(std::string path) {
    umfCtlSet("umf.ipc.socket_dir", path.data(), path.size() + 1);
}

void enter(Socket &socket, const std::string &where, const std::string &folder) {
    bool any = where.find("any") != std::string::npos;
    int patience = 60000; // a process of a busy machine may need its time
    umfCtlSet("umf.ipc.any_user", &any, sizeof(any));
    umfCtlSet("umf.ipc.timeout", &patience, sizeof(patience));
    if (where.find("user,") == 0 || where == "user") {
        enter_user(socket);
    } else if (where == "filter") {
        enter_filter(socket);
    } else if (where == "pid") {
        leave_other_processes(socket, 0);
    } else if (where == "userns") {
        leave_other_users(socket);
    } else if (where == "container") {
        enter_container(socket, folder);
        set_socket_dir(folder + "/here");
    } else if (where == "producer, container") {
        set_socket_dir(folder + "/s");
    }
}

// --- a peer ---

struct Pool {
    umf_memory_pool_handle_t pool = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;

    explicit Pool(const std::string &text) {
        if (umfPoolCreateFromText(text.c_str(), &pool) != OK ||
            umfPoolGetIPCHandler(pool, &handler) != OK) {
            fprintf(stderr, "%s: not created: %s\n", text.c_str(), umfTextError());
        }
    }
    ~Pool() {
        if (pool) {
            umfPoolDestroy(pool);
        }
    }
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    umf_result_t open(const std::string &handle, char **ptr) const {
        // Exactly as long as the message, so that a sanitizer sees every byte read too much.
        std::vector<std::max_align_t> buffer(handle.size() / sizeof(std::max_align_t) + 1);
        memcpy(buffer.data(), handle.data(), handle.size());
        void *opened = nullptr;
        umf_result_t result =
            umfOpenIPCHandle(handler, reinterpret_cast<umf_ipc_handle_t>(buffer.data()), &opened);
        *ptr = static_cast<char *>(opened);
        return result;
    }
};

// A pool of a fixed provider; NULL if it cannot be had.
umf_memory_pool_handle_t fixed_pool(void *memory, size_t size) {
    umf_fixed_memory_provider_params_handle_t params = nullptr;
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    umfFixedMemoryProviderParamsCreate(memory, size, &params);
    umfMemoryProviderCreate(umfFixedMemoryProviderOps(), params, &provider);
    umfFixedMemoryProviderParamsDestroy(params);
    umfPoolCreate(umfProxyPoolOps(), provider, nullptr, UMF_POOL_CREATE_FLAG_OWN_PROVIDER, &pool);
    return pool;
}

// The outcome of an attempt to open: a result, and its log.
struct Report {
    int result = wrong;
    std::string log;

    // Opened, but without the producer's content; or the peer failed.
    static constexpr int wrong = -1;

    std::string text() const {
        return std::to_string(result) + " " + log;
    }
    static Report from(const std::string &text) {
        Report report;
        report.result = text.empty() ? wrong : atoi(text.c_str());
        report.log = text.substr(std::min(text.size(), text.find(' ') + 1));
        return report;
    }
};

// Opens, reads the question and writes the answer. Of a fixed provider it is the memory below that
// is opened; the consumer puts a fixed provider of its own on it.
umf_result_t open_and_answer(const std::string &kind, const Pool &pool, const std::string &handle,
                             bool *is_right) {
    char *ptr;
    umf_result_t result = pool.open(handle, &ptr);
    if (result != OK) {
        return result;
    }
    *is_right = read_bytes(kind, ptr, part) == pattern(question);
    if (kind == "fixed") {
        umf_memory_pool_handle_t above = fixed_pool(ptr + part, whole - at - part);
        void *made = above ? umfPoolMalloc(above, part) : nullptr;
        *is_right = *is_right && made;
        if (made) {
            write_bytes(kind, made, pattern(other));
            umfPoolFree(above, made);
        }
        umfPoolDestroy(above);
    }
    write_bytes(kind, ptr, pattern(answer));
    *is_right = umfCloseIPCHandle(ptr) == OK && *is_right;
    return OK;
}

Report consume(const std::string &kind, const Pool &pool, const std::string &handle) {
    LogFile log(3); // errors
    bool is_right = false;
    umf_result_t result = open_and_answer(kind, pool, handle, &is_right);
    Report report;
    report.result = result == OK && !is_right ? Report::wrong : result;
    report.log = log.text();
    return report;
}

// One bit of each byte. The first one with another outcome than the last is reported.
Report consume_flipped(const std::string &kind, const Pool &pool, const std::string &handle) {
    Report report;
    for (size_t i = 0; i < handle.size(); i++) {
        std::string bad = handle;
        bad[i] = static_cast<char>(bad[i] ^ 1 << i % 8);
        report = consume(kind, pool, bad);
        if (report.result != UMF_RESULT_ERROR_INVALID_ARGUMENT) {
            report.log += "(byte " + std::to_string(i) + ")";
            return report;
        }
    }
    return report;
}

// In a process made by fork, which gets the handle through a pipe.
class Child {
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    pid_t pid = -1;

  public:
    Child(const std::string &kind, const std::string &folder) {
        if (pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0) {
            abort();
        }
        pid = fork_at_rest();
        if (pid == 0) {
            std::string handle(4096, '\0');
            close(to[1]);
            ssize_t size = read(to[0], handle.data(), handle.size());
            if (size > 0) {
                handle.resize(static_cast<size_t>(size));
                load_driver(kind);
                start_driver(kind);
                std::string text = consume(kind, Pool(consumer_text(kind, folder)), handle).text();
                size = write(from[1], text.data(), text.size());
            }
            _exit(0);
        }
        close(to[0]);
        close(from[1]);
    }
    ~Child() {
        close(to[1]);
        close(from[0]);
        waitpid(pid, nullptr, 0);
    }
    Child(const Child &) = delete;
    Child &operator=(const Child &) = delete;

    Report open(const std::string &handle) {
        std::string text(65536, '\0');
        if (write(to[1], handle.data(), handle.size()) < 0) {
            return {};
        }
        ssize_t size = read(from[0], text.data(), text.size());
        text.resize(size > 0 ? static_cast<size_t>(size) : 0);
        return Report::from(text);
    }
};

// Producer or consumer, by its argument.
class Servant {
    std::string kind, folder;
    Child &early;
    std::unique_ptr<Pool> pool, other_pool;
    char *base = nullptr;
    umf_ipc_handle_t out = nullptr;

    static char *allocate(const Pool &pool) {
        return static_cast<char *>(umfPoolMalloc(pool.pool, whole));
    }

    std::string produce() {
        pool = std::make_unique<Pool>(producer_text(kind, folder));
        base = allocate(*pool);
        // Beside it, so that its address stays the provider's after a free.
        if (!base || !allocate(*pool)) {
            return "";
        }
        write_bytes(kind, base + at, pattern(question));
        return handle();
    }

    std::string handle() {
        umf_ipc_handle_t got = nullptr;
        size_t size = 0;
        if (umfGetIPCHandle(base + at, &got, &size) != OK) {
            return "";
        }
        std::string bytes(reinterpret_cast<const char *>(got), size);
        umfPutIPCHandle(keeps_freed() ? out : got);
        out = keeps_freed() ? got : nullptr;
        return kind != "fixed" || fixed_has_none() ? bytes : "";
    }

    // Memory of a fixed provider has no handle of its own.
    bool fixed_has_none() {
        umf_memory_pool_handle_t above = fixed_pool(base + whole / 2, whole / 2);
        void *ptr = above ? umfPoolMalloc(above, part) : nullptr;
        umf_ipc_handle_t got = nullptr;
        size_t size = 0;
        bool has_none = ptr &&
                        umfGetIPCHandle(ptr, &got, &size) == UMF_RESULT_ERROR_NOT_SUPPORTED &&
                        umfPoolGetIPCHandleSize(above, &size) == UMF_RESULT_ERROR_NOT_SUPPORTED;
        umfPoolFree(above, ptr);
        umfPoolDestroy(above);
        return has_none;
    }

    // Frees, and allocates as much again: the address does not come.
    bool recycle_what_is_kept() {
        umfFree(base);
        for (int i = 0; i < 5; i++) {
            char *ptr = allocate(*pool);
            if (!ptr || (ptr < base + whole && base < ptr + whole)) {
                return false;
            }
            write_bytes(kind, ptr + at, pattern(other));
        }
        return true;
    }

    // Frees, and allocates until the address comes again.
    bool recycle() {
        const char *before = base;
        if (keeps_freed()) {
            return recycle_what_is_kept();
        }
        umfFree(base);
        for (int i = 0; i < 100; i++) {
            base = allocate(*pool);
            if (base == before) {
                write_bytes(kind, base + at, pattern(question));
                return !handle().empty();
            }
        }
        return false;
    }

    Pool &consumer() {
        if (!other_pool) {
            other_pool = std::make_unique<Pool>(consumer_text(kind, folder));
        }
        return *other_pool;
    }

  public:
    Servant(std::string kind_name, std::string folder_name, Child &child)
        : kind(std::move(kind_name)), folder(std::move(folder_name)), early(child) {
        start_driver(kind);
    }
    ~Servant() {
        umfPutIPCHandle(out);
    }
    Servant(const Servant &) = delete;
    Servant &operator=(const Servant &) = delete;

    std::string serve(const std::string &word, const std::string &bytes) {
        return word == "produce" ? produce()
               : word == "answered"
                   ? (read_bytes(kind, base + at, part) == pattern(answer) ? "yes" : "no")
               : word == "free"         ? (umfFree(base) == OK ? "ok" : "")
               : word == "recycle"      ? (recycle() ? "ok" : "")
               : word == "open"         ? consume(kind, consumer(), bytes).text()
               : word == "flip"         ? consume_flipped(kind, consumer(), bytes).text()
               : word == "child before" ? early.open(bytes).text()
               : word == "child after"  ? Child(kind, folder).open(bytes).text()
                                        : "";
    }
};

// "<word> <bytes>": see Servant.
int peer(Socket &socket, const std::string &argument) {
    std::istringstream words(argument);
    std::string kind, where, folder, message;
    std::getline(words, kind, '|');
    std::getline(words, where, '|');
    std::getline(words, folder, '|');
    Child early(kind, folder); // finds no driver in use
    load_driver(kind);         // another user may not be able to read it
    enter(socket, where, folder);
    Servant servant(kind, folder, early);
    socket.send("ready");
    while (!(message = socket.receive()).empty()) {
        size_t end = message.find('|');
        std::string bytes = end == std::string::npos ? "" : message.substr(end + 1);
        std::string reply = servant.serve(message.substr(0, end), bytes);
        socket.send(reply.empty() ? "failed" : reply);
    }
    return 0;
}

const Roles roles = {{"peer", peer}};

// --- the test's side ---

// A new one for each test: nothing is left of it.
class Folder {
  public:
    std::string path;

    Folder() {
        char name[] = "/tmp/umf_matrix_XXXXXX";
        EXPECT_NE(mkdtemp(name), nullptr);
        path = name;
        EXPECT_EQ(chmod(name, 01777), 0);
        for (const char *each : folders) {
            EXPECT_EQ(mkdir((path + each).c_str(), 0777), 0);
            EXPECT_EQ(chmod((path + each).c_str(), 01777), 0);
        }
    }
    ~Folder() {
        unlink((path + "/f/producer").c_str());
        unlink((path + "/consumer").c_str());
        for (const char *each : folders) {
            EXPECT_EQ(rmdir((path + each).c_str()), 0) << each << " is not empty";
        }
        EXPECT_EQ(rmdir(path.c_str()), 0);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;

  private:
    static constexpr const char *folders[] = {"/f", "/s", "/here"};
};

std::string argument_of(const std::string &kind, const std::string &where, const Folder &folder) {
    return kind + "|" + where + "|" + folder.path;
}

// What it says when it is where it is to be; begins with "skip" if it cannot be there.
std::string start(const Socket &socket) {
    return socket.receive();
}

// Ends in order at the end of a scope, and leaves no socket behind.
struct Ended {
    Process &process;
    ~Ended() {
        process.socket.close();
        process.wait();
    }
};

bool says_one_of(const std::string &log, const std::string &texts) {
    std::istringstream all(texts);
    for (std::string text; std::getline(all, text, '|');) {
        if (log.find(text) != std::string::npos) {
            return true;
        }
    }
    return texts.empty();
}

class Matrix : public testing::TestWithParam<std::tuple<size_t, size_t>> {
  protected:
    const Row &row = rows[std::get<0>(GetParam())];
    const std::string kind = columns[std::get<1>(GetParam())];
    const std::string event = row.event;
    const std::string cell = cell_of(row, std::get<1>(GetParam()));
    Folder folder;

    // While the handle is out, what it names stays, freed or not.
    static std::string cell_of(const Row &row, size_t column) {
        std::string event = row.event;
        bool is_kept = keeps_freed() && (event == "free" || event == "recycle address");
        return !is_kept                                  ? row.cells[column]
               : std::string(columns[column]) == "fixed" ? "base"
                                                         : "yes";
    }

    static bool is_built(const std::string &name) {
        return (UMF_WITH_CUDA || !is_cuda(name)) && (UMF_WITH_LEVEL_ZERO || name != "level_zero");
    }

    std::string producer_place() const {
        return std::string(row.where) == "container"   ? "producer, container"
               : std::string(row.where) == "user, any" ? "any"
                                                       : "here";
    }

    void expect_outcome(const Report &report) {
        const Outcome &wanted = outcomes.at(cell);
        EXPECT_EQ(report.result, wanted.result) << report.log;
        EXPECT_TRUE(says_one_of(report.log, wanted.log)) << report.log;
    }
};

} // namespace

TEST_P(Matrix, IsAsDocumented) {
    if (!is_built(kind)) {
        GTEST_SKIP() << "this build has no " << kind;
    }
    if (!pool_can_serve(kind)) {
        GTEST_SKIP() << pool_kind() << " cannot serve memory of " << kind;
    }
    if (cell == "-") {
        GTEST_SKIP() << "a driver does not survive a fork";
    }
    Process producer("peer", argument_of(kind, producer_place(), folder));
    Ended producer_ends = {producer};
    ASSERT_EQ(start(producer.socket), "ready");
    std::string handle = producer.socket.call("produce");
    ASSERT_NE(handle, "failed");

    const std::string where = row.where;
    if (where == "same" || where.find("child") == 0) {
        const std::string word = where == "same" ? "open" : where;
        expect_outcome(Report::from(producer.socket.call(word + "|" + handle)));
        EXPECT_EQ(producer.socket.call("answered"), "yes");
        return;
    }
    Process consumer("peer", argument_of(kind, where, folder));
    Ended consumer_ends = {consumer};
    std::string said = start(consumer.socket);
    if (said != "ready") {
        GTEST_SKIP() << said;
    }
    std::unique_ptr<Process> again;
    if (event == "kill" || event == "recycle pid") {
        pid_t pid = producer.pid;
        producer.kill();
        if (event == "recycle pid") {
            usleep(3 * 1000000 / static_cast<unsigned>(sysconf(_SC_CLK_TCK))); // of start times
            again = std::make_unique<Process>(pid, "peer", argument_of(kind, "here", folder));
            if (again->pid != pid) {
                GTEST_SKIP() << "no process with a chosen number can be made: " << strerror(errno);
            }
            ASSERT_EQ(start(again->socket), "ready");
            ASSERT_NE(again->socket.call("produce"), "failed");
        }
    } else if (event == "free") {
        ASSERT_EQ(producer.socket.call("free"), "ok");
    } else if (event == "recycle address") {
        for (int tries = 0; producer.socket.call("recycle") != "ok"; tries++) {
            ASSERT_LT(tries, 10) << "the address did not come back";
            handle = producer.socket.call("produce"); // something else took the place
        }
    }
    expect_outcome(
        Report::from(consumer.socket.call((event == "flip" ? "flip|" : "open|") + handle)));
    if (outcomes.at(cell).result == OK && event.empty()) {
        EXPECT_EQ(producer.socket.call("answered"), "yes");
    }
}

INSTANTIATE_TEST_SUITE_P(Of, Matrix,
                         testing::Combine(testing::Range(size_t{0}, row_count),
                                          testing::Range(size_t{0}, column_count)),
                         [](const auto &cell) {
                             std::string name = rows[std::get<0>(cell.param)].name +
                                                std::string("__") +
                                                columns[std::get<1>(cell.param)];
                             for (char &c : name) {
                                 c = isalnum(static_cast<unsigned char>(c)) ? c : '_';
                             }
                             return name;
                         });

// The table of the documentation, cell by cell.
TEST(matrix, IsTheOneInTheDocumentation) {
    std::ifstream file(UMF_TEST_LIST_DIR "/../docs/ipc.md");
    std::map<std::string, std::vector<std::string>> found;
    for (std::string line; std::getline(file, line);) {
        std::vector<std::string> cells;
        std::istringstream all(line);
        for (std::string cell; std::getline(all, cell, '|');) {
            size_t first = cell.find_first_not_of(" `"), last = cell.find_last_not_of(" `");
            cells.push_back(first == std::string::npos ? "" : cell.substr(first, last - first + 1));
        }
        if (cells.size() == column_count + 2) {
            found[cells[1]] = std::vector<std::string>(cells.begin() + 2, cells.end());
        }
    }
    for (const Row &row : rows) {
        std::vector<std::string> wanted(row.cells, row.cells + column_count);
        EXPECT_EQ(found[row.name], wanted) << row.name;
    }
}

int main(int argc, char **argv) {
    bool is_absent = getenv("UMF_TEST_POOL") && strcmp(getenv("UMF_TEST_POOL"), "scalable") == 0 &&
                     !has_one_tbb();
    return run_role_or_tests(argc, argv, roles, is_absent);
}
