/* Arenas over linux_vmm with a book about their pages, and programs that use them by chance. */
#ifndef UMF_TEST_UNIT_ARENA_H
#define UMF_TEST_UNIT_ARENA_H

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>
#include <umf/experimental/ctl.h>
#include <umf/ipc_ext.h>
#include <umf/text.h>

#include "fakes/ranged_vmm.h"
#include "fakes/scale.h"

namespace {

constexpr umf_result_t OK = UMF_RESULT_SUCCESS;
constexpr umf_result_t BAD = UMF_RESULT_ERROR_INVALID_ARGUMENT;
constexpr umf_result_t NONE = UMF_RESULT_ERROR_NOT_SUPPORTED;
constexpr size_t KiB = 1024, MiB = 1024 * KiB, PAGE = 64 * KiB;

size_t counter(umf_memory_pool_handle_t pool, const char *name) {
    size_t value = SIZE_MAX;
    const std::string path = std::string("umf.pool.by_handle.{}.stats.") + name;
    EXPECT_EQ(umfCtlGet(path.c_str(), &value, sizeof(value), pool), OK) << name;
    return value;
}

class Arena : public testing::Test {
  protected:
    umf_memory_provider_handle_t provider = nullptr;
    umf_memory_pool_handle_t pool = nullptr;

    void SetUp() override {
        RangedVmm::reset();
    }
    void TearDown() override {
        if (pool) {
            EXPECT_EQ(umfPoolDestroy(pool), OK);
        }
        if (provider) {
            EXPECT_EQ(umfMemoryProviderDestroy(provider), OK);
        }
        EXPECT_EQ(RangedVmm::pages(), 0U) << "all pages were released";
        EXPECT_EQ(RangedVmm::mapped(), 0U) << "all pages were unmapped";
        EXPECT_EQ(RangedVmm::faults(), "");
    }
    void make(const std::string &settings = "") {
        provider = RangedVmm::create();
        const std::string text = "coalescing:arena=yes,arena_page=64K,arena_size=1G" + settings;
        ASSERT_EQ(umfPoolCreateFromTextOver(text.c_str(), provider, &pool), OK) << umfTextError();
    }
    char *take(size_t size, size_t alignment = 0) {
        void *ptr =
            alignment ? umfPoolAlignedMalloc(pool, size, alignment) : umfPoolMalloc(pool, size);
        return static_cast<char *>(ptr);
    }
    size_t held() {
        return counter(pool, "reserved_memory");
    }
    // Blocks of 1 MiB, of which every second one is free.
    std::vector<char *> comb(size_t count) {
        std::vector<char *> blocks, kept;
        for (size_t i = 0; i < count; i++) {
            blocks.push_back(take(MiB));
            memset(blocks.back(), static_cast<int>(i), MiB);
        }
        for (size_t i = 0; i < count; i++) {
            if (i % 2) {
                kept.push_back(blocks[i]);
            } else {
                EXPECT_EQ(umfFree(blocks[i]), OK);
            }
        }
        return kept;
    }
    static void is_comb(const std::vector<char *> &kept) {
        for (size_t i = 0; i < kept.size(); i++) {
            const char value = static_cast<char>(2 * i + 1);
            EXPECT_TRUE(std::all_of(kept[i], kept[i] + MiB, [&](char c) { return c == value; }));
        }
    }
    void free_all(const std::vector<char *> &blocks) {
        for (char *block : blocks) {
            EXPECT_EQ(umfFree(block), OK);
        }
    }
};

// Blocks with a value in their first and last words, in each page between, and where they end.
struct Program {
    umf_memory_pool_handle_t pool;
    std::minstd_rand random;
    struct Block {
        char *ptr;
        size_t size;
        uint32_t value;
    };
    std::vector<Block> blocks{};
    // A handle, what it leads to in another mapping, and what has to be there. After the free of
    // its block it still is, as long as the handle is out.
    struct Shared {
        umf_ipc_handle_t handle;
        Block block, view;
        std::string bytes;
        bool is_out;
        bool is_void = false; // its memory was taken away
    };
    std::vector<Shared> shared{};
    size_t opened = 0;

    Program(umf_memory_pool_handle_t of, unsigned seed) : pool(of), random(seed) {}

