// A program that did not request inspection has no socket and no thread of the library.
#include <algorithm>
#include <vector>

#include <dirent.h>

#include <umf.h>
#include <umf/record.h>

#include "attach.h"

namespace {

std::vector<std::string> entries(const char *folder) {
    std::vector<std::string> names;
    DIR *dir = opendir(folder);
    while (dirent *entry = readdir(dir)) {
        names.emplace_back(entry->d_name);
    }
    closedir(dir);
    std::sort(names.begin(), names.end());
    return names;
}

TEST(AttachUnasked, PoolsOfAllKindsStartNothing) {
    unsetenv("UMF_RECORD_ATTACH"); // read when the library was loaded; no test has set it
    ASSERT_FALSE(attach_get());
    const auto threads = entries("/proc/self/task"), files = entries("/proc/self/fd");
    for (const char *kind : {"proxy", "disjoint", "coalescing", "jemalloc", "scalable"}) {
        umf_memory_pool_handle_t pool;
        std::string text = std::string(kind) + " over os";
        if (umfPoolCreateFromText(text.c_str(), &pool) != UMF_RESULT_SUCCESS) {
            printf("%s: not in this build\n", text.c_str());
            continue;
        }
        for (int i = 0; i < 20000; i++) {
            umfPoolFree(pool, umfPoolMalloc(pool, 100));
        }
        EXPECT_EQ(entries("/proc/self/task"), threads) << kind;
        EXPECT_EQ(entries("/proc/self/fd"), files) << kind;
        EXPECT_FALSE(Visit().is_open()) << kind;
        umfPoolDestroy(pool);
    }
    EXPECT_EQ(umfRecordStart(nullptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(entries("/proc/self/task"), threads);
    EXPECT_EQ(umfRecordStop(), UMF_RESULT_SUCCESS);
}

} // namespace
