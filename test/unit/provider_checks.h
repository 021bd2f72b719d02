/* Promises that several providers of the host's memory make in the same way, as checks. */
#ifndef UMF_TEST_PROVIDER_CHECKS_H
#define UMF_TEST_PROVIDER_CHECKS_H

#include <cerrno>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include <umf.h>
#include <umf/ipc.h>
#include <umf/plugin.h>
#include <umf/text.h>

#include "fakes/child.h"
#include "fakes/descriptors.h"
#include "fault.h"
#include "process.h"
#include "provider.h"

extern "C" {
#include "base/meta.h"
#include "providers/file/locator.h"
}

/* --- facts ------------------------------------------------------------------------------------ */

/* Pages for `size` bytes, cache line and name; `kind` is the name without a provider. */
inline void expect_facts(const Provider &provider, size_t page, size_t size, size_t line,
                         const std::string &name, const char *kind) {
    size_t value = 0;
    EXPECT_EQ(provider.ops->get_min_page_size(provider.self, nullptr, &value), UMF_RESULT_SUCCESS);
    EXPECT_EQ(value, page);
    value = 0;
    EXPECT_EQ(provider.ops->get_recommended_page_size(provider.self, size, &value),
              UMF_RESULT_SUCCESS);
    EXPECT_EQ(value, page);
    EXPECT_EQ(provider.ops->get_cache_line_size(provider.self, &value), UMF_RESULT_SUCCESS);
    EXPECT_EQ(value, line);
    const char *got;
    EXPECT_EQ(provider.ops->get_name(provider.self, &got), UMF_RESULT_SUCCESS);
    EXPECT_EQ(got, name);
    EXPECT_EQ(provider.ops->get_name(nullptr, &got), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(got, kind);
    EXPECT_EQ(provider.ops->get_name(provider.self, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

/* Parameters from text: `look` gets those of `text`; of `wrong` there are none, and nothing stays.
 */
template <typename Params, typename Look>
void expect_params_of_text(const umf_memory_provider_descriptor_t &kind, const char *text,
                           Look look, std::initializer_list<const char *> wrong) {
    void *made = nullptr;
    EXPECT_NE(kind.params_from_text("x", &made), UMF_RESULT_SUCCESS); /* the thread's text stays */
    size_t before = umf_meta_used();
    ASSERT_EQ(kind.params_from_text(text, &made), UMF_RESULT_SUCCESS);
    look(*static_cast<Params *>(made));
    kind.params_destroy(made);
    for (const char *each : wrong) {
        EXPECT_EQ(kind.params_from_text(each, &made), UMF_RESULT_ERROR_INVALID_ARGUMENT) << each;
    }
    EXPECT_EQ(umf_meta_used(), before);
}

/* Whether the kernel lets the process read and write memory of a provider with each protection;
   `make` makes one, and `body` gets it. */
inline void expect_protections(
    size_t size,
    const std::function<void(unsigned, const std::function<void(const Provider &)> &)> &make) {
    const struct {
        unsigned flags;
        bool read, write;
    } cases[] = {
        {0, false, false},
        {UMF_PROTECTION_NONE, false, false},
        {UMF_PROTECTION_READ, true, false},
        {UMF_PROTECTION_READ | UMF_PROTECTION_WRITE, true, true},
        {UMF_PROTECTION_READ | UMF_PROTECTION_EXEC, true, false},
    };
    for (const auto &c : cases) {
        make(c.flags, [&](const Provider &provider) {
            char *ptr = provider.must_alloc(size);
            EXPECT_EQ(can_read(ptr + size - 1), c.read) << c.flags;
            EXPECT_EQ(can_write(ptr), c.write) << c.flags;
            EXPECT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
        });
    }
}

/* --- sharing ---------------------------------------------------------------------------------- */

using ipc_check_t = decltype(umf_memory_provider_ext_ops_t::ipc_check);

/* Each IPC operation of a provider of private memory, with `data` as its handle. */
inline void expect_not_shared(const Provider &provider, size_t page, Provider::Handle data) {
    const umf_result_t bad = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    char *ptr = provider.must_alloc(page);
    size_t size = 7;
    void *opened = nullptr;
    EXPECT_EQ(provider.ops->ext_get_ipc_handle_size(provider.self, &size), bad);
    EXPECT_EQ(size, 7u);
    EXPECT_EQ(provider.ops->ext_get_ipc_handle(provider.self, ptr, page, data.data()), bad);
    EXPECT_EQ(provider.put(data), bad);
    EXPECT_EQ(provider.open(data, &opened), bad);
    EXPECT_EQ(provider.close(ptr, page), bad);
    EXPECT_EQ(provider.free(ptr, page), UMF_RESULT_SUCCESS);
}

/* A child opens memory with the provider that `consume` gets made, reads it and answers in it. */
inline void expect_shared_with_child(
    const Provider &provider, size_t page,
    const std::function<bool(const std::function<bool(const Provider &)> &)> &with_consumer) {
    char *other = provider.must_alloc(3 * page), *ptr = provider.must_alloc(10 * page);
    memset(other, 'o', 3 * page);
    memset(ptr, 'p', 10 * page);
    Provider::Handle handle = provider.get(ptr, 10 * page);
    EXPECT_EQ(handle, provider.get(ptr, 10 * page)) << "the same bytes each time";
    EXPECT_TRUE(in_child([&] {
        size_t before = count_open_descriptors();
        return with_consumer([&](const Provider &consumer) {
                   char *opened = consumer.must_open(handle);
                   if (!opened || !all_are(opened, 10 * page, 'p')) {
                       return false;
                   }
                   memset(opened, 'c', 10 * page);
                   return consumer.close(opened, 10 * page) == UMF_RESULT_SUCCESS;
               }) &&
               count_open_descriptors() == before;
    }));
    EXPECT_TRUE(all_are(ptr, 10 * page, 'c'));
    EXPECT_TRUE(all_are(other, 3 * page, 'o'));
    EXPECT_EQ(provider.put(handle), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr, 10 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.put(handle), UMF_RESULT_SUCCESS) << "allowed after free";
}

/* Opens `size` bytes 50 times, each at an address of its own; `body` runs while they are open. */
inline void with_many_opens(const Provider &provider, size_t size,
                            const std::function<void()> &body) {
    char *ptr = provider.must_alloc(size);
    Provider::Handle handle = provider.get(ptr, size);
    EXPECT_EQ(handle, provider.get(ptr, size)) << "the same bytes each time";
    std::vector<char *> opened;
    for (int i = 0; i < 50; i++) {
        opened.push_back(provider.must_open(handle));
        EXPECT_NE(opened.back(), ptr);
        opened.back()[size - 1] = static_cast<char>(i);
        EXPECT_EQ(ptr[size - 1], static_cast<char>(i));
    }
    body();
    for (char *p : opened) {
        EXPECT_EQ(provider.close(p, size), UMF_RESULT_SUCCESS);
    }
    EXPECT_EQ(provider.free(ptr, size), UMF_RESULT_SUCCESS);
}

/* There are handles of whole allocations only, and each is put where it was got. */
inline void expect_handles_of_allocations_only(const Provider &provider, const Provider &other,
                                               size_t page) {
    const umf_result_t bad = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    char *ptr = provider.must_alloc(2 * page);
    Provider::Handle handle = provider.get(ptr, 2 * page), data(handle.size(), 'x'),
                     untouched = data;
    auto get = [&](const Provider &from, const void *p, size_t size) {
        return from.ops->ext_get_ipc_handle(from.self, p, size, data.data());
    };
    EXPECT_EQ(get(provider, ptr + page, page), bad);
    EXPECT_EQ(get(provider, &provider, page), bad);
    EXPECT_EQ(get(provider, ptr, 3 * page), bad);
    EXPECT_EQ(get(provider, ptr + 2 * page, page), bad) << "free";
    EXPECT_EQ(get(other, ptr, 2 * page), bad);
    EXPECT_EQ(data, untouched);
    EXPECT_EQ(other.put(handle), bad);
    EXPECT_EQ(provider.put(untouched), bad);
    EXPECT_EQ(provider.put(handle), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.free(ptr, 2 * page), UMF_RESULT_SUCCESS);
    EXPECT_EQ(provider.put(handle), UMF_RESULT_SUCCESS) << "allowed after free";
}

/* No changed byte and no noise is opened, put or, where the provider can check, accepted. */
inline void expect_damage_is_noticed(const Provider &provider, const Provider &consumer,
                                     size_t page, ipc_check_t check) {
    const umf_result_t bad = UMF_RESULT_ERROR_INVALID_ARGUMENT;
    const Provider::Handle handle = provider.get(provider.must_alloc(page), page);
    size_t descriptors = count_open_descriptors();
    size_t used = umf_meta_used();
    void *opened = nullptr;
    for (size_t i = 0; i < handle.size(); i++) {
        for (int change : {1, 0x80, 0xff}) {
            Provider::Handle damaged = handle;
            damaged[i] = static_cast<char>(damaged[i] ^ change);
            ASSERT_EQ(consumer.open(damaged, &opened), bad) << i;
            ASSERT_EQ(provider.put(damaged), bad) << i;
            ASSERT_TRUE(!check || check(consumer.self, damaged.data(), page) == bad) << i;
        }
    }
    std::mt19937 random(5);
    for (int i = 0; i < 1000; i++) {
        Provider::Handle noise(handle.size());
        for (char &byte : noise) {
            byte = static_cast<char>(random());
        }
        ASSERT_EQ(consumer.open(noise, &opened), bad);
    }
    EXPECT_EQ(consumer.open(Provider::Handle(handle.size(), 0), &opened), bad);
    EXPECT_EQ(opened, nullptr);
    EXPECT_EQ(count_open_descriptors(), descriptors);
    EXPECT_EQ(umf_meta_used(), used);
    EXPECT_EQ(consumer.close(consumer.must_open(handle), page), UMF_RESULT_SUCCESS);
}

/* A close of anything but a whole opened range fails with `native` and changes nothing. */
inline void expect_closes_what_was_opened(const Provider &provider, const Provider &consumer,
                                          size_t page, int32_t native) {
    char *ptr = provider.must_alloc(4 * page), *bystander = provider.must_alloc(page);
    char *opened = consumer.must_open(provider.get(ptr, 4 * page));
    auto expect_refused = [&](void *p, size_t size) {
        EXPECT_EQ(consumer.close(p, size), UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC);
        EXPECT_EQ(consumer.native(), native);
    };
    expect_refused(opened, 8 * page);
    expect_refused(opened, page);
    expect_refused(opened, SIZE_MAX);
    expect_refused(opened + page, 3 * page);
    expect_refused(opened + page, page);
    expect_refused(bystander, page);
    expect_refused(ptr, 4 * page);
    opened[0] = bystander[0] = ptr[3 * page] = 'x';
    {
        fault::Nth nth("unmap", ENOMEM);
        nth.next();
        expect_refused(opened, 4 * page);
        EXPECT_EQ(consumer.native_text(),
                  std::string("memory deallocation failed: ") + strerror(ENOMEM));
    }
    EXPECT_EQ(opened[0], 'x') << "what could not be unmapped is still there";
    EXPECT_EQ(consumer.close(opened, 4 * page), UMF_RESULT_SUCCESS);
    expect_refused(opened, 4 * page);
}

/* The pools are made from text; the handle is of the inside of an allocation. */
inline void expect_pools_share(const std::string &producer_text, const std::string &consumer_text) {
    umf_memory_pool_handle_t producer = nullptr, consumer = nullptr;
    umf_ipc_handler_handle_t handler = nullptr;
    umf_ipc_handle_t handle = nullptr;
    size_t size = 0;
    ASSERT_EQ(umfPoolCreateFromText(producer_text.c_str(), &producer), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolCreateFromText(consumer_text.c_str(), &consumer), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umfPoolGetIPCHandler(consumer, &handler), UMF_RESULT_SUCCESS);
    auto ptr = static_cast<char *>(umfPoolMalloc(producer, 1000));
    ASSERT_NE(ptr, nullptr);
    strcpy(ptr + 10, "hello");
    ASSERT_EQ(umfGetIPCHandle(ptr + 10, &handle, &size), UMF_RESULT_SUCCESS);
    void *opened = nullptr;
    ASSERT_EQ(umfOpenIPCHandle(handler, handle, &opened), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(static_cast<char *>(opened), "hello");
    EXPECT_EQ(umfCloseIPCHandle(opened), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPutIPCHandle(handle), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfFree(ptr), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPoolDestroy(consumer), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umfPoolDestroy(producer), UMF_RESULT_SUCCESS);
}

/* --- failures --------------------------------------------------------------------------------- */

/* Runs `body` with its first call failing, then its second, and so on: no run leaves anything.
   `look` is for what else could stay. Returns how many calls could fail. */
inline int expect_failures_leave_nothing(const std::function<void(const fault::Nth &)> &body,
                                         const std::function<void()> &look) {
    body(fault::Nth()); /* objects made once for the process */
    size_t used = umf_meta_used();
    size_t descriptors = count_open_descriptors();
    int runs = 0;
    for (fault::Nth nth(nullptr, EIO); nth.next(); runs++) {
        body(nth);
        nth.off();
        EXPECT_EQ(umf_meta_used(), used) << "call " << nth.runs();
        EXPECT_EQ(count_open_descriptors(), descriptors) << "call " << nth.runs();
        look();
        if (testing::Test::HasFailure()) {
            ADD_FAILURE() << "call " << nth.runs();
            break;
        }
    }
    return runs;
}

#endif
