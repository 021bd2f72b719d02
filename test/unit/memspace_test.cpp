/* Memspaces. */
#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdint>
#include <set>
#include <sys/wait.h>
#include <thread>

#include "fault.h"
#include "machine.h"

extern "C" {
#include "base/meta.h"
}

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t FULL = UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
constexpr umf_result_t WITHOUT_HWLOC =
    UMF_WITH_HWLOC ? UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE : UMF_RESULT_ERROR_NOT_SUPPORTED;

using Ids = std::vector<unsigned>;

const struct {
    const char *name;
    umf_const_memspace_handle_t (*get)();
} predefined[] = {
    {"HostAll", umfMemspaceHostAllGet},
    {"HighestCapacity", umfMemspaceHighestCapacityGet},
    {"HighestBandwidth", umfMemspaceHighestBandwidthGet},
    {"LowestLatency", umfMemspaceLowestLatencyGet},
};

std::vector<umf_const_memtarget_handle_t> handles(umf_const_memspace_handle_t memspace) {
    std::vector<umf_const_memtarget_handle_t> list;
    for (unsigned i = 0; i < umfMemspaceMemtargetNum(memspace); i++) {
        list.push_back(umfMemspaceMemtargetGet(memspace, i));
    }
    return list;
}

} // namespace

/* --- making ----------------------------------------------------------------------------------- */

TEST(memspace, NewIsEmpty) {
    EXPECT_EQ(umfMemspaceNew(nullptr), BAD);
    machine::Memspace memspace;
    EXPECT_NE(memspace.handle, nullptr);
    EXPECT_EQ(umfMemspaceMemtargetNum(memspace.handle), 0u);
    EXPECT_EQ(umfMemspaceMemtargetGet(memspace.handle, 0), nullptr);
}

TEST(memspace, FromNumaArrayKeepsOrderAndChecksNothing) {
    Ids nodes = {5, 0, UINT_MAX, 5, 70, 4096};
    machine::Memspace memspace(nodes);
    nodes[0] = 1;
    EXPECT_EQ(memspace.ids(), (Ids{5, 0, UINT_MAX, 5, 70, 4096}));
}

TEST(memspace, FromNumaArrayRefuses) {
    unsigned node = 0;
    umf_memspace_handle_t handle = nullptr;
    EXPECT_EQ(umfMemspaceCreateFromNumaArray(nullptr, 1, &handle), BAD);
    EXPECT_EQ(umfMemspaceCreateFromNumaArray(&node, 0, &handle), BAD);
    EXPECT_EQ(umfMemspaceCreateFromNumaArray(&node, 1, nullptr), BAD);
    EXPECT_EQ(umfMemspaceCreateFromNumaArray(&node, SIZE_MAX, &handle), FULL);
    EXPECT_EQ(handle, nullptr);
}

TEST(memspace, DestroyOfNull) {
    EXPECT_EQ(umfMemspaceDestroy(nullptr), BAD);
}

TEST(memspace, TargetsByPlace) {
    machine::Memspace memspace({3, 1});
    EXPECT_EQ(umfMemspaceMemtargetNum(memspace.handle), 2u);
    EXPECT_NE(memspace.at(0), nullptr);
    EXPECT_NE(memspace.at(1), nullptr);
    EXPECT_NE(memspace.at(0), memspace.at(1));
    EXPECT_EQ(memspace.at(2), nullptr);
    EXPECT_EQ(memspace.at(UINT_MAX), nullptr);
    EXPECT_EQ(umfMemspaceMemtargetNum(nullptr), 0u);
    EXPECT_EQ(umfMemspaceMemtargetGet(nullptr, 0), nullptr);
}

TEST(memspace, CloneIsDeepAndIndependent) {
    machine::Memspace origin({3, 1, 2});
    machine::Memspace clone(machine::Copy::of, origin.handle);
    EXPECT_EQ(clone.ids(), (Ids{3, 1, 2}));
    EXPECT_NE(clone.at(0), origin.at(0));
    EXPECT_EQ(umfMemspaceMemtargetRemove(clone.handle, clone.at(1)), OK);
    EXPECT_EQ(clone.ids(), (Ids{3, 2}));
    EXPECT_EQ(origin.ids(), (Ids{3, 1, 2}));
    machine::Memspace empty;
    EXPECT_EQ(machine::Memspace(machine::Copy::of, empty.handle).ids(), Ids{});
}

