/* peer/broker: descriptors that a thread of the producer sends, between real processes. */
#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <functional>
#include <pthread.h>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include <umf.h>

extern "C" {
#include "peer/broker.h"
#include "peer/transport.h"
}

#include "fakes/child.h"
#include "fakes/fork_at_rest.h"
#include "fakes/log_file.h"
#include "fakes/scale.h"
#include "fakes/threads.h"
#include "fault.h"
#include "process.h"

namespace {

int make_file(const std::string &text) {
    int fd = memfd_create("broker", MFD_CLOEXEC);
    EXPECT_EQ(write(fd, text.data(), text.size()), static_cast<ssize_t>(text.size()));
    return fd;
}

std::string text_of(int fd) {
    char buffer[64] = {};
    ssize_t count = pread(fd, buffer, sizeof(buffer) - 1, 0);
    return count < 0 ? "unreadable" : buffer;
}

int count_entries(const char *path, const char *prefix = "") {
    int count = 0;
    DIR *folder = opendir(path);
    while (dirent *entry = folder ? readdir(folder) : nullptr) {
        count += entry->d_name[0] != '.' && strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    }
    if (folder) {
        closedir(folder);
    }
    return count;
}

/* In a child that is forked while no other thread holds anything. */
int exit_of(const std::function<int()> &body) {
    return exit_of_child(body, fork_at_rest);
}

bool has_broker_thread() {
    bool found = false;
    DIR *folder = opendir("/proc/self/task");
    while (dirent *entry = folder ? readdir(folder) : nullptr) {
        char name[32] = {};
        int fd = open((std::string("/proc/self/task/") + entry->d_name + "/comm").c_str(),
                      O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
            found |= read(fd, name, sizeof(name) - 1) > 0 && !strcmp(name, "umf-broker\n");
            close(fd);
        }
    }
    closedir(folder);
    return found;
}

/* A thread gets its name when it runs, and the kernel wakes who joins it before it leaves the list
   of tasks. */
bool wait_for_broker_thread(bool is_there = true) {
    for (int i = 0; i < 60000 && has_broker_thread() != is_there; i++) {
        usleep(1000);
    }
    return has_broker_thread() == is_there;
}

umf_fd_ticket_t publish(int fd) {
    umf_fd_ticket_t ticket = {};
    const std::vector<int> blocked = blocked_signals();
    EXPECT_EQ(umf_ticket_make(fd, &ticket), UMF_RESULT_SUCCESS);
    umf_ticket_prepare();
    umf_ticket_publish(&ticket);
    EXPECT_EQ(blocked_signals(), blocked);
    return ticket;
}

umf_result_t redeem(const umf_fd_ticket_t &ticket, const char *text = nullptr) {
    int fd = -1;
    umf_result_t result = umf_ticket_redeem(&ticket, &fd);
    if (result == UMF_RESULT_SUCCESS) {
        EXPECT_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        if (text) {
            EXPECT_EQ(text_of(fd), text);
        }
        close(fd);
    } else {
        EXPECT_EQ(fd, -1) << "output written on failure";
    }
    return result;
}

/* The answer of the transport, without the log. */
int answer_to(const umf_fd_ticket_t &ticket) {
    int fd = -1;
    int error = umf_transport_broker.redeem(&ticket, &fd);
    if (error == 0) {
        close(fd);
    }
    return error;
}

/* A child that has exported a file and obeys orders of one letter. */
class Producer {
    int to_child[2], from_child[2];

    struct Answer {
        umf_fd_ticket_t ticket;
        int number;
    };

    [[noreturn]] void run() {
        close(to_child[1]);
        close(from_child[0]);
        int fd = make_file("exported");
        Answer answer = {publish(fd), 0};
        char order = 0;
        do {
            switch (order) {
            case 'd': // the provider goes
                umf_ticket_drop(&answer.ticket);
                close(fd);
                break;
            case 'r': // code of the program closes and opens
                dup2(make_file("another"), fd);
                break;
            case 'n': // the number serves another export
                umf_ticket_drop(&answer.ticket);
                dup2(make_file("next"), fd);
                answer.ticket = publish(fd);
                break;
            case 's':
                umf_broker_stop();
                break;
            case 'p':
                umf_ticket_prepare();
                break;
            case 'c':
                answer.number = count_descriptors();
                break;
            case 't':
                answer.number = !wait_for_broker_thread(false);
                break;
            case 'f': { // a child that exports nothing outlives us
                int none[2];
                EXPECT_EQ(pipe(none), 0);
                answer.number = fork();
                if (answer.number == 0) {
                    close(from_child[1]);
                    (void)!write(none[1], "", 1); // the fork has closed its copy of the socket
                    pause();
                }
                EXPECT_EQ(read(none[0], &order, 1), 1);
                break;
            }
            case 'l': // no descriptor is left
            case 'L': {
                rlimit limit;
                getrlimit(RLIMIT_NOFILE, &limit);
                limit.rlim_cur = order == 'l' ? 3 : limit.rlim_max;
                answer.number = setrlimit(RLIMIT_NOFILE, &limit);
                break;
            }
            case 'a': // closes all unknown descriptors
                for (int i = 3; i < 1000; i++) {
                    if (i != to_child[0] && i != from_child[1]) {
                        close(i);
                    }
                }
                break;
            case 'e':
                exit(0);
            }
            if (write(from_child[1], &answer, sizeof(answer)) != sizeof(answer)) {
                _exit(1);
            }
        } while (read(to_child[0], &order, 1) == 1);
        exit(0);
    }

