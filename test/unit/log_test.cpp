/*
 * Logging starts once in a process and reads the environment, so most tests run this program again
 * as a child with UMF_LOG set and look at what it wrote.
 */
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <malloc.h>
#include <regex.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "fakes/scale.h"
#include "fakes/self.h"
#include "fakes/threads.h"

extern "C" {
#include "base/log.h"
#include "system/os.h"
}

namespace {

/* --- in a child --- */

void write_all_levels() {
    for (int level = UMF_LOG_LEVEL_DEBUG; level <= UMF_LOG_LEVEL_FATAL; level++) {
        umf_log_write(static_cast<umf_log_level_t>(level), 0, "work", "text %d", level);
    }
}

void named_function() {
    UMF_LOG_ERROR("from a macro");
    errno = EACCES;
    UMF_LOG_PERROR("cannot open %s", "x");
    if (errno != EACCES) {
        _exit(9);
    }
}

/* A message whose whole line, with its end, has this many bytes. */
void write_line_of(size_t bytes) {
    std::string text(bytes - std::strlen("[ERROR UMF] work: \n"), 'x');
    umf_log_write(UMF_LOG_LEVEL_ERROR, 0, "work", "%s", text.c_str());
}

void set_config(bool timestamp, bool pid, int level, int flush_level) {
    umf_log_config_t config = {timestamp, pid, level, flush_level};
    if (umf_log_set_config(&config) != UMF_RESULT_SUCCESS) {
        _exit(8);
    }
}

void write_from_threads() {
    run_threads(4, [](int i) {
        for (int j = 0; j < 500; j++) {
            umf_log_write(UMF_LOG_LEVEL_ERROR, 0, "work", "%d %d %s", i, j,
                          std::string(100, 'y').c_str());
        }
    });
}

const std::map<std::string, void (*)()> scenarios = {
    {"nothing", [] {}},
    {"levels", write_all_levels},
    {"function", named_function},
    {"errno", [] { umf_log_write(UMF_LOG_LEVEL_ERROR, 99999, "work", "odd"); }},
    {"init twice", umf_log_init},
    {"fits", [] { write_line_of(8192); }},
    {"cut", [] { write_line_of(8193); }},
    {"far too long", [] { write_line_of(50000); }},
    {"cut with reason",
     [] {
         umf_log_write(UMF_LOG_LEVEL_ERROR, ENOENT, "work", "%s", std::string(8160, 'x').c_str());
     }},
    {"crash",
     [] {
         write_all_levels();
         _exit(3);
     }},
    {"ids",
     [] {
         umf_log_write(UMF_LOG_LEVEL_ERROR, 0, "work", "here");
         std::thread([] { umf_log_write(UMF_LOG_LEVEL_ERROR, 0, "work", "there"); }).join();
         printf("%d\n", getpid());
     }},
    {"threads", write_from_threads},
    {"fork",
     [] {
         pid_t child = fork();
         umf_log_write(UMF_LOG_LEVEL_ERROR, 0, "work", child == 0 ? "child" : "parent");
         if (child == 0) {
             _exit(0);
         }
         waitpid(child, nullptr, 0);
     }},
    {"settings",
     [] {
         char output[300] = "";
         umf_log_config_t config = umf_log_get_config();
         umf_result_t result = umf_log_get_output(output, sizeof(output));
         printf("%d %d %d %d %d %s\n", config.timestamp, config.pid, config.level,
                config.flush_level, result, output);
     }},
    {"fatal with ids",
     [] {
         set_config(false, true, 0, 0);
         write_all_levels();
     }},
};

int child_main(const std::string &scenario) {
    umf_log_init();
    scenarios.at(scenario)();
    return 0;
}

/* --- running a child --- */

struct outcome_t {
    int status;
    std::string out, err;
};

std::string read_file(const std::string &path) {
    std::ifstream file(path);
    std::stringstream text;
    text << file.rdbuf();
    return text.str();
}

class log_test : public testing::Test {
  protected:
    void SetUp() override {
        char name[] = "/tmp/umf_log_test_XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        dir_ = name;
    }
    void TearDown() override {
        std::string command = "rm -rf " + dir_;
        ASSERT_EQ(system(command.c_str()), 0);
    }

