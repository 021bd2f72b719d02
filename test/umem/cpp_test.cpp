// The classes of umem.hpp.

#include <type_traits>
#include <utility>

#include "umem_test.h"

namespace {

class Cpp : public Umem {
  protected:
    umem::Host memory;
    std::string name = folder.file("file");
};

umem::Address make(umem::Context &context) {
    return context.alloc(10);
}

} // namespace

TEST_F(Cpp, ContextsAreNotCopied) {
    EXPECT_FALSE(std::is_copy_constructible<umem::Host>::value);
    EXPECT_FALSE(std::is_copy_assignable<umem::Host>::value);
    EXPECT_TRUE(std::is_abstract<umem::Context>::value);
    EXPECT_FALSE(std::is_copy_assignable<umem::Address>::value);
    EXPECT_FALSE(std::is_move_assignable<umem::Address>::value);
    EXPECT_TRUE(std::is_copy_constructible<umem::Address>::value);
}

TEST_F(Cpp, Status) {
    EXPECT_TRUE(memory.is_ok());
    memory.set_status(umemIOError, "one");
    memory.set_status(umemIOError, std::string("two"));
    EXPECT_EQ(memory.get_status(), umemIOError);
    EXPECT_EQ(memory.get_message(), "one\ntwo");
    memory.clear_status();
    EXPECT_TRUE(memory.is_ok());
    EXPECT_EQ(memory.get_message(), "");
    EXPECT_EQ(static_cast<umemVirtual *>(memory.get_raw_context())->type, umemHostDevice);
    umem::Host other;
    EXPECT_TRUE(memory.is_accessible_from(other));
}

TEST_F(Cpp, AddressesKnowTheirSize) {
    umem::Address plain = memory.alloc(100), cleared = memory.calloc(10, 5),
                  aligned = memory.aligned_alloc(64, 128);
    EXPECT_EQ(plain.size(), 100u);
    EXPECT_EQ(plain.alignment(), 0u);
    EXPECT_EQ(cleared.size(), 50u);
    EXPECT_EQ(cleared.alignment(), 0u);
    EXPECT_EQ(aligned.size(), 128u);
    EXPECT_EQ(aligned.alignment(), 64u);
    EXPECT_EQ(aligned % 64, 0);
    EXPECT_TRUE(plain.origin() == plain);
    EXPECT_EQ(plain.origin().size(), 100u);
    EXPECT_FALSE(aligned.origin() == 0);
    EXPECT_EQ(aligned.origin().alignment(), 0u);
    EXPECT_EQ(cleared[49], 0);
}

TEST_F(Cpp, Conversions) {
    umem::Address block = memory.calloc(8, 8);
    uintptr_t number = block;
    void *pointer = block;
    EXPECT_EQ(adr(pointer), number);
    bool *b = block;
    char *c = block;
    short *s = block;
    int *i = block;
    long *l = block;
    long long *ll = block;
    unsigned char *uc = block;
    unsigned short *us = block;
    unsigned int *ui = block;
    unsigned long *ul = block;
    unsigned long long *ull = block;
    float *f = block;
    double *d = block;
    const char *cc = block;
    for (const void *same :
         {static_cast<const void *>(b), static_cast<const void *>(c), static_cast<const void *>(s),
          static_cast<const void *>(i), static_cast<const void *>(l), static_cast<const void *>(ll),
          static_cast<const void *>(uc), static_cast<const void *>(us),
          static_cast<const void *>(ui), static_cast<const void *>(ul),
          static_cast<const void *>(ull), static_cast<const void *>(f),
          static_cast<const void *>(d), static_cast<const void *>(cc)}) {
        EXPECT_EQ(same, pointer);
    }
    i[0] = 7;
    EXPECT_EQ(block[0], 7);
    block[1] = 'x';
    block[size_t(2)] = 'y';
    block[3L] = 'z';
    block[4u] = 0;
    EXPECT_STREQ(c + 1, "xyz");
    EXPECT_EQ(strcmp(block + 1, "xyz"), 0);
}