    Answer receive() {
        Answer answer = {};
        EXPECT_EQ(read(from_child[0], &answer, sizeof(answer)),
                  static_cast<ssize_t>(sizeof(answer)));
        return answer;
    }

  public:
    umf_fd_ticket_t ticket{};
    pid_t pid;

    Producer() {
        EXPECT_EQ(pipe2(to_child, O_CLOEXEC), 0);
        EXPECT_EQ(pipe2(from_child, O_CLOEXEC), 0);
        pid = fork_at_rest();
        if (pid == 0) {
            run();
        }
        close(from_child[1]);
        close(to_child[0]);
        ticket = receive().ticket;
    }
    int order(char letter) {
        EXPECT_EQ(write(to_child[1], &letter, 1), 1);
        Answer answer = receive();
        ticket = answer.ticket;
        return answer.number;
    }
    /* At most `limit` descriptors, as soon as open requests have ended. */
    int descriptors(int limit) {
        int count = order('c');
        for (int i = 0; i < 6000 && count > limit; i++) {
            usleep(10000);
            count = order('c');
        }
        return count;
    }
    void stop() {
        ::kill(pid, SIGSTOP);
        int status = 0;
        EXPECT_EQ(waitpid(pid, &status, WUNTRACED), pid);
        EXPECT_TRUE(WIFSTOPPED(status));
    }
    void kill() {
        ::kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
        pid = 0;
    }
    void end() {
        if (pid > 0) {
            close(to_child[1]);
            int status = -1;
            EXPECT_EQ(waitpid(pid, &status, 0), pid);
            EXPECT_EQ(status, 0);
            close(from_child[0]);
            pid = 0;
        }
    }
    ~Producer() {
        end();
    }
};

/* A connection to the broker of a ticket, as anybody may make. */
int connect_to(const umf_fd_ticket_t &ticket) {
    char name[64];
    snprintf(name, sizeof(name), "umf-%016llx%016llx",
             static_cast<unsigned long long>(ticket.broker[0]),
             static_cast<unsigned long long>(ticket.broker[1]));
    umf_socket_address_t address;
    int fd = -1, error = EAGAIN;
    EXPECT_EQ(umf_socket_abstract(name, &address), 0);
    EXPECT_EQ(umf_socket_open(&fd), 0);
    while (error == EAGAIN) {
        error = umf_socket_connect(fd, &address);
    }
    EXPECT_EQ(error, 0);
    return fd;
}

umf_broker_request_t request_for(const umf_fd_ticket_t &ticket) {
    umf_broker_request_t request = {};
    request.magic = UMF_BROKER_MAGIC;
    request.version = UMF_BROKER_VERSION;
    request.export_id = ticket.export_id;
    request.dev = ticket.dev;
    request.ino = ticket.ino;
    memcpy(request.secret, ticket.secret, sizeof(request.secret));
    return request;
}

class broker : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(umf_transport_set_order("broker"), UMF_RESULT_SUCCESS);
        ASSERT_EQ(umf_broker_set_timeout(60000), UMF_RESULT_SUCCESS);
        ASSERT_EQ(umfInit(), UMF_RESULT_SUCCESS); // links the library's exit handler, too
    }
    void TearDown() override {
        umf_broker_stop();
        EXPECT_TRUE(wait_for_broker_thread(false));
        umf_os_set_fault(nullptr);
        umf_broker_set_folder("");
        umf_broker_set_open(false);
        umf_broker_set_timeout(5000);
        umf_transport_set_order("self,proc,pidfd,broker");
    }
};

} // namespace

TEST_F(broker, GivesADescriptorToAnotherProcess) {
    int before = count_descriptors();
    {
        Producer producer;
        EXPECT_EQ(producer.ticket.address_kind, UMF_BROKER_ABSTRACT);
        EXPECT_EQ(redeem(producer.ticket, "exported"), UMF_RESULT_SUCCESS);
        EXPECT_EQ(redeem(producer.ticket, "exported"), UMF_RESULT_SUCCESS);
        EXPECT_FALSE(has_broker_thread()) << "who exports nothing has none";
    }
    EXPECT_EQ(count_descriptors(), before);
}

TEST_F(broker, GivesACopyOfTheVeryDescriptor) {
    Producer producer;
    int fd = -1;
    ASSERT_EQ(umf_ticket_redeem_copy(&producer.ticket, &fd), UMF_RESULT_SUCCESS);
    EXPECT_EQ(lseek(fd, 0, SEEK_CUR), 8) << "the file position is shared";
    close(fd);
}

TEST_F(broker, ServesItsOwnProcess) {
    int before = count_descriptors();
    int fd = make_file("mine");
    umf_fd_ticket_t ticket = publish(fd);
    EXPECT_TRUE(wait_for_broker_thread());
    EXPECT_EQ(redeem(ticket, "mine"), UMF_RESULT_SUCCESS);
    umf_ticket_drop(&ticket);
    EXPECT_EQ(answer_to(ticket), ESTALE);
    close(fd);
    umf_broker_stop();
    EXPECT_TRUE(wait_for_broker_thread(false));
    EXPECT_EQ(answer_to(ticket), ECONNREFUSED);
    EXPECT_EQ(count_descriptors(), before);
}

