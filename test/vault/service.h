// A service of vaults of one test: its own place, and no process of it stays.
#ifndef UMF_TEST_VAULT_SERVICE_H
#define UMF_TEST_VAULT_SERVICE_H

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "vault/objects.h"

class Vaults : public ::testing::Test {
  public:
    void SetUp() override {
        char folder[] = "/tmp/umf_vault_test_XXXXXX";
        ASSERT_NE(mkdtemp(folder), nullptr);
        place = folder;
        setenv("UMF_VAULT_DIR", folder, 1);
        const char *copied = getenv("UMF_TEST_UMFD"); // beside the programs (test/gpu/run.sh)
        setenv("UMF_UMFD", copied ? copied : UMF_TEST_UMFD, 1);
        // If this process is killed or crashes, a child removes the place; without place and
        // clients the service ends.
        int ends[2];
        ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
        guard = fork();
        if (guard == 0) {
            char byte;
            close(ends[1]);
            while (read(ends[0], &byte, 1) == -1 && errno == EINTR) {
            }
            execlp("rm", "rm", "-rf", folder, nullptr);
            _exit(1);
        }
        close(ends[0]);
        alive = ends[1];
    }

    void TearDown() override {
        umfVaultStop(nullptr, 1);
        EXPECT_TRUE(until([&] { return has_ended(); })) << "a process stays";
        for (pid_t pid : processes()) {
            kill(pid, SIGKILL);
        }
        int status;
        close(alive);
        EXPECT_EQ(waitpid(guard, &status, 0), guard);
        EXPECT_NE(access(place.c_str(), F_OK), 0);
    }

    // The processes of the service: their current folder is the place.
    std::vector<pid_t> processes(const char *role = "") const {
        std::vector<pid_t> found;
        DIR *proc = opendir("/proc");
        for (dirent *entry; proc && (entry = readdir(proc));) {
            pid_t pid = atoi(entry->d_name);
            if (pid <= 0 || pid == getpid() || !is_service(pid, role)) {
                continue;
            }
            found.push_back(pid);
        }
        closedir(proc);
        return found;
    }
    // Another service can have the place. A process that ends loses its command line before its
    // lock.
    bool has_ended() const {
        int lock = open((place + "/lock").c_str(), O_RDWR | O_CLOEXEC);
        bool is_free = lock == -1 || flock(lock, LOCK_EX | LOCK_NB) == 0;
        close(lock);
        return is_free && processes().empty();
    }
    pid_t daemon() const {
        return the_only("serve");
    }
    pid_t keeper() const {
        return the_only("keep");
    }
    // Sends a signal to a process of the service; 0 would be the whole group of this process.
    static void hit(pid_t pid, int number) {
        ASSERT_GT(pid, 0) << "it is not seen: only root can read the environment of a daemon";
        ASSERT_EQ(kill(pid, number), 0);
    }

    static char state_of(pid_t pid) {
        std::string line = content_of("/proc/" + std::to_string(pid) + "/stat");
        size_t at = line.rfind(')');
        return at == std::string::npos || at + 2 >= line.size() ? 'Z' : line[at + 2];
    }

    std::string place;

  private:
    // A child that a process has just forked looks like it for a moment.
    pid_t the_only(const char *role) const {
        std::vector<pid_t> all;
        until([&] { return (all = processes(role)).size() <= 1; });
        return all.size() == 1 ? all[0] : 0;
    }

    pid_t guard = 0;
    int alive = -1;

    // Both are not dumpable, so /proc shows only their command line: the first keeper has the place
    // in it, the others are its children or those of a daemon.
    bool is_service(pid_t pid, const char *role) const {
        std::string words = command_line(pid);
        bool serves = words.find("--serve") != std::string::npos;
        bool is_ours = words.find(place) != std::string::npos ||
                       ((serves || words.find("--keep") != std::string::npos) && has_lock(pid));
        if (words.compare(0, 4, "umfd") != 0 || !is_ours || state_of(pid) == 'Z') {
            return false;
        }
        return !*role || (strcmp(role, "serve") == 0) == serves;
    }
    // "": the process has ended, maybe in the middle.
    static std::string content_of(const std::string &path) {
        std::string content;
        char bytes[4096];
        int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        for (ssize_t got; fd != -1 && (got = read(fd, bytes, sizeof(bytes))) > 0;) {
            content.append(bytes, size_t(got));
        }
        if (fd != -1) {
            close(fd);
        }
        return content;
    }
    static std::string command_line(pid_t pid) {
        return content_of("/proc/" + std::to_string(pid) + "/cmdline");
    }
    // Names of tests are not in the command line of a daemon; its environment has the place.
    bool has_lock(pid_t pid) const {
        std::string words = content_of("/proc/" + std::to_string(pid) + "/environ");
        return words.find("UMF_VAULT_DIR=" + place) != std::string::npos;
    }
};

#endif
