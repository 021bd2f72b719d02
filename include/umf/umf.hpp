/** @file
 * The C++ interface: headers only, over the C interface. C++17 or newer.
 *
 * @code{.cpp}
 * #include <memory_resource>
 * #include <string>
 * #include <umf/umf.hpp>
 *
 * int main() {
 *     umf::pool pool("disjoint over os");             // and its provider; ends both
 *     umf::memory_resource resource(pool);
 *     std::pmr::string text("hello from a pool", &resource);
 *     umf::unique_ptr<int> number = umf::make_unique<int>(pool, 7);
 *     return umf::pool_ref::of(number.get()) == pool ? 0 : 1;
 * }
 * @endcode
 *
 * Rules for everything here:
 * - umf::provider and umf::pool own; umf::provider_ref and umf::pool_ref name, and are copied.
 *   An object is used by several threads at once as its handle is; it is moved, reset or destroyed
 *   by one thread while no other uses it.
 * - Constructors and functions that allocate throw umf::exception and umf::bad_alloc. Beside each
 *   there is a function named `create` or `try_...` that returns an umf::result, or NULL, and does
 *   not throw for refusals of the library. Other functions that can fail return an umf::result.
 * - With -fno-exceptions a function that would throw writes the reason to stderr and aborts. Files
 *   with and without exceptions may be parts of one program; their umf::pool and umf::provider are
 *   different types, between which handles can be passed.
 * - Memory is freed before its pool ends, a pool ends before its provider, and all of them before
 *   the library is stopped.
 */
#ifndef UMF_UMF_HPP
#define UMF_UMF_HPP 1

#include <umf/cpp/adaptors.hpp>
#include <umf/cpp/error.hpp>
#include <umf/cpp/kinds.hpp>
#include <umf/cpp/memory.hpp>
#include <umf/cpp/parameters.hpp>
#include <umf/cpp/pool.hpp>
#include <umf/cpp/provider.hpp>
#include <umf/cpp/queue.hpp>
#include <umf/cpp/suspend.hpp>
#include <umf/cpp/vault.hpp>
#include <umf/cpp/vault_claim.hpp>
#include <umf/fwd.hpp>

#endif /* UMF_UMF_HPP */