    template <typename F> static void each(const Block &block, F &&does) {
        for (size_t at = 0; at + 4 <= block.size; at += 16 * KiB) {
            does(block.ptr + at);
        }
        does(block.ptr + block.size - 4);
    }
    void write(Block &block) {
        block.value = static_cast<uint32_t>(random());
        each(block, [&](char *at) { memcpy(at, &block.value, 4); });
    }
    static void check(const Block &block) {
        bool is_right = true;
        each(block, [&](const char *at) { is_right &= memcmp(at, &block.value, 4) == 0; });
        EXPECT_TRUE(is_right) << "a block of " << block.size << " bytes has changed";
    }
    size_t some_size() {
        const size_t top = size_t{1} << (random() % 20);
        return 4 + random() % (top < 16 ? 16 : top) / 4 * 4 * (random() % 16 == 0 ? 4 : 1);
    }
    void take() {
        const size_t size = some_size();
        void *ptr = random() % 4 ? umfPoolMalloc(pool, size)
                                 : umfPoolAlignedMalloc(pool, size, size_t{1} << random() % 18);
        if (ptr) {
            blocks.push_back({static_cast<char *>(ptr), size, 0});
            write(blocks.back());
        }
    }
    void resize(Block &block) {
        const size_t size = some_size();
        void *ptr = umfPoolRealloc(pool, block.ptr, size);
        if (ptr) {
            const size_t kept = std::min(size, block.size);
            check(
                {static_cast<char *>(ptr), 4 + (kept - 4) / (16 * KiB) * (16 * KiB), block.value});
            const Block old = block;
            block = {static_cast<char *>(ptr), size, 0};
            write(block);
            for (Shared &one : shared) { // it may have stayed where it is
                if (one.block.ptr == ptr && one.block.value == old.value) {
                    one.block = block;
                    one.view.size = block.size;
                    one.view.value = block.value;
                }
            }
        }
    }
    umf_result_t open(const std::string &bytes, void **view) {
        umf_ipc_handler_handle_t handler = nullptr;
        EXPECT_EQ(umfPoolGetIPCHandler(pool, &handler), OK);
        return umfOpenIPCHandleSized(handler, bytes.data(), bytes.size(), view);
    }
    // It is not freed, or its free is deferred.
    bool is_live(const Block &block) const {
        const auto is_it = [&](const Block &other) {
            return other.ptr == block.ptr && other.value == block.value;
        };
        return std::any_of(blocks.begin(), blocks.end(), is_it) ||
               std::any_of(shared.begin(), shared.end(),
                           [&](const Shared &one) { return one.is_out && is_it(one.block); });
    }
    // Failures of the system are allowed.
    void share(const Block &block) {
        umf_ipc_handle_t handle = nullptr;
        size_t size = 0;
        void *view = nullptr;
        if (umfGetIPCHandle(block.ptr, &handle, &size) != OK) {
            return;
        }
        const std::string bytes(reinterpret_cast<const char *>(handle), size);
        if (open(bytes, &view) != OK) {
            EXPECT_EQ(umfPutIPCHandle(handle), OK);
            return;
        }
        opened++;
        shared.push_back({handle,
                          block,
                          {static_cast<char *>(view), block.size, block.value},
                          bytes,
                          true,
                          false});
        check(shared.back().view);
    }
    // The handle is put, or later what it led to is closed. It opens what is in the block as long
    // as it lives.
    void unshare(size_t at) {
        Shared &one = shared[at];
        void *again = nullptr;
        if (one.is_out) {
            if (!one.is_void) {
                check(one.view);
            }
            one.is_out = false;
            EXPECT_EQ(umfPutIPCHandle(one.handle), OK);
            return;
        }
        const bool is_open = open(one.bytes, &again) == OK;
        if (is_open) {
            EXPECT_TRUE(is_live(one.block)) << "a handle of a block that was freed was opened";
            check({static_cast<char *>(again), one.block.size, one.block.value});
            EXPECT_EQ(umfCloseIPCHandle(again), OK);
        }
        EXPECT_EQ(umfCloseIPCHandle(one.view.ptr), OK);
        shared.erase(shared.begin() + static_cast<std::ptrdiff_t>(at));
    }
    void drop(size_t at) {
        check(blocks[at]);
        EXPECT_EQ(umfFree(blocks[at].ptr), OK);
        blocks[at] = blocks.back();
        blocks.pop_back();
    }
    void step() {
        const unsigned what = static_cast<unsigned>(random() % 112);
        const size_t at = blocks.empty() ? 0 : random() % blocks.size();
        if (what >= 106 && !shared.empty()) {
            unshare(random() % shared.size());
            return;
        }
        if (what >= 100) {
            if (!blocks.empty() && shared.size() < 8) {
                share(blocks[at]);
            }
            return;
        }
        if (what < 45 && blocks.size() < 64) {
            take();
        } else if (what < 90 && !blocks.empty()) {
            drop(at);
        } else if (what < 96 && !blocks.empty()) {
            resize(blocks[at]);
        } else {
            umfPoolTrimMemory(pool, random() % (4 * MiB));
        }
    }
    // What is open shows memory that the pool may no longer have.
    void was_suspended() {
        for (Shared &one : shared) {
            one.is_void = true;
        }
    }
    void end() {
        while (!shared.empty()) {
            unshare(0);
        }
        while (!blocks.empty()) {
            drop(blocks.size() - 1);
        }
    }
};

} // namespace

#endif
