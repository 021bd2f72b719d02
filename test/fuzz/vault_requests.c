/*
 * Requests of clients to the daemon of vaults. Whatever they have, the daemon answers within the
 * bounds of a message, hands out descriptors that it has, and its state stays valid.
 *
 * Input: requests of 32 bytes: the client (of four), the operation, three words, how many
 * descriptors come along; a body of up to 16 bytes follows each.
 */
#include "fuzz/support.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "serve/serve.h"

static umfd_state_t state;
static umfd_t served;
static umfd_request_t request;
static umfd_reply_t reply;

/* --- the parts of the daemon around the requests --- */

bool umfd_keep_fd(umfd_t *daemon, uint32_t slot, uint64_t cookie, int fd) {
    (void)daemon, (void)slot, (void)cookie, (void)fd;
    return true;
}

void umfd_forget_fd(umfd_t *daemon, uint32_t slot, uint64_t cookie) {
    (void)daemon, (void)slot, (void)cookie;
}

void umfd_count_dying(umfd_t *daemon) {
    for (uint32_t i = 0; i < daemon->state->slab_top; i++) {
        if (daemon->state->slabs[i].state == UMFD_DYING) {
            close(daemon->slabs[i]);
            daemon->slabs[i] = -1;
            daemon->state->slabs[i].state = UMFD_FREE;
        }
    }
}

_Noreturn void umfd_exit(umfd_t *daemon) {
    (void)daemon;
    fuzz_fail("a stop was not refused");
}

/* --- the clients --- */

static void start(void) {
    memset(&state, 0, sizeof(state));
    umfd_state_init(&state, 1);
    memset(served.slabs, -1, sizeof(served.slabs));
    memset(served.leases, -1, sizeof(served.leases));
    memset(served.processes, -1, sizeof(served.processes));
    served.state = &state;
    served.open_limit = 500;
    for (uint32_t i = 0; i < 4; i++) {
        served.leases[i] = 0;
        state.leases[i].serial = ++state.serial;
        state.leases[i].state = UMFD_LIVE;
        strcpy(state.leases[i].name, i < 3 ? "model" : "other");
    }
}

static void stop(void) {
    for (uint32_t i = 0; i < UMFD_SLABS && i < state.slab_top; i++) {
        if (served.slabs[i] != -1) {
            close(served.slabs[i]);
        }
    }
}

static void reply_check(void) {
    FUZZ_CHECK(reply.head.body <= UMF_VAULT_BODY_MAX && reply.fd_count <= UMF_VAULT_FDS_MAX);
    for (unsigned i = 0; i < reply.fd_count; i++) {
        FUZZ_CHECK(reply.fds[i] >= 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    start();
    while (size >= 32) {
        uint8_t body = data[3] % 17;
        memset(&request.head, 0, sizeof(request.head));
        request.lease = data[0] % 4;
        request.head.op = data[1] % (UMF_VAULT_OPS + 1);
        request.fd_count = data[2] % 3;
        for (unsigned i = 0; i < 3; i++) {
            memcpy(&request.head.words[i], data + 8 + 8 * i, 8);
            request.head.words[i] =
                data[4] & 1u << i ? request.head.words[i] % 8 : request.head.words[i];
        }
        data += 32;
        size -= 32;
        body = body < size ? body : (uint8_t)size;
        memcpy(request.body, data, body);
        request.head.body = body;
        data += body;
        size -= body;
        if (request.head.op == UMF_VAULT_STOP) {
            request.head.words[0] = 0; /* refused: there are other clients */
        }
        if (request.head.op == UMF_VAULT_CLAIM) { /* one of three keys, and a file that fits */
            memset(request.body, 'a' + request.body[0] % 3, 1);
            request.head.body = 1;
            request.head.words[0] = request.head.words[0] % 2 * 4096;
            request.head.words[1] %= 2;
        }
        if (request.head.op == UMF_VAULT_GIVE && request.fd_count) {
            /* A slab that fits more often than chance lets it. */
            unsigned char chance = body ? request.body[0] : 0;
            umf_vault_slab_t slabs[2] = {
                {.size = 4096, .role = chance % 5, .kind = UMF_VAULT_KIND_HOST},
                {.size = 4096, .role = UMF_VAULT_CLASS_TABLE, .kind = UMF_VAULT_KIND_HOST}};
            if (chance & 64) {
                slabs[0].kind = UMF_VAULT_KIND_DEVICE;
                slabs[0].device[0] = chance & 128;
            }
            request.head.body = (uint32_t)(request.fd_count * sizeof(slabs[0]));
            memcpy(request.body, slabs, request.head.body);
        }
        if (request.head.op == UMF_VAULT_FILLED && request.fd_count) {
            /* A slab of a device that is there, or a copy of it. */
            umf_vault_slab_t slab = {.serial = body ? request.body[0] % 32 : 7, .size = 4096};
            slab.kind = request.head.words[1] == UMF_VAULT_FILL_DEVICES ? UMF_VAULT_KIND_DEVICE
                                                                        : UMF_VAULT_KIND_HOST;
            request.fd_count = 1;
            request.head.body = sizeof(slab);
            memcpy(request.body, &slab, sizeof(slab));
        }
        for (unsigned i = 0; i < request.fd_count; i++) {
            request.fds[i] = memfd_create("umf_fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
            FUZZ_CHECK(ftruncate(request.fds[i], 4096) == 0);
        }
        memset(&reply.head, 0, sizeof(reply.head));
        reply.fd_count = 0;
        umfd_request(&served, &request, &reply);
        reply_check();
        for (unsigned i = 0; i < request.fd_count; i++) {
            close(request.fds[i]);
        }
    }
    FUZZ_CHECK(umfd_state_check(&state) == 0);
    for (uint32_t i = 0; i < 4; i++) {
        umfd_lease_left(&served, i);
    }
    FUZZ_CHECK(umfd_state_check(&state) == 0);
    stop();
    return 0;
}
