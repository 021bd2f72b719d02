// The status of a context, names, small functions, macros.

#include "umem_test.h"

namespace {

class Status : public Umem {};

// A function of a program that uses the macro.
int half_of(void *ctx, int number) {
    TRY_RETURN(ctx, number % 2, umemTypeError, return -1, "%d is odd, %s", number, "not even");
    TRY_RETURN(ctx, number < 0, umemValueError, return -2, "negative");
    return number / 2;
}

} // namespace

TEST_F(Status, BeginsGood) {
    EXPECT_TRUE(umem_is_ok(&host));
    EXPECT_EQ(umem_get_status(&host), umemOK);
    EXPECT_STREQ(umem_get_message(&host), "");
    EXPECT_EQ(host->super.status.message, nullptr);
}

TEST_F(Status, TextsAreAppended) {
    umem_set_status(&host, umemValueError, "first");
    EXPECT_STREQ(umem_get_message(&host), "first");
    umem_set_status(&host, umemValueError, "second");
    EXPECT_STREQ(umem_get_message(&host), "first\nsecond");
    umem_set_status(&host, umemIOError, "third");
    EXPECT_STREQ(umem_get_message(&host),
                 "first\nsecond\nstatus ValueError changed to IOError\nthird");
    EXPECT_EQ(umem_get_status(&host), umemIOError);
    EXPECT_FALSE(umem_is_ok(&host));
    umem_set_status(&host, umemOK, "fourth");
    EXPECT_STREQ(umem_get_message(&host),
                 "first\nsecond\nstatus ValueError changed to IOError\nthird\n"
                 "status IOError changed to OK\nfourth");
    EXPECT_TRUE(umem_is_ok(&host));
}

TEST_F(Status, TheFirstTextStandsAlone) {
    umem_set_status(&host, umemIOError, nullptr);
    EXPECT_EQ(umem_get_status(&host), umemIOError);
    EXPECT_STREQ(umem_get_message(&host), "");
    umem_set_status(&host, umemValueError, "text");
    EXPECT_STREQ(umem_get_message(&host), "text");
}

TEST_F(Status, NoMessageDropsTheText) {
    umem_set_status(&host, umemValueError, "text");
    umem_set_status(&host, umemMemoryError, nullptr);
    EXPECT_EQ(umem_get_status(&host), umemMemoryError);
    EXPECT_STREQ(umem_get_message(&host), "");
    umem_set_status(&host, umemValueError, "text");
    umem_clear_status(&host);
    EXPECT_OK(&host);
    EXPECT_STREQ(umem_get_message(&host), "");
}

TEST_F(Status, TextsAreCopied) {
    char text[] = "text";
    umem_set_status(&host, umemValueError, text);
    text[0] = 'n';
    EXPECT_STREQ(umem_get_message(&host), "text");
    umem_set_status(&host, umemValueError, umem_get_message(&host));
    EXPECT_STREQ(umem_get_message(&host), "text\ntext");
}

TEST_F(Status, StaysOverWhatWorks) {
    umem_set_status(&host, umemIOError, "old");
    uintptr_t block = umem_calloc(&host, 4, 4);
    EXPECT_NE(block, 0u);
    uintptr_t aligned = umem_aligned_alloc(&host, 64, 64);
    EXPECT_NE(aligned, 0u);
    umem_aligned_free(&host, aligned);
    umem_free(&host, block);
    EXPECT_EQ(umem_get_status(&host), umemIOError);
    EXPECT_STREQ(umem_get_message(&host), "old");
}

TEST_F(Status, EndsWithTheContextWhichMayBeMadeAgain) {
    umemHost made;
    for (int round = 0; round < 2; round++) {
        umemHost_ctor(&made);
        EXPECT_OK(&made);
        umem_set_status(&made, umemIOError, "text");
        umem_dtor(&made);
        EXPECT_OK(&made);
        EXPECT_STREQ(umem_get_message(&made), "");
    }
}