TEST_F(broker, ATicketIsTheSameEachTime) {
    int fd = make_file("mine");
    umf_fd_ticket_t ticket = publish(fd), before = ticket;
    umf_ticket_publish(&ticket);
    EXPECT_EQ(memcmp(&ticket, &before, sizeof(ticket)), 0);
    umf_broker_stop();
    umf_ticket_prepare();
    umf_ticket_publish(&ticket);
    EXPECT_EQ(memcmp(&ticket, &before, sizeof(ticket)), 0) << "after a new start, too";
    EXPECT_EQ(redeem(before, "mine"), UMF_RESULT_SUCCESS);
    umf_ticket_drop(&ticket);
    close(fd);
}

TEST_F(broker, WithoutItNothingIsStarted) {
    ASSERT_EQ(umf_transport_set_order("self,proc"), UMF_RESULT_SUCCESS);
    int fd = make_file("mine");
    umf_fd_ticket_t ticket = publish(fd);
    EXPECT_EQ(ticket.address_kind, UMF_BROKER_NOWHERE);
    EXPECT_EQ(ticket.export_id, 0u);
    EXPECT_FALSE(has_broker_thread());
    EXPECT_EQ(redeem(ticket, "mine"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(answer_to(ticket), ENOTCONN);
    close(fd);
}

TEST_F(broker, RefusesAWrongSecret) {
    Producer producer;
    for (int bit : {0, 63, 64, 127}) {
        umf_fd_ticket_t ticket = producer.ticket;
        ticket.secret[bit / 64] ^= uint64_t{1} << bit % 64;
        EXPECT_EQ(answer_to(ticket), EKEYREJECTED) << bit;
        EXPECT_EQ(redeem(ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    }
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
}

TEST_F(broker, ASecretOpensItsOwnExportOnly) {
    int mine = make_file("mine"), other = make_file("other");
    umf_fd_ticket_t ticket = publish(mine), forged = publish(other);
    EXPECT_EQ(answer_to(forged), 0);
    memcpy(forged.secret, ticket.secret, sizeof(forged.secret));
    EXPECT_EQ(answer_to(forged), EKEYREJECTED);
    umf_ticket_drop(&ticket);
    umf_ticket_drop(&forged);
    close(mine);
    close(other);
}

TEST_F(broker, RefusesWhatIsNotExported) {
    Producer producer;
    for (uint64_t id : {producer.ticket.export_id + 1, producer.ticket.export_id - 1, UINT64_MAX}) {
        umf_fd_ticket_t ticket = producer.ticket;
        ticket.export_id = id;
        EXPECT_EQ(answer_to(ticket), ESTALE) << id;
    }
    umf_fd_ticket_t ticket = producer.ticket;
    ticket.ino++;
    EXPECT_EQ(answer_to(ticket), ESTALE);
    ticket = producer.ticket;
    ticket.broker[0]++;
    EXPECT_EQ(answer_to(ticket), ECONNREFUSED);
    ticket = producer.ticket;
    ticket.fd = 0; // the number plays no part
    EXPECT_EQ(redeem(ticket, "exported"), UMF_RESULT_SUCCESS);
}

TEST_F(broker, RefusesWhatHasGone) {
    Producer producer;
    producer.order('d');
    EXPECT_EQ(answer_to(producer.ticket), ESTALE);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(broker, NeverGivesARecycledNumber) {
    Producer producer;
    producer.order('r'); // without the library
    EXPECT_EQ(answer_to(producer.ticket), ESTALE);
    umf_fd_ticket_t old = producer.ticket;
    producer.order('n');
    EXPECT_EQ(producer.ticket.fd, old.fd);
    EXPECT_EQ(answer_to(old), ESTALE);
    EXPECT_EQ(redeem(producer.ticket, "next"), UMF_RESULT_SUCCESS);
    umf_fd_ticket_t mixed = producer.ticket;
    mixed.export_id = old.export_id;
    EXPECT_EQ(answer_to(mixed), ESTALE);
}

/* The inode of a file that is gone may be given again. Then its birth is another. */
TEST_F(broker, NeverGivesALaterFileOfTheSameInode) {
    umf_ticket_prepare();
    int fd = make_file("later");
    umf_fd_ticket_t ticket;
    ASSERT_EQ(umf_ticket_make(fd, &ticket), UMF_RESULT_SUCCESS);
    if (ticket.born == 0) {
        close(fd);
        GTEST_SKIP() << "this system has no birth times of files";
    }
    ticket.born--;
    umf_ticket_publish(&ticket);
    ASSERT_NE(ticket.export_id, 0u);
    EXPECT_EQ(answer_to(ticket), ESTALE);
    umf_ticket_drop(&ticket);
    close(fd);
}

/* Only the administrator can become another user. */
TEST_F(broker, OtherUsersAreRefusedUnlessTheSettingLetsThem) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs the right to change the user";
    }
    int fd = make_file("mine");
    ASSERT_EQ(fchmod(fd, 0600), 0);
    umf_fd_ticket_t ticket = publish(fd);
    auto as_other = [&] {
        return exit_of(
            [&] { return setgid(65534) == 0 && setuid(65534) == 0 ? answer_to(ticket) : 255; });
    };
    EXPECT_EQ(as_other(), EKEYREJECTED);
    umf_broker_set_open(true);
    EXPECT_EQ(as_other(), 0);
    umf_fd_ticket_t wrong = ticket;
    wrong.secret[0]++;
    EXPECT_EQ(answer_to(wrong), EKEYREJECTED) << "the secret is compared all the same";
    umf_ticket_drop(&ticket);
    close(fd);
}

/* The administrator may open what users export; users get nothing from other users. */
TEST_F(broker, AnswersOfOtherUsersAreRefused) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs the right to change the user";
    }
    EXPECT_EQ(exit_of([] {
                  if (setgid(65534) != 0 || setuid(65534) != 0) {
                      return 255;
                  }
                  umf_fd_ticket_t ticket = publish(make_file("another user's"));
                  return answer_to(ticket);
              }),
              0);
    int to_us[2];
    ASSERT_EQ(pipe(to_us), 0);
    pid_t pid = fork_at_rest();
    if (pid == 0) {
        bool ok = setgid(65534) == 0 && setuid(65534) == 0;
        umf_fd_ticket_t ticket = publish(make_file("another user's"));
        ok = ok && write(to_us[1], &ticket, sizeof(ticket)) == sizeof(ticket);
        pause();
        _exit(ok);
    }
    umf_fd_ticket_t ticket;
    ASSERT_EQ(read(to_us[0], &ticket, sizeof(ticket)), static_cast<ssize_t>(sizeof(ticket)));
    EXPECT_EQ(answer_to(ticket), EKEYREJECTED) << "root trusts no other user";
    EXPECT_EQ(exit_of([&] { return setuid(65533) == 0 ? answer_to(ticket) : 255; }), EKEYREJECTED);
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
    close(to_us[0]);
    close(to_us[1]);
}

/* The broker could be anybody's: the secret is not sent, and the message says what to do. */
TEST_F(broker, AUserWhoseNumberStandsForOthersIsNotTrusted) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs the right to change the user";
    }
    EXPECT_EQ(exit_of([] {
                  if (setgid(65534) != 0 || setuid(65534) != 0) {
                      return 255;
                  }
                  umf_fd_ticket_t ticket = publish(make_file("another user's"));
                  umf_os_set_fault([](const char *name) {
                      return strcmp(name, "is_own_user") == 0 ? EPERM : 0;
                  });
                  LogFile log;
                  int refused = answer_to(ticket);
                  redeem(ticket);
                  bool is_answered = log.count("(uid_map), or set umf.ipc.any_user=yes here") == 1;
                  umf_broker_set_open(true);
                  return refused == ENOKEY && is_answered ? answer_to(ticket) : 254;
              }),
              0);
}

