/*
 * A program closes an unknown descriptor, as daemons do, and opens a file of its own
 * under the same number, while the library has it: that file must stay as it is, and open.
 *
 * Each feature says how many descriptors it keeps, so that a new one is noticed here. For each of
 * them, and for all at once, a child runs the feature to its end; so does a child of the child.
 */
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <ostream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc.h>
#include <umf/ipc_ext.h>
#include <umf/record.h>
#include <umf/suspend.h>
#include <umf/text.h>

#include <gtest/gtest.h>

#if UMF_WITH_CUDA
#include "gpu/gpu.h"
#endif

#include "fakes/attach.h"
#include "fakes/child.h"
#include "fakes/library.h"
#include "fakes/scale.h"

namespace {

// The life of a feature in one child; all state lives and ends with it.
struct Feature {
    const char *name;
    size_t kept; // descriptors
    std::function<bool()> start;
    std::function<bool()> use; // true: all went well
    std::function<void()> end;
    std::function<bool()> prepare = {}; // of a driver, which does not survive a fork
};

std::ostream &operator<<(std::ostream &out, const Feature &feature) {
    return out << feature.name;
}

// --- what features share ---

umf_memory_pool_handle_t pool;
void *object;
umf_ipc_handle_t handle;
size_t handle_size;
std::string path;
int from_helper[2], to_helper[2]; // numbers above those of the library

bool make(const std::string &text) {
    return umfPoolCreateFromText(text.c_str(), &pool) == UMF_RESULT_SUCCESS &&
           (object = umfPoolMalloc(pool, 100000)) != nullptr;
}

bool share() {
    return umfGetIPCHandle(object, &handle, &handle_size) == UMF_RESULT_SUCCESS;
}

bool grow() {
    void *more = umfPoolMalloc(pool, size_t{80} << 20);
    umf_ipc_handle_t again = nullptr;
    size_t size;
    bool done = more != nullptr;
    if (more) {
        memset(more, 'X', size_t{80} << 20);
        done = !handle || umfGetIPCHandle(more, &again, &size) == UMF_RESULT_SUCCESS;
    }
    if (again) {
        umfPutIPCHandle(again);
    }
    umfFree(more);
    umfPoolTrimMemory(pool, 0);
    return done;
}

void end_pool() {
    if (handle) {
        umfPutIPCHandle(handle);
    }
    umfFree(object);
    umfPoolTrimMemory(pool, 0);
    umfPoolDestroy(pool);
    if (!path.empty()) {
        unlink(path.c_str());
    }
}

// Runs in another process until this one ends.
pid_t helper(const std::function<void()> &work) {
    pid_t pid = fork();
    if (pid == 0) {
        close(to_helper[1]);
        work();
        char byte;
        while (read(to_helper[0], &byte, 1) > 0) {
        }
        _exit(0);
    }
    return pid;
}

void make_pipes() {
    int ends[4];
    if (pipe2(ends, O_CLOEXEC) != 0 || pipe2(ends + 2, O_CLOEXEC) != 0) {
        _exit(99);
    }
    int *places[] = {&from_helper[0], &from_helper[1], &to_helper[0], &to_helper[1]};
    for (int i = 0; i < 4; i++) {
        *places[i] = fcntl(ends[i], F_DUPFD_CLOEXEC, 200);
        close(ends[i]);
    }
}

// --- features ---

bool start_file() {
    path = "/tmp/umf_closed_" + std::to_string(getpid());
    return make("disjoint over file:path=" + path + ",visibility=shared");
}

umf_ipc_handler_handle_t handler;
char received[4096];
void *opened;

// The pool of the producer is made in another process.
bool start_import(const char *text) {
    helper([text] {
        if (!make(text) || !share() ||
            write(from_helper[1], &handle_size, sizeof(handle_size)) < 0 ||
            write(from_helper[1], handle, handle_size) < 0) {
            _exit(1);
        }
    });
    size_t size;
    return read(from_helper[0], &size, sizeof(size)) == (ssize_t)sizeof(size) &&
           size <= sizeof(received) && read(from_helper[0], received, size) == (ssize_t)size &&
           umfPoolCreateFromText(text, &pool) == UMF_RESULT_SUCCESS &&
           umfPoolGetIPCHandler(pool, &handler) == UMF_RESULT_SUCCESS &&
           umfOpenIPCHandle(handler, (umf_ipc_handle_t)received, &opened) == UMF_RESULT_SUCCESS;
}

bool use_import() {
    umfCloseIPCHandle(opened);
    umfIPCEvict(0, nullptr);
    return umfOpenIPCHandle(handler, (umf_ipc_handle_t)received, &opened) == UMF_RESULT_SUCCESS;
}

void end_import() {
    umfCloseIPCHandle(opened);
    umfPoolDestroy(pool);
}

bool start_suspend() {
    umf_suspend_policy_t policy = UMF_SUSPEND_POLICY_INIT;
    policy.keep = UMF_SUSPEND_KEEP_FILE;
    policy.folder = "/tmp";
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    if (!make("coalescing over linux_vmm")) {
        return false;
    }
    memset(object, 'c', 100000);
    return umfPoolSetSuspendPolicy(pool, &policy) == UMF_RESULT_SUCCESS &&
           umfPoolsSuspend(&pool, 1, nullptr, &report) == UMF_RESULT_SUCCESS;
}

// A resume never reports lost content as restored.
bool use_suspend() {
    umf_suspend_report_t report = UMF_SUSPEND_REPORT_INIT;
    if (umfPoolsResume(&pool, 1, nullptr, &report) != UMF_RESULT_SUCCESS) {
        return false;
    }
    const char *content = static_cast<char *>(object);
    if (std::count(content, content + 100000, 'c') != 100000) {
        _exit(98);
    }
    return true;
}

bool set_log(std::string name) {
    return umfCtlSet("umf.logger.output", name.data(), name.size() + 1) == UMF_RESULT_SUCCESS;
}

bool start_log() {
    path = "/tmp/umf_closed_log_" + std::to_string(getpid());
    return set_log(path);
}

bool use_log() {
    umfFree(&path); // an error, which is logged
    return true;
}

void end_log() {
    set_log("/dev/null");
    unlink(path.c_str());
}

bool start_record(bool has_path) {
    umf_record_params_t params = UMF_RECORD_PARAMS_INIT;
    path = has_path ? "/tmp/umf_closed_record_" + std::to_string(getpid()) : "";
    params.path = has_path ? path.c_str() : nullptr;
    params.size = size_t{1} << 20;
    return make("disjoint over os") && umfRecordStart(&params) == UMF_RESULT_SUCCESS;
}

void end_record() {
    umfRecordStop();
    end_pool();
}

bool start_attach() {
    bool is_open = true;
    if (umfCtlSet("umf.record.attach", &is_open, sizeof(is_open)) != UMF_RESULT_SUCCESS ||
        !make("disjoint over os")) {
        return false;
    }
    pid_t self = getpid();
    helper([self] {
        Visit visit(self);
        bool is_there = visit.call(UMF_ATTACH_FIGURES) == UMF_ATTACH_DONE;
        if (write(from_helper[1], &is_there, 1) != 1) {
            _exit(1);
        }
        char byte;
        while (read(to_helper[0], &byte, 1) > 0) {
            bool is_done = visit.call(UMF_ATTACH_FIGURES) == UMF_ATTACH_DONE;
            if (write(from_helper[1], &is_done, 1) != 1) {
                _exit(1);
            }
        }
        _exit(0);
    });
    bool is_there = false;
    return read(from_helper[0], &is_there, 1) == 1 && is_there;
}

bool use_attach() {
    bool is_done = false;
    return write(to_helper[1], "x", 1) == 1 && read(from_helper[0], &is_done, 1) == 1 && is_done;
}

bool start_shared(const char *text) {
    return make(text) && share();
}

void end_attach() {
    bool is_open = false;
    umfCtlSet("umf.record.attach", &is_open, sizeof(is_open));
    end_pool();
}

#if UMF_WITH_CUDA
// The descriptors of the driver's own are open before those of the library are counted.
bool prepare_cuda_vmm() {
    CUcontext context;
    return driver().cuInit(0) == CUDA_SUCCESS &&
           driver().cuDevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS &&
           driver().cuCtxSetCurrent(context) == CUDA_SUCCESS &&
           make("coalescing over cuda_vmm:share=fd,device=0");
}

bool use_shared() {
    umf_ipc_handle_t again = nullptr;
    size_t size;
    bool is_shared = umfGetIPCHandle(object, &again, &size) == UMF_RESULT_SUCCESS;
    if (again) {
        umfPutIPCHandle(again);
    }
    return is_shared;
}
#endif

const Feature features[] = {
    {"os_shared", 2, [] { return start_shared("disjoint over os:visibility=shared"); }, grow,
     end_pool},
    {"os_named", 1,
     [] {
         return start_shared(
             ("disjoint over os:visibility=shared,shm_name=umf_closed_" + std::to_string(getpid()))
                 .c_str());
     },
     grow, end_pool},
    {"os_private", 0, [] { return make("disjoint over os"); }, grow, end_pool},
    {"file", 1, start_file, grow, end_pool},
    {"linux_vmm", 4, [] { return start_shared("coalescing over linux_vmm"); }, grow, end_pool},
    {"import_os", 3, [] { return start_import("disjoint over os:visibility=shared"); }, use_import,
     end_import},
    {"import_vmm", 1, [] { return start_import("coalescing over linux_vmm"); }, use_import,
     end_import},
    {"suspended", 1, start_suspend, use_suspend, end_pool},
    {"log", 1, start_log, use_log, end_log},
    {"record_file", 1, [] { return start_record(true); }, grow, end_record},
    {"record_memory", 1, [] { return start_record(false); }, grow, end_record},
    {"attach", 2, start_attach, use_attach, end_attach},
#if UMF_WITH_CUDA
    {"cuda_vmm", 3, share, use_shared, end_pool, prepare_cuda_vmm},
#endif
};

// --- the program ---

std::vector<int> open_numbers() {
    std::vector<int> numbers;
    for (int fd = 0; fd < 200; fd++) {
        if (fcntl(fd, F_GETFD) != -1) {
            numbers.push_back(fd);
        }
    }
    return numbers;
}

std::vector<int> kept_since(const std::vector<int> &before) {
    std::vector<int> after = open_numbers(), kept;
    std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                        std::back_inserter(kept));
    return kept;
}

