// A service of vaults at its limits: descriptors, tables, memory; users that may not; a program
// that is replaced on disk; processes that speak no protocol over the pair of daemon and keeper.
#include <filesystem>
#include <memory>
#include <random>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <umf.h>
#include <umf/reason.h>

#include "fakes/scale.h"
#include "vault/service.h"

namespace {

constexpr const char *slab_each = "proxy over linux_vmm:piece_size=4K";

// -1: refused.
int connection(const std::string &place) {
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    snprintf(name.sun_path, sizeof(name.sun_path), "%s/vault", place.c_str());
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd != -1 && connect(fd, reinterpret_cast<sockaddr *>(&name), sizeof(name)) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

class VaultLimits : public Vaults {
  public:
    // A service that no process with this limit of open files has started by an open.
    void start_with_files(rlim_t files) {
        pid_t child = fork();
        if (child == 0) {
            const rlimit limit = {files, files};
            std::string folder = "--dir=" + place;
            setrlimit(RLIMIT_NOFILE, &limit);
            execl(UMF_TEST_UMFD, "umfd", folder.c_str(), "--detach", nullptr);
            _exit(1);
        }
        int status = 0;
        ASSERT_EQ(waitpid(child, &status, 0), child);
        ASSERT_EQ(status, 0);
    }
    void expect_another(pid_t before, bool is_daemon) {
        EXPECT_TRUE(until([&] {
            pid_t pid = is_daemon ? daemon() : keeper();
            return pid != 0 && pid != before;
        }));
    }
};

// Tables of the state cost memory when they are used.
TEST_F(VaultLimits, TheStateOfAnEmptyServiceIsSmall) {
    Vault vault;
    write_generation(vault, 1, 1);
    size_t shared = 0;
    std::ifstream status("/proc/" + std::to_string(daemon()) + "/status");
    for (std::string word; shared == 0 && status >> word;) {
        if (word == "RssShmem:") {
            status >> shared;
        }
    }
    EXPECT_GT(shared, 0u);
    EXPECT_LT(shared, 1024u); // KiB
}

// --- the program on disk ---

TEST_F(VaultLimits, AProgramThatIsReplacedOnDiskGoesOn) {
    std::string program = place + "/umfd", next = place + "/next";
    std::filesystem::copy_file(getenv("UMF_UMFD"), program);
    setenv("UMF_UMFD", program.c_str(), 1);
    Vault vault;
    write_generation(vault, 3, 1);
    View before(vault);
    for (bool is_there : {true, false}) {
        if (is_there) { // by another program, as a package manager does it
            std::filesystem::copy_file("/bin/false", next);
            std::filesystem::rename(next, program);
        } else {
            std::filesystem::remove(program);
        }
        pid_t first = daemon();
        ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
        EXPECT_EQ(View(vault).wrong(3, 1), 0u);
        expect_another(first, true);
        first = keeper();
        ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
        expect_another(first, false);
        EXPECT_EQ(vault.stat().generations, 1u); // answered when the new keeper has everything
        first = daemon();
        ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
        EXPECT_EQ(View(vault).wrong(3, 1), 0u);
        expect_another(first, true);
    }
    EXPECT_EQ(before.wrong(3, 1), 0u);
    EXPECT_GT(write_generation(vault, 2, 2), 1u);
    // The program of the next service is the one on disk.
    EXPECT_EQ(umfVaultStop(nullptr, 1), UMF_RESULT_SUCCESS);
    ASSERT_TRUE(until([&] { return has_ended(); }));
    EXPECT_EQ(umfVaultStat(vault.handle, nullptr), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    umf_vault_handle_t handle;
    EXPECT_EQ(umfVaultOpen("model", nullptr, &handle), UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE);
}

// --- users ---

constexpr uid_t other_user = 65534;

// In a process of another user; its exit code is 0 if `part` says so.
void as_other_user(const std::function<bool()> &part) {
    pid_t child = fork();
    if (child == 0) {
        bool is_other = setresgid(other_user, other_user, other_user) == 0 &&
                        setresuid(other_user, other_user, other_user) == 0;
        _exit(is_other && part() ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
}

TEST_F(VaultLimits, AnotherUserIsTurnedAway) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root becomes another user";
    }
    Vault vault;
    write_generation(vault, 3, 1);
    as_other_user([&] { // the folder is closed
        umf_vault_handle_t handle;
        return umfVaultOpen("model", nullptr, &handle) == UMF_RESULT_ERROR_DEPENDENCY_UNAVAILABLE &&
               umfLastReason() == UMF_REASON_DENIED && connection(place) == -1;
    });
    ASSERT_EQ(chmod(place.c_str(), 0711), 0);
    ASSERT_EQ(chmod((place + "/vault").c_str(), 0666), 0);
    as_other_user([&] { // it is open by mistake: the daemon looks at the user
        int fd = connection(place);
        uint32_t head[32] = {0x56464d55, 2 | 7 << 16, 1}; // an attach
        send(fd, head, sizeof(head), MSG_NOSIGNAL);
        bool is_given = false;
        for (int i = 0; i < 3; i++) { // the end may be seen before the answer to the connection
            uint32_t answer[32] = {};
            alignas(cmsghdr) char control[400];
            iovec part = {answer, sizeof(answer)};
            msghdr message = {};
            message.msg_iov = &part;
            message.msg_iovlen = 1;
            message.msg_control = control;
            message.msg_controllen = sizeof(control);
            ssize_t got = recvmsg(fd, &message, 0);
            is_given = is_given || (got > 0 && (answer[4] == 0 || message.msg_controllen != 0));
        }
        return fd != -1 && !is_given;
    });
    ASSERT_EQ(chmod(place.c_str(), 0700), 0);
    EXPECT_EQ(View(vault).wrong(3, 1), 0u);
    EXPECT_EQ(vault.stat().readers, 1u); // the writer
}

// The service of a user has vaults of two: its own and those of root.
TEST_F(VaultLimits, RootAndTheUserShareAService) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root becomes another user";
    }
    ASSERT_EQ(chown(place.c_str(), other_user, other_user), 0);
    as_other_user([&] {
        Vault vault;
        write_generation(vault, 3, 1);
        return View(vault).wrong(3, 1) == 0;
    });
    {
        Vault vault, own("roots");
        EXPECT_EQ(View(vault).wrong(3, 1), 0u);
        write_generation(own, 2, 2);
    }
    as_other_user([&] {
        umf_vault_handle_t handle;
        return umfVaultOpen("roots", nullptr, &handle) == UMF_RESULT_ERROR_INVALID_ARGUMENT &&
               umfLastReason() == UMF_REASON_DENIED;
    });
    Vault vault, own("roots");
    EXPECT_EQ(View(own).wrong(2, 2), 0u);
    EXPECT_EQ(umfVaultDrop(vault.handle, 0), UMF_RESULT_SUCCESS);
    EXPECT_EQ(vault.stat().bytes, 0u);
}

// --- descriptors, tables, memory ---

TEST_F(VaultLimits, TheServiceHasNoDescriptorsLeft) {
    ASSERT_NO_FATAL_FAILURE(start_with_files(100));
    Vault vault, small("small");
    write_generation(vault, 3, 1);
    View before(vault);
    {
        Draft draft(vault, nullptr, slab_each);
        for (size_t i = 0; i < 120; i++) {
            draft.put(key_of(i), 4096);
        }
        EXPECT_EQ(draft.commit(), UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfLastReason(), UMF_REASON_EXHAUSTED);
        EXPECT_NE(strstr(umfLastErrorText(), "open files"), nullptr);
        EXPECT_EQ(View(vault).wrong(3, 1), 0u);
        std::vector<umf_vault_handle_t> others;
        umf_vault_handle_t handle;
        umf_result_t result;
        while ((result = umfVaultOpen("model", nullptr, &handle)) == UMF_RESULT_SUCCESS &&
               others.size() < 100) {
            others.push_back(handle);
        }
        EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
        EXPECT_EQ(umfLastReason(), UMF_REASON_EXHAUSTED);
        EXPECT_NE(strstr(umfLastErrorText(), "open files"), nullptr) << umfLastErrorText();
        for (umf_vault_handle_t each : others) {
            EXPECT_EQ(umfVaultClose(each), UMF_RESULT_SUCCESS);
        }
        pid_t first = daemon(); // the next one gets as many
        ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
        EXPECT_EQ(View(vault).wrong(3, 1), 0u);
        expect_another(first, true);
    }
    EXPECT_EQ(vault.stat().generations, 1u);
    EXPECT_TRUE(until([&] { // closed one after the other
        umf_vault_handle_t handle;
        return umfVaultOpen("model", nullptr, &handle) == UMF_RESULT_SUCCESS &&
               umfVaultClose(handle) == UMF_RESULT_SUCCESS;
    }));
    write_generation(small, 3, 2);
    EXPECT_EQ(View(small).wrong(3, 2), 0u);
    EXPECT_EQ(before.wrong(3, 1), 0u);
}

TEST_F(VaultLimits, AThousandClientsAndNoMore) {
    rlimit files;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
    files.rlim_cur = files.rlim_max;
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
    if (files.rlim_max < 3000) {
        GTEST_SKIP() << "a process may have only " << files.rlim_max << " open files";
    }
    Vault vault;
    write_generation(vault, 3, 1);
    umf_vault_params_t params = UMF_VAULT_PARAMS_INIT;
    std::vector<umf_vault_handle_t> all;
    umf_vault_handle_t handle;
    umf_result_t result;
    while ((result = umfVaultOpen("model", &params, &handle)) == UMF_RESULT_SUCCESS &&
           all.size() < 2000) {
        all.push_back(handle);
    }
    EXPECT_EQ(all.size(), 1023u); // and the first one
    EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_EXHAUSTED);
    EXPECT_NE(strstr(umfLastErrorText(), "1024"), nullptr);
    std::vector<umf_vault_view_handle_t> views;
    for (umf_vault_handle_t reader : all) {
        umf_vault_view_handle_t view;
        ASSERT_EQ(umfVaultAttach(reader, nullptr, &view), UMF_RESULT_SUCCESS);
        views.push_back(view);
    }
    EXPECT_EQ(vault.stat().readers, 1 + all.size()); // and the writer
    pid_t first = daemon();
    ASSERT_NO_FATAL_FAILURE(hit(first, SIGKILL));
    EXPECT_EQ(View(vault).wrong(3, 1), 0u);
    EXPECT_EQ(vault.stat().readers, 1 + all.size());
    for (umf_vault_handle_t reader : all) {
        EXPECT_EQ(umfVaultClose(reader), UMF_RESULT_SUCCESS);
    }
    EXPECT_TRUE(until([&] { return vault.stat().readers == 1; }));
    Vault another;
    EXPECT_EQ(View(another).wrong(3, 1), 0u);
}

