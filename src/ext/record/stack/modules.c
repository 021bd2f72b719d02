/*
 * Mappings for execution, so that a reader can resolve return addresses. The mappings are
 * read again from time to time, because a query of the loader takes its lock, which a
 * thread may hold while it allocates. A library that is loaded and unloaded in between is missed.
 */
#include <elf.h>
#include <string.h>

#include "ext/record/recording.h"
#include "system/os.h"

#define AGAIN_NS 100000000u
#define HEADERS_MAX 64
#define NOTES_MAX 4096

#if UINTPTR_MAX == UINT64_MAX
typedef Elf64_Ehdr elf_header_t;
typedef Elf64_Phdr elf_part_t;
typedef Elf64_Nhdr elf_note_t;
#endif

/* Sync: modules_lock of the recording, as the buffers. */
typedef struct look_t {
    umf_recording_t *r;
    uint64_t base;         /* of the last mapping that has the beginning of a file */
    char path[4096 + 256]; /* its path */
} look_t;

static char lines[16384];
static union {
    elf_part_t parts[HEADERS_MAX];
    char bytes[NOTES_MAX];
} scratch;

/* --- build ids --- */

static uint64_t up4(uint64_t size) {
    return (size + 3) & ~UINT64_C(3);
}

static bool note_take(const char *notes, uint64_t size, uint8_t *id, size_t id_size) {
    for (uint64_t at = 0; at + sizeof(elf_note_t) <= size;) {
        elf_note_t note;
        memcpy(&note, notes + at, sizeof(note));
        uint64_t name = at + sizeof(note), text = name + up4(note.n_namesz);
        at = text + up4(note.n_descsz);
        if (at > size) {
            break;
        }
        if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
            memcmp(notes + name, "GNU", 4) == 0) {
            memcpy(id, notes + text, note.n_descsz < id_size ? note.n_descsz : id_size);
            return true;
        }
    }
    return false;
}

static bool notes_read(uint64_t address, uint64_t size, uint8_t *id, size_t id_size) {
    size = size < NOTES_MAX ? size : NOTES_MAX;
    return umf_os_read_memory(address, scratch.bytes, size) == 0 &&
           note_take(scratch.bytes, size, id, id_size);
}

static void build_id(uint64_t base, uint8_t *id, size_t id_size) {
    elf_header_t header;
    elf_part_t notes[4];
    unsigned count = 0;
    if (umf_os_read_memory(base, &header, sizeof(header)) != 0 ||
        memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_phnum > HEADERS_MAX ||
        header.e_phentsize != sizeof(elf_part_t) ||
        umf_os_read_memory(base + header.e_phoff, scratch.parts,
                           header.e_phnum * sizeof(elf_part_t)) != 0) {
        return;
    }
    uint64_t first = UINT64_MAX; /* the address that the file is linked for */
    for (unsigned i = 0; i < header.e_phnum; i++) {
        const elf_part_t *part = &scratch.parts[i];
        if (part->p_type == PT_LOAD && first == UINT64_MAX) {
            first = part->p_vaddr - part->p_offset;
        } else if (part->p_type == PT_NOTE && count < UMF_COUNT_OF(notes)) {
            notes[count++] = *part;
        }
    }
    for (unsigned i = 0; first != UINT64_MAX && i < count; i++) {
        if (notes_read(base + notes[i].p_vaddr - first, notes[i].p_memsz, id, id_size)) {
            return;
        }
    }
}

/* --- the section --- */

static bool is_known(const umf_recording_t *r, const umf_os_region_t *mapping) {
    for (uint64_t i = umf_record_count(r, UMF_RECORD_MODULES); i-- > 0;) {
        const umf_record_module_t *module = &r->modules[i];
        if (module->base == mapping->base && module->size == mapping->size &&
            module->file_offset == mapping->offset) {
            int length;
            const char *path = umf_record_text_at(r, module->path, &length);
            return length > 0 && strncmp(path, mapping->path, (size_t)length) == 0;
        }
    }
    return false;
}

static void add(const look_t *look, const umf_os_region_t *mapping) {
    umf_recording_t *r = look->r;
    umf_record_module_t module = {
        .base = mapping->base, .size = mapping->size, .file_offset = mapping->offset};
    uint64_t path = umf_record_text(r, mapping->path, strlen(mapping->path));
    uint64_t index = umf_record_item(r, UMF_RECORD_MODULES, 1);
    if (index == UINT64_MAX) {
        return;
    }
    module.path = path != UINT64_MAX ? path : 0;
    if (look->base != 0 && strcmp(look->path, mapping->path) == 0) {
        build_id(look->base, module.build_id, sizeof(module.build_id));
    }
    r->modules[index] = module;
    umf_record_item_done(r, UMF_RECORD_MODULES, 1);
}

static bool visit(const umf_os_region_t *mapping, void *arg) {
    look_t *look = arg;
    if (mapping->offset == 0 && *mapping->path) {
        look->base = mapping->base;
        strncpy(look->path, mapping->path, sizeof(look->path) - 1);
    }
    if (mapping->is_code && !is_known(look->r, mapping)) {
        add(look, mapping);
    }
    return true;
}

void umf_record_modules(umf_recording_t *r) {
    static look_t look; /* Sync: modules_lock */
    umf_record_spin(&r->modules_lock);
    atomic_store_explicit(&r->modules_ns, umf_record_ns(CLOCK_MONOTONIC), memory_order_relaxed);
    look = (look_t){.r = r};
    umf_os_each_region(lines, sizeof(lines), visit, &look);
    umf_record_unspin(&r->modules_lock);
}

void umf_record_modules_again(umf_recording_t *r, uint64_t now) {
    uint64_t last = atomic_load_explicit(&r->modules_ns, memory_order_relaxed);
    if (r->stack_depth > 0 && now - last > AGAIN_NS &&
        atomic_compare_exchange_strong(&r->modules_ns, &last, now)) {
        umf_record_modules(r);
    }
}

static bool find_own(const umf_os_region_t *region, void *arg) {
    umf_recording_t *r = arg;
    const char *slash = strrchr(region->path, '/');
    bool is_it = (uintptr_t)&umf_record_on_event - region->base < region->size;
    if (is_it && slash && strncmp(slash, "/libumf.so", 10) == 0) {
        r->own_code = region->base;
        r->own_size = region->size;
    }
    return !is_it;
}

void umf_record_modules_own(umf_recording_t *r) {
    umf_record_spin(&r->modules_lock);
    umf_os_each_region(lines, sizeof(lines), find_own, r);
    umf_record_unspin(&r->modules_lock);
}