    std::string path(const std::string &name) const {
        return dir_ + "/" + name;
    }

    outcome_t run(const char *scenario, const char *umf_log, const char *zone = "UTC") const {
        std::string out = path(".out"), err = path(".err");
        SelfCommand self({"log_test", "--umf-child", scenario});
        pid_t child = fork();
        if (child == 0) {
            umf_log ? setenv("UMF_LOG", umf_log, 1) : unsetenv("UMF_LOG");
            setenv("TZ", zone, 1);
            int fd = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            int fd2 = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
            dup2(fd, STDOUT_FILENO), dup2(fd2, STDERR_FILENO);
            close(fd), close(fd2);
            execvp(self.file(), self.arguments());
            _exit(127);
        }
        int status = -1;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(out), read_file(err)};
    }

    outcome_t run(const char *scenario, const std::string &umf_log,
                  const char *zone = "UTC") const {
        return run(scenario, umf_log.c_str(), zone);
    }

    std::string dir_;
};

std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    std::stringstream stream(text);
    for (std::string line; std::getline(stream, line);) {
        lines.push_back(line);
    }
    return lines;
}

/* Whether the whole text is as the extended regular expression says. */
bool matches(const std::string &text, const std::string &pattern) {
    regex_t regex;
    EXPECT_EQ(regcomp(&regex, ("^" + pattern + "$").c_str(), REG_EXTENDED | REG_NOSUB), 0);
    bool is_match = regexec(&regex, text.c_str(), 0, nullptr, 0) == 0;
    regfree(&regex);
    return is_match;
}

const std::string fatal_line = "[FATAL UMF] work: text 4\n";

std::string not_set(const std::string &value) {
    return "[ERROR UMF] utils_log_init: Logging output not set - logging disabled (UMF_LOG = \"" +
           value + "\")\n";
}

std::string work_lines(int from) {
    const char *const names[] = {"DEBUG", "INFO ", "WARN ", "ERROR", "FATAL"};
    std::string text;
    for (int level = from; level <= UMF_LOG_LEVEL_FATAL; level++) {
        text +=
            "[" + std::string(names[level]) + " UMF] work: text " + std::to_string(level) + "\n";
    }
    return text;
}

} // namespace

/* --- output --- */

TEST_F(log_test, unset_prints_nothing_but_fatal) {
    outcome_t got = run("levels", nullptr);
    EXPECT_EQ(got.status, 0);
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(got.err, fatal_line);
}

TEST_F(log_test, without_output_one_line_tells_so) {
    for (const char *value : {"", "level:debug", "output:", "output:file", "output:stdout2",
                              "output:stdout ", " output:stdout", "outputs:stdout",
                              "timestamp:yes;pid:yes;level:debug", "xoutput:stderr"}) {
        outcome_t got = run("nothing", value);
        EXPECT_EQ(got.out, "") << value;
        EXPECT_EQ(got.err, not_set(value));
    }
}

TEST_F(log_test, without_output_logging_stays_off) {
    outcome_t got = run("levels", "level:debug;pid:yes");
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(got.err, not_set("level:debug;pid:yes") + fatal_line);
}

TEST_F(log_test, standard_streams) {
    outcome_t got = run("levels", "output:stdout");
    EXPECT_EQ(got.out, work_lines(UMF_LOG_LEVEL_ERROR));
    EXPECT_EQ(got.err, "");
    got = run("levels", "output:stderr");
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(got.err, work_lines(UMF_LOG_LEVEL_ERROR));
}

