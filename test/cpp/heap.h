// A provider as a class: memory of the C library, whose counters a test looks at.
#ifndef UMF_TEST_CPP_HEAP_H
#define UMF_TEST_CPP_HEAP_H

#include <atomic>
#include <cstdlib>

#include <umf/umf.hpp>

struct Counters {
    std::atomic<int> objects{0};  // of the class
    std::atomic<int> blocks{0};   // allocated
    std::atomic<size_t> bytes{0}; // allocated
};

class Heap {
  public:
    explicit Heap(Counters &counters) : counters_(counters) {
        counters_.objects++;
    }
    ~Heap() {
        counters_.objects--;
    }
    static const char *name() {
        return "HEAP";
    }
    void *allocate(size_t size, size_t alignment) {
        size_t wanted = alignment < 4096 ? 4096 : alignment;
        void *ptr = std::aligned_alloc(wanted, (size + wanted - 1) / wanted * wanted);
        if (ptr) {
            counters_.blocks++;
            counters_.bytes += size;
        }
        return ptr;
    }
    void deallocate(void *ptr, size_t size) {
        std::free(ptr);
        counters_.blocks--;
        counters_.bytes -= size;
    }

  protected:
    Counters &counters_;
};

// It says that its memory is of a device.
class Device : public Heap {
  public:
    using Heap::Heap;
    void property(const void *, umf_memory_property_id_t id, void *value) {
        type_only(id);
        *static_cast<umf_usm_memory_type_t *>(value) = UMF_MEMORY_TYPE_DEVICE;
    }
    size_t property_size(umf_memory_property_id_t id) {
        type_only(id);
        return sizeof(umf_usm_memory_type_t);
    }

  private:
    static void type_only(umf_memory_property_id_t id) {
        if (id != UMF_MEMORY_PROPERTY_POINTER_TYPE) {
            umf::detail::raise(umf::exception({UMF_RESULT_ERROR_INVALID_ARGUMENT, "property"}));
        }
    }
};

#endif