TEST(memspace, CloneRefuses) {
    machine::Memspace origin({3});
    umf_memspace_handle_t handle = nullptr;
    EXPECT_EQ(umfMemspaceClone(nullptr, &handle), BAD);
    EXPECT_EQ(umfMemspaceClone(origin.handle, nullptr), BAD);
    EXPECT_EQ(handle, nullptr);
}

/* --- changing --------------------------------------------------------------------------------- */

TEST(memspace, AddTakesACopy) {
    machine::Memspace memspace;
    {
        machine::Memspace other({4, 9});
        EXPECT_EQ(umfMemspaceMemtargetAdd(memspace.handle, other.at(1)), OK);
        EXPECT_EQ(umfMemspaceMemtargetAdd(memspace.handle, other.at(0)), OK);
        EXPECT_NE(memspace.at(0), other.at(1));
    }
    EXPECT_EQ(memspace.ids(), (Ids{9, 4}));
}

TEST(memspace, AddRefuses) {
    machine::Memspace memspace({1, 2}), other({2});
    EXPECT_EQ(umfMemspaceMemtargetAdd(nullptr, other.at(0)), BAD);
    EXPECT_EQ(umfMemspaceMemtargetAdd(memspace.handle, nullptr), BAD);
    EXPECT_EQ(umfMemspaceMemtargetAdd(memspace.handle, other.at(0)), BAD) << "contained already";
    EXPECT_EQ(umfMemspaceMemtargetAdd(memspace.handle, memspace.at(0)), BAD) << "its own";
    EXPECT_EQ(memspace.ids(), (Ids{1, 2}));
}

TEST(memspace, HandlesStayWhileItGrows) {
    machine::Memspace memspace;
    std::vector<umf_const_memtarget_handle_t> seen;
    for (unsigned i = 0; i < 100; i++) {
        machine::Memspace one({i});
        ASSERT_EQ(umfMemspaceMemtargetAdd(memspace.handle, one.at(0)), OK);
        seen.push_back(memspace.at(i));
    }
    EXPECT_EQ(handles(memspace.handle), seen);
}

TEST(memspace, RemoveComparesNumbers) {
    machine::Memspace memspace({1, 2, 3}), other({2});
    auto before = handles(memspace.handle);
    EXPECT_EQ(umfMemspaceMemtargetRemove(memspace.handle, other.at(0)), OK);
    EXPECT_EQ(memspace.ids(), (Ids{1, 3}));
    EXPECT_EQ(handles(memspace.handle), (std::vector{before[0], before[2]}));
    EXPECT_EQ(umfMemspaceMemtargetRemove(memspace.handle, other.at(0)), BAD) << "not contained";
    EXPECT_EQ(umfMemspaceMemtargetRemove(nullptr, other.at(0)), BAD);
    EXPECT_EQ(umfMemspaceMemtargetRemove(memspace.handle, nullptr), BAD);
    EXPECT_EQ(memspace.ids(), (Ids{1, 3}));
}

/* The handle may be that of the target that is removed. */
TEST(memspace, RemoveByOwnHandleToTheLast) {
    machine::Memspace memspace({1, 2});
    EXPECT_EQ(umfMemspaceMemtargetRemove(memspace.handle, memspace.at(0)), OK);
    EXPECT_EQ(memspace.ids(), Ids{2});
    EXPECT_EQ(umfMemspaceMemtargetRemove(memspace.handle, memspace.at(0)), OK);
    EXPECT_EQ(memspace.ids(), Ids{});
    machine::Memspace one({7});
    EXPECT_EQ(umfMemspaceMemtargetAdd(memspace.handle, one.at(0)), OK) << "it can be filled again";
    EXPECT_EQ(memspace.ids(), Ids{7});
}