TEST_F(log_test, file_is_created_and_appended_to) {
    std::string file = path("log");
    for (int i = 1; i <= 2; i++) {
        outcome_t got = run("levels", "output:file," + file);
        EXPECT_EQ(got.out + got.err, "");
        std::string expected;
        for (int j = 0; j < i; j++) {
            expected += work_lines(UMF_LOG_LEVEL_ERROR);
        }
        EXPECT_EQ(read_file(file), expected);
    }
}

TEST_F(log_test, file_named_like_a_stream) {
    std::string old = std::filesystem::current_path();
    ASSERT_EQ(chdir(dir_.c_str()), 0);
    outcome_t got = run("levels", "output:file,stdout");
    ASSERT_EQ(chdir(old.c_str()), 0);
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(read_file(path("stdout")), work_lines(UMF_LOG_LEVEL_ERROR));
}

TEST_F(log_test, file_that_cannot_be_opened) {
    outcome_t got = run("levels", "level:debug;output:file,/no/such/dir/log");
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(got.err, "[ERROR UMF] utils_log_init: Cannot open output file \"/no/such/dir/log\" - "
                       "logging disabled: No such file or directory\n" +
                           fatal_line);
}

TEST_F(log_test, longest_path_and_one_longer) {
    std::string name = dir_ + "/";
    while (name.size() + 2 < 256) {
        name += "./";
    }
    name += std::string(256 - name.size(), 'x');
    outcome_t got = run("levels", "output:file," + name);
    EXPECT_EQ(got.err, "");
    EXPECT_EQ(read_file(name), work_lines(UMF_LOG_LEVEL_ERROR));
    EXPECT_EQ(run("settings", "output:file," + name).out, "0 0 3 3 0 " + name + "\n");

    got = run("levels", "output:file," + name + "x");
    std::vector<std::string> lines = lines_of(got.err);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_NE(lines[0].find("Cannot open output file - path too long"), std::string::npos);
    EXPECT_EQ(lines[1] + "\n", fatal_line);
}

TEST_F(log_test, nothing_is_lost_in_a_crash) {
    outcome_t got = run("crash", "level:debug;flush:fatal;output:stdout");
    EXPECT_EQ(got.status, 3);
    EXPECT_NE(got.out.find(work_lines(UMF_LOG_LEVEL_DEBUG)), std::string::npos);
}

TEST_F(log_test, file_without_a_name_cannot_be_opened) {
    outcome_t got = run("nothing", "output:file,");
    EXPECT_EQ(got.out, "");
    EXPECT_EQ(got.err, "[ERROR UMF] utils_log_init: Cannot open output file \"\" - logging "
                       "disabled: No such file or directory\n");
}

TEST_F(log_test, logging_that_could_not_start_stays_off) {
    for (const std::string &value :
         {std::string("output:file,/no/such/dir/log;level:debug"),
          "level:debug;output:file," + dir_,
          "output:file,/tmp/" + std::string(300, 'x') + ";level:debug"}) {
        outcome_t got = run("settings", value);
        EXPECT_EQ(got.out, "0 0 3 3 0 disabled\n") << value;
        EXPECT_EQ(lines_of(got.err).size(), 1u) << got.err;
    }
}

/* --- options --- */

TEST_F(log_test, level) {
    const char *const words[] = {"debug", "info", "warning", "error", "fatal"};
    for (int level = 0; level < 5; level++) {
        outcome_t got = run("levels", "output:stdout;level:" + std::string(words[level]));
        EXPECT_NE(got.out.find(work_lines(level)), std::string::npos) << words[level];
        EXPECT_EQ(lines_of(got.out).size(), static_cast<size_t>(5 - level + (level <= 1)));
    }
}