TEST_F(broker, AChildThatExportsNothingHasNone) {
    int fd = make_file("mine");
    umf_fd_ticket_t ticket = publish(fd);
    ASSERT_TRUE(wait_for_broker_thread());
    EXPECT_EQ(exit_of([&] {
                  bool is_alone = !has_broker_thread();
                  /* exports of the parent still come from the parent */
                  return is_alone && redeem(ticket, "mine") == UMF_RESULT_SUCCESS ? 0 : 1;
              }),
              0);
    umf_ticket_drop(&ticket);
    close(fd);
}

TEST_F(broker, AChildThatExportsHasItsOwn) {
    int fd = make_file("mine");
    umf_fd_ticket_t ticket = publish(fd);
    auto *seen = static_cast<umf_fd_ticket_t *>(mmap(nullptr, sizeof(umf_fd_ticket_t),
                                                     PROT_READ | PROT_WRITE,
                                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(seen, MAP_FAILED);
    EXPECT_EQ(exit_of([&] {
                  umf_fd_ticket_t inherited = ticket;
                  umf_ticket_publish(&inherited);
                  umf_fd_ticket_t own = publish(make_file("child's"));
                  *seen = own;
                  bool differs = memcmp(own.broker, ticket.broker, sizeof(own.broker)) != 0 &&
                                 memcmp(own.secret, ticket.secret, sizeof(own.secret)) != 0;
                  umf_ticket_drop(&ticket); // of another broker: no effect
                  return differs && wait_for_broker_thread() &&
                                 redeem(own, "child's") == UMF_RESULT_SUCCESS &&
                                 redeem(ticket, "mine") == UMF_RESULT_SUCCESS
                             ? 0
                             : 1;
              }),
              0);
    EXPECT_EQ(redeem(ticket, "mine"), UMF_RESULT_SUCCESS) << "the parent goes on";
    umf_fd_ticket_t next = publish(fd);
    EXPECT_NE(memcmp(next.secret, seen->secret, sizeof(next.secret)), 0);
    umf_ticket_drop(&next);
    munmap(seen, sizeof(*seen));
    umf_ticket_drop(&ticket);
    close(fd);
}

/* A child that has inherited the socket must not keep its name alive. */
TEST_F(broker, AProducerThatDiedIsKnownToBeDead) {
    Producer producer;
    int grandchild = producer.order('f');
    umf_fd_ticket_t ticket = producer.ticket;
    producer.kill();
    EXPECT_EQ(answer_to(ticket), ECONNREFUSED);
    EXPECT_EQ(redeem(ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    kill(grandchild, SIGKILL);
}

TEST_F(broker, StopsAndStarts) {
    Producer producer;
    producer.order('s');
    EXPECT_EQ(producer.order('t'), 0);
    EXPECT_EQ(answer_to(producer.ticket), ECONNREFUSED);
    producer.order('p');
    EXPECT_EQ(redeem(producer.ticket, "exported"), UMF_RESULT_SUCCESS);
}

/* Forked by a thread, because the frames of the test would catch what ends one. */
TEST_F(broker, AProcessEndsWithItsFirstThread) {
    if (UMF_TEST_TSAN || UMF_TEST_ASAN) {
        GTEST_SKIP() << "sanitizers need the first thread for their own end";
    }
    int status = -1;
    std::thread([&] {
        status = exit_of([] {
            publish(make_file("mine"));
            pthread_exit(nullptr);
            return 1;
        });
    }).join();
    EXPECT_EQ(status, 0);
}

TEST_F(broker, AProcessThatClosesEverythingIsServedAgain) {
    Producer producer;
    producer.order('a');
    EXPECT_NE(answer_to(producer.ticket), 0) << "the file was closed, too";
    producer.order('n');
    for (int i = 0; i < 6000 && answer_to(producer.ticket) != 0; i++) {
        usleep(10000);
        producer.order('p');
    }
    EXPECT_EQ(redeem(producer.ticket, "next"), UMF_RESULT_SUCCESS);
}

/* --- peers that do not behave ------------------------------------------------------------------
 */

TEST_F(broker, AStoppedProducerIsWaitedForOnlyForAWhile) {
    Producer producer;
    ASSERT_EQ(umf_broker_set_timeout(100), UMF_RESULT_SUCCESS);
    producer.stop();
    EXPECT_EQ(answer_to(producer.ticket), ETIMEDOUT);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    /* Full queue: there is no connection to be had. */
    std::vector<int> waiting;
    umf_socket_address_t address;
    char name[64];
    snprintf(name, sizeof(name), "umf-%016llx%016llx",
             static_cast<unsigned long long>(producer.ticket.broker[0]),
             static_cast<unsigned long long>(producer.ticket.broker[1]));
    ASSERT_EQ(umf_socket_abstract(name, &address), 0);
    for (int fd = -1, error = 0; error == 0 && waiting.size() < 500; waiting.push_back(fd)) {
        ASSERT_EQ(umf_socket_open(&fd), 0);
        error = umf_socket_connect(fd, &address);
    }
    EXPECT_EQ(answer_to(producer.ticket), ETIMEDOUT);
    for (int fd : waiting) {
        close(fd);
    }
    kill(producer.pid, SIGCONT);
    ASSERT_EQ(umf_broker_set_timeout(60000), UMF_RESULT_SUCCESS);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
}

TEST_F(broker, SilentPeersKeepNobodyWaiting) {
    Producer producer;
    int before = producer.order('c');
    std::vector<int> silent;
    for (int i = 0; i < 100; i++) {
        silent.push_back(connect_to(producer.ticket));
        if (i % 10 == 0) {
            EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
        }
    }
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
    EXPECT_LE(producer.order('c'), before + 32) << "so many requests may be open at once";
    for (int fd : silent) {
        close(fd);
    }
    EXPECT_EQ(producer.descriptors(before), before);
}

/* A free place is not needed to be refused. */
TEST_F(broker, WhoIsRefusedPushesNobodyOut) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs the right to change the user";
    }
    constexpr unsigned places = 32; // of the broker
    Producer producer;
    std::vector<int> admitted;
    for (unsigned i = 0; i < places; i++) {
        admitted.push_back(connect_to(producer.ticket)); // accepted in this order
    }
    EXPECT_EQ(exit_of([&] {
                  for (unsigned i = 0; i < places; i++) {
                      int fd = setuid(65534) == 0 ? connect_to(producer.ticket) : -1;
                      umf_broker_reply_t reply = {};
                      if (umf_socket_wait(fd, umf_socket_now() + 60000) != 0 ||
                          recv(fd, &reply, sizeof(reply), 0) != sizeof(reply) ||
                          reply.status != UMF_BROKER_DENIED) {
                          return 1;
                      }
                      close(fd);
                  }
                  return 0;
              }),
              0);
    for (int fd : admitted) {
        char byte;
        EXPECT_EQ(recv(fd, &byte, 1, MSG_DONTWAIT), -1) << "closed by the broker";
        close(fd);
    }
}

TEST_F(broker, SilentPeersAreLeftAfterAWhile) {
    ASSERT_EQ(umf_broker_set_timeout(50), UMF_RESULT_SUCCESS);
    Producer producer;
    int before = producer.order('c');
    int fd = connect_to(producer.ticket);
    EXPECT_EQ(producer.descriptors(before), before);
    char byte;
    EXPECT_EQ(umf_socket_wait(fd, umf_socket_now() + 60000), 0);
    EXPECT_EQ(recv(fd, &byte, 1, 0), 0);
    close(fd);
}

TEST_F(broker, GarbageIsNotAnswered) {
    Producer producer;
    int before = producer.order('c');
    std::mt19937 random(1);
    for (int i = 0; i < 300; i++) {
        std::vector<unsigned char> bytes(random() % 200);
        for (unsigned char &byte : bytes) {
            byte = static_cast<unsigned char>(random());
        }
        int fd = connect_to(producer.ticket);
        umf_socket_send(fd, bytes.data(), bytes.size(), i % 3 == 0 ? fd : -1);
        umf_broker_reply_t reply;
        size_t got = 1;
        int passed = -1;
        ASSERT_EQ(umf_socket_wait(fd, umf_socket_now() + 60000), 0);
        int error = umf_socket_receive(fd, &reply, sizeof(reply), &got, &passed);
        EXPECT_TRUE(error != 0 || got == 0);
        EXPECT_EQ(passed, -1);
        close(fd);
    }
    /* One byte too many or too few, another version. */
    umf_broker_request_t request[2] = {request_for(producer.ticket), {}};
    for (int way = 0; way < 4; way++) {
        int fd = connect_to(producer.ticket);
        size_t size = sizeof(request[0]) + (way == 0) - (way == 1);
        request[0].version = UMF_BROKER_VERSION + (way == 2);
        umf_socket_send(fd, request, size, -1);
        umf_broker_reply_t reply = {};
        size_t got = 0;
        int passed = -1;
        ASSERT_EQ(umf_socket_wait(fd, umf_socket_now() + 60000), 0);
        int error = umf_socket_receive(fd, &reply, sizeof(reply), &got, &passed);
        EXPECT_EQ(error == 0 && got == sizeof(reply), way == 3);
        EXPECT_EQ(passed != -1, way == 3);
        close(passed);
        close(fd);
    }
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
    EXPECT_EQ(producer.descriptors(before), before) << "also not what came along";
}

TEST_F(broker, AThousandConnections) {
    Producer producer;
    int before = producer.order('c');
    std::atomic<int> good{0};
    run_threads(10, [&](int) {
        for (int k = 0; k < 100; k++) {
            good += answer_to(producer.ticket) == 0;
        }
    });
    EXPECT_EQ(good, 1000);
    EXPECT_EQ(producer.descriptors(before), before);
}

TEST_F(broker, WaitsWhileTheProducerHasNoDescriptorLeft) {
    Producer producer;
    ASSERT_EQ(producer.order('l'), 0);
    ASSERT_EQ(umf_broker_set_timeout(200), UMF_RESULT_SUCCESS);
    EXPECT_EQ(answer_to(producer.ticket), ETIMEDOUT);
    ASSERT_EQ(producer.order('L'), 0);
    ASSERT_EQ(umf_broker_set_timeout(60000), UMF_RESULT_SUCCESS);
    EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_SUCCESS);
}

TEST_F(broker, NoDescriptorLeftHere) {
    Producer producer;
    rlimit old, none;
    ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &old), 0);
    int top = dup(0); // so many are needed for the socket, none for what comes
    close(top);
    none = old;
    for (rlim_t room : {0, 1}) {
        none.rlim_cur = static_cast<rlim_t>(top) + room;
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
        umf_result_t result = redeem(producer.ticket);
        ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &old), 0);
        EXPECT_EQ(result, UMF_RESULT_ERROR_OUT_OF_HOST_MEMORY) << room;
    }
}

