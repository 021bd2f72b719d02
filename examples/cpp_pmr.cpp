// Containers of C++ in a pool: by std::pmr, whose containers take the resource at run time, and by
// an allocator, which is part of the type.
#include <cstdio>
#include <map>
#include <memory_resource>
#include <string>
#include <vector>

#include <umf/umf.hpp>

int main() {
    umf::pool pool("coalescing over os");

    // Memory that the CPU does not reach, as that of a GPU, would be refused here.
    umf::memory_resource resource(pool);
    std::pmr::map<int, std::pmr::string> names(&resource);
    for (int i = 0; i < 1000; i++) {
        names[i] = "a name that does not fit into the string itself, number " + std::to_string(i);
    }

    // Other resources of the standard library may stand in front.
    std::pmr::unsynchronized_pool_resource in_front(&resource);
    std::pmr::vector<double> values(1000, 1.5, &in_front);

    std::vector<int, umf::allocator<int>> numbers(1000, 7, umf::allocator<int>(pool));

    std::printf("%s, %g, %d\n", names[999].c_str(), values[999], numbers[999]);
    bool is_inside = umf::pool_ref::of(names[999].data()) == pool &&
                     umf::pool_ref::of(values.data()) == pool &&
                     umf::pool_ref::of(numbers.data()) == pool;
    return is_inside ? 0 : 1;
}
