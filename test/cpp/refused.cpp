/*
 * Wrong uses that a compiler refuses. Each line with "refused:" has to get an error or a warning
 * whose text has the words after it (refused.sh); "by gcc": clang accepts it.
 */
#include <string>
#include <vector>

#include <umf/umf.hpp>

struct NoFree {
    void *allocate(std::size_t size, std::size_t alignment);
};
struct Nothing {
    explicit Nothing(umf::provider_ref);
};

umf::pool_ref dangling_return() {
    return umf::pool("disjoint over os"); // refused: deleted
}

umf::provider_ref dangling_provider() {
    return umf::provider("os"); // refused: deleted
}

void dangling(umf::pool &&taken) {
    umf::pool_ref ref{umf::pool("disjoint over os")};                   // refused: deleted
    umf::memory_resource resource{umf::pool("disjoint over os")};       // refused: deleted
    umf::allocator<int> ints{umf::pool("disjoint over os")};            // refused: deleted
    umf::buffer<int> buffer(umf::pool("disjoint over os"), 8);          // refused: deleted
    umf::allocator<int> of_result(*umf::pool::create("proxy over os")); // refused: deleted
    auto one = umf::make_unique<int>(umf::pool("proxy over os"), 7);    // refused: deleted
    umf::suspend_scope scope({umf::pool("disjoint over os")});          // refused: deleted
    umf::memory_resource moved(std::move(taken));                       // refused: deleted
}

void lost(umf::pool &pool, umf::provider &provider) {
    pool.allocate(100);                    // refused: nodiscard
    pool.try_allocate(100);                // refused: nodiscard
    pool.allocate_zeroed(100);             // refused: nodiscard
    provider.allocate(100);                // refused: nodiscard
    provider.try_allocate(100);            // refused: nodiscard
    umf::make_unique<int>(pool, 7);        // refused: nodiscard
    umf::suspend_scope({pool});            // refused by gcc: nodiscard
    umf::pool::create("disjoint over os"); // refused: nodiscard
}

void kinds(umf::pool &pool) {
    umf::buffer<std::string> texts(pool, 3);      // refused: use a container with umf::allocator
    auto array = umf::make_unique<int[]>(pool);   // refused: use umf::buffer for an array
    umf::make_provider<NoFree>();                 // refused: the class of a provider needs
    umf::make_pool<Nothing>(umf::provider("os")); // refused: the class of a pool needs
}

void constant(const umf::buffer<int> &numbers) {
    numbers[0] = 7;              // refused: read-only
    int *first = numbers.data(); // refused by gcc: invalid conversion
    *numbers.begin() = 7;        // refused: read-only
}

void adaptors(umf::pool &pool, const umf::limit_adaptor<umf::detail::pool_below> &constant_limit) {
    umf::limit_adaptor limit(umf::pool("proxy over os"), 100); // refused: deleted
    umf::statistics_adaptor none(7);               // refused: an umf::pool, or of another adaptor
    umf::statistics_adaptor over(constant_limit);  // refused: cannot be const
    umf::logging_adaptor logged(pool, [](int) {}); // refused: takes a const umf::allocation_event &
    umf::failure_callback_adaptor retried(
        pool, [] { return true; });   // refused: bool(std::size_t bytes, unsigned attempt)
    umf::current_pool_scope(pool, 0); // refused by gcc: nodiscard
}

// What is right compiles without a word.
umf::result<std::size_t> right(umf::pool &pool) {
    const auto made = umf::pool::create("disjoint over os");
    umf::memory_resource resource(pool);
    std::vector<int, umf::allocator<int>> ints(8, umf::allocator<int>(pool));
    const umf::result<int> seven = 7;
    std::size_t sum = static_cast<std::size_t>(seven.value_or(8)) + (made ? 1u : 0u);
    return seven.and_then([&](int value) {
        return umf::result<std::size_t>(sum + static_cast<std::size_t>(value) + ints.size());
    });
}
