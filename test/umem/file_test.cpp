// Files: addresses are offsets.

#include "umem_test.h"

#include <fcntl.h>
#include <sys/stat.h>

namespace {

class File : public Umem {
  protected:
    std::string name = folder.file("file");

    Made<umemFile> make(const char *mode) {
        return {umemFile_ctor, name.c_str(), mode};
    }
    bool exists() {
        bool is_there = access(name.c_str(), F_OK) == 0;
        errno = 0;
        return is_there;
    }
    void put(void *ctx, uintptr_t at, const std::string &text) {
        umem_copy_from(ctx, at, &host, adr(text.data()), text.size());
    }
};

} // namespace

TEST_F(File, TheConstructorOpensNothing) {
    std::string given_name = name, given_mode = "wb";
    Made<umemFile> file(umemFile_ctor, given_name.c_str(), given_mode.c_str());
    given_name = "x";
    given_mode = "y";
    EXPECT_FALSE(exists());
    EXPECT_EQ(file->fp, 0u);
    EXPECT_STREQ(file->filename, name.c_str());
    EXPECT_STREQ(file->mode, "wb");
    EXPECT_EQ(file->super.host_ctx, &file->host);
    EXPECT_EQ(umem_fundamental_align(&file), 1u);
    EXPECT_STREQ(umem_get_device_name(&file), "File");
}

TEST_F(File, EmptyNamesAreValueErrors) {
    Made<umemFile> nameless(umemFile_ctor, "", "wb");
    EXPECT_STATUS(&nameless, umemValueError);
    EXPECT_STREQ(umem_get_message(&nameless), "invalid 0-length filename");
    EXPECT_EQ(nameless->filename, nullptr);
    EXPECT_EQ(nameless->mode, nullptr);
    umem_clear_status(&nameless);
    EXPECT_EQ(umem_alloc(&nameless, 1), UINTPTR_MAX);
    EXPECT_STATUS(&nameless, umemIOError);
    Made<umemFile> modeless(umemFile_ctor, name.c_str(), "");
    EXPECT_STATUS(&modeless, umemValueError);
    EXPECT_STREQ(umem_get_message(&modeless), "invalid 0-length mode");
    EXPECT_EQ(modeless->filename, nullptr);
    EXPECT_EQ(modeless->mode, nullptr);
}

TEST_F(File, TheFirstAllocationOpens) {
    write_file(name, "old");
    Made<umemFile> file = make("wb");
    EXPECT_EQ(read_file(name), "old");
    EXPECT_EQ(umem_alloc(&file, 0), 0u);
    EXPECT_NE(file->fp, 0u);
    EXPECT_EQ(read_file(name), "");
    put(&file, 0, "hello");
    umem_free(&file, 0);
    EXPECT_EQ(file->fp, 0u);
    EXPECT_EQ(read_file(name), "hello");
    umem_free(&file, 5); // closed: nothing
    EXPECT_OK(&file);
}

TEST_F(File, FurtherAllocationsTellThePosition) {
    Made<umemFile> file = make("w+");
    EXPECT_EQ(umem_alloc(&file, 100), 0u);
    EXPECT_EQ(umem_alloc(&file, 100), 0u);
    put(&file, 0, "hello");
    EXPECT_EQ(umem_alloc(&file, 100), 5u);
    EXPECT_EQ(umem_calloc(&file, 3, 4), 5u);
    EXPECT_EQ(umem_alloc(&file, 1), 17u);
    EXPECT_EQ(umem_calloc(&file, 0, 4), 17u);
    EXPECT_SAME(content(&file, 0, 17), "hello" + std::string(12, 0));
    umem_free(&file, 99);
    EXPECT_EQ(read_file(name), "hello" + std::string(12, 0));
    EXPECT_EQ(umem_calloc(&file, SIZE_MAX, 2), 0u);
    EXPECT_STATUS(&file, umemMemoryError);
}

TEST_F(File, WhatCannotBeOpenedIsAnIOError) {
    for (const char *mode : {"rb", "r+", "nonsense"}) {
        Made<umemFile> file = make(mode);
        EXPECT_EQ(umem_alloc(&file, 10), UINTPTR_MAX);
        EXPECT_STATUS(&file, umemIOError);
        umem_clear_status(&file);
        EXPECT_EQ(umem_calloc(&file, 10, 1), UINTPTR_MAX);
        EXPECT_STATUS(&file, umemIOError);
        umem_clear_status(&file);
        EXPECT_EQ(umem_aligned_alloc(&file, 16, 16), 0u);
        EXPECT_STATUS(&file, umemIOError);
        EXPECT_EQ(errno, 0);
    }
}

