/*
 * The log of the library in a file, for as long as the object lives:
 *
 *     LogFile log; // all levels
 *     ... code under test ...
 *     EXPECT_EQ(log.count("WARN"), 1u) << log.text();
 */
#ifndef UMF_TEST_FAKES_LOG_FILE_H
#define UMF_TEST_FAKES_LOG_FILE_H

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

#include <umf/experimental/ctl.h>

class LogFile {
  public:
    explicit LogFile(int level = 0) {
        char name[] = "/tmp/umf_log_file_XXXXXX";
        int fd = mkstemp(name);
        EXPECT_GE(fd, 0);
        close(fd);
        path = name;
        set(path, level);
    }
    ~LogFile() {
        set("/dev/null", 3); // there is no way back to "disabled"
        unlink(path.c_str());
    }
    LogFile(const LogFile &) = delete;
    LogFile &operator=(const LogFile &) = delete;

    std::string text() const {
        std::ifstream file(path);
        std::stringstream all;
        all << file.rdbuf();
        return all.str();
    }
    // How often the log has it.
    size_t count(const std::string &what) const {
        std::string all = text();
        size_t n = 0;
        for (size_t at = 0; (at = all.find(what, at)) != std::string::npos; at++) {
            n++;
        }
        return n;
    }

  private:
    std::string path;

    static void set(std::string output, int level) {
        EXPECT_EQ(umfCtlSet("umf.logger.output", output.data(), output.size() + 1),
                  UMF_RESULT_SUCCESS);
        EXPECT_EQ(umfCtlSet("umf.logger.level", &level, sizeof(level)), UMF_RESULT_SUCCESS);
    }
};

#endif
