/* peer/transport: descriptors between real processes. */
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

extern "C" {
#include "peer/broker.h"
#include "peer/transport.h"
}

#include "fakes/child.h"
#include "fakes/fork_at_rest.h"
#include "fault.h"
#include "process.h"

namespace {

int make_file(const char *text) {
    int fd = memfd_create("transport", MFD_CLOEXEC);
    EXPECT_EQ(write(fd, text, strlen(text)), static_cast<ssize_t>(strlen(text)));
    return fd;
}

void expect_text(int fd, const char *text) {
    char buffer[64] = {};
    ASSERT_EQ(pread(fd, buffer, sizeof(buffer) - 1, 0), static_cast<ssize_t>(strlen(text)));
    EXPECT_STREQ(buffer, text);
}

/* A process that has a file and waits; the ticket for it. */
class Producer {
  public:
    umf_fd_ticket_t ticket{};
    pid_t pid;
    int to_child[2];

    explicit Producer(bool close_file = false) {
        int from_child[2];
        EXPECT_EQ(pipe(from_child), 0);
        EXPECT_EQ(pipe(to_child), 0);
        pid = fork_at_rest();
        if (pid == 0) {
            close(to_child[1]);
            int fd = make_file("from the producer");
            bool ok = umf_ticket_make(fd, &ticket) == UMF_RESULT_SUCCESS;
            if (close_file) {
                close(fd);
            }
            ok = ok && write(from_child[1], &ticket, sizeof(ticket)) == sizeof(ticket);
            char byte;
            ok = ok && read(to_child[0], &byte, 1) == 0;
            _exit(ok ? 0 : 1);
        }
        close(from_child[1]);
        close(to_child[0]);
        EXPECT_EQ(read(from_child[0], &ticket, sizeof(ticket)),
                  static_cast<ssize_t>(sizeof(ticket)));
        close(from_child[0]);
    }
    void end() {
        if (pid > 0) {
            close(to_child[1]);
            int status = -1;
            EXPECT_EQ(waitpid(pid, &status, 0), pid);
            EXPECT_EQ(status, 0);
            pid = 0;
        }
    }
    ~Producer() {
        end();
    }
};

umf_result_t redeem(const umf_fd_ticket_t &ticket) {
    int fd = -1;
    umf_result_t result = umf_ticket_redeem(&ticket, &fd);
    if (result == UMF_RESULT_SUCCESS) {
        close(fd);
    } else {
        EXPECT_EQ(fd, -1) << "output written on failure";
    }
    return result;
}

/* Runs in a child of this process; true if `body` is. */
} // namespace

TEST(transport, SameProcessGetsADuplicate) {
    int before = count_descriptors();
    int fd = make_file("mine"), copy = -1;
    umf_fd_ticket_t ticket;
    ASSERT_EQ(umf_ticket_make(fd, &ticket), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_ticket_redeem(&ticket, &copy), UMF_RESULT_SUCCESS);
    EXPECT_NE(copy, fd);
    EXPECT_TRUE(fcntl(copy, F_GETFD) & FD_CLOEXEC);
    close(fd);
    expect_text(copy, "mine");
    close(copy);
    EXPECT_EQ(count_descriptors(), before);
}