TEST_F(File, ModesAreThoseOfFopen) {
    write_file(name, "0123456789");
    for (const char *mode : {"r", "rb", "r+", "r+b", "rb+", "a+", "a+b"}) {
        Made<umemFile> file = make(mode);
        EXPECT_EQ(umem_alloc(&file, 1), 0u) << mode;
        EXPECT_SAME(content(&file, 3, 4), "3456") << mode;
        EXPECT_OK(&file);
    }
    {
        Made<umemFile> file = make("r");
        umem_alloc(&file, 1);
        umem_set(&file, 0, 'x', 1);
        EXPECT_STATUS(&file, umemIOError);
        EXPECT_EQ(errno, 0);
    }
    {
        Made<umemFile> file = make("r+");
        umem_alloc(&file, 1);
        umem_set(&file, 8, 'x', 4);
    }
    EXPECT_EQ(read_file(name), "01234567xxxx");
    {
        Made<umemFile> file = make("ab");
        umem_alloc(&file, 1);
        put(&file, 0, "end");
    }
    EXPECT_EQ(read_file(name), "01234567xxxxend");
    {
        Made<umemFile> file = make("w+");
        umem_alloc(&file, 1);
        put(&file, 2, "ab");
        EXPECT_SAME(content(&file, 0, 4), std::string("\0\0ab", 4));
    }
}

TEST_F(File, DestructionMakesDataVisible) {
    {
        Made<umemFile> file = make("wb");
        umem_alloc(&file, 3);
        put(&file, 0, "abc");
    }
    EXPECT_EQ(read_file(name), "abc");
}

TEST_F(File, ReopenedByAnAllocation) {
    Made<umemFile> file = make("a+b");
    umem_alloc(&file, 3);
    put(&file, 0, "abc");
    umem_free(&file, 0);
    EXPECT_EQ(umem_alloc(&file, 3), 0u);
    EXPECT_SAME(content(&file, 0, 3), "abc");
    umem_aligned_free(&file, 0);
    EXPECT_EQ(file->fp, 0u);
}

TEST_F(File, ShortReadsAreIOErrors) {
    Made<umemFile> file = make("w+b");
    umem_alloc(&file, 3);
    put(&file, 0, "abc");
    content(&file, 1, 3);
    EXPECT_STATUS(&file, umemIOError);
    umem_clear_status(&file);
    EXPECT_SAME(content(&file, 0, 3), "abc");
    EXPECT_OK(&file);
    EXPECT_OK(&host);
    content(&file, UINTPTR_MAX - 7, 3);
    EXPECT_STATUS(&file, umemIOError);
}

TEST_F(File, UseWhileClosedIsAnIOError) {
    Made<umemFile> file = make("w+b"), other(umemFile_ctor, folder.file("other").c_str(), "w+b");
    umem_alloc(&other, 10);
    umem_set(&other, 0, 'x', 10);
    char data[10];
    std::function<void()> uses[] = {
        [&] { umem_set(&file, 0, 0, 1); },
        [&] { umem_copy_to(&file, 0, &host, adr(data), 1); },
        [&] { umem_copy_from(&file, 0, &host, adr(data), 1); },
        [&] { umem_copy_to(&host, adr(data), &file, 0, 1); },
        [&] { umem_copy_from(&host, adr(data), &file, 0, 1); },
        [&] { umem_copy_from(&file, 0, &other, 0, 1); },
        [&] { umem_copy_to(&file, 0, &other, 0, 1); },
        [&] { umem_aligned_origin(&file, 16); },
    };
    for (const auto &use : uses) {
        use();
        EXPECT_STATUS(&file, umemIOError);
        EXPECT_OK(&host);
        EXPECT_OK(&other);
        umem_clear_status(&file);
    }
    // Between files errors are of the first argument.
    umem_copy_to(&other, 0, &file, 0, 1);
    EXPECT_STATUS(&other, umemIOError);
    EXPECT_OK(&file);
}

TEST_F(File, FileToFile) {
    std::string text(100000, 0);
    for (size_t i = 0; i < text.size(); i++) {
        text[i] = static_cast<char>(i * 7);
    }
    Made<umemFile> one = make("w+b"), other(umemFile_ctor, folder.file("other").c_str(), "w+b");
    umem_alloc(&one, 1);
    umem_alloc(&other, 1);
    put(&one, 10, text);
    umem_copy_to(&one, 10, &other, 5, text.size());
    EXPECT_SAME(content(&other, 5, text.size()), text);
    umem_copy_from(&one, 200000, &other, 5, text.size());
    EXPECT_SAME(content(&one, 200000, text.size()), text);
    umem_copy_to(&one, 10, &one, 400000, 1000);
    EXPECT_SAME(content(&one, 400000, 1000), text.substr(0, 1000));
    EXPECT_OK(&one);
    EXPECT_OK(&other);
}