TEST_F(log_test, options_count_only_as_written) {
    struct {
        const char *text, *settings;
    } const cases[] = {
        {"output:stdout", "0 0 3 3 0 stdout\n"},
        {"timestamp:yes;pid:yes;level:warning;flush:warning;output:stdout", "1 1 2 2 0 stdout\n"},
        {"output:stdout;pid:no;timestamp:no;flush:fatal;level:fatal;", "0 0 4 4 0 stdout\n"},
        {";;level:fatal;;output:stdout;;", "0 0 4 3 0 stdout\n"},
        {"output:stdout;level:warn", "0 0 3 3 0 stdout\n"},
        {"output:stdout;level:warnings", "0 0 3 3 0 stdout\n"},
        {"output:stdout;level:", "0 0 3 3 0 stdout\n"},
        {"output:stdout;level:FATAL", "0 0 3 3 0 stdout\n"},
        {"output:stdout; level:fatal", "0 0 3 3 0 stdout\n"},
        {"output:stdout;xlevel:fatal", "0 0 3 3 0 stdout\n"},
        {"output:stdout,level:fatal", ""},
        {"output:stdout;pid:maybe;timestamp:1", "0 0 3 3 0 stdout\n"},
        {"output:stdout;flush:never;level:fatal", "0 0 4 3 0 stdout\n"},
        {"level:fatal;output:bad;output:stdout", "0 0 4 3 0 stdout\n"},
    };
    for (const auto &c : cases) {
        outcome_t got = run("settings", c.text);
        std::string expected = *c.settings ? c.settings : "0 0 3 3 0 disabled\n";
        EXPECT_EQ(got.out, expected) << c.text;
    }
}

/* An option that is ignored is reported once, as a warning. */
TEST_F(log_test, ignored_options_are_told_once) {
    for (const char *text :
         {"output:stdout;level:warning;flush:never", "output:stdout;level:warning;x",
          "output:stdout;level:warning;pid:maybe", "output:nowhere;output:stdout;level:warning",
          "output:stdout;timestamp:YES;level:warning"}) {
        outcome_t got = run("nothing", text);
        EXPECT_EQ(lines_of(got.out).size(), 1u) << got.out;
        EXPECT_EQ(got.out.find("[WARN  UMF] utils_log_init: UMF_LOG: 1 options are ignored, first "
                               "\""),
                  0u)
            << got.out;
    }
    outcome_t got = run("nothing", "output:stdout;level:info;flush:never;;a;b;");
    std::vector<std::string> lines = lines_of(got.out);
    ASSERT_EQ(lines.size(), 2u) << got.out;
    EXPECT_NE(lines[0].find("Logger enabled ("), std::string::npos) << "comes first";
    EXPECT_NE(lines[1].find("3 options are ignored, first \"flush:never\";"), std::string::npos);
    EXPECT_EQ(run("nothing", "output:stdout;level:warning;;").out, "");
    got = run("nothing", "output:stdout;level:warning;" + std::string(100000, 'x'));
    EXPECT_NE(got.out.find('"' + std::string(64, 'x') + '"'), std::string::npos);
    EXPECT_LT(got.out.size(), 400u);
}

TEST_F(log_test, start_is_told_once_at_info) {
    outcome_t got = run("init twice", "output:stderr;level:info");
    EXPECT_EQ(got.err, "[INFO  UMF] utils_log_init: Logger enabled (UMF version: " UMF_VERSION_TEXT
                       ", level: INFO, "
                       "flush: ERROR, pid: no, timestamp: no)\n");
    got = run("nothing", "output:stdout;level:debug;flush:warning;pid:yes;timestamp:yes");
    EXPECT_NE(got.out.find(" UMF] utils_log_init: Logger enabled (UMF version: " UMF_VERSION_TEXT
                           ", level: DEBUG, "
                           "flush: WARN, pid: yes, timestamp: yes)\n"),
              std::string::npos)
        << got.out;
    EXPECT_EQ(run("nothing", "output:stdout;level:warning").out, "");
}

/* --- lines --- */

TEST_F(log_test, macros_give_the_function_and_the_reason) {
    outcome_t got = run("function", "output:stdout");
    EXPECT_EQ(got.status, 0) << "errno is kept";
    EXPECT_EQ(got.out, "[ERROR UMF] named_function: from a macro\n"
                       "[ERROR UMF] named_function: cannot open x: Permission denied\n");
}

