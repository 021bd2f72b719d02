#include "lines.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* --- what <elfutils/libdw.h>, <dwarf.h> and <elfutils/debuginfod.h> declare --------------------
 */

typedef struct Dwarf Dwarf;
typedef struct Dwarf_Files Dwarf_Files;
typedef struct Dwarf_Line Dwarf_Line;
typedef struct debuginfod_client debuginfod_client;

typedef struct Dwarf_Die {
    void *addr;
    void *cu;
    void *abbrev;
    long padding;
} Dwarf_Die;

typedef struct Dwarf_Attribute {
    unsigned code, form;
    unsigned char *valp;
    void *cu;
} Dwarf_Attribute;

enum {
    DWARF_C_READ = 0,
    DW_TAG_inlined_subroutine = 0x1d,
    DW_TAG_subprogram = 0x2e,
    DW_AT_call_file = 0x58,
    DW_AT_call_line = 0x59,
    DW_AT_linkage_name = 0x6e,
};

struct lines_t {
    void *library;
    Dwarf *(*dwarf_begin)(int fd, int command);
    int (*dwarf_end)(Dwarf *dwarf);
    Dwarf_Die *(*dwarf_addrdie)(Dwarf *dwarf, uint64_t address, Dwarf_Die *die);
    int (*dwarf_nextcu)(Dwarf *dwarf, uint64_t offset, uint64_t *next, size_t *header,
                        uint64_t *abbrev, uint8_t *address_size, uint8_t *offset_size);
    Dwarf_Die *(*dwarf_offdie)(Dwarf *dwarf, uint64_t offset, Dwarf_Die *die);
    int (*dwarf_haspc)(Dwarf_Die *die, uint64_t address);
    int (*dwarf_getscopes)(Dwarf_Die *unit, uint64_t address, Dwarf_Die **scopes);
    int (*dwarf_getscopes_die)(Dwarf_Die *die, Dwarf_Die **scopes);
    int (*dwarf_tag)(Dwarf_Die *die);
    const char *(*dwarf_diename)(Dwarf_Die *die);
    Dwarf_Attribute *(*dwarf_attr_integrate)(Dwarf_Die *die, unsigned name,
                                             Dwarf_Attribute *attribute);
    const char *(*dwarf_formstring)(Dwarf_Attribute *attribute);
    int (*dwarf_formudata)(Dwarf_Attribute *attribute, uint64_t *number);
    Dwarf_Line *(*dwarf_getsrc_die)(Dwarf_Die *unit, uint64_t address);
    const char *(*dwarf_linesrc)(Dwarf_Line *line, uint64_t *changed, uint64_t *length);
    int (*dwarf_lineno)(Dwarf_Line *line, int *number);
    int (*dwarf_getsrcfiles)(Dwarf_Die *unit, Dwarf_Files **files, size_t *count);
    const char *(*dwarf_filesrc)(Dwarf_Files *files, size_t index, uint64_t *changed,
                                 uint64_t *length);
};

#define FUNCTION(name)                                                                             \
    { #name, offsetof(struct lines_t, name) }

static const struct {
    const char *name;
    size_t member;
} functions[] = {
    FUNCTION(dwarf_begin),
    FUNCTION(dwarf_end),
    FUNCTION(dwarf_addrdie),
    FUNCTION(dwarf_nextcu),
    FUNCTION(dwarf_offdie),
    FUNCTION(dwarf_haspc),
    FUNCTION(dwarf_getscopes),
    FUNCTION(dwarf_getscopes_die),
    FUNCTION(dwarf_tag),
    FUNCTION(dwarf_diename),
    FUNCTION(dwarf_attr_integrate),
    FUNCTION(dwarf_formstring),
    FUNCTION(dwarf_formudata),
    FUNCTION(dwarf_getsrc_die),
    FUNCTION(dwarf_linesrc),
    FUNCTION(dwarf_lineno),
    FUNCTION(dwarf_getsrcfiles),
    FUNCTION(dwarf_filesrc),
};

struct lines_file_t {
    const lines_t *lines;
    Dwarf *dwarf;
    int fd;
    uint64_t *units; /* offsets of their first entries, for files without a table of addresses */
    size_t unit_count, unit_room;
    bool has_units;
};

/* --- the library ------------------------------------------------------------------------------ */

static bool find(void *library, const char *name, void *function) {
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof(found));
    return found != NULL;
}

lines_t *lines_begin(void) {
    lines_t *lines = calloc(1, sizeof(*lines));
    if (!lines || !(lines->library = dlopen("libdw.so.1", RTLD_NOW | RTLD_LOCAL))) {
        free(lines);
        return NULL;
    }
    bool has_all = true;
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        has_all &= find(lines->library, functions[i].name, (char *)lines + functions[i].member);
    }
    if (!has_all) {
        lines_end(lines);
        return NULL;
    }
    return lines;
}

void lines_end(lines_t *lines) {
    if (lines) {
        dlclose(lines->library);
        free(lines);
    }
}

/* --- files ------------------------------------------------------------------------------------ */

static lines_file_t *open_fd(const lines_t *lines, int fd) {
    struct stat state;
    bool is_file = fd >= 0 && fstat(fd, &state) == 0 && S_ISREG(state.st_mode);
    lines_file_t *file = is_file ? calloc(1, sizeof(*file)) : NULL;
    if (file) {
        *file = (lines_file_t){lines, lines->dwarf_begin(fd, DWARF_C_READ), fd, NULL, 0, 0, false};
    }
    if (file && file->dwarf) {
        return file;
    }
    if (fd >= 0) {
        close(fd);
    }
    free(file);
    return NULL;
}

