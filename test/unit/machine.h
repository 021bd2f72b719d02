/* The process on another machine: a recorded topology in the place of this one's. */
#ifndef UMF_TEST_MACHINE_H
#define UMF_TEST_MACHINE_H

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fstream>
#include <sstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/mempolicy.h>
#include <umf/experimental/memspace.h>

extern "C" {
#include "base/log.h"
}

namespace machine {

inline bool have_hwloc() {
    void *library = UMF_WITH_HWLOC ? dlopen("libhwloc.so.15", RTLD_NOW | RTLD_LOCAL) : nullptr;
    if (library) {
        dlclose(library);
    }
    return library != nullptr;
}

#define REQUIRE_HWLOC()                                                                            \
    if (!machine::have_hwloc()) {                                                                  \
        GTEST_SKIP() << "this build or this machine has no hwloc";                                 \
    }

/* Drops the cached topology of the machine. */
inline void forget() {
    EXPECT_EQ(umfTearDown(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfInit(), UMF_RESULT_SUCCESS);
}

/* For its lifetime a variable of hwloc defines the machine. */
class Variable {
  public:
    Variable(const char *name, const std::string &value) : name_(name) {
        setenv(name, value.c_str(), 1);
        forget();
    }
    ~Variable() {
        unsetenv(name_);
        forget();
    }
    Variable(const Variable &) = delete;
    Variable &operator=(const Variable &) = delete;

  private:
    const char *name_;
};

/* A machine of test/topologies. */
class Recorded : public Variable {
  public:
    explicit Recorded(const std::string &name)
        : Variable("HWLOC_XMLFILE", UMF_TEST_TOPOLOGY_DIR "/" + name + ".xml") {}
};

/* The log lines of its lifetime. */
class Log {
  public:
    Log() {
        path_ = testing::TempDir() + "umf_machine_" + std::to_string(getpid());
        umf_log_config_t config = umf_log_get_config();
        level_ = config.level;
        config.level = UMF_LOG_LEVEL_WARNING;
        EXPECT_EQ(umf_log_set_config(&config), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umf_log_set_output(path_.c_str()), UMF_RESULT_SUCCESS);
    }
    ~Log() {
        umf_log_config_t config = umf_log_get_config();
        config.level = level_;
        umf_log_set_config(&config);
        umf_log_set_output("stderr");
        remove(path_.c_str());
    }
    std::string text() const {
        std::ifstream file(path_);
        std::stringstream all;
        all << file.rdbuf();
        return all.str();
    }

  private:
    std::string path_;
    int level_;
};

inline std::vector<unsigned> ids(umf_const_memspace_handle_t memspace) {
    std::vector<unsigned> list;
    for (unsigned i = 0; i < umfMemspaceMemtargetNum(memspace); i++) {
        unsigned id = ~0u;
        EXPECT_EQ(umfMemtargetGetId(umfMemspaceMemtargetGet(memspace, i), &id), UMF_RESULT_SUCCESS);
        list.push_back(id);
    }
    return list;
}

enum class Copy { of };

/* A memspace of the test, destroyed with it. */
struct Memspace {
    umf_memspace_handle_t handle = nullptr;

    Memspace() {
        EXPECT_EQ(umfMemspaceNew(&handle), UMF_RESULT_SUCCESS);
    }
    explicit Memspace(std::vector<unsigned> nodes) {
        EXPECT_EQ(umfMemspaceCreateFromNumaArray(nodes.data(), nodes.size(), &handle),
                  UMF_RESULT_SUCCESS);
    }
    Memspace(Copy, umf_const_memspace_handle_t origin) {
        EXPECT_EQ(umfMemspaceClone(origin, &handle), UMF_RESULT_SUCCESS);
    }
    ~Memspace() {
        EXPECT_EQ(umfMemspaceDestroy(handle), UMF_RESULT_SUCCESS);
    }
    Memspace(const Memspace &) = delete;
    Memspace &operator=(const Memspace &) = delete;

    std::vector<unsigned> ids() const {
        return machine::ids(handle);
    }
    umf_const_memtarget_handle_t at(unsigned place) const {
        return umfMemspaceMemtargetGet(handle, place);
    }
};

/* A policy of the test, destroyed with it. */
struct Policy {
    umf_mempolicy_handle_t handle = nullptr;

    explicit Policy(umf_mempolicy_membind_t bind) {
        EXPECT_EQ(umfMempolicyCreate(bind, &handle), UMF_RESULT_SUCCESS);
    }
    ~Policy() {
        EXPECT_EQ(umfMempolicyDestroy(handle), UMF_RESULT_SUCCESS);
    }
    Policy(const Policy &) = delete;
    Policy &operator=(const Policy &) = delete;
};

} // namespace machine

#endif