/* --- filters ---------------------------------------------------------------------------------- */

TEST(memspace, FilterByIdKeepsWhatIsListed) {
    machine::Memspace memspace({5, 1, 3, 2});
    auto before = handles(memspace.handle);
    unsigned list[] = {2, 99, 5, 2};
    EXPECT_EQ(umfMemspaceFilterById(memspace.handle, list, 4), OK);
    EXPECT_EQ(memspace.ids(), (Ids{5, 2}));
    EXPECT_EQ(handles(memspace.handle), (std::vector{before[0], before[3]})) << "the same handles";
    unsigned none = 42;
    EXPECT_EQ(umfMemspaceFilterById(memspace.handle, &none, 1), OK);
    EXPECT_EQ(memspace.ids(), Ids{}) << "may be empty";
    EXPECT_EQ(umfMemspaceFilterById(memspace.handle, &none, 1), OK) << "of an empty one";
}

TEST(memspace, FilterByIdRefuses) {
    machine::Memspace memspace({5});
    unsigned list[] = {1};
    EXPECT_EQ(umfMemspaceFilterById(nullptr, list, 1), BAD);
    EXPECT_EQ(umfMemspaceFilterById(memspace.handle, nullptr, 1), BAD);
    EXPECT_EQ(umfMemspaceFilterById(memspace.handle, list, 0), BAD);
    EXPECT_EQ(memspace.ids(), Ids{5});
}

TEST(memspace, FilterByCapacity) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("four_sockets"); // 4, 16, 8, 16 GiB
    constexpr int64_t GiB = int64_t{1} << 30;
    machine::Memspace memspace({3, 2, 1, 0, 9});
    auto before = handles(memspace.handle);
    EXPECT_EQ(umfMemspaceFilterByCapacity(memspace.handle, 0), OK);
    EXPECT_EQ(memspace.ids(), (Ids{3, 2, 1, 0})) << "a node that does not exist has no capacity";
    EXPECT_EQ(umfMemspaceFilterByCapacity(memspace.handle, 8 * GiB), OK);
    EXPECT_EQ(memspace.ids(), (Ids{3, 2, 1})) << "at least that size";
    EXPECT_EQ(umfMemspaceFilterByCapacity(memspace.handle, 8 * GiB + 1), OK);
    EXPECT_EQ(memspace.ids(), (Ids{3, 1}));
    EXPECT_EQ(handles(memspace.handle), (std::vector{before[0], before[2]}));
    EXPECT_EQ(umfMemspaceFilterByCapacity(memspace.handle, INT64_MAX), OK);
    EXPECT_EQ(memspace.ids(), Ids{});
}

TEST(memspace, FilterByCapacityRefuses) {
    machine::Memspace memspace({0});
    EXPECT_EQ(umfMemspaceFilterByCapacity(nullptr, 0), BAD);
    EXPECT_EQ(umfMemspaceFilterByCapacity(memspace.handle, -1), BAD);
    EXPECT_EQ(umfMemspaceFilterByCapacity(memspace.handle, INT64_MIN), BAD);
    EXPECT_EQ(memspace.ids(), Ids{0});
}

namespace {

struct Seen {
    umf_memspace_handle_t memspace;
    Ids ids;
    int (*answer)(unsigned id);
};

int filter(umf_const_memspace_handle_t memspace, umf_const_memtarget_handle_t target, void *args) {
    Seen *seen = static_cast<Seen *>(args);
    unsigned id = 0;
    EXPECT_EQ(memspace, seen->memspace);
    EXPECT_EQ(umfMemtargetGetId(target, &id), OK);
    EXPECT_EQ(umfMemspaceMemtargetNum(memspace), 4u) << "none is dropped before all were queried";
    seen->ids.push_back(id);
    return seen->answer(id);
}

} // namespace

