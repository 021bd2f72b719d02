/* topology/topology: the table of nodes, on recorded machines and on this one. */
#include <atomic>
#include <climits>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

extern "C" {
#include "base/meta.h"
#include "system/os.h"
#include "topology/topology.h"
}

#include "fakes/child.h"
#include "fault.h"
#include "machine.h"

namespace {

constexpr size_t GiB = size_t{1} << 30;
constexpr unsigned BW = UMF_TOPOLOGY_BANDWIDTH, LAT = UMF_TOPOLOGY_LATENCY;

struct Node {
    unsigned id;
    size_t capacity;
    unsigned best;
    bool is_allowed;
    bool operator==(const Node &other) const {
        return id == other.id && capacity == other.capacity && best == other.best &&
               is_allowed == other.is_allowed;
    }
};

std::ostream &operator<<(std::ostream &out, const Node &node) {
    return out << "node " << node.id << ": " << node.capacity << " bytes, best " << node.best
               << (node.is_allowed ? "" : ", not allowed");
}

std::vector<Node> nodes() {
    std::vector<Node> list;
    const umf_topology_t *topology = nullptr;
    EXPECT_EQ(umf_topology_get(&topology), UMF_RESULT_SUCCESS);
    for (size_t i = 0; topology && i < topology->count; i++) {
        const umf_topology_node_t *node = &topology->nodes[i];
        list.push_back({node->id, node->capacity, node->best, node->is_allowed});
        EXPECT_EQ(umf_topology_find(topology, node->id), node);
    }
    return list;
}

using Nodes = std::vector<Node>;

/* Calls of dlopen by the library. */
std::atomic<int> opened;
int count_opens(const char *call) {
    opened += strcmp(call, "dl_open") == 0;
    return 0;
}

class CountOpens {
  public:
    CountOpens() {
        opened = 0;
        umf_os_set_fault(count_opens);
    }
    ~CountOpens() {
        umf_os_set_fault(nullptr);
    }
};

} // namespace

/* --- recorded machines ------------------------------------------------------------------------ */

TEST(topology, TwoSocketsWithoutAttributes) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("two_sockets");
    EXPECT_EQ(nodes(), (Nodes{{0, 8 * GiB, 0, true}, {1, 16 * GiB, 0, true}}));
}

TEST(topology, FourSocketsEachBestForItself) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("four_sockets");
    EXPECT_EQ(nodes(), (Nodes{{0, 4 * GiB, BW | LAT, true},
                              {1, 16 * GiB, BW | LAT, true},
                              {2, 8 * GiB, BW | LAT, true},
                              {3, 16 * GiB, BW | LAT, true}}));
}

TEST(topology, HighBandwidthMemoryBesideEachSocket) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("hbm_flat");
    EXPECT_EQ(nodes(), (Nodes{{0, 64 * GiB, LAT, true},
                              {1, 64 * GiB, LAT, true},
                              {2, 16 * GiB, BW, true},
                              {3, 16 * GiB, BW, true}}));
}

TEST(topology, FarNodeWithoutCpus) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("cxl");
    EXPECT_EQ(nodes(), (Nodes{{0, 32 * GiB, BW | LAT, true},
                              {1, 32 * GiB, BW | LAT, true},
                              {2, 128 * GiB, 0, true}}));
}

/* Nodes 2 to 8 are places for parts of the GPU; they have no memory. */
TEST(topology, GpuMemoryAndEmptyNodes) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("gh200");
    Nodes expected = {{0, 480 * GiB, LAT, true}, {1, 96 * GiB, BW, true}};
    for (unsigned id = 2; id <= 8; id++) {
        expected.push_back({id, 0, 0, true});
    }
    EXPECT_EQ(nodes(), expected);
}

/* Recorded in the order 70, 3, 12. Far nodes with better values are not local, so they do not
 * count. */
TEST(topology, NumbersAreTheSystems) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("sparse");
    EXPECT_EQ(nodes(),
              (Nodes{{3, 2 * GiB, BW, true}, {12, 8 * GiB, 0, true}, {70, 4 * GiB, BW, true}}));
    const umf_topology_t *topology = nullptr;
    ASSERT_EQ(umf_topology_get(&topology), UMF_RESULT_SUCCESS);
    for (unsigned absent : {0u, 1u, 2u, 4u, 11u, 13u, 69u, 71u, UINT_MAX}) {
        EXPECT_EQ(umf_topology_find(topology, absent), nullptr) << absent;
    }
}

TEST(topology, ForbiddenNodesAreKnownButNeverBest) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("restricted");
    EXPECT_EQ(nodes(), (Nodes{{0, 8 * GiB, BW | LAT, true}, {1, 16 * GiB, 0, false}}));
}

/* --- discovery -------------------------------------------------------------------------------- */

namespace {

/* Files of a Linux machine: two sockets of two CPUs, each with a node of DRAM and one of high
 * bandwidth memory without CPUs, and with attributes of their firmware. */
class FakeSystem {
  public:
    std::string root = testing::TempDir() + "umf_sysfs_" + std::to_string(getpid());

