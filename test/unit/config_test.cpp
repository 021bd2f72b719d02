extern "C" {
#include "base/log.h"
#include "ctl/config.h"
#include "ctl/ctl.h"
}

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/reason.h>
#include <umf/text.h>

#include "fakes/scale.h"
#include "fakes/self.h"
#include "unit/toy.h"

namespace {

std::string stored(const std::string &path) {
    std::string value(1000, '\0');
    umf_result_t result =
        umfCtlGet(("umf.pool.default." + path).c_str(), value.data(), value.size());
    return result == UMF_RESULT_SUCCESS ? value.c_str() : "absent";
}

/* Whether the library is started. */
bool is_started() {
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;
    EXPECT_EQ(umfMemoryProviderCreate(&toy::provider_ops, nullptr, &provider), UMF_RESULT_SUCCESS);
    umf_result_t result = umfPoolCreate(&toy::pool_ops, provider, nullptr, 0, &pool);
    if (result == UMF_RESULT_SUCCESS) {
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfMemoryProviderDestroy(provider), UMF_RESULT_SUCCESS);
    } else {
        toy::finalize(toy::last_made);
    }
    return result == UMF_RESULT_SUCCESS;
}

/* The log goes to a file that the test reads. */
class Config : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(umfInit(), UMF_RESULT_SUCCESS);
        dir = testing::TempDir() + "umf_config_" + std::to_string(getpid());
        mkdir(dir.c_str(), 0700);
        ASSERT_EQ(umf_log_set_output((dir + "/log").c_str()), UMF_RESULT_SUCCESS);
        umf_log_config_t config = umf_log_get_config();
        config.level = UMF_LOG_LEVEL_WARNING;
        ASSERT_EQ(umf_log_set_config(&config), UMF_RESULT_SUCCESS);
    }

    void TearDown() override {
        umf_log_set_output("stderr");
        unsetenv("UMF_CONF");
        unsetenv("UMF_CONF_FILE");
        umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
        for (const char *name : {"/log", "/conf", "/other", "/pipe", "/program", "/written"}) {
            unlink((dir + name).c_str());
        }
        rmdir(dir.c_str());
        umfTearDown();
    }

    std::string log() {
        std::ifstream file(dir + "/log");
        std::stringstream text;
        text << file.rdbuf();
        return text.str();
    }

    static size_t count(const std::string &in, const std::string &what) {
        size_t n = 0;
        for (size_t at = 0; (at = in.find(what, at)) != std::string::npos; at++) {
            n++;
        }
        return n;
    }

    static void apply(const std::string &text) {
        umf_config_apply("UMF_CONF", text.data(), text.size());
    }

    std::string file(const std::string &text) {
        std::ofstream(dir + "/conf", std::ios::binary) << text;
        return dir + "/conf";
    }

    std::string dir;
};

TEST_F(Config, entries_are_written) {
    apply("umf.pool.default.toy.a=1;umf.pool.default.toy.b=x y;;umf.logger.pid=1;");
    EXPECT_EQ(stored("toy.a"), "1");
    EXPECT_EQ(stored("toy.b"), "x y");
    EXPECT_TRUE(umf_log_get_config().pid);
    apply("umf.logger.pid=no");
    EXPECT_FALSE(umf_log_get_config().pid);
    EXPECT_EQ(log(), "");
}

TEST_F(Config, what_cannot_be_written_is_skipped_and_named_once) {
    apply("umf.pool.default.toy.a=1;umf.nothing=5;umf.logger.timestamp=maybe;umf=1;"
          "umf.pool.by_handle.{}.stats.alloc_count=1;umf.pool.default.{}.a=1;"
          "umf.pool.default.toy.b=2");
    EXPECT_EQ(stored("toy.a"), "1");
    EXPECT_EQ(stored("toy.b"), "2");
    std::string said = log();
    EXPECT_EQ(count(said, "WARN"), 5u) << said;
    EXPECT_EQ(count(said, "UMF_CONF: entry 2 \"umf.nothing=5\" is ignored: there is no such "
                          "setting"),
              1u)
        << said;
    EXPECT_EQ(count(said, "entry 3 \"umf.logger.timestamp=maybe\" is ignored: the setting does "
                          "not take this value"),
              1u)
        << said;
}