// Another file description of the same file is no copy, so it does not do.
TEST(transport, ACopyIsTheVeryDescriptor) {
    Producer producer;
    int fd = -1;
    ASSERT_EQ(umf_transport_set_order("proc"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_ticket_redeem_copy(&producer.ticket, &fd), UMF_RESULT_ERROR_NOT_SUPPORTED);
    EXPECT_EQ(umf_transport_set_order(nullptr), UMF_RESULT_SUCCESS);
}

TEST(transport, OtherProcess) {
    int before = count_descriptors();
    {
        Producer producer;
        int fd = -1;
        ASSERT_EQ(umf_ticket_redeem(&producer.ticket, &fd), UMF_RESULT_SUCCESS);
        expect_text(fd, "from the producer");
        void *map = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        EXPECT_NE(map, MAP_FAILED);
        munmap(map, 4096);
        close(fd);
    }
    EXPECT_EQ(count_descriptors(), before);
}

TEST(transport, EachWayAlone) {
    Producer producer;
    for (const umf_transport_t *way : {&umf_transport_proc, &umf_transport_pidfd}) {
        int before = count_descriptors(), fd = -1;
        int error = way->redeem(&producer.ticket, &fd);
        if (error == EPERM || error == EACCES || error == ENOSYS) {
            continue; /* not allowed on this machine; the other way may be */
        }
        ASSERT_EQ(error, 0) << way->name;
        expect_text(fd, "from the producer");
        close(fd);
        EXPECT_EQ(count_descriptors(), before) << way->name;
    }
    EXPECT_FALSE(umf_transport_self.applies(&producer.ticket));
}

TEST(transport, SecondWayWhenTheFirstFails) {
    Producer producer;
    const bool attaches = umf_os_may_attach();
    fault::Nth nth(attaches ? "pidfd_getfd" : "open", EIO);
    nth.next();
    umf_result_t result = redeem(producer.ticket);
    EXPECT_TRUE(nth.hit());
    nth.off();
    int fd;
    const umf_transport_t &second = attaches ? umf_transport_proc : umf_transport_pidfd;
    if (second.redeem(&producer.ticket, &fd) == 0) {
        close(fd);
        EXPECT_EQ(result, UMF_RESULT_SUCCESS);
    } else {
        EXPECT_EQ(result, UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
}

std::string order() {
    char words[64] = "";
    EXPECT_EQ(umf_transport_get_order(words, sizeof(words)), UMF_RESULT_SUCCESS);
    return words;
}

/* Whoever reads the records of refusals is to find one at most. */
TEST(transport, AttachingIsFirstUntilItIsRefused) {
    if (!umf_os_may_attach()) {
        EXPECT_EQ(order(), "self,proc,pidfd,broker");
        GTEST_SKIP() << "attaching is restricted here";
    }
    EXPECT_EQ(order(), "self,pidfd,proc,broker");
    Producer producer;
    fault::Nth nth("pidfd_getfd", EPERM);
    nth.next();
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(nth.hit());
    nth.off();
    EXPECT_EQ(order(), "self,proc,pidfd,broker");
    static int attempts;
    attempts = 0;
    umf_os_set_fault([](const char *call) {
        attempts += strcmp(call, "pidfd_getfd") == 0;
        return 0;
    });
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(attempts, 0);
}

/* Facts of a producer are cached: its descriptor is not requested again. */
TEST(transport, UsesTheDescriptorOfATrustedProcess) {
    Producer producer;
    umf_process_t process = umf_ticket_producer(&producer.ticket);
    umf_process_known_t known = {};
    ASSERT_EQ(umf_process_meet(&process, &known), UMF_RESULT_SUCCESS);
    fault::Nth nth("pidfd_open", EIO);
    nth.next();
    int fd;
    EXPECT_EQ(umf_transport_pidfd.redeem(&producer.ticket, &fd), EIO) << "no process is trusted";
    nth.off();
    umf_process_trust(&known);
    fault::Nth again("pidfd_open", EIO);
    again.next();
    int error = umf_transport_pidfd.redeem(&producer.ticket, &fd);
    EXPECT_FALSE(again.hit());
    again.off();
    umf_process_distrust();
    umf_process_forget(&known);
    if (error == 0) {
        expect_text(fd, "from the producer");
        close(fd);
    }
}

/* The setting: what it takes, what it says, and that it is obeyed. */
TEST(transport, OrderIsASetting) {
    char words[64];
    const std::string first = order();
    for (const char *wrong : {"", ",", "self,", "selfish", "self,proc,self", "proc, pidfd", "Self",
                              "self,proc,pidfd,broker,proc"}) {
        EXPECT_EQ(umf_transport_set_order(wrong), UMF_RESULT_ERROR_INVALID_ARGUMENT) << wrong;
    }
    ASSERT_EQ(umf_transport_get_order(words, sizeof(words)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(words, first) << "a refused one changes nothing";
    ASSERT_EQ(umf_transport_set_order("pidfd,self"), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_transport_get_order(words, sizeof(words)), UMF_RESULT_SUCCESS);
    EXPECT_STREQ(words, "pidfd,self");
    EXPECT_EQ(umf_transport_get_order(words, 10), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_transport_get_order(words, 11), UMF_RESULT_SUCCESS);
    Producer producer;
    ASSERT_EQ(umf_transport_set_order("self"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_ERROR_NOT_SUPPORTED) << "no way is left";
    ASSERT_EQ(umf_transport_set_order("broker"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_ERROR_NOT_SUPPORTED) << "it was not published";
    ASSERT_EQ(umf_transport_set_order("proc"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
    ASSERT_EQ(umf_transport_set_order("self,proc,pidfd,broker"), UMF_RESULT_SUCCESS);
}

TEST(transport, ProducerThatIsGone) {
    Producer producer;
    producer.end();
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST(transport, ProcessNumberThatWasGivenAgain) {
    Producer producer;
    umf_fd_ticket_t ticket = producer.ticket;
    ticket.start_time--;
    EXPECT_EQ(redeem(ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ticket = producer.ticket;
    ticket.boot_id++;
    EXPECT_EQ(redeem(ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    ticket = producer.ticket;
    ticket.pid_ns++;
    EXPECT_EQ(redeem(ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
}

TEST(transport, DescriptorThatWasClosedOrGivenAgain) {
    Producer producer(true);
    int before = count_descriptors();
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    for (int fd = 0; fd < 3; fd++) {
        umf_fd_ticket_t ticket = producer.ticket;
        ticket.fd = fd;
        EXPECT_EQ(redeem(ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    int mine = make_file("mine"), other = make_file("other");
    umf_fd_ticket_t ticket;
    ASSERT_EQ(umf_ticket_make(mine, &ticket), UMF_RESULT_SUCCESS);
    ticket.fd = other;
    EXPECT_EQ(redeem(ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    close(mine);
    close(other);
    EXPECT_EQ(count_descriptors(), before);
}

TEST(transport, DamagedTickets) {
    Producer producer;
    auto expect_invalid = [&](auto change) {
        umf_fd_ticket_t ticket = producer.ticket;
        change(ticket);
        EXPECT_EQ(redeem(ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    };
    expect_invalid([](auto &t) { t.fd = -1; });
    expect_invalid([](auto &t) { t.fd = INT32_MAX; });
    expect_invalid([](auto &t) { t.pid = 0; });
    expect_invalid([](auto &t) { t.pid = UINT32_MAX; });
    expect_invalid([](auto &t) { t.ino++; });
    expect_invalid([](auto &t) { t.dev++; });
    if (producer.ticket.born != 0) {
        expect_invalid([](auto &t) { t.born++; });
    }
    expect_invalid([](auto &t) { t.version++; });
    expect_invalid([](auto &t) { t.address_kind = UMF_BROKER_ABSTRACT; });
    expect_invalid([](auto &t) { t.address_kind = 99, t.export_id = 1; });
    expect_invalid([](auto &t) { t.export_id = 1; });
    umf_fd_ticket_t ticket;
    EXPECT_EQ(umf_ticket_make(-1, &ticket), UMF_RESULT_ERROR_UNKNOWN);
}

TEST(transport, NoDescriptorLeft) {
    Producer producer;
    rlimit old, none;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    none = old;
    none.rlim_cur = 3;
    /* Fills the gaps below the limit. */
    int filler = dup(0);
    while (filler >= 0 && filler < 3) {
        filler = dup(0);
    }
    close(filler);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    umf_result_t result = redeem(producer.ticket);
    ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
    EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY);
}

TEST(transport, KernelWithoutAnyWay) {
    Producer producer;
    umf_os_set_fault([](const char *call) {
        return !strcmp(call, "open") || !strcmp(call, "pidfd_open") ? ENOSYS : 0;
    });
    umf_result_t result = redeem(producer.ticket);
    umf_os_set_fault(nullptr);
    EXPECT_EQ(result, UMF_RESULT_ERROR_NOT_SUPPORTED);
}

/* Another user: refused, with a result code. Only the administrator can become another user. */
TEST(transport, OtherUserIsDenied) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs the right to change the user";
    }
    int fd = make_file("mine");
    ASSERT_EQ(fchmod(fd, 0600), 0);
    umf_fd_ticket_t ticket;
    ASSERT_EQ(umf_ticket_make(fd, &ticket), UMF_RESULT_SUCCESS);
    EXPECT_TRUE(in_child(
        [&] {
            close(fd);
            return setgid(65534) == 0 && setuid(65534) == 0 &&
                   redeem(ticket) == UMF_RESULT_ERROR_INVALID_ARGUMENT;
        },
        fork_at_rest));
    close(fd);
}

TEST(transport, EveryFailureLeavesNoDescriptor) {
    Producer producer;
    int before = count_descriptors(), runs = 0;
    for (fault::Nth nth(nullptr, EIO); nth.next(); runs++) {
        int fd = -1;
        umf_result_t result = umf_ticket_redeem(&producer.ticket, &fd);
        if (result == UMF_RESULT_SUCCESS) {
            close(fd);
        }
        nth.off();
        ASSERT_EQ(count_descriptors(), before) << "call " << nth.runs();
    }
    EXPECT_GE(runs, 4);
    int fd = make_file("mine");
    umf_fd_ticket_t ticket;
    fault::Nth nth("identity", EIO);
    nth.next();
    EXPECT_EQ(umf_ticket_make(fd, &ticket), UMF_RESULT_ERROR_UNKNOWN);
    close(fd);
}
