#include "pools/scalable/sizes.h"

#include <string.h>

/* A thread caches about so many bytes of each size, but at least so many objects. */
#define BIN_BYTES ((size_t)64 << 10)
#define BIN_OBJECTS_MIN 16

static const uint16_t small_sizes[] = {16,   32,   48,   64,   80,
                                       96,   112,  128,  160,  192,
                                       224,  256,  320,  384,  448,
                                       512,  640,  768,  896,  1024,
                                       1792, 2688, 4032, 5376, UMF_SCALABLE_SMALL_LARGEST};
_Static_assert(UMF_COUNT_OF(small_sizes) == UMF_SCALABLE_BINS_SMALL, "one bin for each");

umf_scalable_sizes_t umf_scalable_sizes;

static void bin_set(uint32_t bin, size_t steps) {
    size_t size = (steps << UMF_SCALABLE_STEP_SHIFT) - UMF_SCALABLE_HEADER;
    umf_scalable_sizes.size[bin] = (uint32_t)size;
    umf_scalable_sizes.capacity[bin] = umf_magazine_capacity_large(size);
}

static void block_bins_init(void) {
    uint32_t bin = UMF_SCALABLE_BINS_OBJECTS;
    size_t part = UMF_SCALABLE_BIN_LARGEST / 4;
    memset(umf_scalable_sizes.of_block, UMF_SCALABLE_BIN_NONE, sizeof(umf_scalable_sizes.of_block));
    for (size_t size = UMF_SCALABLE_BIN_LARGEST + part; bin < UMF_SCALABLE_BINS; size += part) {
        size_t steps = umf_scalable_steps(size);
        umf_scalable_sizes.of_block[steps] = (uint8_t)bin;
        bin_set(bin++, steps);
        if (size == 8 * part) {
            part *= 2;
        }
    }
}

void umf_scalable_sizes_init(void) {
    umf_scalable_sizes_t *sizes = &umf_scalable_sizes;
    uint8_t bin = 0;
    for (size_t i = 0; i < UMF_COUNT_OF(sizes->of_size); i++) {
        bin = (uint8_t)(bin + (small_sizes[bin] < i * UMF_SCALABLE_GRANULE));
        sizes->of_size[i] = bin;
    }
    for (size_t i = 1; i < UMF_COUNT_OF(sizes->small.magazine); i++) {
        sizes->small.magazine[i] = umf_magazine_offset(umf_scalable_bin_of(i));
    }
    for (size_t i = 0; i < UMF_SCALABLE_BINS_SMALL; i++) {
        sizes->size[i] = small_sizes[i];
        sizes->capacity[i] = umf_magazine_capacity(BIN_BYTES, small_sizes[i], BIN_OBJECTS_MIN);
    }
    for (size_t steps = 2; steps <= UMF_SCALABLE_STEPS; steps++) {
        bin_set((uint32_t)(UMF_SCALABLE_BINS_SMALL + steps - 2), steps);
    }
    block_bins_init();
    for (uint32_t i = 0; i <= UMF_SCALABLE_BINS; i++) {
        umf_starts_set_size(&sizes->starts, i + 1,
                            i < UMF_SCALABLE_BINS ? sizes->size[i] : UMF_SCALABLE_BIN_LARGEST);
    }
}