TEST_F(Config, a_wrong_name_leads_to_the_nearest) {
    apply("umf.poool.default.toy.a=1;umf.logger.timestmp=yes;umf.pool.defualt.toy.a=1");
    std::string said = log();
    EXPECT_EQ(count(said, "no such setting; the nearest name is \"pool\""), 1u) << said;
    EXPECT_EQ(count(said, "no such setting; the nearest name is \"timestamp\""), 1u) << said;
    EXPECT_EQ(count(said, "no such setting; the nearest name is \"default\""), 1u) << said;
    size_t value = 0;
    EXPECT_EQ(umfCtlGet("umf.reclaim.cuont", &value, sizeof(value)),
              UMF_RESULT_ERROR_INVALID_CTL_PATH);
    EXPECT_NE(std::string(umfLastErrorText()).find("no setting \"umf.reclaim.cuont\""),
              std::string::npos);
}

TEST_F(Config, a_default_of_nearly_a_kind_leads_to_the_kind) {
    apply("umf.pool.default.disjont.params.capacity=3;umf.pool.default.disjoint.params.capacity=3;"
          "umf.pool.default.weights.params.capacity=3");
    std::string said = log();
    EXPECT_EQ(count(said, "\"disjont\" only, which is no kind of pool; the nearest name is "
                          "\"disjoint\""),
              1u)
        << said;
    EXPECT_EQ(count(said, "nearest"), 1u) << said;
    EXPECT_EQ(stored("disjont.params.capacity"), "3") << "a program may name its pools so";
    umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
}

// The level is above a warning, and still a person hears of it.
TEST_F(Config, a_default_that_its_object_refuses_is_named_once) {
    int level = 3;
    ASSERT_EQ(umfCtlSet("umf.logger.level", &level, sizeof(level)), UMF_RESULT_SUCCESS);
    apply("umf.pool.default.disjoint.capacity=3;umf.pool.default.disjoint.params.capacty=3;"
          "umf.pool.default.disjoint.params.capacity=x;umf.provider.default.OS.nothing=1");
    EXPECT_EQ(log(), "");
    for (int round = 0; round < 2; round++) {
        umf_memory_pool_handle_t pool = nullptr;
        ASSERT_EQ(umfPoolCreateFromText("disjoint over os", &pool), UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfPoolDestroy(pool), UMF_RESULT_SUCCESS);
    }
    std::string said = log();
    for (const char *line :
         {"\"disjoint.capacity=3\" is ignored: there is no such setting; the nearest name is "
          "\"params.capacity\"",
          "\"disjoint.params.capacty=3\" is ignored: there is no such setting; the nearest name is "
          "\"params.capacity\"",
          "\"disjoint.params.capacity=x\" is ignored: the setting does not take this value",
          "\"OS.nothing=1\" is ignored: there is no such setting"}) {
        EXPECT_EQ(count(said, line), 1u) << line << "\n" << said;
    }
    umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
    umf_ctl_defaults_forget(&umf_ctl_provider_defaults);
}

TEST_F(Config, the_first_malformed_entry_ends) {
    const char *const malformed[] = {
        "nonsense", "=5", "umf.pool.default.toy.x=", "umf.a=b=c", "umf.a==",
        " ",        "=",  "umf.pool.default.toy.x"};
    for (const char *bad : malformed) {
        apply(std::string("umf.pool.default.toy.a=1;") + bad + ";umf.pool.default.toy.b=2");
        EXPECT_EQ(stored("toy.a"), "1") << bad;
        EXPECT_EQ(stored("toy.b"), "absent") << bad;
        EXPECT_EQ(stored("toy.x"), "absent") << bad;
        umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
    }
    std::string said = log();
    EXPECT_EQ(count(said, "it is not of the form path=value"), std::size(malformed)) << said;
    EXPECT_EQ(count(said, "nothing after entry 2 is read"), std::size(malformed)) << said;
}