TEST_F(File, AlignedAddresses) {
    for (size_t alignment : {1, 2, 4, 8, 16, 64, 4096}) {
        for (const char *mode : {"wb", "w+b"}) {
            Made<umemFile> file = make(mode);
            uintptr_t first = umem_aligned_alloc(&file, alignment, alignment * 2);
            EXPECT_EQ(first, alignment < 8 ? 8 : alignment);
            EXPECT_EQ(umem_aligned_origin(&file, first), 0u);
            uintptr_t second = umem_aligned_alloc(&file, alignment, alignment);
            EXPECT_GE(second, first + alignment * 2 + 8);
            EXPECT_EQ(second % alignment, 0u);
            EXPECT_EQ(umem_aligned_origin(&file, second), first + alignment * 2);
            umem_set(&file, first, 'x', alignment * 2);
            EXPECT_EQ(umem_aligned_origin(&file, second), first + alignment * 2);
            EXPECT_OK(&file);
            umem_aligned_free(&file, first);
            EXPECT_EQ(file->fp, 0u);
            EXPECT_EQ(read_file(name).size(), second + alignment);
        }
    }
    Made<umemFile> file = make("w+b");
    EXPECT_EQ(umem_aligned_alloc(&file, 16, 0), 16u);
    EXPECT_EQ(umem_aligned_origin(&file, 0), 0u);
    EXPECT_OK(&file);
    EXPECT_EQ(umem_aligned_alloc(&file, 16, 17), 0u);
    EXPECT_STREQ(umem_get_message(&file),
                 "umem_aligned_alloc: size 17 must be multiple of alignment 16");
    umem_clear_status(&file);
    EXPECT_EQ(umem_aligned_origin(&file, 4), 0u);
    EXPECT_STATUS(&file, umemValueError);
}

TEST_F(File, ReachesItsNamesake) {
    Made<umemFile> one = make("wb"), same = make("rb"),
                   other(umemFile_ctor, folder.file("other").c_str(), "wb");
    EXPECT_TRUE(umem_is_accessible_from(&one, &same));
    EXPECT_FALSE(umem_is_accessible_from(&one, &other));
    EXPECT_TRUE(umem_is_same_device(&one, &same));
    EXPECT_FALSE(umem_is_same_device(&one, &other));
    EXPECT_FALSE(umem_is_accessible_from(&one, &host));
    EXPECT_FALSE(umem_is_accessible_from(&host, &one));
}

TEST_F(File, AFullDiskIsAnIOError) {
    if (access("/dev/full", W_OK) != 0) {
        errno = 0;
        GTEST_SKIP() << "there is no /dev/full";
    }
    Made<umemFile> file(umemFile_ctor, "/dev/full", "wb");
    EXPECT_EQ(umem_alloc(&file, 1), 0u);
    umem_set(&file, 0, 'x', 100);
    umem_free(&file, 0);
    EXPECT_STATUS(&file, umemIOError);
    EXPECT_EQ(file->fp, 0u);
}

// The descriptor that is open on a file; -1: none is.
static int descriptor_of(const std::string &name) {
    for (int fd = 3; fd < 1024; fd++) {
        char path[4096];
        std::string link = "/proc/self/fd/" + std::to_string(fd);
        ssize_t length = readlink(link.c_str(), path, sizeof(path));
        if (length > 0 && std::string(path, static_cast<size_t>(length)) == name) {
            return fd;
        }
    }
    return -1;
}

// Programs close unknown descriptors, and open files of their own.
TEST_F(File, ADescriptorThatIsTheProgramsNowIsLeftAlone) {
    Made<umemFile> file = make("w+b");
    umem_alloc(&file, 10);
    put(&file, 0, "hello");
    EXPECT_EQ(read_file(name), "hello") << "nothing waits in a buffer";
    int fd = descriptor_of(name);
    ASSERT_GE(fd, 0);
    std::string other = folder.file("other");
    write_file(other, "of the program");
    int own = open(other.c_str(), O_RDWR);
    ASSERT_EQ(dup2(own, fd), fd);
    put(&file, 0, "HELLO");
    EXPECT_STATUS(&file, umemIOError);
    EXPECT_NE(std::string(umem_get_message(&file)).find("the program has closed descriptor"),
              std::string::npos)
        << umem_get_message(&file);
    umem_clear_status(&file);
    content(&file, 0, 2);
    EXPECT_STATUS(&file, umemIOError);
    umem_clear_status(&file);
    umem_free(&file, 0);
    EXPECT_NE(fcntl(fd, F_GETFD), -1) << "it was closed";
    EXPECT_EQ(read_file(other), "of the program");
    umem_clear_status(&file);
    EXPECT_EQ(umem_alloc(&file, 10), 0u) << "opened again";
    EXPECT_OK(&file);
    close(own);
    close(fd);
    errno = 0;
}

TEST_F(File, AnErrnoAtEntryDoesNotMatter) {
    errno = EBADF;
    Made<umemFile> file = make("w+b");
    EXPECT_EQ(umem_alloc(&file, 1), 0u);
    umem_set(&file, 0, 'x', 100);
    EXPECT_SAME(content(&file, 0, 2), "xx");
    umem_free(&file, 0);
    EXPECT_OK(&file);
    EXPECT_EQ(errno, EBADF);
    errno = 0;
}