/* The other end of the conversation, made by hand. */
TEST_F(broker, AnswersAreReadWithSuspicion) {
    Producer producer;
    int before = count_descriptors();
    auto answered = [&](const void *data, size_t size, bool with_file, bool is_closed = false) {
        umf_fd_ticket_t ticket = producer.ticket;
        ticket.pid = static_cast<uint32_t>(getpid()); // who answers
        int ends[2], fd = -1, file = make_file("fake");
        EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
        EXPECT_EQ(umf_socket_send(ends[1], data, size, with_file ? file : -1), 0);
        if (is_closed) {
            close(ends[1]);
        }
        int error = umf_broker_ask(ends[0], &ticket, umf_socket_now() + 50, &fd);
        EXPECT_EQ(error == 0, fd != -1);
        close(fd);
        close(ends[0]);
        if (!is_closed) {
            close(ends[1]);
        }
        close(file);
        return error;
    };
    umf_broker_reply_t good = {UMF_BROKER_MAGIC, UMF_BROKER_VERSION, UMF_BROKER_GIVEN, 0};
    EXPECT_EQ(answered(&good, sizeof(good), true), 0);
    EXPECT_EQ(answered(&good, sizeof(good), true, true), 0) << "an answer before the question";
    EXPECT_EQ(answered(&good, sizeof(good), false), EPROTO);
    EXPECT_EQ(answered(&good, sizeof(good) - 1, true), EPROTO);
    char more[sizeof(good) + 1] = {};
    EXPECT_EQ(answered(more, sizeof(more), true), EMSGSIZE);
    for (uint32_t umf_broker_reply_t::*member :
         {&umf_broker_reply_t::magic, &umf_broker_reply_t::version,
          &umf_broker_reply_t::reserved}) {
        umf_broker_reply_t bad = good;
        bad.*member += 1;
        EXPECT_EQ(answered(&bad, sizeof(bad), true), EPROTO);
    }
    const int errors[] = {0, EKEYREJECTED, ESTALE, EPROTO};
    for (uint32_t status = 0; status < 4; status++) {
        umf_broker_reply_t reply = good;
        reply.status = status;
        EXPECT_EQ(answered(&reply, sizeof(reply), true), errors[status]);
    }
    EXPECT_EQ(count_descriptors(), before) << "what comes along with a bad answer is closed";
}