TEST_F(Config, a_nul_byte_is_malformed) {
    using namespace std::string_literals;
    apply("umf.pool.default.toy.a=1;umf.pool.default.toy.b=2\0;umf.pool.default.toy.c=3"s);
    EXPECT_EQ(stored("toy.a"), "1");
    EXPECT_EQ(stored("toy.b"), "absent");
    EXPECT_EQ(stored("toy.c"), "absent");
}

TEST_F(Config, many_ignored_entries_are_counted) {
    std::string text;
    for (int i = 0; i < 1000; i++) {
        text += "umf.nothing=1;";
    }
    apply(text + "umf.pool.default.toy.a=1");
    EXPECT_EQ(stored("toy.a"), "1");
    std::string said = log();
    EXPECT_EQ(count(said, "umf.nothing=1"), 8u) << said;
    EXPECT_EQ(count(said, "992 more entries are ignored"), 1u) << said;
}

TEST_F(Config, warnings_use_the_log_that_the_text_sets_up) {
    umf_log_set_output("stderr");
    apply("umf.nothing=1;umf.logger.output=" + dir + "/other");
    umf_log_set_output("stderr");
    std::ifstream other(dir + "/other");
    std::string said((std::istreambuf_iterator<char>(other)), std::istreambuf_iterator<char>());
    EXPECT_EQ(count(said, "umf.nothing=1"), 1u) << said;
}

TEST_F(Config, foreign_bytes_are_shown_harmlessly) {
    apply("\xff\x1b[31m=1");
    EXPECT_EQ(count(log(), "\"??[31m=1\" is ignored"), 1u) << log();
}

TEST_F(Config, long_paths_and_values) {
    std::string huge(1 << 20, 'x');
    apply(huge + "=1;umf." + huge + "=1;umf.logger.output=" + huge +
          ";umf.pool.default.toy.a=" + huge + ";umf.pool.default.toy.b=2");
    EXPECT_EQ(stored("toy.b"), "2");
    EXPECT_LT(log().size(), 20000u);
    std::string big(huge.size() + 1, '\0');
    ASSERT_EQ(umfCtlGet("umf.pool.default.toy.a", big.data(), big.size()), UMF_RESULT_SUCCESS);
    EXPECT_EQ(big.c_str(), huge);
}

TEST_F(Config, file_has_comments_and_white_space) {
    umf_config_apply_file(file("# first = line; here\n"
                               "umf.pool.default.toy.a = o n e ;\r\n"
                               "umf.pool.default.\n\ttoy.b=2# rest; umf.x=1\n;"
                               "umf.pool.default.toy.c=3 # no line break at the end")
                              .c_str());
    EXPECT_EQ(stored("toy.a"), "one");
    EXPECT_EQ(stored("toy.b"), "2");
    EXPECT_EQ(stored("toy.c"), "3");
    EXPECT_EQ(log(), "");
}

TEST_F(Config, file_of_the_largest_size) {
    std::string text = "umf.pool.default.toy.a=1;#";
    umf_config_apply_file(file(text + std::string(UMF_CONFIG_FILE_MAX - text.size(), 'c')).c_str());
    EXPECT_EQ(stored("toy.a"), "1");
    umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
    umf_config_apply_file(
        file(text + std::string(UMF_CONFIG_FILE_MAX - text.size() + 1, 'c')).c_str());
    EXPECT_EQ(stored("toy.a"), "absent");
    EXPECT_EQ(count(log(), "1 MiB is needed"), 1u);
}

