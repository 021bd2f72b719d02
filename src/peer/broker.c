/* The broker as a server. */
#include "peer/broker.h"

#include "base/log.h"
#include "peer/broker_own.h"
#include "peer/process.h"
#include "peer/server.h"

static umf_broker_listener_t listener; /* Sync: the server's lock */

static int broker_listen(int fd) {
    umf_broker_id_t id;
    int error = umf_broker_table_begin(umf_process_pid(), &id);
    if (error == 0) {
        error = umf_broker_listen(&id, fd, &listener);
    }
    if (error == 0) {
        umf_broker_table_open(listener.address_kind);
    }
    return error;
}

static void broker_unlisten(void) {
    umf_broker_table_open(UMF_BROKER_NOWHERE);
    umf_broker_unlisten(&listener);
}

static bool serve(unsigned slot, int connection) {
    (void)slot;
    return !umf_broker_serve(connection);
}

static void refuse(int connection, bool is_full) {
    (void)is_full;
    umf_broker_deny(connection);
}

static bool admits(int connection) {
    uint32_t uid, pid;
    return umf_socket_peer(connection, &uid, &pid) == 0 && umf_broker_admits(uid);
}

static const umf_peer_server_ops_t broker_ops = {
    .thread = "umf-broker",
    .closed = "the program has closed the socket by which other processes get memory; the next "
              "export makes another",
    .connections = UMF_PEER_CONNECTIONS,
    .listen = broker_listen,
    .unlisten = broker_unlisten,
    .admits = admits,
    .refuse = refuse,
    .serve = serve,
    .time_limit = umf_broker_get_timeout,
};

UMF_PEER_SERVER(broker, &broker_ops)

bool umf_broker_start(void) {
    int error = umf_peer_server_start(&broker, umf_process_pid(), true);
    if (error != 0) {
        umf_log_write(UMF_LOG_LEVEL_WARNING, error, __func__,
                      "no broker was started; other processes need permission to reach into this "
                      "one (docs: sharing memory)");
    }
    return error == 0;
}

void umf_broker_stop(void) {
    umf_peer_server_stop(&broker);
}