TEST_F(broker, SilentAnswersAndImpostors) {
    Producer producer;
    umf_fd_ticket_t ticket = producer.ticket;
    int ends[2], fd = -1;
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    EXPECT_EQ(umf_broker_ask(ends[0], &ticket, umf_socket_now() + 50, &fd), EKEYREJECTED)
        << "this is not the producer";
    char secret[256];
    EXPECT_EQ(recv(ends[1], secret, sizeof(secret), MSG_DONTWAIT), -1) << "it gets no byte";
    ticket.pid = static_cast<uint32_t>(getpid());
    EXPECT_EQ(umf_broker_ask(ends[0], &ticket, umf_socket_now() + 50, &fd), ETIMEDOUT);
    close(ends[1]);
    EXPECT_EQ(umf_broker_ask(ends[0], &ticket, umf_socket_now() + 50, &fd), ECONNRESET);
    close(ends[0]);
    EXPECT_EQ(fd, -1);
}

/* A message may bring more descriptors than were requested. */
TEST_F(broker, OnlyOneDescriptorIsTaken) {
    int before = count_descriptors();
    int ends[2], fds[8];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    for (int &fd : fds) {
        fd = make_file("one of many");
    }
    for (size_t count = 1; count <= 8; count++) {
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(fds))] = {};
        char byte = 'x';
        iovec part = {&byte, 1};
        msghdr message = {};
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(header), fds, count * sizeof(int));
        ASSERT_EQ(sendmsg(ends[1], &message, 0), 1);
        int passed = -1, now = count_descriptors();
        size_t got;
        ASSERT_EQ(umf_socket_receive(ends[0], &byte, 1, &got, &passed), 0);
        EXPECT_NE(passed, -1);
        EXPECT_EQ(count_descriptors(), now + 1);
        close(passed);
        ASSERT_EQ(sendmsg(ends[1], &message, 0), 1);
        ASSERT_EQ(umf_socket_receive(ends[0], &byte, 1, &got, nullptr), 0);
        EXPECT_EQ(count_descriptors(), now);
    }
    for (int fd : fds) {
        close(fd);
    }
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(count_descriptors(), before);
}