TEST_F(Config, files_that_are_none) {
    ASSERT_EQ(mkfifo((dir + "/pipe").c_str(), 0600), 0);
    size_t warnings = 0;
    for (const std::string &path :
         {std::string("/dev/zero"), std::string("/dev/random"), dir + "/missing", dir,
          dir + "/pipe", file(""), std::string(10000, 'x'), std::string("/proc/self/maps")}) {
        umf_config_apply_file(path.c_str());
        EXPECT_EQ(count(log(), "is ignored"), ++warnings) << path;
    }
}

TEST_F(Config, the_file_comes_after_the_text) {
    setenv("UMF_CONF", "umf.pool.default.toy.a=text;umf.pool.default.toy.b=text", 1);
    setenv("UMF_CONF_FILE", file("umf.pool.default.toy.b=file").c_str(), 1);
    umf_config_load();
    EXPECT_EQ(stored("toy.a"), "text");
    EXPECT_EQ(stored("toy.b"), "file");
}

/* Each start from nothing reads the environment anew. */
TEST_F(Config, is_read_at_the_start_of_the_library) {
    int starts = 0;
    setenv("UMF_CONF", "umf.pool.default.toy.a=text;umf.pool.default.toy.b=text", 1);
    setenv("UMF_CONF_FILE", file("umf.pool.default.toy.b=file").c_str(), 1);
    ASSERT_EQ(umfInit(), UMF_RESULT_SUCCESS);
    EXPECT_EQ(stored("toy.a"), "absent") << "only the first start";
    for (; is_started(); starts++) {
        ASSERT_EQ(umfTearDown(), UMF_RESULT_SUCCESS);
    }
    for (; starts > 1; starts--) {
        ASSERT_EQ(umfInit(), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(stored("toy.a"), "text");
    EXPECT_EQ(stored("toy.b"), "file");
}

/* Programs find errno as 0 when they begin. */
TEST_F(Config, a_start_that_finds_no_file_keeps_errno) {
    int starts = 0;
    setenv("UMF_CONF_FILE", "/nonexistent/conf", 1);
    for (; is_started(); starts++) {
        ASSERT_EQ(umfTearDown(), UMF_RESULT_SUCCESS);
    }
    for (; starts > 0; starts--) {
        errno = EDOM;
        ASSERT_EQ(umfInit(), UMF_RESULT_SUCCESS);
        EXPECT_EQ(errno, EDOM);
    }
}

TEST_F(Config, defaults_from_text_are_kept_as_text) {
    apply("umf.pool.default.toy.a=0x10");
    char room[5] = "****";
    EXPECT_EQ(umfCtlGet("umf.pool.default.toy.a", room, 4), UMF_RESULT_ERROR_INVALID_ARGUMENT)
        << "no room for the NUL";
    EXPECT_EQ(umfCtlGet("umf.pool.default.toy.a", room, 5), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(room, "0x10");
    toy::Pool pool;
    EXPECT_EQ(stored("toy.a"), "0x10");
    umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
}

/* Arguments of a callback: the source, and text whose size counts the NUL. */
TEST_F(Config, pools_by_name_get_text) {
    toy::Pool first("configured"), second("configured");
    apply("umf.pool.by_name.configured.a.b=17;umf.pool.by_name.configured.1.c=x");
    ASSERT_EQ(first.object->queries.size(), 1u);
    ASSERT_EQ(second.object->queries.size(), 2u);
    for (toy::Pool *pool : {&first, &second}) {
        const toy::Query &query = pool->object->queries[0];
        EXPECT_EQ(query.source, CTL_QUERY_CONFIG_INPUT);
        EXPECT_EQ(query.type, CTL_QUERY_WRITE);
        EXPECT_EQ(query.path, "a.b");
        EXPECT_EQ(query.bytes, std::string("17\0", 3));
    }
    EXPECT_EQ(second.object->queries[1].path, "c");
    EXPECT_EQ(log(), "");
}

TEST_F(Config, every_logger_setting) {
    apply("umf.logger.timestamp=Y;umf.logger.pid=1;umf.logger.level=0x1;umf.logger.flush_level=+4;"
          "umf.logger.output=" +
          dir + "/other");
    umf_log_config_t config = umf_log_get_config();
    EXPECT_TRUE(config.timestamp);
    EXPECT_TRUE(config.pid);
    EXPECT_EQ(config.level, 1);
    EXPECT_EQ(config.flush_level, 4);
    char name[300];
    EXPECT_EQ(umf_log_get_output(name, sizeof(name)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(name, dir + "/other");
    apply("umf.logger.timestamp=no;umf.logger.pid=0;umf.logger.level=debug;"
          "umf.logger.flush_level=5;umf.logger.output=/no/such/folder/log");
    config = umf_log_get_config();
    EXPECT_FALSE(config.timestamp);
    EXPECT_FALSE(config.pid);
    EXPECT_EQ(config.level, 1) << "a number is needed";
    EXPECT_EQ(config.flush_level, 4) << "out of range";
    EXPECT_EQ(umf_log_get_output(name, sizeof(name)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(name, dir + "/other");
    config = {false, false, 2, 3};
    umf_log_set_config(&config);
}

TEST_F(Config, empty_is_unset) {
    setenv("UMF_CONF", "", 1);
    setenv("UMF_CONF_FILE", "", 1);
    umf_config_load();
    EXPECT_EQ(log(), "");
}

/* Runs this program as another user, set-user-ID root: it starts the library and lists its tests.
 */
void run_privileged(const std::string &program, const std::string &conf) {
    pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        std::string entry = "UMF_CONF=" + conf;
        char *environment[] = {entry.data(), nullptr};
        char list[] = "--gtest_list_tests";
        char *arguments[] = {const_cast<char *>(program.c_str()), list, nullptr};
        if (setgid(65534) == 0 && setuid(65534) == 0) {
            execve(program.c_str(), arguments, environment);
        }
        _exit(1);
    }
    int status;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
}

TEST_F(Config, is_not_read_with_raised_privileges) {
    struct statvfs mount;
    if (UMF_TEST_ASAN || UMF_TEST_TSAN) {
        GTEST_SKIP() << "sanitizers do not start in a set-user-ID program";
    }
    if (is_emulated() || getuid() != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0 ||
        statvfs(dir.c_str(), &mount) != 0 || (mount.f_flag & ST_NOSUID)) {
        GTEST_SKIP() << "no set-user-ID program can be made here";
    }
    std::ifstream self("/proc/self/exe", std::ios::binary);
    std::string program = dir + "/program", output = dir + "/written";
    std::ofstream(program, std::ios::binary) << self.rdbuf();
    ASSERT_EQ(chmod(dir.c_str(), 0755), 0);

    /* Without the bit the setting counts, as far as the user may write. */
    std::string conf = "umf.logger.output=" + output;
    ASSERT_EQ(chmod(program.c_str(), 0755), 0);
    ASSERT_EQ(chown(dir.c_str(), 65534, 65534), 0);
    run_privileged(program, conf);
    ASSERT_EQ(access(output.c_str(), F_OK), 0);
    ASSERT_EQ(unlink(output.c_str()), 0);

    ASSERT_EQ(chmod(program.c_str(), 04755), 0);
    run_privileged(program, conf);
    EXPECT_NE(access(output.c_str(), F_OK), 0);
}

TEST_F(Config, random_text) {
    const char *const pieces[] = {"umf", ".", "=", ";", "pool", "default", "logger", "level",
                                  "{}",  "1", " ", "#", "\n",   "by_name", "count",  "a"};
    std::mt19937 random(2);
    for (int i = 0; i < 5000; i++) {
        std::string text;
        for (auto n = random() % 20; n > 0; n--) {
            text += random() % 8 ? pieces[random() % 16] : std::string(1, char(random() % 256));
        }
        apply(text);
        if (i % 50 == 0) {
            umf_config_apply_file(file(text).c_str());
            umf_ctl_defaults_forget(&umf_ctl_pool_defaults);
            ASSERT_EQ(truncate((dir + "/log").c_str(), 0), 0);
        }
    }
}

} // namespace
