/*
 * A leak to look for: a server keeps one session of ten for ever. Nothing in it is made for
 * recording, but for marks of its progress:
 *
 *     UMF_RECORD=leak.umfrec,stacks,leaks ./umf_example_record_leak
 *     umfctl trace leak.umfrec --html leak.html
 */
#include <stdio.h>
#include <string.h>

#include <umf.h>
#include <umf/record.h>
#include <umf/text.h>

/* Stays a function of its own when it is compiled, so that stacks have its name. */
#define FUNCTION static __attribute__((noinline))

enum { REQUESTS = 20000, OPEN = 64 };

static umf_memory_pool_handle_t requests, sessions;
static void *open_sessions[OPEN];

FUNCTION void *parse_request(size_t number) {
    char *text = umfPoolMalloc(requests, 500 + number % 1000);
    if (text) {
        memset(text, 'r', 500);
    }
    return text;
}

FUNCTION void *open_session(void) {
    void *session = umfPoolMalloc(sessions, 4000);
    if (session) {
        memset(session, 0, 4000);
    }
    return session;
}

/* The fault: a session that took an error is forgotten, not freed. */
FUNCTION void close_session(void *session, int has_error) {
    if (!has_error) {
        umfFree(session);
    }
}

FUNCTION void handle_request(size_t number) {
    void **place = &open_sessions[number % OPEN];
    void *request = parse_request(number);
    if (*place) {
        close_session(*place, number % 10 == 0);
    }
    *place = open_session();
    umfFree(request);
}

int main(void) {
    if (umfPoolCreateFromText("disjoint:name=requests over os", &requests) != UMF_RESULT_SUCCESS ||
        umfPoolCreateFromText("disjoint:name=sessions over os", &sessions) != UMF_RESULT_SUCCESS) {
        return 1;
    }
    for (size_t i = 0; i < REQUESTS; i++) {
        if (i % (REQUESTS / 4) == 0) {
            char name[32];
            snprintf(name, sizeof(name), "request %zu", i);
            umfRecordMark(name);
        }
        handle_request(i);
    }
    umfRecordMark("closing");
    for (int i = 0; i < OPEN; i++) {
        umfFree(open_sessions[i]);
    }
    puts("served 20000 requests; some sessions are still there");
    return 0; /* the pools end with the process */
}