    FakeSystem() {
        const std::string cpus = "/sys/devices/system/cpu/", nodes = "/sys/devices/system/node/";
        for (const char *list : {"online", "possible", "present"}) {
            write(cpus + list, "0-3");
        }
        write(nodes + "online", "0-3");
        write(nodes + "possible", "0-3");
        for (int cpu = 0; cpu < 4; cpu++) {
            const std::string topology = cpus + "cpu" + std::to_string(cpu) + "/topology/";
            write(topology + "physical_package_id", std::to_string(cpu / 2));
            write(topology + "core_id", std::to_string(cpu % 2));
            write(topology + "package_cpus", cpu < 2 ? "3" : "c");
            write(topology + "core_siblings", cpu < 2 ? "3" : "c");
            write(topology + "core_cpus", std::to_string(1 << cpu));
            write(topology + "thread_siblings", std::to_string(1 << cpu));
        }
        for (int node = 0; node < 4; node++) {
            const bool is_dram = node < 2;
            const std::string number = std::to_string(node), folder = nodes + "node" + number + "/";
            write(folder + "cpumap", node == 0 ? "3" : node == 1 ? "c" : "0");
            write(folder + "meminfo", "Node " + number + " MemTotal: 1048576 kB");
            write(folder + "distance", "10 20 20 20");
            const std::string access = folder + "access0/initiators/";
            write(access + "node" + std::to_string(node % 2) + "/uevent", "");
            for (const char *way : {"read", "write"}) {
                write(access + way + "_bandwidth", is_dram ? "100000" : "400000");
                write(access + way + "_latency", is_dram ? "80" : "120");
            }
        }
        write("/proc/cpuinfo", "processor\t: 0\n");
    }
    ~FakeSystem() {
        std::filesystem::remove_all(root);
    }

  private:
    void write(const std::string &path, const std::string &text) const {
        std::filesystem::path file(root + path);
        std::filesystem::create_directories(file.parent_path());
        std::ofstream(file) << text << "\n";
    }
};

} // namespace

/* The fast path must not lose the CPUs of a node. */
TEST(topology, DiscoveryKeepsWhichNodesAreLocal) {
    REQUIRE_HWLOC();
    FakeSystem system;
    machine::Variable root("HWLOC_FSROOT", system.root);
    EXPECT_EQ(
        nodes(),
        (Nodes{{0, GiB, LAT, true}, {1, GiB, LAT, true}, {2, GiB, BW, true}, {3, GiB, BW, true}}));
}

TEST(topology, ThisMachine) {
    REQUIRE_HWLOC();
    machine::forget();
    if (access("/sys/devices/system/node/node0", R_OK) != 0) {
        GTEST_SKIP() << "the system has no information on nodes";
    }
    Nodes list = nodes();
    EXPECT_FALSE(list.empty());
    bool any_allowed = false;
    for (const Node &node : list) {
        std::ifstream file("/sys/devices/system/node/node" + std::to_string(node.id) + "/meminfo");
        std::string word;
        size_t kib = 0;
        while (file >> word && word != "MemTotal:") {
        }
        file >> kib;
        EXPECT_EQ(node.capacity, kib << 10) << node;
        any_allowed = any_allowed || node.is_allowed;
    }
    EXPECT_TRUE(any_allowed);
}

/* --- when and how often ----------------------------------------------------------------------- */

TEST(topology, ReadOnceWhenFirstAskedFor) {
    REQUIRE_HWLOC();
    CountOpens count;
    machine::forget();
    EXPECT_EQ(opened, 0) << "not at the start";
    const umf_topology_t *first = nullptr, *second = nullptr;
    EXPECT_EQ(umf_topology_get(&first), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_topology_get(&second), UMF_RESULT_SUCCESS);
    EXPECT_EQ(first, second);
    EXPECT_EQ(opened, 1);
}

TEST(topology, ThreadsReadItOnce) {
    REQUIRE_HWLOC();
    for (int round = 0; round < 5; round++) {
        CountOpens count;
        machine::forget();
        std::atomic<int> ready{0};
        const umf_topology_t *found[8] = {};
        std::vector<std::thread> threads;
        for (auto &place : found) {
            threads.emplace_back([&] {
                for (ready++; ready < 8;) {
                }
                EXPECT_EQ(umf_topology_get(&place), UMF_RESULT_SUCCESS);
            });
        }
        for (auto &thread : threads) {
            thread.join();
        }
        for (auto &place : found) {
            EXPECT_EQ(place, found[0]);
        }
        EXPECT_EQ(opened, 1);
    }
}

/* A forked child does not load hwloc again. */
TEST(topology, ChildKeepsItsParentsTable) {
    REQUIRE_HWLOC();
    machine::forget();
    static const umf_topology_t *known;
    ASSERT_EQ(umf_topology_get(&known), UMF_RESULT_SUCCESS);
    CountOpens count;
    EXPECT_EQ(exit_of_child([] {
                  const umf_topology_t *mine = nullptr;
                  umf_result_t result = umf_topology_get(&mine);
                  return result == UMF_RESULT_SUCCESS && mine == known && opened == 0 ? 0 : 1;
              }),
              0);
}