TEST_F(log_test, reason_without_a_name) {
    EXPECT_EQ(run("errno", "output:stdout").out, "[ERROR UMF] work: odd: Unknown error 99999\n");
}

TEST_F(log_test, ids) {
    outcome_t got = run("ids", "output:stderr;pid:yes");
    std::string pid = std::to_string(std::atoi(got.out.c_str()));
    std::string padded = pid + std::string(pid.size() < 6 ? 6 - pid.size() : 0, ' ');
    std::vector<std::string> lines = lines_of(got.err);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[0], "[PID:" + padded + " TID:" + padded + " ERROR UMF] work: here");
    EXPECT_TRUE(matches(lines[1], "\\[PID:" + padded + " TID:[0-9]+ *ERROR UMF\\] work: there"))
        << lines[1];
    EXPECT_EQ(lines[1].find("TID:" + pid + " "), std::string::npos);
    EXPECT_EQ(lines[1].size(), lines[0].size() + 1);
}

TEST_F(log_test, timestamp_is_local_time) {
    for (const char *zone : {"UTC", "XYZ-5:45", "ABC+3:30"}) {
        setenv("TZ", zone, 1);
        tzset();
        time_t before = time(nullptr);
        outcome_t got = run("levels", "output:stderr;timestamp:yes;level:fatal", zone);
        time_t after = time(nullptr);
        bool is_found = false;
        for (time_t t = before; t <= after; t++) {
            char text[64];
            std::strftime(text, sizeof(text), "[%Y-%m-%dT%H:%M:%S FATAL UMF] work: text 4\n",
                          std::localtime(&t));
            is_found |= got.err == text;
        }
        EXPECT_TRUE(is_found) << zone << ": " << got.err;
    }
    setenv("TZ", "UTC", 1);
    tzset();
}

TEST_F(log_test, time_comes_before_ids) {
    outcome_t got = run("levels", "output:stderr;timestamp:yes;pid:yes;level:fatal");
    std::string time = "[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2} ";
    EXPECT_TRUE(matches(got.err, "\\[" + time +
                                     "PID:[0-9 ]{6,} TID:[0-9 ]{6,} FATAL UMF\\] "
                                     "work: text 4\n"))
        << got.err;
}

TEST_F(log_test, line_that_just_fits_is_whole) {
    std::string out = run("fits", "output:stdout").out;
    EXPECT_EQ(out.size(), 8192u);
    EXPECT_EQ(out.substr(out.size() - 4), "xxx\n");
}

TEST_F(log_test, line_that_does_not_fit_is_cut) {
    for (const char *scenario : {"cut", "far too long", "cut with reason"}) {
        std::string out = run(scenario, "output:stdout").out;
        EXPECT_EQ(out.size(), 8192u) << scenario;
        EXPECT_EQ(out.substr(0, 21), "[ERROR UMF] work: xxx") << scenario;
        EXPECT_EQ(out.substr(out.size() - 18), "xxx[truncated...]\n") << scenario;
    }
}