TEST_F(Cpp, Comparisons) {
    umem::Address block = memory.alloc(10);
    uintptr_t number = block;
    EXPECT_TRUE(block == number);
    EXPECT_TRUE(block == block);
    EXPECT_TRUE(block + 1 == block + size_t(1));
    EXPECT_FALSE(block == 0);
    EXPECT_TRUE(block != 0);
    EXPECT_FALSE(block == 0L);
    EXPECT_TRUE(block + 0 == umem::Address(number, 0, 10, memory.get_raw_context()));
    EXPECT_TRUE(memory.alloc(0) == 0);
    EXPECT_TRUE(block != block + 1);
    EXPECT_EQ(block, number);
    EXPECT_EQ(block + 2, number + 2);
    const umem::Address &constant = block;
    EXPECT_TRUE(constant == constant);
    EXPECT_TRUE(constant + 1 == number + 1);
}

TEST_F(Cpp, Arithmetic) {
    umem::Address block = memory.alloc(100);
    EXPECT_EQ((block + 30).size(), 70u);
    EXPECT_EQ((block + size_t(100)).size(), 0u);
    EXPECT_EQ((block + 200).size(), 0u);
    EXPECT_EQ((block + 30 + -10).size(), 80u);
    EXPECT_EQ((block + 30L).size(), 70u);
    int by_int = block % 32;
    size_t by_size = block % size_t(32);
    EXPECT_EQ(by_int, 16);
    EXPECT_EQ(by_size, 16u);
    static_assert(std::is_same<decltype(block % 2), int>::value, "");
    static_assert(std::is_same<decltype(block % size_t(2)), size_t>::value, "");
    static_assert(std::is_same<decltype(block[0]), char &>::value, "");
}

TEST_F(Cpp, SetsAndCopiesAreSafe) {
    umem::Address one = memory.alloc(10), other = memory.alloc(5);
    one.set('a', 10);
    one.copy_to(other, 5);
    EXPECT_EQ(std::string(static_cast<char *>(other), 5), "aaaaa");
    one.copy_to(other, 6);
    EXPECT_EQ(memory.get_status(), umemIndexError);
    memory.clear_status();
    one.set('b', 11);
    EXPECT_EQ(memory.get_status(), umemIndexError);
    memory.clear_status();
    other.copy_from(one + 1, 5);
    other.copy_from(std::string("xyz"), 3);
    EXPECT_TRUE(memory.is_ok());
    EXPECT_EQ(std::string(static_cast<char *>(other), 5), "xyzaa");
    other.copy_from("xyz", 4);
    EXPECT_EQ(memory.get_status(), umemIndexError);
    memory.clear_status();
    other.copy_from(std::string("1234567"), 6);
    EXPECT_EQ(memory.get_status(), umemIndexError);
    memory.clear_status();
    one.sync_to(other, 5);
    other.sync_from(one, 5);
    EXPECT_EQ(std::string(static_cast<char *>(other), 5), "aaaaa");
    EXPECT_TRUE(memory.is_ok());
}

TEST_F(Cpp, OwnershipMoves) {
    umem::Address made = make(memory);
    made.set(1, 10);
    umem::Address copy(made);
    umem::Address moved(std::move(made));
    moved.set(2, 10);
    EXPECT_EQ(copy[9], 2);
    {
        std::vector<umem::Address> many;
        for (int i = 0; i < 10; i++) {
            many.push_back(memory.alloc(16));
        }
    }
    EXPECT_TRUE(memory.is_ok()) << memory.get_message(); // a second free is an error
}

