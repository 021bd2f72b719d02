/* Commands that take a file from a process: snapshot and record. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"
#include "plain.h"
#include "progress.h"
#include "record.h"
#include "report.h"
#include "start.h"
#include "umfctl.h"

#define COPY_BUFFER ((size_t)1 << 20)
#define COPY_MOST ((off_t)65 << 30) /* no recording is longer */

static int failed(const char *text) {
    return print_message("%s", text);
}

static int failed_file(const char *what, const char *path) {
    return print_message("%s %s: %s", path, what, strerror(errno));
}

/* --- copies of files -------------------------------------------------------------------------- */

/* A part without holes. The file may shrink meanwhile. */
static bool copy_part(int from, int to, off_t at, off_t end, char *buffer) {
    while (at < end) {
        size_t request = (size_t)(end - at) < COPY_BUFFER ? (size_t)(end - at) : COPY_BUFFER;
        ssize_t got = pread(from, buffer, request, at);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return got == 0;
        }
        if (pwrite(to, buffer, (size_t)got, at) != got) {
            return false;
        }
        at += got;
    }
    return true;
}

/* Holes stay holes: a recording takes no more of the disk than is recorded. */
static bool copy_all(int from, int to, off_t *bytes) {
    char *buffer = malloc(COPY_BUFFER);
    struct stat file;
    bool is_done = buffer && fstat(from, &file) == 0;
    if (is_done && file.st_size > COPY_MOST) {
        errno = EFBIG;
        is_done = false;
    }
    is_done = is_done && ftruncate(to, file.st_size) == 0;
    *bytes = 0;
    for (off_t at = 0, end; is_done && at < file.st_size; at = end) {
        off_t data = lseek(from, at, SEEK_DATA);
        if (data < 0 && errno == ENXIO) {
            break;
        }
        at = data < 0 ? at : data;
        end = lseek(from, at, SEEK_HOLE);
        end = end <= at || end > file.st_size ? file.st_size : end;
        is_done = copy_part(from, to, at, end, buffer);
        *bytes += end - at;
    }
    free(buffer);
    return is_done;
}

/* A device, a pipe or a link is not replaced by a file. */
static bool may_replace(const char *path) {
    struct stat file;
    if (lstat(path, &file) != 0 || S_ISREG(file.st_mode)) {
        return true;
    }
    print_message("%s exists and is %s, which would be replaced; name a file after -o", path,
                  S_ISLNK(file.st_mode) ? "a symbolic link" : "no regular file");
    return false;
}

/* Without it the file can still be read. */
static uint64_t add_older(int fd, const umf_reader_t *snapshot, const char *path) {
    umf_reader_error_t error;
    uint64_t bytes = 0;
    umf_reader_t *reader = umf_reader_open_fd(fd, path, &error);
    if (!reader || !umf_reader_older_write(reader, snapshot, fd, &bytes, &error)) {
        print_message("%s", error.text);
    }
    umf_reader_close(reader);
    return bytes;
}

/* Written under another name first, so that a file that exists is replaced by a whole one. The name
 * is new, and cannot be known before: others may write to the folder. */
static int save(int from, const umf_reader_t *snapshot, const char *path, off_t *bytes) {
    char fresh[4200];
    if (!may_replace(path)) {
        return 1;
    }
    int length = snprintf(fresh, sizeof(fresh), "%s.XXXXXX.new", path);
    errno = ENAMETOOLONG;
    int to = length < (int)sizeof(fresh) ? mkostemps(fresh, 4, O_CLOEXEC) : -1;
    if (to == -1) {
        return failed_file("cannot be written", path);
    }
    int status = copy_all(from, to, bytes) ? 0 : failed_file("cannot be written", path);
    if (status == 0 && snapshot) {
        *bytes += (off_t)add_older(to, snapshot, path);
    }
    umf_reader_names_t names = {0};
    if (status == 0 && record_names(to, path, &names)) { /* without them it can still be read */
        *bytes += (off_t)names.bytes;
    }
    close(to);
    if (status == 0 && rename(fresh, path) != 0) {
        status = failed_file("cannot be written", path);
    }
    if (status != 0) {
        unlink(fresh);
    }
    return status;
}

