/*
 * The protocol of the broker: an input changes a good message, and the other side reads it. Nothing
 * but the good message gets a descriptor, and none is left behind.
 *
 * Input: one letter for the side ('q': a request, anything else: an answer), one for how many
 * descriptors come along, one for the length (0: that of the good message); the rest is added to
 * the good message bit by bit.
 */
#include "fuzz/support.h"

#include <string.h>
#include <unistd.h>

#include "peer/broker_own.h"
#include "system/os.h"

#define MESSAGE_MAX 128
#define PASS_MAX 6

static umf_fd_ticket_t ticket;

/* The number that the next descriptor gets: greater when one was left open. */
static int next_descriptor(void) {
    int fd = dup(ticket.fd);
    FUZZ_CHECK(fd >= 0);
    close(fd);
    return fd;
}

static void prepare(void) {
    umf_broker_id_t id;
    if (ticket.pid != 0) {
        return;
    }
    int fd;
    FUZZ_CHECK(umf_os_memfd("fuzz", false, &fd) == 0);
    FUZZ_CHECK(umf_ticket_make(fd, &ticket) == UMF_RESULT_SUCCESS);
    FUZZ_CHECK(umf_broker_table_begin(ticket.pid, &id) == 0);
    umf_broker_table_open(UMF_BROKER_ABSTRACT);
    FUZZ_CHECK(umf_broker_export(&ticket));
    FUZZ_CHECK(umf_broker_set_timeout(1) == UMF_RESULT_SUCCESS);
}

/* --- a message with any number of descriptors --- */

static void send_with(int fd, const void *data, size_t size, int count) {
    union {
        char bytes[CMSG_SPACE(PASS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec part = {(void *)(uintptr_t)data, size};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (count > 0) {
        int fds[PASS_MAX];
        size_t bytes = (size_t)count * sizeof(int);
        for (int i = 0; i < count; i++) {
            fds[i] = ticket.fd;
        }
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(header), fds, bytes);
    }
    FUZZ_CHECK(sendmsg(fd, &message, MSG_NOSIGNAL) == (ssize_t)size);
}

typedef struct change_t {
    unsigned char message[MESSAGE_MAX];
    size_t size;
    int passed;
    int is_good; /* nothing was changed */
} change_t;

static change_t change(const void *good, size_t good_size, const char *text, size_t length) {
    change_t made = {.size = good_size, .is_good = 1};
    memcpy(made.message, good, good_size);
    made.passed = length > 1 ? (unsigned char)text[1] % (PASS_MAX + 1) : 0;
    if (length > 2 && text[2] != 0) {
        made.size = (unsigned char)text[2] % MESSAGE_MAX;
    }
    for (size_t i = 3; i < length && i - 3 < MESSAGE_MAX; i++) {
        made.message[i - 3] ^= (unsigned char)text[i];
    }
    made.is_good = made.size == good_size && memcmp(made.message, good, good_size) == 0;
    return made;
}

/* --- the two sides --- */

static void run_request(int ends[2], const char *text, size_t length) {
    umf_broker_request_t good = {
        .magic = UMF_BROKER_MAGIC,
        .version = UMF_BROKER_VERSION,
        .export_id = ticket.export_id,
        .dev = ticket.dev,
        .ino = ticket.ino,
    };
    memcpy(good.secret, ticket.secret, sizeof(good.secret));
    change_t request = change(&good, sizeof(good), text, length);
    send_with(ends[0], request.message, request.size, request.passed);
    FUZZ_CHECK(umf_broker_serve(ends[1]));
    umf_broker_reply_t reply;
    size_t got = 0;
    int passed = -1;
    int error = umf_socket_receive(ends[0], &reply, sizeof(reply), &got, &passed);
    if (error == 0) {
        FUZZ_CHECK(got == sizeof(reply) && reply.magic == UMF_BROKER_MAGIC);
        FUZZ_CHECK((reply.status == UMF_BROKER_GIVEN) == request.is_good);
        FUZZ_CHECK((passed != -1) == request.is_good);
    } else {
        FUZZ_CHECK(!request.is_good);
    }
    if (passed != -1) {
        FUZZ_CHECK(umf_ticket_check_file(&ticket, passed) == 0);
        close(passed);
    }
}

static void run_answer(int ends[2], const char *text, size_t length) {
    const umf_broker_reply_t good = {
        .magic = UMF_BROKER_MAGIC,
        .version = UMF_BROKER_VERSION,
        .status = UMF_BROKER_GIVEN,
    };
    change_t answer = change(&good, sizeof(good), text, length);
    send_with(ends[1], answer.message, answer.size, answer.passed);
    int fd = -1;
    int error = umf_broker_ask(ends[0], &ticket, umf_socket_now(), &fd);
    FUZZ_CHECK((error == 0) == (answer.is_good && answer.passed > 0));
    FUZZ_CHECK((error == 0) == (fd != -1));
    if (fd != -1) {
        close(fd);
    }
}

static void run(char *text, size_t length) {
    int ends[2];
    prepare();
    int next = next_descriptor();
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    if (length > 0 && text[0] == 'q') {
        run_request(ends, text, length);
    } else {
        run_answer(ends, text, length);
    }
    close(ends[0]);
    close(ends[1]);
    FUZZ_CHECK(next_descriptor() == next);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz_run(data, size, run);
    return 0;
}
