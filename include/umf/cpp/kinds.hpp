/** @file
 * Kinds of your own: a class becomes a table of operations.
 *
 * A class for umf::make_provider. All members but the first two may be left out. Several threads
 * call them at once. None is overloaded or a template.
 *
 * @code{.cpp}
 * #include <umf/umf.hpp>
 *
 * struct provider_shape {
 *     void *allocate(std::size_t size, std::size_t alignment); // alignment 0: any
 *     void deallocate(void *ptr, std::size_t size);
 *
 *     static const char *name(); // of the kind; "CPP" if it is left out
 *     std::size_t min_page_size(const void *ptr); // 0: that of the system
 *     std::size_t recommended_page_size(std::size_t size);
 *     std::size_t cache_line_size(); // 64
 *     void purge_lazy(void *ptr, std::size_t size);
 *     void purge_force(void *ptr, std::size_t size);
 *     void split(void *ptr, std::size_t total, std::size_t first); // and merge, or neither
 *     void merge(void *low, void *high, std::size_t total);
 *     std::size_t ipc_handle_size(); // and the other four of IPC, or none
 *     void get_ipc_handle(const void *ptr, std::size_t size, void *data);
 *     void put_ipc_handle(void *data);
 *     void *open_ipc_handle(void *data);
 *     void close_ipc_handle(void *ptr, std::size_t size);
 *     void property(const void *ptr, umf_memory_property_id_t id, void *value); // and its size
 *     std::size_t property_size(umf_memory_property_id_t id);
 *     umf_result_t ctl(umf_ctl_query_source_t source, const char *path, void *arg, std::size_t
 * size, umf_ctl_query_type_t type, va_list args);
 * };
 * @endcode
 *
 * A class for umf::make_pool. Its constructor gets the provider (umf::provider_ref) first.
 *
 * @code{.cpp}
 * #include <umf/umf.hpp>
 *
 * struct pool_shape {
 *     explicit pool_shape(umf::provider_ref provider);
 *     void *allocate(std::size_t size, std::size_t alignment);
 *     void deallocate(void *ptr);
 *
 *     static const char *name();
 *     void *allocate_zeroed(std::size_t size);
 *     void *reallocate(void *ptr, std::size_t size); // neither is NULL or 0
 *     std::size_t usable_size(const void *ptr);
 *     void trim(std::size_t keep);
 *     umf_result_t ctl(umf_ctl_query_source_t source, const char *path, void *arg, std::size_t
 * size, umf_ctl_query_type_t type, va_list args);
 * };
 * @endcode
 *
 * A member fails by an exception, or by its result: NULL for memory (there is none), or an
 * `umf_result_t` or an `umf::result` in the place of void or of the value. umf::exception and
 * umf::bad_alloc become their code, `std::bad_alloc` ::UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, any
 * other `std::exception` of a provider ::UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC, of which
 * ::umfMemoryProviderGetLastNativeError gives the text. The rest is ::UMF_RESULT_ERROR_UNKNOWN.
 */
#ifndef UMF_CPP_KINDS_HPP
#define UMF_CPP_KINDS_HPP 1

#include <cstdarg>
#include <cstddef>
#include <cstdio>
#include <new>
#include <type_traits>
#include <utility>

#include <umf/cpp/error.hpp>
#include <umf/cpp/pool.hpp>
#include <umf/cpp/provider.hpp>
#include <umf/memory_pool_ops.h>
#include <umf/memory_provider_ops.h>

UMF_CPP_BEGIN

