extern "C" {
#include "base/meta.h"
#include "core/registry.h"
}

#include <sys/mman.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/pools/pool_proxy.h>

#include "fakes/threads.h"

#include "fault.h"
#include "unit/toy.h"

namespace {

const umf_result_t Success = UMF_RESULT_SUCCESS;
const umf_result_t InvalidArgument = UMF_RESULT_ERROR_INVALID_ARGUMENT;
const umf_result_t NotSupported = UMF_RESULT_ERROR_NOT_SUPPORTED;

umf_memory_provider_descriptor_t providerKind(const char *name,
                                              const umf_memory_provider_ops_t *ops) {
    umf_memory_provider_descriptor_t kind = UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT;
    kind.name = name;
    kind.ops = ops;
    return kind;
}

umf_memory_pool_descriptor_t poolKind(const char *name, const umf_memory_pool_ops_t *ops) {
    umf_memory_pool_descriptor_t kind = UMF_MEMORY_POOL_DESCRIPTOR_INIT;
    kind.name = name;
    kind.ops = ops;
    return kind;
}

/* The last `size` bytes of readable memory: one more is a crash. */
class Edge {
  public:
    Edge() {
        base = static_cast<char *>(
            mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        mprotect(base + 4096, 4096, PROT_NONE);
    }
    ~Edge() {
        munmap(base, 8192);
    }
    Edge(const Edge &) = delete;

    template <typename T> T *put(const T &value, size_t size) {
        char *at = base + 4096 - size;
        memcpy(at, &value, size);
        memcpy(at, &size, sizeof(size));
        return reinterpret_cast<T *>(at);
    }

  private:
    char *base;
};

/* Every test begins with the kinds of the tree only. */
class Registry : public testing::Test {
  protected:
    void TearDown() override {
        umf_registry_teardown();
        umf_registry_init();
    }