TEST_F(VaultLimits, TablesOfVaultsAndGenerationsAreFull) {
    Vault vault("model", 0, 300);
    write_generation(vault, 1, 1);
    std::vector<std::unique_ptr<Vault>> vaults;
    for (int i = 1; i < 64; i++) {
        vaults.push_back(std::make_unique<Vault>(("model." + std::to_string(i)).c_str()));
        write_generation(*vaults.back(), 1, 2);
    }
    Vault one_more("more");
    EXPECT_EQ(Draft(one_more).begun, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_EXHAUSTED);
    EXPECT_NE(strstr(umfLastErrorText(), "64 places"), nullptr);
    for (int i = 64; i < 256; i++) {
        write_generation(vault, 1, 1);
    }
    EXPECT_EQ(Draft(vault).begun, UMF_RESULT_ERROR_OUT_OF_RESOURCES);
    EXPECT_EQ(umfLastReason(), UMF_REASON_EXHAUSTED);
    EXPECT_NE(strstr(umfLastErrorText(), "256 places"), nullptr);
    ASSERT_NO_FATAL_FAILURE(hit(daemon(), SIGKILL));
    EXPECT_EQ(View(vault).wrong(1, 1), 0u);
    EXPECT_EQ(View(*vaults.back()).wrong(1, 2), 0u);
    EXPECT_EQ(umfVaultDrop(vaults.back()->handle, 0), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(until([&] { return Draft(one_more).begun == UMF_RESULT_SUCCESS; }));
}

// Addresses for a draft, or for a view, are missing: nothing half made stays.
TEST_F(VaultLimits, AClientHasNoMemoryLeft) {
#if UMF_TEST_ASAN || UMF_TEST_TSAN
    GTEST_SKIP() << "a sanitizer needs more addresses than any limit leaves";
#endif
    constexpr size_t large = size_t(1) << 32; // a hole
    Vault vault;
    {
        Draft draft(vault, nullptr, slab_each);
        draft.put("large", large)[7] = 7;
        ASSERT_EQ(draft.commit(), UMF_RESULT_SUCCESS);
    }
    pid_t child = fork();
    if (child == 0) {
        Vault own;
        rlimit limit, none;
        size_t pages = 0;
        std::ifstream("/proc/self/statm") >> pages;
        getrlimit(RLIMIT_AS, &limit);
        none = limit;
        none.rlim_cur = pages * size_t(sysconf(_SC_PAGESIZE)) + large / 2;
        for (int i = 0; i < 3; i++) {
            setrlimit(RLIMIT_AS, &none);
            EXPECT_EQ(View(own).attached, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
            {
                Draft draft(own, nullptr, slab_each);
                EXPECT_EQ(draft.begun, UMF_RESULT_SUCCESS);
                EXPECT_EQ(umfPoolMalloc(draft.pool, large), nullptr);
                draft.put("small")[0] = 1;
            }
            EXPECT_EQ(own.stat().readers, 1u); // the writer
            EXPECT_EQ(own.stat().current, 1u);
            setrlimit(RLIMIT_AS, &limit);
            View view(own);
            EXPECT_EQ(view.attached, UMF_RESULT_SUCCESS);
            EXPECT_EQ(static_cast<unsigned char *>(view.find("large").ptr)[7], 7);
        }
        std::filesystem::directory_iterator open("/proc/self/fd"), end;
        EXPECT_LT(std::distance(open, end), 25);
        _exit(HasFailure() ? 1 : 0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_EQ(vault.stat().generations, 1u);
}

// --- the pair of daemon and keeper ---

// Sends what no daemon or keeper would. It ends by itself, and not by a signal.
class Garbage {
  public:
    Garbage(const std::string &place, const char *role, unsigned seed) : random(seed) {
        int pair[2];
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        child = fork();
        if (child == 0) {
            int at = dup2(pair[1], 3);
            int null = open("/dev/null", O_RDWR);
            dup2(null, 2);
            bool is_there = at == 3 && chdir(place.c_str()) == 0;
            fcntl(3, F_SETFD, 0);
            execl(is_there ? UMF_TEST_UMFD : "", "umfd", role, "--idle=0", nullptr);
            _exit(99);
        }
        close(pair[1]);
        fd = pair[0];
    }
    ~Garbage() {
        close(fd);
        int status = 0;
        EXPECT_TRUE(until([&] { return waitpid(child, &status, WNOHANG) == child; }));
        EXPECT_TRUE(WIFEXITED(status)) << status;
        EXPECT_NE(WEXITSTATUS(status), 99);
    }
    Garbage(const Garbage &) = delete;
    Garbage &operator=(const Garbage &) = delete;

    void send(uint32_t op, uint32_t slot, uint64_t cookie, int passed = -1, size_t size = 16) {
        uint64_t words[8] = {uint64_t(slot) << 32 | op, cookie};
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        iovec part = {words, size};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        if (passed != -1) {
            message.msg_control = control;
            message.msg_controllen = sizeof(control);
            cmsghdr *rights = CMSG_FIRSTHDR(&message);
            rights->cmsg_level = SOL_SOCKET;
            rights->cmsg_type = SCM_RIGHTS;
            rights->cmsg_len = CMSG_LEN(sizeof(int));
            memcpy(CMSG_DATA(rights), &passed, sizeof(int));
        }
        sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        char ignored[64];
        while (recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT) > 0) {
        }
    }
    // Any operation but `never`, with a slot that is often at the end of its range.
    void send_any(uint32_t never) {
        const uint32_t edges[] = {0, 4, 7, 8, 1031, 1032, 17415, 17416, 18439, 18440, UINT32_MAX};
        uint32_t op = uint32_t(random() % 9), slot = edges[random() % 11];
        slot = random() % 3 ? slot : uint32_t(random() % 20000);
        int passed = -1;
        switch (random() % 4) {
        case 0:
            passed = memfd_create("garbage", MFD_CLOEXEC);
            break;
        case 1:
            passed = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
            break;
        default:
            break;
        }
        size_t size = random() % 16 ? 16 : random() % 64;
        send(op == never || op == exits ? 0 : op, slot, random() % 4, passed, size);
        if (passed != -1) {
            close(passed);
        }
    }

    enum : uint32_t { have = 1, given = 4, exits = 6 };
    std::mt19937 random;

  private:
    pid_t child;
    int fd;
};

TEST_F(VaultLimits, GarbageOfADaemonEndsItsKeeper) {
    for (unsigned round = 0; round < scaled(200); round++) {
        Garbage garbage(place, "--keep", round);
        for (int i = 0; i < 300; i++) {
            garbage.send_any(Garbage::given); // it would start daemons
        }
    }
}

TEST_F(VaultLimits, GarbageOfAKeeperEndsItsDaemon) {
    for (unsigned round = 0; round < scaled(200); round++) {
        Garbage garbage(place, "--serve", round);
        for (int i = 0; i < 100; i++) {
            garbage.send_any(Garbage::given);
        }
        if (round % 2) { // it serves, with a state of chance
            int lock = open((place + "/lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
            int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
            int state = memfd_create("state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            int program = open(UMF_TEST_UMFD, O_RDONLY | O_CLOEXEC);
            const int fixed[] = {lock, listener, state, program};
            for (uint32_t slot = 0; slot < 4; slot++) {
                garbage.send(Garbage::have, slot, 0, fixed[slot]);
                close(fixed[slot]);
            }
            garbage.send(Garbage::given, 0, 1);
            for (int i = 0; i < 20; i++) {
                garbage.send_any(Garbage::given);
            }
            garbage.send(Garbage::exits, 0, 0);
        }
    }
}

} // namespace
