// Which GPUs reach each other's memory: a program of its own, because pools are made once. Three
// devices of the software driver; contexts of the first two are there before memory is allocated.

#include "gpu/gpu.h"
#include "umem_test.h"

TEST(Peers, ReachMemoryThatIsMappedForThem) {
    NEEDS_FAKE();
    driver().control()->devices = 3;
    CU(cuInit(0));
    umemHost host;
    umemCuda one, other;
    umemHost_ctor(&host);
    umemCuda_ctor(&one, 0);
    umemCuda_ctor(&other, 1);
    EXPECT_TRUE(umem_is_accessible_from(&one, &other));
    EXPECT_TRUE(umem_is_accessible_from(&other, &one));
    uintptr_t block = umem_calloc(&one, 1000, 1);
    EXPECT_EQ(umem_connect(&one, block, 1000, &other, 0), block);

    // The second device really uses it: it is the current one.
    char byte = 0;
    CU(cuMemsetD8(block, 'x', 1000));
    CU(cuCtxSynchronize());
    umem_copy_to(&one, block + 999, &host, reinterpret_cast<uintptr_t>(&byte), 1);
    EXPECT_EQ(byte, 'x');
    EXPECT_EQ(driver().control()->illegal_accesses, 0);

    // For who came later the memory is not mapped, so there is a copy.
    umemCuda late;
    umemCuda_ctor(&late, 2);
    EXPECT_FALSE(umem_is_accessible_from(&one, &late));
    uintptr_t copy = umem_connect(&one, block, 1000, &late, 0);
    EXPECT_NE(copy, 0u);
    EXPECT_NE(copy, block);
    umem_copy_to(&late, copy, &host, reinterpret_cast<uintptr_t>(&byte), 1);
    EXPECT_EQ(byte, 'x');
    umem_set(&late, copy, 'y', 1000);
    umem_sync_from(&one, block, &late, copy, 1000);
    umem_copy_to(&one, block + 999, &host, reinterpret_cast<uintptr_t>(&byte), 1);
    EXPECT_EQ(byte, 'y');
    EXPECT_EQ(driver().control()->illegal_accesses, 0);
    umem_disconnect(&one, block, &late, copy, 0);
    umem_disconnect(&one, block, &other, block, 0);
    umem_free(&other, block); // any of them frees
    for (void *ctx : {static_cast<void *>(&one), static_cast<void *>(&other),
                      static_cast<void *>(&late), static_cast<void *>(&host)}) {
        EXPECT_OK(ctx);
        umem_dtor(ctx);
    }
    EXPECT_EQ(errno, 0);
}
