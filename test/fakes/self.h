/*
 * How a test program starts itself again: directly, or by the emulator that runs it, whose command
 * line is in UMF_TEST_EMULATOR (test/CMakeLists.txt sets it for tests of another architecture).
 *
 *     SelfCommand self({"name", "--flag"}); // made before a fork
 *     execvp(self.file(), self.arguments());
 */
#ifndef UMF_TEST_FAKES_SELF_H
#define UMF_TEST_FAKES_SELF_H

#include <climits>
#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <unistd.h>

inline bool is_emulated() {
    return getenv("UMF_TEST_EMULATOR") != nullptr;
}

class SelfCommand {
  public:
    // As main gets them: the first is the program's name.
    explicit SelfCommand(std::vector<std::string> arguments) : words(std::move(arguments)) {
        if (const char *emulator = getenv("UMF_TEST_EMULATOR")) {
            std::istringstream all(emulator);
            std::vector<std::string> command;
            for (std::string word; all >> word;) {
                command.push_back(word);
            }
            char path[PATH_MAX] = "";
            words[0] = readlink("/proc/self/exe", path, sizeof(path) - 1) > 0 ? path : "";
            words.insert(words.begin(), command.begin(), command.end());
            program = words[0];
        }
        for (std::string &word : words) {
            pointers.push_back(word.data());
        }
        pointers.push_back(nullptr);
    }
    SelfCommand(const SelfCommand &) = delete;
    SelfCommand &operator=(const SelfCommand &) = delete;

    const char *file() const { // for execvp and posix_spawnp
        return program.c_str();
    }
    char **arguments() {
        return pointers.data();
    }

  private:
    std::string program = "/proc/self/exe";
    std::vector<std::string> words;
    std::vector<char *> pointers;
};

#endif