lines_file_t *lines_open(const lines_t *lines, const char *path) {
    return open_fd(lines, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
}

lines_file_t *lines_fetch(const lines_t *lines, const unsigned char *build_id, size_t size) {
    debuginfod_client *(*begin)(void);
    int (*fetch)(debuginfod_client *, const unsigned char *, int, char **);
    void (*end)(debuginfod_client *);
    void *library = dlopen("libdebuginfod.so.1", RTLD_NOW | RTLD_LOCAL);
    int fd = -1;
    if (library && find(library, "debuginfod_begin", &begin) &&
        find(library, "debuginfod_find_debuginfo", &fetch) &&
        find(library, "debuginfod_end", &end)) {
        debuginfod_client *client = begin();
        fd = client ? fetch(client, build_id, (int)size, NULL) : -1;
        if (client) {
            end(client);
        }
    }
    /* It stays: its libraries have handlers that run at the end of the process. */
    return open_fd(lines, fd);
}

void lines_close(lines_file_t *file) {
    if (file) {
        file->lines->dwarf_end(file->dwarf);
        close(file->fd);
        free(file->units);
        free(file);
    }
}

/* --- addresses -------------------------------------------------------------------------------- */

static void list_units(lines_file_t *file) {
    uint64_t offset = 0, next;
    size_t header;
    file->has_units = true;
    while (file->lines->dwarf_nextcu(file->dwarf, offset, &next, &header, NULL, NULL, NULL) == 0 &&
           next > offset) {
        if (file->unit_count == file->unit_room) {
            size_t room = 2 * file->unit_room + 64;
            uint64_t *more = realloc(file->units, room * sizeof(*more));
            if (!more) {
                return;
            }
            file->units = more;
            file->unit_room = room;
        }
        file->units[file->unit_count++] = offset + header;
        offset = next;
    }
}

/* Of some compilers the table of addresses is missing. */
static bool find_unit(lines_file_t *file, uint64_t address, Dwarf_Die *unit) {
    const lines_t *lines = file->lines;
    if (lines->dwarf_addrdie(file->dwarf, address, unit)) {
        return true;
    }
    if (!file->has_units) {
        list_units(file);
    }
    for (size_t i = 0; i < file->unit_count; i++) {
        if (lines->dwarf_offdie(file->dwarf, file->units[i], unit) &&
            lines->dwarf_haspc(unit, address) == 1) {
            return true;
        }
    }
    return false;
}

static const char *name_of(const lines_t *lines, Dwarf_Die *die) {
    Dwarf_Attribute attribute;
    const char *name = lines->dwarf_attr_integrate(die, DW_AT_linkage_name, &attribute)
                           ? lines->dwarf_formstring(&attribute)
                           : NULL;
    return name ? name : lines->dwarf_diename(die);
}

/* The place of the call that an inlined function stands for. */
static void find_call(const lines_t *lines, Dwarf_Die *unit, Dwarf_Die *die, line_t *call) {
    Dwarf_Attribute attribute;
    Dwarf_Files *files;
    uint64_t file, number;
    size_t count;
    *call = (line_t){NULL, NULL, 0};
    if (lines->dwarf_attr_integrate(die, DW_AT_call_line, &attribute) &&
        lines->dwarf_formudata(&attribute, &number) == 0 && number <= INT32_MAX &&
        lines->dwarf_attr_integrate(die, DW_AT_call_file, &attribute) &&
        lines->dwarf_formudata(&attribute, &file) == 0 &&
        lines->dwarf_getsrcfiles(unit, &files, &count) == 0 && file < count) {
        call->source = lines->dwarf_filesrc(files, (size_t)file, NULL, NULL);
        call->line = (uint32_t)number;
    }
}

static void find_line(const lines_t *lines, Dwarf_Die *unit, uint64_t address, line_t *found) {
    int number = 0;
    Dwarf_Line *line = lines->dwarf_getsrc_die(unit, address);
    *found = (line_t){NULL, NULL, 0};
    if (line && lines->dwarf_lineno(line, &number) == 0 && number > 0) {
        found->source = lines->dwarf_linesrc(line, NULL, NULL);
        found->line = (uint32_t)number;
    }
}

/* The entries around the innermost one at an address, as they are in the code; of an inlined
 * function dwarf_getscopes goes on with those around its declaration. */
static int find_scopes(const lines_t *lines, Dwarf_Die *unit, uint64_t address,
                       Dwarf_Die **scopes) {
    Dwarf_Die *first = NULL;
    int count = lines->dwarf_getscopes(unit, address, &first);
    Dwarf_Die innermost = count > 0 ? first[0] : (Dwarf_Die){NULL, NULL, NULL, 0};
    free(first);
    *scopes = NULL;
    return count > 0 ? lines->dwarf_getscopes_die(&innermost, scopes) : 0;
}

size_t lines_at(lines_file_t *file, uint64_t address, line_t *found, size_t room) {
    const lines_t *lines = file->lines;
    Dwarf_Die unit, *scopes = NULL;
    size_t filled = 0;
    line_t next;
    if (!find_unit(file, address, &unit)) {
        return 0;
    }
    find_line(lines, &unit, address, &next);
    int count = find_scopes(lines, &unit, address, &scopes);
    bool is_function = false;
    for (int i = 0; i < count && filled < room && !is_function; i++) {
        int tag = lines->dwarf_tag(&scopes[i]);
        is_function = tag == DW_TAG_subprogram;
        if (is_function || tag == DW_TAG_inlined_subroutine) {
            found[filled] = next;
            found[filled++].function = name_of(lines, &scopes[i]);
            find_call(lines, &unit, &scopes[i], &next);
        }
    }
    free(scopes);
    if (filled == 0 && next.line > 0 && room > 0) {
        found[filled++] = next;
    }
    return filled;
}
