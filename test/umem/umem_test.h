/*
 * Common parts of the tests of libumem: errno is zero after every test, files lie in a folder of
 * the test, and a list of contexts of all kinds that this machine has.
 */
#ifndef UMF_TEST_UMEM_UMEM_TEST_H
#define UMF_TEST_UMEM_UMEM_TEST_H

#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <dirent.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include <umem.h>

#define EXPECT_STATUS(ctx, expected)                                                               \
    EXPECT_EQ(umem_get_status(ctx), expected) << umem_get_message(ctx)
// Long texts that are not printed.
#define EXPECT_SAME(one, other) EXPECT_TRUE((one) == (other))
#define EXPECT_OK(ctx) EXPECT_STATUS(ctx, umemOK)

// A folder that goes with all of its files.
class Folder {
  public:
    Folder() {
        char made[] = "/tmp/umem_test_XXXXXX";
        path_ = std::string(mkdtemp(made)) + "/";
    }
    ~Folder() {
        if (DIR *folder = opendir(path_.c_str())) {
            while (dirent *entry = readdir(folder)) {
                unlink((path_ + entry->d_name).c_str());
            }
            closedir(folder);
        }
        rmdir(path_.c_str());
    }
    std::string file(const char *name) const {
        return path_ + name;
    }

  private:
    std::string path_;
};

inline std::string read_file(const std::string &name) {
    std::string text;
    char piece[4096];
    FILE *file = fopen(name.c_str(), "rb");
    for (size_t got = 1; file && got > 0;) {
        got = fread(piece, 1, sizeof(piece), file);
        text.append(piece, got);
    }
    if (file) {
        fclose(file);
    }
    errno = 0;
    return text;
}

inline void write_file(const std::string &name, const std::string &text) {
    FILE *file = fopen(name.c_str(), "wb");
    ASSERT_TRUE(file);
    ASSERT_EQ(fwrite(text.data(), 1, text.size(), file), text.size());
    fclose(file);
    errno = 0;
}

// A context that ends with its scope.
template <typename Raw> class Made {
  public:
    template <typename Ctor, typename... Args> Made(Ctor ctor, Args... args) {
        memset(&raw, 0xa5, sizeof(raw)); // constructors take storage as it is
        ctor(&raw, args...);
    }
    Made(const Made &) = delete;
    ~Made() {
        umem_dtor(&raw);
        EXPECT_OK(&raw);
        EXPECT_STREQ(umem_get_message(&raw), "");
    }
    Raw *operator&() {
        return &raw;
    }
    Raw *operator->() {
        return &raw;
    }

  private:
    Raw raw;
};

class Umem : public testing::Test {
  protected:
    void SetUp() override {
        errno = 0;
    }
    void TearDown() override {
        EXPECT_EQ(errno, 0);
    }

    Folder folder;
    Made<umemHost> host{umemHost_ctor};

    uintptr_t adr(const void *ptr) {
        return reinterpret_cast<uintptr_t>(ptr);
    }
    // Content of a context at an address.
    std::string content(void *ctx, uintptr_t at, size_t size) {
        std::string text(size, '?');
        umem_copy_to(ctx, at, &host, adr(&text[0]), size);
        return text;
    }
};

#endif