/// @cond
namespace detail {

// has_<member><T>: the class has a member of that name, whatever its type is. So one whose type is
// wrong is an error of the compiler and not an operation that is missing.
#define UMF_CPP_MEMBER(member)                                                                     \
    template <class T, class = void> struct has_##member : std::false_type {};                     \
    template <class T>                                                                             \
    struct has_##member<T, std::void_t<decltype(&T::member)>> : std::true_type {};
UMF_CPP_MEMBER(name)
UMF_CPP_MEMBER(min_page_size)
UMF_CPP_MEMBER(recommended_page_size)
UMF_CPP_MEMBER(cache_line_size)
UMF_CPP_MEMBER(purge_lazy)
UMF_CPP_MEMBER(purge_force)
UMF_CPP_MEMBER(split)
UMF_CPP_MEMBER(merge)
UMF_CPP_MEMBER(ipc_handle_size)
UMF_CPP_MEMBER(get_ipc_handle)
UMF_CPP_MEMBER(put_ipc_handle)
UMF_CPP_MEMBER(open_ipc_handle)
UMF_CPP_MEMBER(close_ipc_handle)
UMF_CPP_MEMBER(property)
UMF_CPP_MEMBER(property_size)
UMF_CPP_MEMBER(ctl)
UMF_CPP_MEMBER(allocate_zeroed)
UMF_CPP_MEMBER(reallocate)
UMF_CPP_MEMBER(usable_size)
UMF_CPP_MEMBER(trim)
#undef UMF_CPP_MEMBER

template <class T, class = void> struct is_provider_class : std::false_type {};
template <class T>
struct is_provider_class<
    T, std::void_t<decltype(std::declval<T &>().allocate(std::size_t(), std::size_t())),
                   decltype(std::declval<T &>().deallocate(static_cast<void *>(nullptr),
                                                           std::size_t()))>> : std::true_type {};

template <class T, class = void> struct is_pool_class : std::false_type {};
template <class T>
struct is_pool_class<
    T, std::void_t<decltype(std::declval<T &>().allocate(std::size_t(), std::size_t())),
                   decltype(std::declval<T &>().deallocate(static_cast<void *>(nullptr)))>>
    : std::true_type {};

// The table of a class that does not fit is empty, so that one message says so.
template <bool fits, class Calls> decltype(Calls::table()) table_if() noexcept {
    if constexpr (fits) {
        return Calls::table();
    } else {
        return {};
    }
}

template <class T> struct is_result : std::false_type {};
template <class T> struct is_result<result<T>> : std::true_type {};

// Why a member of this class failed in this thread: the code of a pool, the words of a provider.
struct last_failure {
    umf_result_t code;
    char text[256];
};

template <class T> last_failure &last() noexcept {
    static thread_local last_failure failure = {UMF_RESULT_SUCCESS, ""};
    return failure;
}

template <class T> umf_result_t failed(umf_result_t code, const char *text) noexcept {
    last_failure &failure = last<T>();
    failure.code = code;
    std::snprintf(failure.text, sizeof(failure.text), "%s", text);
    return code;
}

// Passes the result of a call on to C.
template <class T, class F, class... Out> umf_result_t give(F call, Out... out) {
    using R = decltype(call());
    if constexpr (std::is_void_v<R>) {
        call();
    } else if constexpr (std::is_same_v<R, umf_result_t>) {
        return call();
    } else if constexpr (is_result<R>::value) {
        R given = call();
        if (!given) {
            return failed<T>(given.code(), given.error().text().c_str());
        }
        (..., (*out = *given));
    } else if constexpr (std::is_pointer_v<R>) {
        R given = call();
        if (!given) {
            return UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY;
        }
        (..., (*out = given));
    } else {
        (..., (*out = call()));
    }
    return UMF_RESULT_SUCCESS;
}

// As give; an exception becomes a result. `other` is that of exceptions without a code.
template <class T, class F, class... Out>
umf_result_t run([[maybe_unused]] umf_result_t other, F call, Out... out) noexcept {
#if defined(__cpp_exceptions)
    try {
        return give<T>(call, out...);
    } catch (const umf::exception &thrown) {
        return failed<T>(thrown.code(), thrown.what());
    } catch (const umf::bad_alloc &thrown) {
        return failed<T>(thrown.code(), thrown.what());
    } catch (const std::bad_alloc &thrown) {
        return failed<T>(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY, thrown.what());
    } catch (const std::exception &thrown) {
        return failed<T>(other, thrown.what());
    } catch (...) {
        return failed<T>(UMF_RESULT_ERROR_UNKNOWN, "an exception that is none of std::exception");
    }
#else
    return give<T>(call, out...);
#endif
}

// How `initialize` makes the object: from the arguments of make_provider and make_pool.
template <class T, class... First> struct maker {
    T *(*call)(const void *build, First... first);
    const void *build;

    T *make(First... first) const {
        return call(build, first...);
    }
};

template <class T, class Build, class... First> T *build_by(const void *build, First... first) {
    return (*static_cast<const Build *>(build))(first...);
}

// A new T out of `params`: a maker, or the argument of the constructor.
template <class T, class Params, class... First>
T *make_from([[maybe_unused]] const void *params, First... first) {
    if constexpr (std::is_void_v<Params>) {
        return new (std::nothrow) T(first...);
    } else if constexpr (std::is_same_v<Params, maker<T, First...>>) {
        return static_cast<const Params *>(params)->make(first...);
    } else {
        return new (std::nothrow) T(first..., *static_cast<const Params *>(params));
    }
}

template <class T> umf_result_t name_of(const char **name) noexcept {
    if constexpr (has_name<T>::value) {
        *name = T::name();
    } else {
        *name = "CPP";
    }
    return UMF_RESULT_SUCCESS;
}

// The functions of the table of a provider.
template <class T, class Params> struct provider_calls {
    static constexpr umf_result_t thrown = UMF_RESULT_ERROR_MEMORY_PROVIDER_SPECIFIC;

    static T &of(void *provider) noexcept {
        return *static_cast<T *>(provider);
    }
    static umf_result_t initialize(const void *params, void **provider) noexcept {
        return run<T>(
            thrown, [&] { return make_from<T, Params>(params); }, provider);
    }
    static umf_result_t finalize(void *provider) noexcept {
        delete &of(provider);
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t alloc(void *provider, std::size_t size, std::size_t alignment,
                              void **ptr) noexcept {
        return run<T>(
            thrown, [&] { return of(provider).allocate(size, alignment); }, ptr);
    }
    static umf_result_t free(void *provider, void *ptr, std::size_t size) noexcept {
        return ptr ? run<T>(thrown, [&] { return of(provider).deallocate(ptr, size); })
                   : UMF_RESULT_SUCCESS;
    }
    static umf_result_t native_error(void *, const char **text, std::int32_t *code) noexcept {
        *text = last<T>().text;
        *code = 0;
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t min_page_size(void *provider, const void *ptr, std::size_t *size) noexcept {
        if constexpr (has_min_page_size<T>::value) {
            return run<T>(
                thrown, [&] { return of(provider).min_page_size(ptr); }, size);
        }
        *size = 0;
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t recommended_page_size(void *provider, std::size_t of_size,
                                              std::size_t *size) noexcept {
        if constexpr (has_recommended_page_size<T>::value) {
            return run<T>(
                thrown, [&] { return of(provider).recommended_page_size(of_size); }, size);
        }
        return min_page_size(provider, nullptr, size);
    }
    static umf_result_t get_name(void *, const char **name) noexcept {
        return name_of<T>(name);
    }
    static umf_result_t cache_line_size(void *provider, std::size_t *size) noexcept {
        if constexpr (has_cache_line_size<T>::value) {
            return run<T>(
                thrown, [&] { return of(provider).cache_line_size(); }, size);
        }
        *size = 64;
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t purge_lazy(void *provider, void *ptr, std::size_t size) noexcept {
        return run<T>(thrown, [&] { return of(provider).purge_lazy(ptr, size); });
    }
    static umf_result_t purge_force(void *provider, void *ptr, std::size_t size) noexcept {
        return run<T>(thrown, [&] { return of(provider).purge_force(ptr, size); });
    }
    static umf_result_t merge(void *provider, void *low, void *high, std::size_t total) noexcept {
        return run<T>(thrown, [&] { return of(provider).merge(low, high, total); });
    }
    static umf_result_t split(void *provider, void *ptr, std::size_t total,
                              std::size_t first) noexcept {
        return run<T>(thrown, [&] { return of(provider).split(ptr, total, first); });
    }
    static umf_result_t ipc_handle_size(void *provider, std::size_t *size) noexcept {
        return run<T>(
            thrown, [&] { return of(provider).ipc_handle_size(); }, size);
    }
    static umf_result_t get_ipc_handle(void *provider, const void *ptr, std::size_t size,
                                       void *data) noexcept {
        return run<T>(thrown, [&] { return of(provider).get_ipc_handle(ptr, size, data); });
    }
    static umf_result_t put_ipc_handle(void *provider, void *data) noexcept {
        return run<T>(thrown, [&] { return of(provider).put_ipc_handle(data); });
    }
    static umf_result_t open_ipc_handle(void *provider, void *data, void **ptr) noexcept {
        return run<T>(
            thrown, [&] { return of(provider).open_ipc_handle(data); }, ptr);
    }
    static umf_result_t close_ipc_handle(void *provider, void *ptr, std::size_t size) noexcept {
        return run<T>(thrown, [&] { return of(provider).close_ipc_handle(ptr, size); });
    }
    static umf_result_t property(void *provider, const void *ptr, umf_memory_property_id_t id,
                                 void *value) noexcept {
        return run<T>(thrown, [&] { return of(provider).property(ptr, id, value); });
    }
    static umf_result_t property_size(void *provider, umf_memory_property_id_t id,
                                      std::size_t *size) noexcept {
        return run<T>(
            thrown, [&] { return of(provider).property_size(id); }, size);
    }
    static umf_result_t ctl(void *provider, umf_ctl_query_source_t source, const char *path,
                            void *arg, std::size_t size, umf_ctl_query_type_t type,
                            va_list args) noexcept {
        return run<T>(thrown,
                      [&] { return of(provider).ctl(source, path, arg, size, type, args); });
    }

    static umf_memory_provider_ops_t required() noexcept {
        umf_memory_provider_ops_t ops = {};
        ops.version = UMF_PROVIDER_OPS_VERSION_CURRENT;
        ops.initialize = initialize;
        ops.finalize = finalize;
        ops.alloc = alloc;
        ops.free = free;
        ops.get_last_native_error = native_error;
        ops.get_recommended_page_size = recommended_page_size;
        ops.get_min_page_size = min_page_size;
        ops.get_name = get_name;
        ops.get_cache_line_size = cache_line_size;
        return ops;
    }
    static void add_ipc(umf_memory_provider_ops_t &ops) noexcept {
        static_assert(has_get_ipc_handle<T>::value && has_put_ipc_handle<T>::value &&
                          has_open_ipc_handle<T>::value && has_close_ipc_handle<T>::value,
                      "a provider has all five operations of IPC, or none");
        ops.ext_get_ipc_handle_size = ipc_handle_size;
        ops.ext_get_ipc_handle = get_ipc_handle;
        ops.ext_put_ipc_handle = put_ipc_handle;
        ops.ext_open_ipc_handle = open_ipc_handle;
        ops.ext_close_ipc_handle = close_ipc_handle;
    }
    static umf_memory_provider_ops_t table() noexcept {
        static_assert(has_split<T>::value == has_merge<T>::value,
                      "a provider has both split and merge, or neither");
        static_assert(has_property<T>::value == has_property_size<T>::value,
                      "a provider has both property and property_size, or neither");
        umf_memory_provider_ops_t ops = required();
        if constexpr (has_purge_lazy<T>::value) {
            ops.ext_purge_lazy = purge_lazy;
        }
        if constexpr (has_purge_force<T>::value) {
            ops.ext_purge_force = purge_force;
        }
        if constexpr (has_split<T>::value) {
            ops.ext_allocation_split = split;
            ops.ext_allocation_merge = merge;
        }
        if constexpr (has_ipc_handle_size<T>::value) {
            add_ipc(ops);
        }
        if constexpr (has_property<T>::value) {
            ops.ext_get_allocation_properties = property;
            ops.ext_get_allocation_properties_size = property_size;
        }
        if constexpr (has_ctl<T>::value) {
            ops.ext_ctl = ctl;
        }
        return ops;
    }
};

// The functions of the table of a pool.
template <class T, class Params> struct pool_calls {
    static constexpr umf_result_t thrown = UMF_RESULT_ERROR_UNKNOWN;

    static T &of(void *pool) noexcept {
        return *static_cast<T *>(pool);
    }
    // Memory out of a call; NULL, and the code for get_last_allocation_error, if there is none.
    template <class F> static void *memory(F call) noexcept {
        void *ptr = nullptr;
        last<T>().code = run<T>(thrown, call, &ptr);
        return last<T>().code == UMF_RESULT_SUCCESS ? ptr : nullptr;
    }
    static void *refused(umf_result_t code) noexcept {
        last<T>().code = code;
        return nullptr;
    }
    static umf_result_t initialize(umf_memory_provider_handle_t provider, const void *params,
                                   void **pool) noexcept {
        return run<T>(
            thrown,
            [&] { return make_from<T, Params, provider_ref>(params, provider_ref(provider)); },
            pool);
    }
    static umf_result_t finalize(void *pool) noexcept {
        delete &of(pool);
        return UMF_RESULT_SUCCESS;
    }
    static void *aligned_malloc(void *pool, std::size_t size, std::size_t alignment) noexcept {
        std::size_t wanted = alignment ? alignment : alignof(std::max_align_t);
        return wanted & (wanted - 1) ? refused(UMF_RESULT_ERROR_INVALID_ALIGNMENT)
                                     : memory([&] { return of(pool).allocate(size, wanted); });
    }
    static void *malloc(void *pool, std::size_t size) noexcept {
        return aligned_malloc(pool, size, 0);
    }
    static void *calloc([[maybe_unused]] void *pool, std::size_t count, std::size_t size) noexcept {
        if constexpr (has_allocate_zeroed<T>::value) {
            return size && count > static_cast<std::size_t>(-1) / size
                       ? refused(UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY)
                       : memory([&] { return of(pool).allocate_zeroed(count * size); });
        }
        return refused(UMF_RESULT_ERROR_NOT_SUPPORTED);
    }
    static void *realloc(void *pool, void *ptr, std::size_t size) noexcept {
        if (!ptr) {
            return malloc(pool, size);
        }
        if (size == 0) {
            return refused(free(pool, ptr));
        }
        if constexpr (has_reallocate<T>::value) {
            return memory([&] { return of(pool).reallocate(ptr, size); });
        }
        return refused(UMF_RESULT_ERROR_NOT_SUPPORTED);
    }
    static umf_result_t usable_size([[maybe_unused]] void *pool, [[maybe_unused]] const void *ptr,
                                    std::size_t *size) noexcept {
        if (!size) {
            return UMF_RESULT_ERROR_INVALID_ARGUMENT;
        }
        *size = 0;
        if constexpr (has_usable_size<T>::value) {
            return ptr ? run<T>(
                             thrown, [&] { return of(pool).usable_size(ptr); }, size)
                       : UMF_RESULT_SUCCESS;
        }
        return UMF_RESULT_SUCCESS;
    }
    static umf_result_t free(void *pool, void *ptr) noexcept {
        return ptr ? run<T>(thrown, [&] { return of(pool).deallocate(ptr); }) : UMF_RESULT_SUCCESS;
    }
    static umf_result_t last_error(void *) noexcept {
        return last<T>().code;
    }
    static umf_result_t get_name(void *, const char **name) noexcept {
        return name_of<T>(name);
    }
    static umf_result_t ctl(void *pool, umf_ctl_query_source_t source, const char *path, void *arg,
                            std::size_t size, umf_ctl_query_type_t type, va_list args) noexcept {
        return run<T>(thrown, [&] { return of(pool).ctl(source, path, arg, size, type, args); });
    }
    static umf_result_t trim(void *pool, std::size_t keep) noexcept {
        return run<T>(thrown, [&] { return of(pool).trim(keep); });
    }

    static umf_memory_pool_ops_t table() noexcept {
        umf_memory_pool_ops_t ops = {};
        ops.version = UMF_POOL_OPS_VERSION_CURRENT;
        ops.initialize = initialize;
        ops.finalize = finalize;
        ops.malloc = malloc;
        ops.calloc = calloc;
        ops.realloc = realloc;
        ops.aligned_malloc = aligned_malloc;
        ops.malloc_usable_size = usable_size;
        ops.free = free;
        ops.get_last_allocation_error = last_error;
        ops.get_name = get_name;
        if constexpr (has_ctl<T>::value) {
            ops.ext_ctl = ctl;
        }
        if constexpr (has_trim<T>::value) {
            ops.ext_trim_memory = trim;
        }
        return ops;
    }
};

// Adds the error text of the constructor of T, if that is why a creation failed.
template <class T, class Owner> result<Owner> made(result<Owner> created) {
    if (!created && *last<T>().text) {
        return error(created.code(), created.error().text() + ": " + last<T>().text);
    }
    return created;
}

} // namespace detail
/// @endcond

/// @brief The table of operations of a class, for a descriptor (umf/plugin.h) or
///        ::umfMemoryProviderCreate.
///
/// @tparam T the class; the head of this file lists its members
/// @tparam Params type of the parameters of `initialize`, given to the constructor of T; void:
///         nothing, the constructor has no arguments
/// @return constant data of the program; one table for each T and Params
template <class T, class Params = void> const umf_memory_provider_ops_t *provider_ops() noexcept {
    static_assert(detail::is_provider_class<T>::value,
                  "the class of a provider needs void *allocate(std::size_t size, std::size_t "
                  "alignment) and void deallocate(void *ptr, std::size_t size), both public");
    static const umf_memory_provider_ops_t ops =
        detail::table_if<detail::is_provider_class<T>::value, detail::provider_calls<T, Params>>();
    return &ops;
}

/// @brief The table of operations of a class, for a descriptor (umf/plugin.h) or ::umfPoolCreate.
///
/// @tparam T the class; the head of this file lists its members
/// @tparam Params type of the parameters of `initialize`, given to the constructor of T after the
///        provider; void: nothing
/// @return constant data of the program; one table for each T and Params
template <class T, class Params = void> const umf_memory_pool_ops_t *pool_ops() noexcept {
    static_assert(detail::is_pool_class<T>::value,
                  "the class of a pool needs void *allocate(std::size_t size, std::size_t "
                  "alignment) and void deallocate(void *ptr), both public");
    static const umf_memory_pool_ops_t ops =
        detail::table_if<detail::is_pool_class<T>::value, detail::pool_calls<T, Params>>();
    return &ops;
}

/// @brief Makes a provider out of a class, without exceptions.
/// @tparam T the class; the head of this file lists its members
/// @param args for its constructor
/// @return the provider, or why there is none
template <class T, class... Args> result<provider> try_make_provider(Args &&...args) {
    auto build = [&] { return new (std::nothrow) T(std::forward<Args>(args)...); };
    detail::maker<T> maker = {detail::build_by<T, decltype(build)>, &build};
    *detail::last<T>().text = '\0';
    return detail::made<T>(provider::create(provider_ops<T, detail::maker<T>>(), &maker));
}

/// @brief Makes a provider out of a class.
/// @tparam T the class; the head of this file lists its members
/// @param args for its constructor
/// @return the provider, which owns an object of the class
/// @throws umf::exception if that fails, with the error text of the constructor
template <class T, class... Args> provider make_provider(Args &&...args) {
    return try_make_provider<T>(std::forward<Args>(args)...).value();
}

/// @brief Makes a pool out of a class, without exceptions.
/// @tparam T the class; the head of this file lists its members
/// @param below its provider: an umf::provider that is moved belongs to the pool; any other must
///        outlive it
/// @param args for its constructor, after the provider
/// @return the pool, or why there is none
template <class T, class Provider, class... Args>
result<pool> try_make_pool(Provider &&below, Args &&...args) {
    auto build = [&](provider_ref given) {
        return new (std::nothrow) T(given, std::forward<Args>(args)...);
    };
    using Maker = detail::maker<T, provider_ref>;
    Maker maker = {detail::build_by<T, decltype(build), provider_ref>, &build};
    *detail::last<T>().text = '\0';
    return detail::made<T>(
        pool::create(std::forward<Provider>(below), pool_ops<T, Maker>(), &maker));
}

/// @brief Makes a pool out of a class.
/// @tparam T the class; the head of this file lists its members
/// @param below its provider: an umf::provider that is moved belongs to the pool; any other must
///        outlive it
/// @param args for its constructor, after the provider
/// @return the pool, which owns an object of the class
/// @throws umf::exception if that fails, with the error text of the constructor
template <class T, class Provider, class... Args> pool make_pool(Provider &&below, Args &&...args) {
    return try_make_pool<T>(std::forward<Provider>(below), std::forward<Args>(args)...).value();
}

UMF_CPP_END

#endif /* UMF_CPP_KINDS_HPP */
