/*
 * The page of a context: a memory file by which `umfctl remote ls` finds contexts in /proc. Its
 * text has a line for each fact. No secret and no address is in it.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "ext/remote/own.h"
#include "system/os.h"

#define PAGE 4096u
#define PAGE_END 40u /* room for the last line */

void umf_remote_page_open(umf_remote_handle_t remote, const char *devices) {
    int fd;
    snprintf(remote->devices, sizeof(remote->devices), "%s", devices);
    int error = umf_os_memfd("umf-remote", false, &fd);
    error = error ? error : umf_kept_fd_take(&remote->page, fd);
    if (error) {
        UMF_LOG_DEBUG("umfctl does not find the context: %s", strerror(error));
    }
    umf_lock(&remote->lock);
    umf_remote_page_write_locked(remote);
    umf_unlock(&remote->lock);
}

/* false: there is no room for the line. */
__attribute__((format(printf, 3, 4))) static bool add(char *text, size_t *at, const char *format,
                                                      ...) {
    va_list values;
    size_t room = PAGE - PAGE_END - *at;
    va_start(values, format);
    int length = vsnprintf(text + *at, room, format, values);
    va_end(values);
    if (length < 0 || (size_t)length >= room) {
        return false;
    }
    *at += (size_t)length;
    return true;
}

void umf_remote_page_write_locked(umf_remote_handle_t remote) {
    char text[PAGE] = {0};
    size_t at = 0, left = 0;
    umf_assert_locked(&remote->lock);
    if (!remote->page.is_kept || !umf_kept_fd_is_open(&remote->page)) {
        return;
    }
    add(text, &at,
        "umf-remote 1\nprocess %d\ndevices %s\nkey %s\ndeadline %" PRIu64 "\npeers %zu\n",
        umf_os_pid(), remote->devices, remote->has_key ? "yes" : "no", remote->deadline,
        remote->peers);
    for (umf_list_t *one = remote->exports.next; one != &remote->exports; one = one->next) {
        umf_remote_export_handle_t published =
            UMF_CONTAINER_OF(one, struct umf_remote_export_t, link);
        bool fits = !left && add(text, &at, "range %" PRIu64 " %zu %u\n", published->number,
                                 published->size, published->rights);
        left += !fits;
    }
    snprintf(text + at, sizeof(text) - at, "more %zu\nend\n", left);
    umf_os_write_at(remote->page.number, text, sizeof(text), 0);
}

void umf_remote_page_peers(umf_remote_handle_t remote, int change) {
    umf_lock(&remote->lock);
    remote->peers = (size_t)((ptrdiff_t)remote->peers + change);
    umf_remote_page_write_locked(remote);
    umf_unlock(&remote->lock);
}