    umf_memory_provider_ops_t provider_ops = toy::providerOps(), other_provider_ops = provider_ops;
    umf_memory_pool_ops_t pool_ops = toy::poolOps(), other_pool_ops = pool_ops;
};

/* The kind of an object with that table. */
const umf_memory_provider_descriptor_t *provider_by_ops(const umf_memory_provider_ops_t *ops) {
    const umf_memory_provider_descriptor_t *kind = umf_registry_provider_use(ops);
    umf_registry_provider_unuse(kind);
    return kind;
}

const umf_memory_pool_descriptor_t *pool_by_ops(const umf_memory_pool_ops_t *ops) {
    const umf_memory_pool_descriptor_t *kind = umf_registry_pool_use(ops);
    umf_registry_pool_unuse(kind);
    return kind;
}

const umf_memory_provider_descriptor_t *provider_by_name(const char *name) {
    const umf_kind_t *kind = umf_registry_by_name(UMF_PROVIDERS, name);
    return kind ? provider_by_ops(static_cast<const umf_memory_provider_ops_t *>(kind->ops))
                : nullptr;
}

const umf_memory_pool_descriptor_t *pool_by_name(const char *name) {
    const umf_kind_t *kind = umf_registry_by_name(UMF_POOLS, name);
    return kind ? pool_by_ops(static_cast<const umf_memory_pool_ops_t *>(kind->ops)) : nullptr;
}

std::vector<std::string> providers() {
    std::vector<std::string> names;
    const umf_kind_t *kind = nullptr;
    while ((kind = umf_registry_next(UMF_PROVIDERS, kind))) {
        names.push_back(kind->name);
    }
    return names;
}

TEST_F(Registry, kinds_of_the_tree) {
    std::vector<std::string> names = providers();
    EXPECT_EQ(std::set<std::string>(names.begin(), names.end()).size(), names.size());
    for (const char *name : {"os", "fixed"}) {
        const umf_memory_provider_descriptor_t *kind = provider_by_name(name);
        ASSERT_NE(kind, nullptr) << name;
        EXPECT_STREQ(kind->name, name);
        EXPECT_EQ(provider_by_ops(kind->ops), kind);
    }
    for (const char *name : {"proxy", "disjoint"}) {
        const umf_memory_pool_descriptor_t *kind = pool_by_name(name);
        ASSERT_NE(kind, nullptr) << name;
        EXPECT_EQ(pool_by_ops(kind->ops), kind);
        EXPECT_NE(umf_registry_pool_fast_ops(kind->ops), nullptr) << name;
    }
    EXPECT_EQ(provider_by_name("nothing"), nullptr);
    EXPECT_EQ(provider_by_name("disjoint"), nullptr);
    EXPECT_EQ(pool_by_name("os"), nullptr);
    EXPECT_EQ(provider_by_ops(&provider_ops), nullptr);
    EXPECT_EQ(umf_registry_pool_fast_ops(&pool_ops), nullptr);
}

TEST_F(Registry, registered_kinds_are_found) {
    auto provider = providerKind("mine", &provider_ops);
    auto pool = poolKind("mine", &pool_ops);
    size_t before = providers().size();
    EXPECT_EQ(umfRegisterProvider(&provider), Success);
    EXPECT_EQ(umfRegisterPool(&pool), Success);
    EXPECT_EQ(provider_by_name("mine")->ops, &provider_ops);
    EXPECT_STREQ(provider_by_ops(&provider_ops)->name, "mine");
    EXPECT_EQ(pool_by_name("mine")->ops, &pool_ops);
    EXPECT_STREQ(pool_by_ops(&pool_ops)->name, "mine");
    EXPECT_EQ(providers().size(), before + 1);
    EXPECT_EQ(providers().back(), "mine");
}

TEST_F(Registry, names_and_tables_are_taken_once) {
    auto first = providerKind("mine", &provider_ops);
    ASSERT_EQ(umfRegisterProvider(&first), Success);
    EXPECT_EQ(umfRegisterProvider(&first), InvalidArgument);
    auto same_name = providerKind("mine", &other_provider_ops);
    EXPECT_EQ(umfRegisterProvider(&same_name), InvalidArgument);
    auto same_table = providerKind("other", &provider_ops);
    EXPECT_EQ(umfRegisterProvider(&same_table), InvalidArgument);
    auto tree_name = providerKind("os", &other_provider_ops);
    EXPECT_EQ(umfRegisterProvider(&tree_name), InvalidArgument);
    auto tree_table = poolKind("other", pool_by_name("disjoint")->ops);
    EXPECT_EQ(umfRegisterPool(&tree_table), InvalidArgument);
    auto other = providerKind("other", &other_provider_ops);
    EXPECT_EQ(umfRegisterProvider(&other), Success);
}

TEST_F(Registry, names_that_are_not_allowed) {
    std::string longest(63, 'x'), longer(64, 'x'), huge(1 << 20, 'x');
    for (const char *name : {"", "Upper", "two words", "a.b", "a:b", "a,b", "a=b", "\xc3\xa9",
                             longer.c_str(), huge.c_str(), static_cast<const char *>(nullptr)}) {
        auto provider = providerKind(name, &provider_ops);
        EXPECT_EQ(umfRegisterProvider(&provider), InvalidArgument);
        auto pool = poolKind(name, &pool_ops);
        EXPECT_EQ(umfRegisterPool(&pool), InvalidArgument);
    }
    auto provider = providerKind(longest.c_str(), &provider_ops);
    EXPECT_EQ(umfRegisterProvider(&provider), Success);
}

TEST_F(Registry, incomplete_descriptors) {
    EXPECT_EQ(umfRegisterProvider(nullptr), InvalidArgument);
    EXPECT_EQ(umfRegisterPool(nullptr), InvalidArgument);
    auto provider = providerKind("mine", nullptr);
    EXPECT_EQ(umfRegisterProvider(&provider), InvalidArgument);
    auto pool = poolKind("mine", nullptr);
    EXPECT_EQ(umfRegisterPool(&pool), InvalidArgument);
}

TEST_F(Registry, unknown_table_versions) {
    provider_ops.version = UMF_MAKE_VERSION(1, 3);
    auto provider = providerKind("mine", &provider_ops);
    EXPECT_EQ(umfRegisterProvider(&provider), NotSupported);
    provider_ops.version = UMF_MAKE_VERSION(1, 0);
    EXPECT_EQ(umfRegisterProvider(&provider), Success);
    pool_ops.version = UMF_MAKE_VERSION(1, 2);
    auto pool = poolKind("mine", &pool_ops);
    EXPECT_EQ(umfRegisterPool(&pool), NotSupported);
    pool_ops.version = UMF_MAKE_VERSION(1, 0);
    EXPECT_EQ(umfRegisterPool(&pool), Success);
}

TEST_F(Registry, smaller_descriptors_are_not_read_past_their_end) {
    Edge edge;
    auto full = providerKind("mine", &provider_ops);
    full.params_from_text = [](const char *, void **) { return Success; };
    for (size_t size :
         {size_t{0}, sizeof(size_t), offsetof(umf_memory_provider_descriptor_t, ops)}) {
        if (size >= sizeof(size_t)) {
            EXPECT_EQ(umfRegisterProvider(edge.put(full, size)), InvalidArgument) << size;
        }
    }
    size_t least = offsetof(umf_memory_provider_descriptor_t, ext);
    ASSERT_EQ(umfRegisterProvider(edge.put(full, least)), Success);
    const umf_memory_provider_descriptor_t *kind = provider_by_name("mine");
    EXPECT_EQ(kind->struct_size, sizeof(*kind));
    EXPECT_EQ(kind->ops, &provider_ops);
    EXPECT_EQ(kind->ext, nullptr);
    EXPECT_EQ(kind->params_from_text, nullptr);
    EXPECT_EQ(kind->probe, nullptr);
    Edge pool_edge;
    auto pool = poolKind("mine", &pool_ops);
    least = offsetof(umf_memory_pool_descriptor_t, params_from_text);
    EXPECT_EQ(umfRegisterPool(pool_edge.put(pool, least - 1)), InvalidArgument);
    EXPECT_EQ(umfRegisterPool(pool_edge.put(pool, least)), Success);
    EXPECT_EQ(pool_by_name("mine")->probe, nullptr);
}

TEST_F(Registry, larger_descriptors_are_read_as_far_as_they_are_known) {
    struct {
        umf_memory_provider_descriptor_t known = UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT;
        void *later[8] = {};
    } newer;
    newer.known.struct_size = sizeof(newer);
    newer.known.name = "mine";
    newer.known.ops = &provider_ops;
    ASSERT_EQ(umfRegisterProvider(&newer.known), Success);
    EXPECT_EQ(provider_by_name("mine")->struct_size, sizeof(newer.known));
}

TEST_F(Registry, smaller_extension_table_is_completed) {
    Edge edge;
    umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
    ext.ipc_watch = [](void *, const void *, const uint64_t **, uint64_t *) { return Success; };
    auto provider = providerKind("mine", &provider_ops);
    provider.ext = edge.put(ext, sizeof(size_t));
    ASSERT_EQ(umfRegisterProvider(&provider), Success);
    const umf_memory_provider_ext_ops_t *kept = provider_by_name("mine")->ext;
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(kept->struct_size, sizeof(*kept));
    EXPECT_EQ(kept->ipc_watch, nullptr);
    auto full = providerKind("full", &other_provider_ops);
    full.ext = &ext;
    ASSERT_EQ(umfRegisterProvider(&full), Success);
    /* A copy: providers of the kind may outlive the original. */
    EXPECT_EQ(memcmp(provider_by_name("full")->ext, &ext, sizeof(ext)), 0);
}

TEST_F(Registry, teardown_forgets_what_is_not_of_the_tree) {
    auto provider = providerKind("mine", &provider_ops);
    ASSERT_EQ(umfRegisterProvider(&provider), Success);
    umf_registry_teardown();
    EXPECT_EQ(provider_by_name("mine"), nullptr);
    EXPECT_EQ(provider_by_name("os"), nullptr);
    EXPECT_EQ(umf_registry_next(UMF_PROVIDERS, nullptr), nullptr);
    EXPECT_EQ(umfRegisterProvider(&provider), UMF_RESULT_ERROR_UNKNOWN);
    EXPECT_EQ(umfLoadPlugin("any.so"), UMF_RESULT_ERROR_UNKNOWN);
    umf_registry_init();
    EXPECT_NE(provider_by_name("os"), nullptr);
    EXPECT_EQ(provider_by_name("mine"), nullptr);
    EXPECT_EQ(umfRegisterProvider(&provider), Success);
}

int dropped;

umf_result_t reuse_drop(void *, int) {
    dropped++;
    return Success;
}

/* After a teardown the kind's registrant may free all it gave; a live provider goes on without. */
TEST_F(Registry, what_live_objects_use_outlives_the_teardown) {
    struct Given {
        char name[8] = "mine";
        umf_memory_provider_ext_ops_t ext = UMF_MEMORY_PROVIDER_EXT_OPS_INIT;
        umf_memory_provider_descriptor_t descriptor = UMF_MEMORY_PROVIDER_DESCRIPTOR_INIT;
    };
    auto given = std::make_unique<Given>();
    given->ext.reuse_drop = reuse_drop;
    given->descriptor = providerKind(given->name, &provider_ops);
    given->descriptor.ext = &given->ext;
    ASSERT_EQ(umfRegisterProvider(&given->descriptor), Success);
    umf_memory_provider_handle_t provider = nullptr;
    ASSERT_EQ(umfMemoryProviderCreate(&provider_ops, nullptr, &provider), Success);
    size_t before = umf_meta_used();

    umf_registry_teardown();
    memset(static_cast<void *>(given.get()), 0x5a, sizeof(*given));
    given.reset();
    umf_registry_init();

    umf_memory_pool_handle_t pool = nullptr;
    ASSERT_EQ(umfPoolCreate(umfProxyPoolOps(), provider, nullptr, 0, &pool), Success);
    dropped = 0;
    umfPoolTrimMemory(pool, 0);
    EXPECT_EQ(dropped, 1);
    EXPECT_EQ(umfPoolDestroy(pool), Success);
    EXPECT_EQ(provider_by_name("mine"), nullptr);
    EXPECT_EQ(umfMemoryProviderDestroy(provider), Success);
    EXPECT_LT(umf_meta_used(), before); /* the kind went with its last provider */
}

/* Whatever fails: else the kind, and the plugin that it is of, stay for ever. */
TEST_F(Registry, a_failed_creation_uses_no_kind) {
    toy::Provider below;
    umf_memory_provider_ops_t ops = toy::provider_ops;
    static bool is_ready;
    ops.initialize = [](const void *, void **self) {
        return is_ready ? toy::make(self) : UMF_RESULT_ERROR_USER_SPECIFIC;
    };
    const size_t used = umf_meta_used();
    auto provider = providerKind("mine", &ops);
    auto pool = poolKind("mine", &toy::pool_ops);
    ASSERT_EQ(umfRegisterProvider(&provider), Success);
    ASSERT_EQ(umfRegisterPool(&pool), Success);
    for (bool ready : {false, true}) {
        is_ready = ready;
        for (fault::Nth nth; nth.next();) {
            umf_memory_provider_handle_t made = nullptr;
            umf_memory_pool_handle_t above = nullptr;
            umfMemoryProviderCreate(&ops, nullptr, &made);
            umfPoolCreate(&toy::pool_ops, below.handle, nullptr, 0, &above);
            nth.off();
            EXPECT_EQ(above ? umfPoolDestroy(above) : Success, Success);
            EXPECT_EQ(umfMemoryProviderDestroy(made), Success);
        }
    }
    umf_registry_teardown();
    EXPECT_LE(umf_meta_used(), used);
    umf_registry_init();
}

TEST_F(Registry, plugins_that_cannot_be_loaded) {
    EXPECT_EQ(umfLoadPlugin(nullptr), InvalidArgument);
    EXPECT_EQ(umfLoadPlugin(""), InvalidArgument);
    EXPECT_EQ(umfLoadPlugin("/no/such/plugin.so"), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
    EXPECT_EQ(umfLoadPlugin("libm.so.6"), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
}

TEST_F(Registry, threads) {
    std::vector<umf_memory_provider_ops_t> tables(64, provider_ops);
    std::vector<std::string> names;
    for (size_t i = 0; i < tables.size(); i++) {
        names.push_back("kind-" + std::to_string(i));
    }
    size_t before = providers().size();
    std::vector<umf_memory_provider_descriptor_t> kinds;
    for (size_t i = 0; i < tables.size(); i++) {
        kinds.push_back(providerKind(names[i].c_str(), &tables[i]));
    }
    run_threads<size_t>(4, [&](size_t t) {
        for (size_t i = t; i < kinds.size(); i += 4) {
            EXPECT_EQ(umfRegisterProvider(&kinds[i]), Success);
            EXPECT_NE(provider_by_ops(&tables[i]), nullptr);
            EXPECT_GT(providers().size(), before);
        }
    });
    EXPECT_EQ(providers().size(), before + kinds.size());
}

} // namespace