TEST_F(broker, EveryFailureLeavesNothing) {
    int before = count_descriptors(), fd = make_file("mine"), runs = 0;
    for (fault::Nth nth(nullptr, EIO); nth.next(); runs++) {
        umf_fd_ticket_t ticket = {};
        if (umf_ticket_make(fd, &ticket) == UMF_RESULT_SUCCESS) {
            umf_ticket_prepare();
            umf_ticket_publish(&ticket);
        }
        umf_ticket_drop(&ticket);
        umf_broker_stop();
        nth.off();
        umf_broker_stop();
        ASSERT_EQ(count_descriptors(), before + 1) << "call " << nth.runs();
        ASSERT_TRUE(wait_for_broker_thread(false)) << "call " << nth.runs();
        ASSERT_LT(runs, 100);
    }
    EXPECT_GE(runs, 5);
    close(fd);
    Producer producer;
    before = count_descriptors();
    for (const char *call : {"socket", "connect", "peer", "send", "receive", "wait", "identity"}) {
        fault::Nth nth(call, EIO);
        nth.next();
        EXPECT_EQ(redeem(producer.ticket), UMF_RESULT_ERROR_INVALID_ARGUMENT) << call;
        EXPECT_TRUE(nth.hit()) << call;
        nth.off();
        EXPECT_EQ(count_descriptors(), before) << call;
    }
}

/* --- folders -----------------------------------------------------------------------------------
 */

namespace {

class broker_folder : public broker {
  protected:
    char folder[64] = "/tmp/umf_broker_XXXXXX";

    void SetUp() override {
        broker::SetUp();
        ASSERT_NE(mkdtemp(folder), nullptr);
        ASSERT_EQ(umf_broker_set_folder(folder), UMF_RESULT_SUCCESS);
    }
    void TearDown() override {
        broker::TearDown();
        EXPECT_EQ(count_entries(folder), 0) << "nothing is left behind";
        std::string command = std::string("rm -rf ") + folder;
        EXPECT_EQ(system(command.c_str()), 0);
    }
    int sockets() {
        return count_entries(folder, "umf-");
    }
    std::string path_of(const umf_fd_ticket_t &ticket, const char *end = "") {
        char name[64];
        snprintf(name, sizeof(name), "/umf-%016llx%016llx%s",
                 static_cast<unsigned long long>(ticket.broker[0]),
                 static_cast<unsigned long long>(ticket.broker[1]), end);
        return folder + std::string(name);
    }
};

} // namespace