static const char *path_for(uint32_t pid, const char *ending, char *text, size_t size) {
    if (umfctl_words.output) {
        return umfctl_words.output;
    }
    snprintf(text, size, "umf-%u.%s", pid, ending);
    return text;
}

static bool open_operand(attach_t *attach) {
    uint32_t pid = attach_pid(umfctl_words.operands[0]);
    if (pid == 0) {
        print_message("'%s' is not the number of a process", umfctl_words.operands[0]);
        return false;
    }
    if (!attach_open(attach, pid)) {
        failed(attach->error);
        return false;
    }
    return true;
}

static void describe(const char *path, off_t bytes, uint32_t pid) {
    report_section("file", "File", 10);
    report_text("path", path);
    report_bytes("size", (uint64_t)bytes);
    report_number("process", pid);
}

/* --- snapshot --------------------------------------------------------------------------------- */

int umfctl_snapshot(void) {
    attach_t attach;
    umf_attach_request_t request = attach_request(UMF_ATTACH_SNAPSHOT, NULL);
    char name[64];
    off_t bytes;
    int fd = -1;
    if (!open_operand(&attach)) {
        return 1;
    }
    const char *path = path_for(attach.pid, "umfsnap", name, sizeof(name));
    int status =
        attach_ask(&attach, &request, &fd) ? save(fd, NULL, path, &bytes) : failed(attach.error);
    if (status == 0) {
        describe(path, bytes, attach.pid);
    }
    if (fd != -1) {
        close(fd);
    }
    attach_close(&attach);
    return status;
}

/* --- record ----------------------------------------------------------------------------------- */

static volatile sig_atomic_t is_interrupted;

static void interrupt(int number) {
    (void)number;
    is_interrupted = 1;
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* From now on signals to end are pending until a thread waits for them. */
static void hold_signals(sigset_t *before) {
    struct sigaction action = {.sa_handler = interrupt};
    sigset_t stops;
    sigemptyset(&stops);
    sigaddset(&stops, SIGINT);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGHUP);
    sigprocmask(SIG_BLOCK, &stops, before);
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGHUP, &action, NULL);
}

/* Until the time is over, a signal, or the end of the process. `before`: of hold_signals. */
static void wait_for_end(const attach_t *attach, double seconds, const sigset_t *before) {
    struct pollfd wait = {.fd = attach->fd, .events = POLLIN};
    uint64_t total = seconds > 0 ? (uint64_t)(seconds * 1000) : 0, begin = now_ms();
    uint64_t end = total > 0 ? begin + total : UINT64_MAX;
    bool goes_on = true;
    for (uint64_t now = now_ms(); goes_on && !is_interrupted && now < end; now = now_ms()) {
        uint64_t most = total > 0 ? 200 : 3600000, left = end - now < most ? end - now : most;
        if (total > 0) {
            progress_show(now - begin, total);
        }
        struct timespec time = {(time_t)(left / 1000), (long)(left % 1000) * 1000000};
        goes_on = ppoll(&wait, 1, &time, before) <= 0;
    }
    progress_show(1, 1);
    sigprocmask(SIG_SETMASK, before, NULL);
}

/* `snapshot`: NULL, or gets the state just after the beginning, NULL if there is none. */
static int record(attach_t *attach, bool leaks, double seconds, int *fd, umf_reader_t **snapshot) {
    umf_attach_request_t request = attach_request(UMF_ATTACH_RECORD, NULL);
    umf_attach_request_t stop = attach_request(UMF_ATTACH_STOP, NULL);
    request.size = umfctl_words.size;
    request.stack_depth = umfctl_words.stacks || leaks ? 16 : 0;
    request.leaks = leaks;
    if (!attach_ask(attach, &request, fd)) {
        return failed(attach->error);
    }
    if (snapshot) {
        *snapshot = attach_snapshot(attach, UMF_ATTACH_SNAPSHOT);
        if (!*snapshot) {
            print_message("%s; memory that lived before the recording is not in it", attach->error);
        }
    }
    sigset_t before;
    hold_signals(&before); /* who reads the next line may end it at once */
    print_message("process %u is being recorded; Ctrl-C ends that", attach->pid);
    wait_for_end(attach, seconds, &before);
    if (!attach_ask(attach, &stop, NULL)) {
        print_message("%s; the events recorded until then are kept", attach->error);
    }
    return 0;
}