// A file of the program, under a number that the library had.
struct OwnFile {
    int number;
    struct stat identity {};
    const std::string text = std::string(5000, 'm');

    explicit OwnFile(int fd) : number(fd) {
        int made = memfd_create("program", 0);
        bool done = write(made, text.data(), text.size()) == (ssize_t)text.size() &&
                    lseek(made, 10, SEEK_SET) == 10 && dup2(made, number) == number &&
                    fstat(number, &identity) == 0;
        close(made);
        if (!done) {
            _exit(97);
        }
    }
    bool is_untouched() const {
        struct stat now {};
        std::string content(text.size() + 1, 0);
        return fstat(number, &now) == 0 && now.st_ino == identity.st_ino &&
               now.st_dev == identity.st_dev && now.st_size == (off_t)text.size() &&
               lseek(number, 0, SEEK_CUR) == 10 &&
               pread(number, content.data(), content.size(), 0) == (ssize_t)text.size() &&
               content.compare(0, text.size(), text) == 0;
    }
};

bool all_untouched(const std::vector<OwnFile> &files, const char *when) {
    bool is_good = true;
    for (const OwnFile &file : files) {
        if (!file.is_untouched()) {
            fprintf(stderr, "%s: the program's file %d was changed or closed\n", when, file.number);
            is_good = false;
        }
    }
    return is_good;
}

