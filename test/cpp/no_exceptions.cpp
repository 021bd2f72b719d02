// The C++ interface without exceptions and without RTTI; built so by CMake. What would throw
// aborts.
#include <cstdio>
#include <cstring>
#include <string>

#include <sys/wait.h>
#include <unistd.h>

#include "cpp/heap.h"

#if defined(__cpp_exceptions) || defined(__cpp_rtti)
#error this is compiled with -fno-exceptions -fno-rtti
#endif

#define CHECK(expected)                                                                            \
    do {                                                                                           \
        if (!(expected)) {                                                                         \
            std::fprintf(stderr, "line %d: %s is false\n", __LINE__, #expected);                   \
            std::exit(1);                                                                          \
        }                                                                                          \
    } while (0)

static void values() {
    umf::pool pool = umf::pool::create("disjoint over os").value();
    CHECK(umf::pool::create("disjoint over oss").code() == UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf::memory_resource resource(pool);
    CHECK(resource.is_equal(resource));
    std::pmr::string text("a text that does not fit into the object itself", &resource);
    CHECK(umf::pool_ref::of(text.data()) == pool);
    CHECK(pool.try_allocate(SIZE_MAX / 2) == nullptr);
    CHECK(!umf::buffer<int>::create(pool, SIZE_MAX / 8));
    CHECK(*umf::make_unique<int>(pool, 7) == 7);
    umf::limit_adaptor limit(pool, 100);
    umf::adaptor_resource limited(limit);
    CHECK(std::pmr::string(50, 'x', &limited).size() == 50 && !limit.try_allocate(101));
    umf::current_pool_scope current(pool);
    CHECK(umf::current_pool() == pool);
    CHECK(!umf::vault::create("")); // no name
}

static void kinds() {
    Counters counters;
    {
        umf::pool pool(umf::make_provider<Heap>(counters), umf::disjoint_params());
        pool.deallocate(pool.allocate(100));
        CHECK(counters.objects == 1 && counters.blocks > 0);
    }
    CHECK(counters.objects == 0 && counters.blocks == 0);
}

// The text of a call on stderr before it aborts.
static std::string last_words(void (*call)()) {
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        call();
        _exit(0);
    }
    close(ends[1]);
    char words[1000];
    ssize_t size = read(ends[0], words, sizeof(words));
    close(ends[0]);
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    return std::string(words, size > 0 ? static_cast<size_t>(size) : 0);
}

int main() {
    values();
    kinds();
    std::string words = last_words([] { umf::pool pool("disjoint over oss"); });
    CHECK(words.find("unknown kind of provider 'oss'") != std::string::npos);
    words =
        last_words([] { static_cast<void>(umf::pool("proxy over os").allocate(SIZE_MAX / 4)); });
    CHECK(words.find("allocating 4611686018427387903 bytes from proxy") != std::string::npos);
    return 0;
}
