/* Views of generations in a folder. */
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#include "base/log.h"
#include "ext/vault/folder/folder.h"
#include "system/os.h"
#include "system/socket.h"

/* A generation that was dropped between a scan and its opening: there is a newer one. */
#define TRIES 100

/* A copy of the table, which other processes cannot change. */
static umf_result_t read_table(umf_vault_view_handle_t view, int fd, uint64_t size) {
    size_t page = umf_os_page_size();
    void *at = NULL;
    view->table_at = NULL;
    int error = umf_os_map(&at, (size_t)(size + page - 1) & ~(page - 1), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (error != 0) {
        return umf_folder_failed(view->vault, error, "mapping the table of a generation");
    }
    view->table_at = at;
    view->table_size = (size_t)(size + page - 1) & ~(page - 1);
    error = umf_os_read_at(fd, at, (size_t)size, sizeof(umf_folder_head_t));
    if (error == 0) {
        error = umf_os_protect(at, view->table_size, PROT_READ);
    }
    return error ? umf_folder_failed(view->vault, error, "reading the table of a generation")
                 : umf_vault_view_table(view, umf_table_check(at, (size_t)size, &view->table));
}

static umf_result_t map_all(umf_vault_view_handle_t view, int fd, const umf_folder_head_t *head) {
    uint64_t at = sizeof(*head) + head->table, place;
    for (uint32_t i = 0; i < view->table.head->slabs; i++) {
        if (!umf_folder_next(&at, &view->table.slabs[i], &place) || at > head->size) {
            return umf_vault_view_broken(view, "a slab is outside of the file");
        }
        umf_result_t result = umf_vault_view_map(view, i, fd, place);
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
    }
    return UMF_RESULT_SUCCESS;
}

static umf_result_t read_file(umf_vault_view_handle_t view, int fd) {
    umf_folder_head_t head;
    uint64_t dev, ino, size;
    int error = umf_os_check_regular(fd);
    if (error == 0) {
        error = umf_os_file_id(fd, &dev, &ino, &size);
    }
    if (error != 0) {
        return umf_folder_failed(view->vault, error, "a generation is no plain file");
    }
    if (size < sizeof(head) || umf_os_read_at(fd, &head, sizeof(head), 0) != 0 ||
        head.magic != UMF_FOLDER_MAGIC) {
        return umf_vault_view_broken(view, "the file is none of a vault");
    }
    if (head.size != size) {
        return umf_vault_view_broken(view, "the file has another size than at its commit, as a "
                                           "copy that was not completed");
    }
    if (head.table < sizeof(umf_table_head_t)) {
        return umf_vault_view_broken(view, "it has no table");
    }
    if (head.table > UMF_FOLDER_TABLE_MAX || head.table > size - sizeof(head)) {
        return umf_vault_view_broken(view, "its table is too large");
    }
    umf_result_t result = read_table(view, fd, head.table);
    return result == UMF_RESULT_SUCCESS ? map_all(view, fd, &head) : result;
}

/* `*fd`: -1: there is no such generation. */
static umf_result_t open_generation(umf_vault_view_handle_t view, uint64_t requested, int *fd) {
    char path[UMF_FOLDER_PATH_SIZE];
    *fd = -1;
    for (int i = 0; i < TRIES; i++) {
        umf_folder_scan_t scan = {.last = requested};
        umf_result_t result = requested ? UMF_RESULT_SUCCESS : umf_folder_scan(view->vault, &scan);
        if (result != UMF_RESULT_SUCCESS || scan.last == 0) {
            return result;
        }
        umf_folder_path(view->vault, scan.last, path);
        view->generation = scan.last;
        int error = umf_os_open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK, 0, fd);
        if (error == 0 || (error == ENOENT && requested)) {
            return UMF_RESULT_SUCCESS;
        }
        if (error != ENOENT) {
            return umf_folder_failed(view->vault, error, "a generation cannot be opened");
        }
    }
    return UMF_RESULT_SUCCESS;
}

umf_result_t umf_vault_folder_attach(umf_vault_view_handle_t view,
                                     const umf_vault_attach_params_t *params, bool *is_attached) {
    uint64_t start = umf_socket_now();
    int fd;
    for (;;) {
        umf_result_t result = open_generation(view, params->generation, &fd);
        uint64_t passed = umf_socket_now() - start;
        if (result != UMF_RESULT_SUCCESS) {
            return result;
        }
        if (fd != -1) {
            break;
        }
        if (passed >= params->timeout_ms) {
            umf_vault_message_t none = {.answer = UMF_VAULT_NONE};
            return umf_vault_attach_result(view->vault, &none, params->timeout_ms);
        }
        umf_folder_nap(passed, params->timeout_ms - passed);
    }
    view->forks = view->vault->link.forks;
    umf_vault_view_add(view);
    *is_attached = true;
    umf_result_t result = read_file(view, fd);
    umf_os_close(fd);
    return result;
}
