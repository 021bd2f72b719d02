/*
 * Operations of a table by name, so that a test can take away one after the other:
 *
 *     for (TableMember each : {TABLE_MEMBER(Ops, alloc), TABLE_MEMBER(Ops, free)}) {
 *         Ops ops = without(whole, each);
 */
#ifndef UMF_TEST_FAKES_TABLE_MEMBER_H
#define UMF_TEST_FAKES_TABLE_MEMBER_H

#include <cstddef>
#include <cstring>

struct TableMember {
    const char *name;
    size_t offset;
};

#define TABLE_MEMBER(table, member)                                                                \
    TableMember {                                                                                  \
#member, offsetof(table, member)                                                           \
    }

template <typename Table> Table without(Table table, TableMember member) {
    void (*none)() = nullptr;
    memcpy(reinterpret_cast<char *>(&table) + member.offset, &none, sizeof(none));
    return table;
}

#endif
