// Whom the attach socket answers (src/ext/record/attach/attach_admit.c).
#include <csignal>

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "attach.h"
#include "fakes/scale.h"

namespace {

#define NEEDS_ROOT()                                                                               \
    if (getuid() != 0) {                                                                           \
        GTEST_SKIP() << "needs root, to be another user";                                          \
    }

// After a change of the user a process is not dumpable.
bool become(uid_t real, uid_t effective, uid_t saved) {
    return setgroups(0, nullptr) == 0 && setresgid(real, real, real) == 0 &&
           setresuid(real, effective, saved) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
}

bool become(uid_t user) {
    return become(user, user, user);
}

// A process with a pool that requested to be inspected. `prepare`: before that. Byte by byte it
// goes on through `steps`.
class Target {
  public:
    explicit Target(const std::function<bool()> &prepare,
                    const std::vector<std::function<bool()>> &steps = {}) {
        EXPECT_EQ(pipe2(up, O_CLOEXEC), 0);
        EXPECT_EQ(pipe2(down, O_CLOEXEC), 0);
        pid = in_child([&] {
            close(down[1]);
            if (!prepare()) {
                return 1;
            }
            attach_set(true);
            Pool pool;
            char byte = attach_get() ? 'y' : 'n';
            for (size_t i = 0;; i++) {
                if (write(up[1], &byte, 1) != 1 || read(down[0], &byte, 1) != 1 ||
                    i == steps.size()) {
                    return 0;
                }
                byte = steps[i]() ? 'y' : 'n';
            }
        });
        close(up[1]);
        close(down[0]);
        listens = heard() == 'y';
    }
    ~Target() {
        close(down[1]);
        close(up[0]);
        int status = status_of(pid); // not 0 if it could not be prepared: the test skips then
        EXPECT_TRUE(status == 0 || !listens) << status;
    }
    bool step() {
        return write(down[1], "g", 1) == 1 && heard() == 'y';
    }
    // The status that a process prepared by `prepare` gets. 1000: it could not be prepared.
    int asked_by(const std::function<bool()> &prepare, uint32_t kind = UMF_ATTACH_FIGURES) const {
        AttachAddress address(pid);
        return status_of(in_child([&] {
            if (!prepare()) {
                return 200;
            }
            int status = -1;
            for (int i = 0; i < 100 && status == -1; i++) {
                Visit visit(address);
                status = visit.call(kind); /* a refusal is lost if the request came before it */
            }
            return status != -1 ? status : 100;
        }));
    }
    pid_t pid;
    bool listens;

