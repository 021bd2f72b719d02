/* Memory targets: one for each NUMA node, owned by its memspace. */
#include <climits>

#include "fault.h"
#include "machine.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;

} // namespace

TEST(memtarget, StandsForANumaNode) {
    machine::Memspace memspace({7, UINT_MAX});
    for (unsigned i = 0; i < 2; i++) {
        umf_memtarget_type_t type = UMF_MEMTARGET_TYPE_UNKNOWN;
        unsigned id = 0;
        EXPECT_EQ(umfMemtargetGetType(memspace.at(i), &type), OK);
        EXPECT_EQ(type, UMF_MEMTARGET_TYPE_NUMA);
        EXPECT_EQ(umfMemtargetGetId(memspace.at(i), &id), OK);
        EXPECT_EQ(id, i ? UINT_MAX : 7u);
    }
}

TEST(memtarget, NullArguments) {
    machine::Memspace memspace({0});
    umf_memtarget_type_t type = UMF_MEMTARGET_TYPE_UNKNOWN;
    unsigned id = 77;
    size_t capacity = 77;
    EXPECT_EQ(umfMemtargetGetType(nullptr, &type), BAD);
    EXPECT_EQ(umfMemtargetGetType(memspace.at(0), nullptr), BAD);
    EXPECT_EQ(umfMemtargetGetId(nullptr, &id), BAD);
    EXPECT_EQ(umfMemtargetGetId(memspace.at(0), nullptr), BAD);
    EXPECT_EQ(umfMemtargetGetCapacity(nullptr, &capacity), BAD);
    EXPECT_EQ(umfMemtargetGetCapacity(memspace.at(0), nullptr), BAD);
    EXPECT_EQ(type, UMF_MEMTARGET_TYPE_UNKNOWN);
    EXPECT_EQ(id, 77u);
    EXPECT_EQ(capacity, 77u);
}

TEST(memtarget, CapacityIsTheNodesMemory) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("sparse");
    machine::Memspace memspace({12, 3, 70});
    const size_t expected[] = {size_t{8} << 30, size_t{2} << 30, size_t{4} << 30};
    for (unsigned i = 0; i < 3; i++) {
        size_t capacity = 0;
        EXPECT_EQ(umfMemtargetGetCapacity(memspace.at(i), &capacity), OK);
        EXPECT_EQ(capacity, expected[i]);
    }
}

TEST(memtarget, CapacityOfNodesThatDoNotExist) {
    REQUIRE_HWLOC();
    machine::Recorded recorded("sparse");
    machine::Log log;
    machine::Memspace memspace({0, 4, UINT_MAX});
    for (unsigned i = 0; i < 3; i++) {
        size_t capacity = 77;
        EXPECT_EQ(umfMemtargetGetCapacity(memspace.at(i), &capacity), BAD);
        EXPECT_EQ(capacity, 77u);
    }
    EXPECT_NE(log.text().find("no NUMA node 4"), std::string::npos) << log.text();
}

TEST(memtarget, CapacityOfNodesWithoutMemoryAndOfForbiddenOnes) {
    REQUIRE_HWLOC();
    size_t capacity = 77;
    {
        machine::Recorded recorded("gh200");
        machine::Memspace memspace({5});
        EXPECT_EQ(umfMemtargetGetCapacity(memspace.at(0), &capacity), OK);
        EXPECT_EQ(capacity, 0u);
    }
    machine::Recorded recorded("restricted");
    machine::Memspace memspace({1});
    EXPECT_EQ(umfMemtargetGetCapacity(memspace.at(0), &capacity), OK);
    EXPECT_EQ(capacity, size_t{16} << 30);
}

TEST(memtarget, WithoutHwlocOnlyTheCapacityIsMissing) {
    machine::forget();
    machine::Memspace memspace({0});
    machine::Log log;
    size_t capacity = 77;
    unsigned id = 77;
    fault::Nth nth("dl_open");
    nth.next();
    EXPECT_EQ(umfMemtargetGetCapacity(memspace.at(0), &capacity),
              UMF_WITH_HWLOC ? UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE
                             : UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(capacity, 77u);
    EXPECT_EQ(umfMemtargetGetId(memspace.at(0), &id), OK);
    EXPECT_EQ(id, 0u);
}