/* A socket keeps message borders. */
TEST_F(log_test, each_line_is_one_write) {
    int sockets[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    SelfCommand self({"log_test", "--umf-child", "levels"});
    pid_t child = fork();
    if (child == 0) {
        setenv("UMF_LOG", "output:stdout;level:debug;timestamp:yes;pid:yes", 1);
        dup2(sockets[1], STDOUT_FILENO);
        close(sockets[0]), close(sockets[1]);
        execvp(self.file(), self.arguments());
        _exit(127);
    }
    close(sockets[1]);
    std::vector<std::string> writes;
    char room[10000];
    for (ssize_t size; (size = recv(sockets[0], room, sizeof(room), 0)) > 0;) {
        writes.emplace_back(room, static_cast<size_t>(size));
    }
    close(sockets[0]);
    waitpid(child, nullptr, 0);
    ASSERT_EQ(writes.size(), 6u) << "the start and five levels";
    for (const std::string &line : writes) {
        EXPECT_EQ(line.front(), '[');
        EXPECT_EQ(line.find('\n'), line.size() - 1);
    }
}

TEST_F(log_test, lines_of_many_threads_stay_whole) {
    std::string file = path("log");
    run("threads", "output:file," + file);
    std::vector<std::string> lines = lines_of(read_file(file));
    EXPECT_EQ(lines.size(), 2000u);
    for (const std::string &line : lines) {
        ASSERT_TRUE(matches(line, "\\[ERROR UMF\\] work: [0-9] [0-9]+ y{100}")) << line;
    }
}

TEST_F(log_test, child_of_fork_writes_too) {
    std::vector<std::string> lines = lines_of(run("fork", "output:stdout").out);
    std::sort(lines.begin(), lines.end());
    EXPECT_EQ(lines,
              (std::vector<std::string>{"[ERROR UMF] work: child", "[ERROR UMF] work: parent"}));
}

TEST_F(log_test, fatal_without_output_follows_the_settings) {
    outcome_t got = run("fatal with ids", nullptr);
    std::vector<std::string> lines = lines_of(got.err);
    ASSERT_EQ(lines.size(), 1u) << got.err;
    EXPECT_EQ(lines[0].compare(0, 5, "[PID:"), 0);
}

/* --- settings while running, in this process --- */

class log_settings : public log_test {
  protected:
    void SetUp() override {
        log_test::SetUp();
        ASSERT_EQ(umf_log_set_output(path("first").c_str()), UMF_RESULT_SUCCESS);
        set_config(false, false, UMF_LOG_LEVEL_ERROR, UMF_LOG_LEVEL_ERROR);
    }
};

TEST_F(log_settings, output_can_be_changed_and_read) {
    char name[300] = "";
    ASSERT_EQ(umf_log_get_output(name, sizeof(name)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(name, path("first"));
    write_all_levels();
    ASSERT_EQ(umf_log_set_output(path("second").c_str()), UMF_RESULT_SUCCESS);
    umf_log_write(UMF_LOG_LEVEL_ERROR, 0, "work", "more");
    EXPECT_EQ(read_file(path("first")), work_lines(UMF_LOG_LEVEL_ERROR));
    EXPECT_EQ(read_file(path("second")), "[ERROR UMF] work: more\n");
    for (const char *stream : {"stdout", "stderr"}) {
        ASSERT_EQ(umf_log_set_output(stream), UMF_RESULT_SUCCESS);
        ASSERT_EQ(umf_log_get_output(name, sizeof(name)), UMF_RESULT_SUCCESS);
        EXPECT_STREQ(name, stream);
    }
}

TEST_F(log_settings, change_of_output_closes_the_old_file) {
    int before = dup(0);
    close(before);
    for (int i = 0; i < 50; i++) {
        ASSERT_EQ(umf_log_set_output(path("second").c_str()), UMF_RESULT_SUCCESS);
        ASSERT_EQ(umf_log_set_output("stdout"), UMF_RESULT_SUCCESS);
    }
    int after = dup(0);
    close(after);
    EXPECT_LE(after, before);
    EXPECT_EQ(write(STDOUT_FILENO, "", 0), 0) << "standard streams stay open";
}

TEST_F(log_settings, refused_output_keeps_the_old_one) {
    char name[300] = "";
    std::string longest(255, 'x');
    std::string too_long(256, 'x');
    EXPECT_EQ(umf_log_set_output(nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_log_set_output(""), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_log_set_output("disabled"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_log_set_output("/no/such/dir/log"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_log_set_output(too_long.c_str()), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ASSERT_EQ(umf_log_get_output(name, sizeof(name)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(name, path("first"));
    EXPECT_EQ(lines_of(read_file(path("first"))).size(), 5u) << "each is explained";
    EXPECT_NE(read_file(path("first")).find("\"/no/such/dir/log\": No such file or directory"),
              std::string::npos);
}

TEST_F(log_settings, longest_name) {
    std::string name = dir_ + "/";
    while (name.size() + 2 < 255) {
        name += "./";
    }
    name += std::string(255 - name.size(), 'x');
    char got[256] = "";
    ASSERT_EQ(umf_log_set_output(name.c_str()), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_log_get_output(got, sizeof(got)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(got, name);
    std::memset(got, 'z', sizeof(got));
    EXPECT_EQ(umf_log_get_output(got, 255), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(got[0], 'z');
    EXPECT_EQ(umf_log_get_output(nullptr, 255), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(log_settings, levels_are_checked) {
    umf_log_config_t config = {true, true, UMF_LOG_LEVEL_DEBUG, UMF_LOG_LEVEL_INFO};
    ASSERT_EQ(umf_log_set_config(&config), UMF_RESULT_SUCCESS);
    for (int bad : {-1, 5, 256, -2147483647}) {
        umf_log_config_t other = {false, false, bad, 0};
        EXPECT_EQ(umf_log_set_config(&other), UMF_RESULT_ERROR_INVALID_ARGUMENT);
        other = {false, false, 0, bad};
        EXPECT_EQ(umf_log_set_config(&other), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    config = umf_log_get_config();
    EXPECT_TRUE(config.timestamp && config.pid);
    EXPECT_EQ(config.level, UMF_LOG_LEVEL_DEBUG);
    EXPECT_EQ(config.flush_level, UMF_LOG_LEVEL_INFO);
}

/* We may be the program's malloc, and a line may report a lack of memory. */
TEST_F(log_settings, a_line_allocates_nothing) {
    set_config(true, true, UMF_LOG_LEVEL_DEBUG, UMF_LOG_LEVEL_DEBUG);
    write_all_levels();
    static int calls;
    calls = 0;
    umf_os_set_fault([](const char *) { return calls++, ENOMEM; });
    [[maybe_unused]] size_t before = mallinfo2().uordblks;
    for (int i = 0; i < 100; i++) {
        write_all_levels();
        umf_log_write(UMF_LOG_LEVEL_ERROR, ENOENT, "work", "%.3f %s %d", i / 3.0, "text", i);
    }
#if !UMF_TEST_ASAN && !UMF_TEST_TSAN
    EXPECT_EQ(mallinfo2().uordblks, before);
#endif
    umf_os_set_fault(nullptr);
    EXPECT_EQ(calls, 0) << "no memory of ours, and no call that may fail";
    set_config(false, false, UMF_LOG_LEVEL_ERROR, UMF_LOG_LEVEL_ERROR);
    EXPECT_EQ(lines_of(read_file(path("first"))).size(), 605u);
}

TEST_F(log_settings, changes_while_others_write) {
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; i++) {
        threads.emplace_back([] {
            for (int j = 0; j < 300; j++) {
                umf_log_write(UMF_LOG_LEVEL_ERROR, 0, "work", "line");
            }
        });
    }
    for (int i = 0; i < 100; i++) {
        umf_log_set_output(path(i % 2 ? "first" : "second").c_str());
        set_config(false, false, UMF_LOG_LEVEL_ERROR, i % 5);
    }
    for (std::thread &thread : threads) {
        thread.join();
    }
    std::vector<std::string> lines = lines_of(read_file(path("first")) + read_file(path("second")));
    EXPECT_EQ(lines.size(), 900u);
    EXPECT_EQ(std::count(lines.begin(), lines.end(), "[ERROR UMF] work: line"), 900);
}

int main(int argc, char **argv) {
    if (argc == 3 && std::strcmp(argv[1], "--umf-child") == 0) {
        return child_main(argv[2]);
    }
    testing::InitGoogleTest(&argc, argv);
    return RUN_ALL_TESTS();
}