TEST(memspace, UserFilterKeepsThePositive) {
    machine::Memspace memspace({4, 3, 2, 1});
    auto before = handles(memspace.handle);
    Seen seen = {memspace.handle, {}, [](unsigned id) { return id % 2 ? 0 : INT_MAX; }};
    EXPECT_EQ(umfMemspaceUserFilter(memspace.handle, filter, &seen), OK);
    EXPECT_EQ(seen.ids, (Ids{4, 3, 2, 1})) << "once for each, in order";
    EXPECT_EQ(memspace.ids(), (Ids{4, 2}));
    EXPECT_EQ(handles(memspace.handle), (std::vector{before[0], before[2]}));
}

TEST(memspace, UserFilterThatFailsChangesNothing) {
    machine::Memspace memspace({4, 3, 2, 1});
    auto before = handles(memspace.handle);
    Seen seen = {memspace.handle, {}, [](unsigned id) { return id == 2 ? -5 : 0; }};
    EXPECT_EQ(umfMemspaceUserFilter(memspace.handle, filter, &seen),
              UMF_RESULT_ERROR_USER_SPECIFIC);
    EXPECT_EQ(seen.ids, (Ids{4, 3, 2}));
    EXPECT_EQ(handles(memspace.handle), before);
}

TEST(memspace, UserFilterRefuses) {
    machine::Memspace memspace({4});
    Seen seen = {memspace.handle, {}, nullptr};
    EXPECT_EQ(umfMemspaceUserFilter(nullptr, filter, &seen), BAD);
    EXPECT_EQ(umfMemspaceUserFilter(memspace.handle, nullptr, nullptr), BAD);
    EXPECT_EQ(memspace.ids(), Ids{4});
    auto all = [](umf_const_memspace_handle_t, umf_const_memtarget_handle_t, void *args) {
        return args ? 0 : 1;
    };
    EXPECT_EQ(umfMemspaceUserFilter(memspace.handle, all, nullptr), OK) << "args may be NULL";
    EXPECT_EQ(memspace.ids(), Ids{4});
}

/* --- predefined ------------------------------------------------------------------------------- */

TEST(memspace, PredefinedOfRecordedMachines) {
    REQUIRE_HWLOC();
    const struct {
        const char *machine;
        Ids all, capacity, bandwidth, latency;
    } cases[] = {
        {"two_sockets", {0, 1}, {1, 0}, {}, {}},
        {"four_sockets", {0, 1, 2, 3}, {1, 3, 2, 0}, {0, 1, 2, 3}, {0, 1, 2, 3}},
        {"hbm_flat", {0, 1, 2, 3}, {0, 1, 2, 3}, {2, 3}, {0, 1}},
        {"cxl", {0, 1, 2}, {2, 0, 1}, {0, 1}, {0, 1}},
        {"gh200", {0, 1, 2, 3, 4, 5, 6, 7, 8}, {0, 1, 2, 3, 4, 5, 6, 7, 8}, {1}, {0}},
        {"sparse", {3, 12, 70}, {12, 70, 3}, {3, 70}, {}},
        {"restricted", {0}, {0}, {0}, {0}},
    };
    for (auto &c : cases) {
        machine::Recorded recorded(c.machine);
        EXPECT_EQ(machine::ids(umfMemspaceHostAllGet()), c.all) << c.machine;
        EXPECT_EQ(machine::ids(umfMemspaceHighestCapacityGet()), c.capacity) << c.machine;
        EXPECT_EQ(machine::ids(umfMemspaceHighestBandwidthGet()), c.bandwidth) << c.machine;
        EXPECT_EQ(machine::ids(umfMemspaceLowestLatencyGet()), c.latency) << c.machine;
        EXPECT_EQ(umfMemspaceHighestBandwidthGet() == nullptr, c.bandwidth.empty()) << c.machine;
        EXPECT_EQ(umfMemspaceLowestLatencyGet() == nullptr, c.latency.empty()) << c.machine;
    }
}

TEST(memspace, PredefinedHandlesAreAlwaysTheSame) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("hbm_flat");
    std::set<umf_const_memspace_handle_t> distinct;
    for (auto &one : predefined) {
        umf_const_memspace_handle_t first = one.get();
        EXPECT_NE(first, nullptr) << one.name;
        EXPECT_EQ(one.get(), first) << one.name;
        distinct.insert(first);
    }
    EXPECT_EQ(distinct.size(), 4u);
}

