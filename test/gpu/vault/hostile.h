// A hostile client, which speaks to the service itself, and what it hands over.
#ifndef UMF_TEST_GPU_VAULT_HOSTILE_H
#define UMF_TEST_GPU_VAULT_HOSTILE_H

#include "gpu/vault/vault.h"

constexpr uint32_t ok = UMF_VAULT_OK;

inline int file_of(size_t size) {
    int fd = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(ftruncate(fd, off_t(size)), 0);
    return fd;
}

struct Hostile {
    int socket;
    uint16_t version = 0; // 0: as the library
    uint64_t sequence = 0, draft = 0;

    explicit Hostile(const std::string &place, bool writes = true)
        : socket(::socket(AF_UNIX, SOCK_SEQPACKET, 0)) {
        sockaddr_un name = {};
        name.sun_family = AF_UNIX;
        snprintf(name.sun_path, sizeof(name.sun_path), "%s/vault", place.c_str());
        EXPECT_EQ(connect(socket, reinterpret_cast<sockaddr *>(&name), sizeof(name)), 0);
        EXPECT_EQ(call(UMF_VAULT_HELLO, {}, "model", 5), UMF_VAULT_OK);
        if (writes) {
            EXPECT_EQ(call(UMF_VAULT_BEGIN, {}, nullptr, 0), UMF_VAULT_OK);
            draft = message.words[0];
        }
    }
    ~Hostile() {
        close(socket);
    }
    Hostile(const Hostile &) = delete;
    Hostile &operator=(const Hostile &) = delete;

    umf_vault_message_t message{};
    uint64_t serial = 0;
    std::vector<umf_vault_slab_t> got = std::vector<umf_vault_slab_t>(300); // in the answer
    std::vector<umf_vault_slab_t> slabs;                                    // that are to be filled

    uint32_t call(uint16_t op, std::vector<uint64_t> words, const void *body, size_t size,
                  int fd = -1) {
        return call(op, words, body, size, fd == -1 ? std::vector<int>{} : std::vector<int>{fd});
    }
    uint32_t call(uint16_t op, std::vector<uint64_t> words, const void *body, size_t size,
                  const std::vector<int> &fds) {
        umf_vault_message_t request = {};
        request.magic = UMF_VAULT_MAGIC;
        request.version = version               ? version
                          : op < UMF_VAULT_FILL ? UMF_VAULT_VERSION
                                                : UMF_VAULT_VERSION_COPIES;
        request.op = op;
        request.sequence = ++sequence;
        request.body = static_cast<uint32_t>(size);
        std::copy(words.begin(), words.end(), request.words);
        iovec parts[] = {{&request, sizeof(request)}, {const_cast<void *>(body), size}};
        alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
        msghdr header = {};
        header.msg_iov = parts;
        header.msg_iovlen = 2;
        if (!fds.empty()) {
            header.msg_control = control;
            header.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
            cmsghdr *rights = CMSG_FIRSTHDR(&header);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
            memcpy(CMSG_DATA(rights), fds.data(), fds.size() * sizeof(int));
        }
        EXPECT_GT(sendmsg(socket, &header, MSG_NOSIGNAL), 0);
        iovec answers[] = {{&message, sizeof(message)}, {got.data(), got.size() * sizeof(got[0])}};
        msghdr answered = {};
        answered.msg_iov = answers;
        answered.msg_iovlen = 2;
        EXPECT_GT(recvmsg(socket, &answered, 0), 0); // descriptors have no room
        serial = got[0].serial;
        return message.answer;
    }
    // Begins to fill the current generation, and keeps others from it.
    uint32_t fill(umf_vault_fill_t what) {
        uint32_t answer = call(UMF_VAULT_FILL, {0, what}, nullptr, 0);
        bool has_some = answer == UMF_VAULT_OK && message.body;
        size_t count = has_some ? message.body / sizeof(got[0]) : 1;
        slabs.assign(got.begin() + 1, got.begin() + ptrdiff_t(count)); // behind the table
        return answer;
    }
    uint32_t filled(umf_vault_fill_t what, const umf_vault_slab_t &slab, int fd) {
        return call(UMF_VAULT_FILLED, {0, what}, &slab, sizeof(slab), fd);
    }
    uint32_t give(const umf_vault_slab_t &slab, int fd, uint64_t ordinal = 0) {
        return call(UMF_VAULT_GIVE, {draft, ordinal}, &slab, sizeof(slab), fd);
    }
    // A generation of one entry in that slab.
    void commit(umf_vault_slab_t slab) {
        slab.serial = serial;
        struct {
            umf_table_head_t head;
            umf_vault_slab_t slab;
            umf_table_entry_t entry;
            char bytes[8];
        } table = {};
        table.slab = slab;
        table.entry.size = slab.size;
        table.entry.key_size = 1;
        table.bytes[0] = 'a';
        table.head.magic = UMF_TABLE_MAGIC;
        table.head.size = sizeof(table);
        table.head.entries = table.head.slabs = 1;
        table.head.sum = sum_of(reinterpret_cast<unsigned char *>(&table) + sizeof(table.head),
                                sizeof(table) - sizeof(table.head));
        int fd = memfd_create("table", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        EXPECT_EQ(write(fd, &table, sizeof(table)), ssize_t(sizeof(table)));
        umf_vault_slab_t info = {};
        info.size = sizeof(table);
        info.role = UMF_VAULT_CLASS_TABLE;
        info.kind = UMF_VAULT_KIND_HOST;
        EXPECT_EQ(give(info, fd, 1 << 20), uint32_t{UMF_VAULT_OK});
        close(fd);
        EXPECT_EQ(call(UMF_VAULT_COMMIT, {draft}, nullptr, 0), uint32_t{UMF_VAULT_OK});
    }
};

// Real memory of a device, and its descriptor.
struct Exported {
    CUmemGenericAllocationHandle handle = 0;
    int fd = -1;

    Exported(int device, size_t size) {
        CUmemAllocationProp properties = {};
        properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location = on_device(device);
        properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        EXPECT_EQ(driver().cuMemCreate(&handle, size, &properties, 0), CUDA_SUCCESS);
        EXPECT_EQ(driver().cuMemExportToShareableHandle(
                      &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
                  CUDA_SUCCESS);
    }
    ~Exported() {
        driver().cuMemRelease(handle);
        close(fd);
    }
    Exported(const Exported &) = delete;
    Exported &operator=(const Exported &) = delete;
};

inline umf_vault_slab_t slab_of(int device, size_t size) {
    umf_vault_slab_t slab = {};
    slab.size = size;
    slab.kind = UMF_VAULT_KIND_DEVICE;
    CUuuid uuid;
    EXPECT_EQ(driver().cuDeviceGetUuid(&uuid, device), CUDA_SUCCESS);
    memcpy(slab.device, &uuid, sizeof(slab.device));
    return slab;
}

#endif