TEST_F(Status, Names) {
    const char *statuses[] = {
        "OK",        "MemoryError", "RuntimeError",        "IOError",           "ValueError",
        "TypeError", "IndexError",  "NotImplementedError", "NotSupportedError", "AssertError"};
    const char *devices[] = {"Virtual",  "Host",        "File", "Cuda",
                             "CudaHost", "CudaManaged", "MMAP", "RMM"};
    for (int i = 0; i < 10; i++) {
        EXPECT_STREQ(umem_get_status_name(static_cast<umemStatusType>(i)), statuses[i]);
    }
    for (int i = 0; i < 8; i++) {
        EXPECT_STREQ(umem_get_device_name_from_type(static_cast<umemDeviceType>(i)), devices[i]);
    }
    // In C++ an enum cannot hold these, so they go by an int as a caller in C would have them.
    auto status_name = reinterpret_cast<const char *(*)(int)>(umem_get_status_name);
    auto device_name = reinterpret_cast<const char *(*)(int)>(umem_get_device_name_from_type);
    for (int none : {-1, 10, 1000}) {
        EXPECT_EQ(status_name(none), nullptr);
        EXPECT_EQ(device_name(none), nullptr);
    }
    EXPECT_EQ(device_name(8), nullptr);
    EXPECT_STREQ(umem_get_device_name(&host), "Host");
    EXPECT_EQ(umemAssertError, 9);
    EXPECT_EQ(umemRMMDevice, 7);
    EXPECT_EQ(umemMMapDevice, 6);
}

TEST_F(Status, TryReturn) {
    EXPECT_EQ(half_of(&host, 4), 2);
    EXPECT_OK(&host);
    EXPECT_EQ(half_of(&host, 3), -1);
    EXPECT_STATUS(&host, umemTypeError);
    EXPECT_STREQ(umem_get_message(&host), "3 is odd, not even");
    umem_clear_status(&host);
    EXPECT_EQ(half_of(&host, -2), -2);
    EXPECT_STATUS(&host, umemValueError);
    umem_clear_status(&host);
    // Texts of 255 characters at most; any statement; a branch of an if.
    std::string text(400, 'x');
    bool done = false;
    if (text.size() > 1)
        TRY_RETURN(&host, true, umemIOError, done = true, "%s", text.c_str());
    else
        done = false;
    EXPECT_TRUE(done);
    EXPECT_EQ(umem_get_message(&host), text.substr(0, 255));
}

TEST_F(Status, PowersOfTwo) {
    EXPECT_EQ(umem_ispowerof2(0), 0);
    for (int bit = 0; bit < 64; bit++) {
        EXPECT_EQ(umem_ispowerof2(size_t(1) << bit), 1);
    }
    EXPECT_EQ(umem_ispowerof2(3), 0);
    EXPECT_EQ(umem_ispowerof2((size_t(1) << 63) + 1), 0);
    EXPECT_EQ(umem_ispowerof2(SIZE_MAX), 0);
}

TEST_F(Status, Versions) {
    EXPECT_EQ(UMEM_VERSION_MAJOR, 0);
    EXPECT_EQ(UMEM_VERSION_MINOR, 1);
    EXPECT_EQ(UMEM_VERSION_MICRO, 0);
    EXPECT_EQ(HAVE_MALLOC_H, 1);
    EXPECT_EQ(UMEM_FUNDAMENTAL_FILE_ALIGN, 1);
    EXPECT_EQ(UMEM_FUNDAMENTAL_CUDA_ALIGN, 256);
    EXPECT_EQ(UMEM_FUNDAMENTAL_HOST_ALIGN, alignof(max_align_t));
}

TEST_F(Status, ErrnoOfTheProgramStays) {
    umemFile file;
    errno = EXDEV;
    umemFile_ctor(&file, "/no/such/folder/file", "rb");
    EXPECT_EQ(errno, EXDEV);
    umem_alloc(&file, 1);
    EXPECT_EQ(errno, EXDEV);
    EXPECT_STATUS(&file, umemIOError);
    umem_dtor(&file);
    umem_aligned_alloc(&host, 3, 3);
    umem_set_status(&host, umemOK, "text");
    umem_clear_status(&host);
    EXPECT_EQ(errno, EXDEV);
    umem_free(&host, umem_alloc(&host, 100 << 20));
    EXPECT_EQ(umem_alloc(&host, SIZE_MAX / 2), 0u);
    EXPECT_EQ(errno, EXDEV);
    umem_clear_status(&host);
    errno = 0;
}

TEST_F(Status, Dumps) {
    char data[] = "0123456789abcdef!";
    char title[] = "data";
    testing::internal::CaptureStdout();
    hexDump(title, data, 17);
    binDump(nullptr, data, 1);
    hexDump(nullptr, data, 0);
    std::string text = testing::internal::GetCapturedStdout();
    EXPECT_NE(text.find("data"), std::string::npos);
    EXPECT_NE(text.find("30 31 32"), std::string::npos) << text;
    EXPECT_NE(text.find("0123456789abcdef"), std::string::npos) << text;
    EXPECT_NE(text.find("00110000"), std::string::npos) << text;
    errno = 0; // of the capture
}
