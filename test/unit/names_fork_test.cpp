extern "C" {
#include "object/names.h"
}

#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "unit/toy.h"

/* A thread that does not exist in the child holds nothing there. */
TEST(by_name, pins_are_left_behind_by_fork) {
    toy::Pool pool("a");
    umf_memory_pool_handle_t pinned = umf_names_get("a", 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        umf_names_remove(pool.handle);
        _exit(umf_names_count("a") == 0 ? 0 : 1);
    }
    umf_names_put(pinned);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(umf_names_count("a"), 1u);
}

/* Nor do they count beside the child's own, which would wait for ever. */
TEST(by_name, a_child_counts_its_own_pins) {
    toy::Pool pool("a");
    umf_memory_pool_handle_t pinned = umf_names_get("a", 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(60);
        umf_names_put(umf_names_get("a", 0));
        umf_names_remove(pool.handle);
        _exit(umf_names_count("a") == 0 ? 0 : 1);
    }
    umf_names_put(pinned);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the signal of the alarm: it still waits";
}