TEST(memspace, PredefinedOfThisMachine) {
    REQUIRE_HWLOC();
    machine::forget();
    Ids all = machine::ids(umfMemspaceHostAllGet());
    EXPECT_FALSE(all.empty());
    EXPECT_EQ(umfMemspaceMemtargetNum(umfMemspaceHighestCapacityGet()), all.size());
    for (auto &one : predefined) {
        for (unsigned id : machine::ids(one.get())) {
            EXPECT_NE(std::find(all.begin(), all.end(), id), all.end()) << one.name;
        }
    }
}

/* C lets a caller cast the const away. */
TEST(memspace, PredefinedCannotBeChanged) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("hbm_flat");
    machine::Memspace other({42});
    unsigned list[] = {0};
    auto drop = [](umf_const_memspace_handle_t, umf_const_memtarget_handle_t, void *) { return 0; };
    for (auto &one : predefined) {
        umf_memspace_handle_t handle = const_cast<umf_memspace_handle_t>(one.get());
        Ids before = machine::ids(handle);
        EXPECT_EQ(umfMemspaceDestroy(handle), BAD) << one.name;
        EXPECT_EQ(umfMemspaceMemtargetAdd(handle, other.at(0)), BAD) << one.name;
        EXPECT_EQ(umfMemspaceMemtargetRemove(handle, umfMemspaceMemtargetGet(handle, 0)), BAD);
        EXPECT_EQ(umfMemspaceFilterById(handle, list, 1), BAD) << one.name;
        EXPECT_EQ(umfMemspaceFilterByCapacity(handle, INT64_MAX), BAD) << one.name;
        EXPECT_EQ(umfMemspaceUserFilter(handle, drop, nullptr), BAD) << one.name;
        EXPECT_EQ(machine::ids(one.get()), before) << one.name;
        machine::Memspace clone(machine::Copy::of, one.get());
        EXPECT_EQ(clone.ids(), before);
        EXPECT_EQ(umfMemspaceUserFilter(clone.handle, drop, nullptr), OK) << "a clone can";
    }
}