/* The library itself writes the file, from its first event on. */
static int record_program(void) {
    char folder[4096], name[8300], text[8400];
    const char *path = umfctl_words.output ? umfctl_words.output : "umf-%p.umfrec";
    if (strlen(path) >= sizeof(folder)) {
        errno = ENAMETOOLONG;
        return failed_file("cannot be written", path);
    } else if (path[0] == '/') {
        snprintf(name, sizeof(name), "%s", path);
    } else if (getcwd(folder, sizeof(folder))) {
        snprintf(name, sizeof(name), "%s/%s", strcmp(folder, "/") == 0 ? "" : folder, path);
    } else {
        return failed_file("cannot be written", path);
    }
    if (strchr(name, ',')) {
        return print_message("%s: a name with a comma cannot be handed to a program (UMF_RECORD)",
                             name);
    }
    if (umfctl_words.output && !may_replace(path)) {
        return 1;
    }
    snprintf(text, sizeof(text), "%s%s%s%s%s", name, umfctl_words.stacks ? ",stacks" : "",
             umfctl_words.leaks ? ",leaks,stacks" : "", umfctl_words.size_text ? ",size=" : "",
             umfctl_words.size_text ? umfctl_words.size_text : "");
    struct stat before = {0}, after;
    bool was_there = umfctl_words.output && stat(name, &before) == 0;
    uint32_t pid = start_program(umfctl_words.program, text, START_ALL);
    if (pid == 0) {
        return 127;
    }
    int status = start_wait();
    if (!umfctl_words.output) {
        snprintf(name, sizeof(name), "umf-%u.umfrec", pid);
    }
    bool is_written = stat(name, &after) == 0 && (!was_there || before.st_ino != after.st_ino);
    umf_reader_names_t names;
    if (is_written && (umfctl_words.stacks || umfctl_words.leaks)) {
        record_names_of(name, &names);
    }
    print_message(is_written ? "the recording is in %s"
                             : "%s is not written: the program did not use libumf",
                  name);
    return status;
}

int umfctl_record(void) {
    if (umfctl_words.program) {
        return record_program();
    }
    attach_t attach;
    char name[64];
    off_t bytes;
    int fd = -1;
    if (!open_operand(&attach)) {
        return 1;
    }
    const char *path = path_for(attach.pid, "umfrec", name, sizeof(name));
    umf_reader_t *snapshot = NULL;
    int status = record(&attach, umfctl_words.leaks, umfctl_words.seconds, &fd, &snapshot);
    if (status == 0) {
        status = save(fd, snapshot, path, &bytes);
    }
    umf_reader_close(snapshot);
    if (status == 0) {
        describe(path, bytes, attach.pid);
    }
    if (fd != -1) {
        close(fd);
    }
    attach_close(&attach);
    return status;
}

/* --- live allocations ------------------------------------------------------------------------- */

#define LEAKS_SECONDS 10

static int live_descriptor(attach_t *attach, int *fd) {
    umf_attach_request_t live = attach_request(UMF_ATTACH_LIVE, NULL);
    double seconds = umfctl_words.seconds > 0 ? umfctl_words.seconds : LEAKS_SECONDS;
    if (umfctl_words.seconds <= 0 && attach_ask(attach, &live, fd)) {
        return 0;
    }
    if (attach->is_gone) {
        return failed(attach->error);
    }
    print_message(
        "shown: allocations of process %u in the next %g s that are still live at the end",
        attach->pid, seconds);
    return record(attach, true, seconds, fd, NULL);
}

umf_reader_t *attach_live(uint32_t pid) {
    attach_t attach;
    umf_reader_error_t error;
    umf_reader_t *reader = NULL;
    char name[32];
    int fd = -1;
    if (!attach_open(&attach, pid)) {
        failed(attach.error);
        return NULL;
    }
    snprintf(name, sizeof(name), "process %u", pid);
    if (live_descriptor(&attach, &fd) == 0) {
        reader = umf_reader_open_fd(fd, name, &error);
        if (!reader) {
            failed(error.text);
        }
    }
    if (fd != -1) {
        close(fd);
    }
    attach_close(&attach);
    return reader;
}