TEST_F(Cpp, OwnersFree) {
    uintptr_t plain, aligned;
    {
        umem::Address one = memory.alloc(100000), other = memory.aligned_alloc(64, 64);
        plain = one;
        aligned = other;
        umem::Address not_own(plain, 0, 10, memory.get_raw_context());
    }
    umem_free(&host, plain);
    EXPECT_STATUS(&host, umemValueError);
    umem_clear_status(&host);
    umem_free(&host, aligned);
    EXPECT_STATUS(&host, umemValueError);
    umem_clear_status(&host);
}

TEST_F(Cpp, Failures) {
    {
        umem::Address none = memory.alloc(SIZE_MAX), bad = memory.aligned_alloc(3, 3);
        EXPECT_TRUE(none == 0);
        EXPECT_TRUE(bad == 0);
        EXPECT_EQ(memory.get_status(), umemValueError);
        memory.clear_status();
    }
    EXPECT_TRUE(memory.is_ok());
    umem::File missing(folder.file("missing"), "rb");
    {
        umem::Address none = missing.alloc(10);
        EXPECT_TRUE(none == UINTPTR_MAX);
        EXPECT_TRUE(none == -1);
    }
    EXPECT_EQ(missing.get_status(), umemIOError);
}

TEST_F(Cpp, Connections) {
    umem::Host other;
    umem::Address block = memory.calloc(1, 100);
    {
        umem::Address same = block.connect(other, 100), by_host = block.connect(50);
        EXPECT_TRUE(same == block);
        EXPECT_TRUE(by_host == block);
        EXPECT_EQ(by_host.size(), 50u);
        same.sync(1000);
        same.update(1000);
    }
    block.set('a', 100);
    {
        umem::Address copy = block.connect(other, 100, 32);
        EXPECT_FALSE(copy == block);
        EXPECT_EQ(copy.alignment(), 32u);
        copy.set('b', 100);
        copy.sync(10);
        EXPECT_EQ(block[9], 'b');
        EXPECT_EQ(block[10], 'a');
        block.set('c', 100);
        copy.update(5);
        EXPECT_EQ(copy[4], 'c');
        EXPECT_EQ(copy[5], 'b');
        copy.sync(101);
        EXPECT_EQ(other.get_status(), umemIndexError);
        other.clear_status();
        umem::Address again = block.connect(100, 64);
        EXPECT_EQ(again % 64, 0);
    }
    block.sync(1);
    EXPECT_EQ(memory.get_status(), umemAssertError);
    memory.clear_status();
    block.update(1);
    EXPECT_EQ(memory.get_status(), umemAssertError);
    memory.clear_status();
    EXPECT_TRUE(other.is_ok());
}

TEST_F(Cpp, Files) {
    {
        umem::File file(name); // "wb"
        umem::Address block = file.alloc(10);
        EXPECT_TRUE(block == 0);
        EXPECT_TRUE(file.is_ok());
        block.copy_from("hello", 5);
        umem::Address far = block + 5;
        far.copy_from(std::string(" you"), 4);
    } // the owner closes the file
    EXPECT_EQ(read_file(name), "hello you");
    umem::File file(name, "rb");
    umem::Address all = file.alloc(9), here = memory.calloc(1, 10);
    all.copy_to(here, 9);
    EXPECT_STREQ(here, "hello you");
    umem::Address connected = all.connect(memory, 9);
    EXPECT_EQ(std::string(static_cast<char *>(connected), 9), "hello you");
    EXPECT_TRUE(file.is_ok());
    umem::MMap map(folder.file("mapped"), "w+b");
    umem::Address mapped = map.alloc(9);
    mapped.copy_from(all, 9);
    EXPECT_EQ(mapped[0], 'h');
    EXPECT_TRUE(map.is_ok());
}

TEST_F(Cpp, FilesWithAlignment) {
    umem::File file(name);
    umem::Address block = file.aligned_alloc(16, 32);
    EXPECT_TRUE(block == 16);
    EXPECT_TRUE(block.origin() == 0);
    EXPECT_EQ(block.origin().size(), 48u);
    EXPECT_TRUE(file.is_ok()) << file.get_message();
}