TEST(topology, ForkWhileItIsRead) {
    REQUIRE_HWLOC();
    for (int round = 0; round < 10; round++) {
        machine::forget();
        std::atomic<bool> done{false};
        // Detached: in the child ThreadSanitizer would report a missing join.
        std::thread([&] {
            const umf_topology_t *topology;
            EXPECT_EQ(umf_topology_get(&topology), UMF_RESULT_SUCCESS);
            done = true;
        }).detach();
        usleep(static_cast<useconds_t>(300 * round));
        EXPECT_EQ(exit_of_child([] {
                      const umf_topology_t *topology = nullptr;
                      return umf_topology_get(&topology) == UMF_RESULT_SUCCESS ? 0 : 1;
                  }),
                  0);
        while (!done) {
            usleep(100);
        }
    }
}

TEST(topology, TeardownGivesTheTableBack) {
    REQUIRE_HWLOC();
    machine::forget();
    size_t before = umf_meta_used();
    EXPECT_FALSE(nodes().empty());
    EXPECT_GT(umf_meta_used(), before);
    umf_topology_teardown();
    EXPECT_EQ(umf_meta_used(), before);
    umf_topology_teardown();
}

/* --- failures --------------------------------------------------------------------------------- */

TEST(topology, MissingLibraryIsNamedAndTriedAgain) {
    REQUIRE_HWLOC();
    machine::forget();
    machine::Log log;
    const umf_topology_t *topology = nullptr;
    {
        fault::Nth nth("dl_open");
        nth.next();
        EXPECT_EQ(umf_topology_get(&topology), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
        EXPECT_TRUE(nth.hit());
    }
    EXPECT_EQ(topology, nullptr);
    EXPECT_NE(log.text().find("libhwloc.so.15"), std::string::npos) << log.text();
    EXPECT_NE(log.text().find("package libhwloc15"), std::string::npos) << log.text();
    EXPECT_EQ(umf_topology_get(&topology), UMF_RESULT_SUCCESS);
}

/* hwloc itself loads a file named by the environment, so it is not used even where it is loaded. */
TEST(topology, ASetUserIdProgramAsksNoHwloc) {
    REQUIRE_HWLOC();
    machine::forget();
    machine::Log log;
    const umf_topology_t *topology = nullptr;
    {
        fault::Nth nth("is_privileged", EPERM, true);
        nth.next();
        EXPECT_EQ(umf_topology_get(&topology), UMF_RESULT_ERROR_NOT_SUPPORTED);
    }
    EXPECT_EQ(topology, nullptr);
    EXPECT_NE(log.text().find("set-user-ID"), std::string::npos) << log.text();
    EXPECT_EQ(umf_topology_get(&topology), UMF_RESULT_SUCCESS);
}

#if UMF_WITH_HWLOC
TEST(topology, LibrariesThatAreNotTheRightHwloc) {
    machine::Log log;
    umf_topology_t *topology = nullptr;
    EXPECT_EQ(umf_topology_read("libumf_no_such_library.so.9", &topology),
              UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_EQ(umf_topology_read("libm.so.6", &topology), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_NE(log.text().find("no symbol hwloc_get_api_version"), std::string::npos) << log.text();
    EXPECT_EQ(umf_topology_read(UMF_TEST_HWLOC_3, &topology),
              UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_NE(log.text().find("interface of hwloc 3.1, 2.x is needed"), std::string::npos)
        << log.text();
    EXPECT_EQ(topology, nullptr);
}
#else
TEST(topology, BuiltWithoutHwloc) {
    machine::Log log;
    const umf_topology_t *topology = nullptr;
    EXPECT_EQ(umf_topology_get(&topology), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(topology, nullptr);
    EXPECT_NE(log.text().find("libhwloc-dev"), std::string::npos) << log.text();
}
#endif

TEST(topology, BrokenRecordingIsAnError) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("broken");
    machine::Log log;
    const umf_topology_t *topology = nullptr;
    size_t before = umf_meta_used();
    EXPECT_EQ(umf_topology_get(&topology), UMF_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(topology, nullptr);
    EXPECT_NE(log.text().find("HWLOC_XMLFILE"), std::string::npos) << log.text();
    EXPECT_EQ(umf_meta_used(), before);
}

TEST(topology, WithoutMemoryNothingStays) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("two_sockets");
    size_t before = umf_meta_used();
    fault::Nth nth("meta_alloc");
    while (nth.next()) {
        const umf_topology_t *topology = nullptr;
        umf_result_t result = umf_topology_get(&topology);
        ASSERT_EQ(result, nth.hit() ? UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY : UMF_RESULT_SUCCESS);
        umf_topology_teardown();
        ASSERT_EQ(umf_meta_used(), before);
    }
    EXPECT_EQ(nth.runs(), 3);
}
