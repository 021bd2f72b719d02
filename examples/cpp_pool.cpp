// Pools from C++ (umf/umf.hpp): owners that end what they own, objects and arrays in pools, and a
// class that becomes a provider.
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include <umf/umf.hpp>

// Memory of the C library. Two members make it a provider; others, such as a name or page sizes,
// may be added.
class Heap {
  public:
    explicit Heap(std::size_t &live) : live_(live) {}

    void *allocate(std::size_t size, std::size_t alignment) {
        alignment = alignment < 4096 ? 4096 : alignment;
        live_ += size;
        return std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
    }

    void deallocate(void *ptr, std::size_t size) {
        live_ -= size;
        std::free(ptr);
    }

  private:
    std::size_t &live_;
};

struct Point {
    double x, y;
    Point(double at_x, double at_y) : x(at_x), y(at_y) {}
};

int main() {
    // From text. The pool owns the provider below it.
    umf::pool pool("disjoint:capacity=8 over os:visibility=shared");
    std::printf("%s over %s\n", pool.name(), pool.provider().name());

    // A mistake is an exception; create() has a result in its place.
    auto wrong = umf::pool::create("disjoint over oss");
    std::printf("%s\n", wrong.error().text().c_str());

    // An object that frees itself: the pointer is enough to find its pool.
    auto point = umf::make_unique<Point>(pool, 3, 4);
    umf::buffer<float> numbers(pool, 1000); // an array, a std::span in C++20
    std::iota(numbers.begin(), numbers.end(), 0.0F);
    std::printf("%g %g\n", point->x, static_cast<double>(numbers[999]));

    // Parameters of a kind instead of text, over a class of our own.
    std::size_t live = 0;
    {
        umf::disjoint_params params;
        params.set(umfDisjointPoolParamsSetName, "mine");
        umf::pool mine(umf::make_provider<Heap>(live), params);
        void *memory = mine.allocate(100, 64);
        std::printf("%s has %zu bytes\n", mine.name(), live);
        mine.deallocate(memory);
    }
    bool is_good = !wrong && live == 0 && umf::pool_ref::of(point.get()) == pool;
    return is_good ? 0 : 1;
}