TEST_F(broker_folder, ServesByAFile) {
    Producer producer;
    EXPECT_EQ(producer.ticket.address_kind, UMF_BROKER_FOLDER);
    struct stat info;
    ASSERT_EQ(stat(path_of(producer.ticket).c_str(), &info), 0);
    EXPECT_TRUE(S_ISSOCK(info.st_mode));
    EXPECT_EQ(info.st_mode & 0777, 0600u);
    EXPECT_EQ(redeem(producer.ticket, "exported"), UMF_RESULT_SUCCESS);
    umf_broker_set_folder("");
    EXPECT_EQ(answer_to(producer.ticket), EDESTADDRREQ);
    umf_broker_set_folder("/nonexistent");
    EXPECT_EQ(answer_to(producer.ticket), ECONNREFUSED);
    umf_broker_set_folder(folder);
    EXPECT_EQ(redeem(producer.ticket, "exported"), UMF_RESULT_SUCCESS);
    producer.end();
    EXPECT_EQ(sockets(), 0) << "removed at exit";
}

TEST_F(broker_folder, OtherUsersMayComeIfTheSettingSaysSo) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "needs the right to change the user";
    }
    ASSERT_EQ(chmod(folder, 0755), 0);
    for (bool is_open : {false, true}) {
        umf_broker_set_open(is_open);
        Producer producer;
        EXPECT_EQ(exit_of([&] { return setuid(65534) == 0 ? answer_to(producer.ticket) : 255; }),
                  is_open ? 0 : EKEYREJECTED);
    }
}

TEST_F(broker_folder, AFolderWhereAllReplaceFilesIsNotUsed) {
    ASSERT_EQ(chmod(folder, 0777), 0);
    EXPECT_FALSE(umf_broker_start());
    EXPECT_EQ(sockets(), 0);
    ASSERT_EQ(chmod(folder, 01777), 0);
    EXPECT_TRUE(umf_broker_start());
    EXPECT_EQ(sockets(), 1);
    umf_broker_stop();
}

TEST_F(broker_folder, AFolderThatIsNotThereIsSaid) {
    umf_broker_set_folder("/nonexistent");
    int fd = make_file("mine");
    umf_fd_ticket_t ticket = publish(fd);
    EXPECT_EQ(ticket.address_kind, UMF_BROKER_NOWHERE);
    EXPECT_FALSE(has_broker_thread());
    close(fd);
    std::string longest = "/" + std::string(65, 'x');
    EXPECT_EQ(umf_broker_set_folder(longest.c_str()), UMF_RESULT_SUCCESS);
    EXPECT_EQ(umf_broker_set_folder((longest + "x").c_str()), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(umf_broker_set_folder("relative"), UMF_RESULT_ERROR_INVALID_ARGUMENT);
    char path[80];
    ASSERT_EQ(umf_broker_get_folder(path, sizeof(path)), UMF_RESULT_SUCCESS);
    EXPECT_EQ(path, longest);
    EXPECT_EQ(umf_broker_get_folder(path, longest.size()), UMF_RESULT_ERROR_INVALID_ARGUMENT);
}

TEST_F(broker_folder, TheReaperTakesTheDeadOnly) {
    auto living = std::make_unique<Producer>();
    Producer dead;
    dead.kill();
    EXPECT_EQ(sockets(), 2) << "it could not remove it";
    /* Tickets that are not ours, or look like ours. */
    std::string other = std::string(folder) + "/umf-other";
    std::string file = path_of(dead.ticket).replace(strlen(folder) + 5, 4, "0000");
    std::string young = path_of(dead.ticket, ".new");
    for (const std::string &path : {other, file}) {
        close(open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
    }
    umf_socket_address_t address;
    int fd;
    ASSERT_EQ(umf_socket_path(young.c_str(), &address), 0);
    ASSERT_EQ(umf_socket_open(&fd), 0);
    ASSERT_EQ(umf_socket_bind(fd, &address), 0); // not yet listening
    auto next = std::make_unique<Producer>();
    EXPECT_NE(access(path_of(dead.ticket).c_str(), F_OK), 0);
    for (const std::string &path : {other, file, young, path_of(living->ticket)}) {
        EXPECT_EQ(access(path.c_str(), F_OK), 0) << path;
        unlink(path == path_of(living->ticket) ? "" : path.c_str());
    }
    close(fd);
    EXPECT_EQ(redeem(living->ticket, "exported"), UMF_RESULT_SUCCESS);
    EXPECT_EQ(redeem(next->ticket, "exported"), UMF_RESULT_SUCCESS);
    living->stop(); // alive, and its queue full
    std::vector<int> waiting;
    ASSERT_EQ(umf_socket_path(path_of(living->ticket).c_str(), &address), 0);
    for (int error = 0; error == 0 && waiting.size() < 500; waiting.push_back(fd)) {
        ASSERT_EQ(umf_socket_open(&fd), 0);
        error = umf_socket_connect(fd, &address);
    }
    Producer third;
    EXPECT_EQ(access(path_of(living->ticket).c_str(), F_OK), 0);
    kill(living->pid, SIGCONT);
    for (int waits : waiting) {
        close(waits);
    }
}

TEST_F(broker_folder, EveryFailureLeavesNoFile) {
    int before = count_descriptors(), fd = make_file("mine"), runs = 0;
    for (fault::Nth nth(nullptr, EIO); nth.next(); runs++) {
        umf_broker_start();
        nth.off();
        umf_broker_stop();
        ASSERT_EQ(count_descriptors(), before + 1) << "call " << nth.runs();
        ASSERT_EQ(sockets(), 0) << "call " << nth.runs();
        ASSERT_LT(runs, 100);
    }
    EXPECT_GE(runs, 6);
    close(fd);
}