enum { GOOD, TOUCHED, NOT_STARTED, WRONG_COUNT, USE_FAILED };

// `which`: of the descriptors; the number of them: all; -1: none.
int live_through(const Feature &feature, int which) {
    make_pipes();
    if (feature.prepare && !feature.prepare()) {
        return NOT_STARTED;
    }
    std::vector<int> before = open_numbers();
    if (!feature.start()) {
        return NOT_STARTED;
    }
    std::vector<int> kept = kept_since(before);
    for (int i = 0; i < 60000 && kept.size() > feature.kept; i++) {
        usleep(1000); // a thread of the library has one open for a moment
        kept = kept_since(before);
    }
    if (kept.size() != feature.kept) {
        fprintf(stderr, "%s keeps %zu descriptors, not %zu\n", feature.name, kept.size(),
                feature.kept);
        return WRONG_COUNT;
    }
    std::vector<OwnFile> files;
    for (size_t i = 0; i < kept.size() && which >= 0; i++) {
        if ((size_t)which == i || (size_t)which == kept.size()) {
            files.emplace_back(kept[i]);
        }
    }
    // ThreadSanitizer calls a thread leaked in the child of a fork that had ended before it.
    bool is_good = feature.prepare || UMF_TEST_TSAN || in_child([&] {
                       feature.end();
                       return all_untouched(files, "end in a child");
                   });
    bool is_used = feature.use();
    is_good = all_untouched(files, "use") && is_good;
    feature.end();
    is_good = all_untouched(files, "end") && is_good;
    umfTearDown(); // joins threads that ended when their descriptor was gone
    is_good = all_untouched(files, "end of the library") && is_good;
    return !is_good ? TOUCHED : which < 0 && !is_used ? USE_FAILED : GOOD;
}

class Closed : public testing::TestWithParam<Feature> {};

TEST_P(Closed, OtherFilesStayAsTheyAre) {
    const Feature &feature = GetParam();
    if (strcmp(feature.name, "attach") == 0 && getenv("UMF_TEST_EMULATOR")) {
        GTEST_SKIP() << "a child of a fork cannot start threads there";
    }
    if (strcmp(feature.name, "attach") == 0 && UMF_TEST_TSAN) {
        GTEST_SKIP() << "a number that is replaced while a thread polls it is a race in its eyes";
    }
    if (feature.prepare && wants_real("UMF_TEST_GPU")) {
        GTEST_SKIP()
            << "the descriptors of the real driver cannot be distinguished from the library's";
    }
    for (int which = -1; which <= (int)feature.kept; which++) {
        EXPECT_EQ(exit_of_child([&] { return live_through(feature, which); }), GOOD)
            << "descriptor " << which << " of " << feature.kept;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Closed, testing::ValuesIn(features),
                         [](const auto &one) { return std::string(one.param.name); });

} // namespace