  private:
    char heard() {
        char byte = 'x';
        return read(up[0], &byte, 1) == 1 ? byte : 'x';
    }
    int up[2], down[2];
};

bool as_it_is() {
    return true;
}

TEST(AttachAdmit, OtherUsersAreRefused) {
    NEEDS_ROOT();
    Target target(as_it_is), of_user([] { return become(1000); });
    EXPECT_TRUE(target.listens && of_user.listens);
    EXPECT_EQ(target.asked_by([] { return become(1000); }), UMF_ATTACH_DENIED);
    EXPECT_EQ(of_user.asked_by([] { return become(1234); }), UMF_ATTACH_DENIED);
    EXPECT_EQ(of_user.asked_by([] { return become(65534); }), UMF_ATTACH_DENIED);
}

TEST(AttachAdmit, ItsOwnUserIsAnswered) {
    Target target(as_it_is);
    EXPECT_TRUE(target.listens);
    EXPECT_EQ(target.asked_by(as_it_is), UMF_ATTACH_DONE);
}

TEST(AttachAdmit, AUserIsAnsweredByItsOwn) {
    NEEDS_ROOT();
    Target target([] { return become(1000); });
    EXPECT_EQ(target.asked_by([] { return become(1000); }), UMF_ATTACH_DONE);
}

TEST(AttachAdmit, AnotherGroupIsRefused) {
    NEEDS_ROOT();
    Target target([] { return become(1000); });
    EXPECT_EQ(target.asked_by([] {
        return setgroups(0, nullptr) == 0 && setresgid(1234, 1234, 1234) == 0 &&
               setresuid(1000, 1000, 1000) == 0;
    }),
              UMF_ATTACH_DENIED);
}

bool keep_only(uint32_t capabilities) {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct sets[2]{};
    sets[0].effective = sets[0].permitted = capabilities;
    return syscall(SYS_capset, &header, sets) == 0;
}

TEST(AttachAdmit, RootMayLookAtAll) {
    NEEDS_ROOT();
    Target target([] { return become(1000); });
    EXPECT_EQ(target.asked_by(as_it_is), UMF_ATTACH_DONE);
    // As a container has it.
    EXPECT_EQ(target.asked_by([] { return keep_only(1u << CAP_NET_RAW); }), UMF_ATTACH_DENIED);
}

// A process with capabilities can be ptraced by those only that have them, too.
TEST(AttachAdmit, AUserWithFewerCapabilitiesIsRefused) {
    NEEDS_ROOT();
    auto with_one = [] {
        return prctl(PR_SET_KEEPCAPS, 1) == 0 && become(1000) && keep_only(1u << CAP_NET_RAW) &&
               prctl(PR_SET_DUMPABLE, 1) == 0;
    };
    Target target(with_one);
    EXPECT_TRUE(target.listens);
    EXPECT_EQ(target.asked_by([] { return become(1000); }), UMF_ATTACH_DENIED);
    EXPECT_EQ(target.asked_by(with_one), UMF_ATTACH_DONE);
}

// A set-user-ID program takes the rights of its user for a moment, to open a file.
TEST(AttachAdmit, AMomentWithTheRightsOfTheUserAdmitsNobody) {
    NEEDS_ROOT();
    Target target([] { return become(1234, 0, 0); },
                  {[] { return seteuid(1234) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0; }});
    auto user = [] { return become(1234); };
    EXPECT_EQ(target.asked_by(user), UMF_ATTACH_DENIED);
    EXPECT_TRUE(target.step());
    EXPECT_EQ(target.asked_by(user), UMF_ATTACH_DENIED);
}

TEST(AttachAdmit, AProcessThatIsNotDumpableHasNoSocket) {
    Target target([] { return prctl(PR_SET_DUMPABLE, 0) == 0; });
    EXPECT_FALSE(target.listens);
    EXPECT_FALSE(Visit(target.pid).is_open());
}

// Also on connections that are there.
TEST(AttachAdmit, AProcessThatIsNotDumpableAnyMoreAnswersNobody) {
    Target target(as_it_is, {[] { return prctl(PR_SET_DUMPABLE, 0) == 0; },
                             [] { return prctl(PR_SET_DUMPABLE, 1) == 0; }});
    Visit visit(target.pid);
    EXPECT_EQ(visit.call(UMF_ATTACH_FIGURES), UMF_ATTACH_DONE);
    EXPECT_TRUE(target.step());
    EXPECT_EQ(visit.call(UMF_ATTACH_FIGURES), UMF_ATTACH_DENIED);
    EXPECT_STRNE(visit.reply.text, "");
    EXPECT_FALSE(visit.receive()) << "the connection should be closed";
    EXPECT_EQ(target.asked_by(as_it_is), UMF_ATTACH_DENIED);
    EXPECT_TRUE(target.step());
    EXPECT_EQ(target.asked_by(as_it_is), UMF_ATTACH_DONE);
}

// --- namespaces ---

TEST(AttachAdmit, AnotherPidNamespaceIsRefused) {
    Target target(as_it_is);
    AttachAddress address(target.pid);
    int status = status_of(in_child([&] {
        if (unshare(CLONE_NEWPID) != 0) {
            return 200;
        }
        return status_of(in_child([&] { // the first one in the namespace
            Visit visit(address);
            return visit.receive() ? (int)visit.reply.status : 100;
        }));
    }));
    if (status == 200) {
        GTEST_SKIP() << "no namespace of processes can be made here";
    }
    EXPECT_EQ(status, UMF_ATTACH_DENIED);
}

bool text_write(const char *path, const std::string &text) {
    return (std::ofstream(path) << text << std::flush).good();
}

// Even under the same number: it could not ptrace, either.
TEST(AttachAdmit, AnotherUserNamespaceIsRefused) {
    Target target(as_it_is);
    std::string user = std::to_string(getuid()), group = std::to_string(getgid());
    int status = target.asked_by([&] {
        return unshare(CLONE_NEWUSER) == 0 && text_write("/proc/self/setgroups", "deny") &&
               text_write("/proc/self/uid_map", user + " " + user + " 1") &&
               text_write("/proc/self/gid_map", group + " " + group + " 1");
    });
    if (status == 200) {
        GTEST_SKIP() << "no user namespace can be made here";
    }
    EXPECT_EQ(status, UMF_ATTACH_DENIED);
}

// All users that a namespace has no number for have one number there.
TEST(AttachAdmit, UsersWithoutANumberAreNotItsOwn) {
    NEEDS_ROOT();
    Target target([] {
        return become(1000) && unshare(CLONE_NEWUSER) == 0 && prctl(PR_SET_DUMPABLE, 1) == 0;
    });
    if (!target.listens) {
        GTEST_SKIP() << "no user namespace can be made here";
    }
    for (uid_t user : {1000u, 1234u, 65534u}) {
        EXPECT_EQ(target.asked_by([=] { return become(user); }), UMF_ATTACH_DENIED);
    }
}

// --- programs with rights that their user does not have ---

// Run by the test that follows, as a set-user-ID program.
TEST(AttachAdmit, DISABLED_SetUserId) {
    umf_result_t result = attach_set(true);
    Pool pool;
    EXPECT_EQ(geteuid(), 0u);
    EXPECT_EQ(prctl(PR_SET_DUMPABLE, 1), 0);
    EXPECT_EQ(result, UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(attach_set(true), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(threads_of_the_library(), 0u);
    EXPECT_FALSE(Visit().is_open());
}

TEST(AttachAdmit, ASetUserIdProgramHasNoSocket) {
    NEEDS_ROOT();
    if (UMF_TEST_ASAN || UMF_TEST_TSAN) {
        GTEST_SKIP() << "sanitizers do not run in set-user-ID programs";
    }
    char folder[] = "/var/tmp/umf-attach.XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    chmod(folder, 0755);
    std::string program = std::string(folder) + "/program";
    {
        std::ifstream from("/proc/self/exe", std::ios::binary);
        std::ofstream(program, std::ios::binary) << from.rdbuf();
    }
    chmod(program.c_str(), 04755);
    int status = status_of(in_child([&] {
        if (!become(1000)) {
            return 200;
        }
        execl(program.c_str(), program.c_str(), "--gtest_filter=*.DISABLED_SetUserId",
              "--gtest_also_run_disabled_tests", (char *)nullptr);
        return 201;
    }));
    unlink(program.c_str());
    rmdir(folder);
    if (status == 201 || status == 127) {
        GTEST_SKIP() << "the program or its libraries cannot be run by another user";
    }
    EXPECT_EQ(status, 0);
}

} // namespace
