/* A library whose thread-local data takes from the room that is set aside for late loading. */
static __thread char block[512] __attribute__((tls_model("initial-exec")));

char *tls_block(void);
char *tls_block(void) {
    return block;
}
