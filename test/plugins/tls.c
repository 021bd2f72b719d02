/* A library with thread-local data, as most have: test/stress/dlopen_test.cpp loads many copies. */
static __thread char block[64];

char *tls_block(void);
char *tls_block(void) {
    return block;
}
