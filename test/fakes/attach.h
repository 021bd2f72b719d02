// The other side of umf/record_attach.h.
#ifndef UMF_TEST_FAKES_ATTACH_H
#define UMF_TEST_FAKES_ATTACH_H

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <string>

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <umf/record_attach.h>
#include <umf/record_format.h>

// Where a process of this pid namespace listens.
struct AttachAddress {
    sockaddr_un name{};
    socklen_t length;
    explicit AttachAddress(pid_t pid) {
        struct stat space {};
        stat("/proc/self/ns/pid", &space);
        name.sun_family = AF_UNIX;
        int written = snprintf(name.sun_path + 1, sizeof(name.sun_path) - 1, UMF_ATTACH_NAME,
                               (unsigned long long)space.st_ino, (unsigned)pid);
        length = (socklen_t)(offsetof(sockaddr_un, sun_path) + 1 + (size_t)written);
    }
};

// A program that listens under the name of another.
class Squatter {
  public:
    explicit Squatter(pid_t pid) : fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)) {
        AttachAddress address(pid);
        is_there = bind(fd, (sockaddr *)&address.name, address.length) == 0;
    }
    Squatter(const Squatter &) = delete;
    Squatter &operator=(const Squatter &) = delete;
    ~Squatter() {
        close(fd);
    }
    bool is_there;

  private:
    int fd;
};

// A connection to the attach socket of a process.
class Visit {
  public:
    explicit Visit(pid_t pid = getpid()) : Visit(AttachAddress(pid)) {}
    explicit Visit(const AttachAddress &address) {
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (connect(fd, (sockaddr *)&address.name, address.length) != 0) {
            close(fd);
            fd = -1;
        }
    }
    Visit(const Visit &) = delete;
    Visit &operator=(const Visit &) = delete;
    ~Visit() {
        leave();
        forget();
    }
    bool is_open() const {
        return fd != -1;
    }
    void leave() {
        if (fd != -1) {
            close(fd);
        }
        fd = -1;
    }
    bool send(const void *data, size_t size) {
        return ::send(fd, data, size, MSG_NOSIGNAL) == (ssize_t)size;
    }
    static umf_attach_request_t request(uint32_t kind, const void *object = nullptr) {
        umf_attach_request_t request{};
        request.magic = UMF_ATTACH_MAGIC;
        request.version = UMF_ATTACH_VERSION;
        request.kind = kind;
        request.object = (uintptr_t)object;
        return request;
    }
    // false: the other side has closed, or was silent for 20 s.
    bool receive() {
        forget();
        pollfd wait{fd, POLLIN, 0};
        if (poll(&wait, 1, 20000) != 1) {
            return false;
        }
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
        iovec bytes{&reply, sizeof(reply)};
        msghdr message{};
        message.msg_iov = &bytes;
        message.msg_iovlen = 1;
        message.msg_control = control;
        message.msg_controllen = sizeof(control);
        ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
        cmsghdr *head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
        if (head && head->cmsg_type == SCM_RIGHTS) {
            memcpy(&given, CMSG_DATA(head), sizeof(given));
        }
        return got == (ssize_t)sizeof(reply) && reply.magic == UMF_ATTACH_MAGIC;
    }
    // -1: no answer.
    int call(uint32_t kind, const void *object = nullptr) {
        umf_attach_request_t message = request(kind, object);
        send(&message, sizeof(message)); // a refusal may arrive before it
        return receive() ? (int)reply.status : -1;
    }
    int call(uint32_t kind, const umf_record_object_t &object) {
        umf_attach_request_t message = request(kind);
        message.object = object.handle;
        message.birth = object.birth;
        send(&message, sizeof(message)); // a refusal may arrive before it
        return receive() ? (int)reply.status : -1;
    }
    // The file that came with the last answer, for as long as there is no other.
    std::string file() const {
        return "/proc/self/fd/" + std::to_string(given);
    }
    umf_attach_reply_t reply{};
    int given = -1, fd = -1;

  private:
    void forget() {
        if (given != -1) {
            close(given);
        }
        given = -1;
    }
};

#endif