TEST(memspace, ThreadsGetOneHandle) {
    REQUIRE_HWLOC();
    for (int round = 0; round < 5; round++) {
        machine::Recorded recorded("hbm_flat");
        size_t before = umf_meta_used();
        std::atomic<int> ready{0};
        umf_const_memspace_handle_t found[8][4] = {};
        std::vector<std::thread> threads;
        for (auto &place : found) {
            threads.emplace_back([&] {
                for (ready++; ready < 8;) {
                }
                for (size_t i = 0; i < 4; i++) {
                    place[i] = predefined[i].get();
                }
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        for (auto &place : found) {
            for (size_t i = 0; i < 4; i++) {
                EXPECT_NE(place[i], nullptr);
                EXPECT_EQ(place[i], found[0][i]);
            }
        }
        machine::forget();
        EXPECT_EQ(umf_meta_used(), before);
    }
}

TEST(memspace, ChildUsesItsParents) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("sparse");
    umf_const_memspace_handle_t all = umfMemspaceHostAllGet();
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        bool same = umfMemspaceHostAllGet() == all && machine::ids(all) == Ids{3, 12, 70};
        bool more = machine::ids(umfMemspaceHighestCapacityGet()) == Ids{12, 70, 3};
        _exit(same && more ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
}

TEST(memspace, TeardownReleasesThePredefined) {
    REQUIRE_HWLOC();
    machine::forget();
    size_t before = umf_meta_used();
    for (auto &one : predefined) {
        one.get();
    }
    EXPECT_GT(umf_meta_used(), before);
    machine::forget();
    EXPECT_EQ(umf_meta_used(), before);
}

/* Destructors of static objects may call this late. */
TEST(memspace, LateCallsAnswer) {
    REQUIRE_HWLOC();
    pid_t pid = fork();
    if (pid == 0) {
        alarm(60);
        umf_memspace_handle_t own = nullptr;
        bool good = umfMemspaceNew(&own) == OK;
        umfMemspaceHostAllGet();
        umfTearDown();
        good = good && umfMemspaceHostAllGet() == umfMemspaceHostAllGet();
        good = good && umfMemspaceDestroy(own) == OK && umfTearDown() == OK;
        _exit(good ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
}

TEST(memspace, WithoutHwlocThereAreNoPredefinedOnes) {
    machine::forget();
    for (auto &one : predefined) {
        machine::Log log;
        fault::Nth nth("dl_open");
        nth.next();
        EXPECT_EQ(one.get(), nullptr) << one.name;
        EXPECT_NE(log.text().find("hwloc"), std::string::npos) << log.text();
    }
    fault::Nth nth("dl_open");
    nth.next();
    machine::Memspace memspace({2, 1});
    EXPECT_EQ(umfMemspaceFilterByCapacity(memspace.handle, 0), WITHOUT_HWLOC);
    EXPECT_EQ(memspace.ids(), (Ids{2, 1})) << "unchanged on failure";
    unsigned id = 1;
    EXPECT_EQ(umfMemspaceFilterById(memspace.handle, &id, 1), OK);
    EXPECT_EQ(memspace.ids(), Ids{1});
}

TEST(memspace, BrokenRecordingGivesNone) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("broken");
    machine::Log log;
    for (auto &one : predefined) {
        EXPECT_EQ(one.get(), nullptr) << one.name;
    }
}

TEST(memspace, MissingAttributesAreSaid) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("two_sockets");
    machine::Log log;
    EXPECT_EQ(umfMemspaceHighestBandwidthGet(), nullptr);
    EXPECT_EQ(umfMemspaceLowestLatencyGet(), nullptr);
    EXPECT_NE(log.text().find("reports no bandwidth"), std::string::npos) << log.text();
    EXPECT_NE(log.text().find("reports no latency"), std::string::npos) << log.text();
    EXPECT_EQ(log.text().find("ERROR"), std::string::npos) << "it is not an error\n" << log.text();
}

/* --- without memory --------------------------------------------------------------------------- */

TEST(memspace, WithoutMemoryNothingStays) {
    size_t before = umf_meta_used();
    unsigned nodes[] = {3, 1, 2, 5, 4}, keep[] = {3, 4};
    fault::Nth nth("meta_alloc");
    while (nth.next()) {
        umf_memspace_handle_t made = nullptr, clone = nullptr;
        umf_result_t result = umfMemspaceCreateFromNumaArray(nodes, 5, &made);
        if (result == OK) {
            result = umfMemspaceClone(made, &clone);
        }
        if (result == OK) {
            result = umfMemspaceMemtargetRemove(clone, umfMemspaceMemtargetGet(made, 0));
        }
        if (result == OK) {
            result = umfMemspaceMemtargetAdd(clone, umfMemspaceMemtargetGet(made, 0));
        }
        if (result == OK) {
            result = umfMemspaceFilterById(clone, keep, 2);
            EXPECT_EQ(machine::ids(clone), result == OK ? (Ids{4, 3}) : (Ids{1, 2, 5, 4, 3}));
        }
        EXPECT_EQ(result, nth.hit() ? FULL : OK);
        EXPECT_EQ(made == nullptr, umfMemspaceDestroy(made) == BAD);
        EXPECT_EQ(clone == nullptr, umfMemspaceDestroy(clone) == BAD);
        EXPECT_EQ(umf_meta_used(), before);
    }
    EXPECT_GT(nth.runs(), 15);
}

TEST(memspace, PredefinedWithoutMemory) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("hbm_flat");
    size_t before = umf_meta_used();
    fault::Nth nth("meta_alloc");
    while (nth.next()) {
        umf_const_memspace_handle_t got = umfMemspaceHighestCapacityGet();
        EXPECT_EQ(got == nullptr, nth.hit());
        machine::forget();
        EXPECT_EQ(umf_meta_used(), before);
    }
    EXPECT_GT(nth.runs(), 8);
}
