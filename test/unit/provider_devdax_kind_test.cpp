/*
 * The conformance tests of providers for devdax, over a file in the place of a device: that needs
 * the library's inside, which only unit tests have. On a machine with a device,
 * conformance.provider tests that one if UMF_TEST_DEVDAX is set.
 */
#include <cstdio>
#include <cstdlib>
#include <string>
#include <unistd.h>

#include "conformance/provider_test.cpp"

extern "C" {
#include "system/os.h"
}

int main(int argc, char **argv) {
    std::string folder = "/var/tmp/umf_devdax_XXXXXX";
    if (!mkdtemp(folder.data())) {
        perror("mkdtemp");
        return 1;
    }
    std::string file = folder + "/dax0.0";
    fclose(fopen(file.c_str(), "w"));
    int result = truncate(file.c_str(), off_t{1} << 30);
    umf_os_set_dax_dir(folder.c_str());
    setenv("UMF_TEST_DEVDAX", "path=/dev/dax0.0,size=1G", 1);
    testing::GTEST_FLAG(filter) = "*/devdax";
    testing::InitGoogleTest(&argc, argv);
    result = RUN_ALL_TESTS() || result;
    umf_os_set_dax_dir(nullptr);
    unlink(file.c_str());
    rmdir(folder.c_str());
    return result;
}
