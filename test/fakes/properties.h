/* Properties of memory, queried by its address. */
#ifndef UMF_TEST_FAKES_PROPERTIES_H
#define UMF_TEST_FAKES_PROPERTIES_H

#include <cstddef>

#include <gtest/gtest.h>

#include <umf/experimental/memory_properties.h>

inline umf_memory_properties_handle_t properties_of(const void *ptr) {
    umf_memory_properties_handle_t properties = nullptr;
    EXPECT_EQ(umfGetMemoryPropertiesHandle(ptr, &properties), UMF_RESULT_SUCCESS);
    return properties;
}

// A property that is a T, and says that it is as large.
template <typename T> T property(const void *ptr, umf_memory_property_id_t id) {
    umf_memory_properties_handle_t properties = properties_of(ptr);
    T value = {};
    size_t size = 0;
    EXPECT_EQ(umfGetMemoryPropertySize(properties, id, &size), UMF_RESULT_SUCCESS);
    EXPECT_EQ(size, sizeof(T));
    EXPECT_EQ(umfGetMemoryProperty(properties, id, &value, sizeof(value)), UMF_RESULT_SUCCESS);
    return value;
}

#endif
