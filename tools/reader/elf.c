#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "elf.h"

#define TABLE_MOST (UINT64_C(1) << 30) /* bytes of one table that we read */

/* A copy of `size` bytes with a zero after them; NULL if the file does not have them. */
static void *part_of(const reader_source_t *source, uint64_t offset, uint64_t size) {
    if (size == 0 || size > TABLE_MOST || offset > source->size || size > source->size - offset) {
        return NULL;
    }
    char *part = malloc((size_t)size + 1);
    if (part) {
        reader_read(source, offset, part, (size_t)size);
        part[size] = '\0';
    }
    return part;
}

/* --- segments and build id -------------------------------------------------------------------- */

static void find_build_id(elf_file_t *file, const reader_source_t *source, const Elf64_Phdr *part) {
    char *notes = part_of(source, part->p_offset, part->p_filesz < 65536 ? part->p_filesz : 0);
    uint64_t size = notes ? part->p_filesz : 0;
    for (uint64_t at = 0; size - at >= sizeof(Elf64_Nhdr);) {
        Elf64_Nhdr note;
        memcpy(&note, notes + at, sizeof(note));
        uint64_t name = at + sizeof(note), text = name + (note.n_namesz + UINT64_C(3)) / 4 * 4;
        uint64_t end = text + (note.n_descsz + UINT64_C(3)) / 4 * 4;
        if (text + note.n_descsz > size) {
            break;
        } else if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                   memcmp(notes + name, "GNU", 4) == 0) {
            size_t most = sizeof(file->build_id);
            file->build_id_size = note.n_descsz < most ? note.n_descsz : most;
            memset(file->build_id, 0, most);
            memcpy(file->build_id, notes + text, file->build_id_size);
        }
        at = end < size ? end : size;
    }
    free(notes);
}

static void load_segments(elf_file_t *file, const reader_source_t *source, const Elf64_Ehdr *head) {
    Elf64_Phdr *parts = head->e_phentsize == sizeof(Elf64_Phdr)
                            ? part_of(source, head->e_phoff, head->e_phnum * sizeof(Elf64_Phdr))
                            : NULL;
    file->segments = parts ? calloc(head->e_phnum, sizeof(*file->segments)) : NULL;
    for (size_t i = 0; file->segments && i < head->e_phnum; i++) {
        if (parts[i].p_type == PT_LOAD) {
            file->segments[file->segment_count++] =
                (elf_segment_t){parts[i].p_offset, parts[i].p_filesz, parts[i].p_vaddr};
        } else if (parts[i].p_type == PT_NOTE) {
            find_build_id(file, source, &parts[i]);
        }
    }
    free(parts);
}

/* --- symbols ---------------------------------------------------------------------------------- */

static int by_address(const void *left, const void *right) {
    const elf_symbol_t *a = left, *b = right;
    if (a->address != b->address) {
        return a->address < b->address ? -1 : 1;
    }
    return a->name < b->name ? -1 : a->name > b->name;
}

static void take_symbols(elf_file_t *file, const Elf64_Sym *from, size_t count) {
    file->symbols = calloc(count ? count : 1, sizeof(*file->symbols));
    for (size_t i = 0; file->symbols && i < count; i++) {
        int type = ELF64_ST_TYPE(from[i].st_info);
        if ((type == STT_FUNC || type == STT_GNU_IFUNC) && from[i].st_shndx != SHN_UNDEF &&
            from[i].st_name < file->name_bytes) {
            file->symbols[file->symbol_count++] =
                (elf_symbol_t){from[i].st_value, from[i].st_size, from[i].st_name};
        }
    }
    if (file->symbol_count) {
        qsort(file->symbols, file->symbol_count, sizeof(*file->symbols), by_address);
    }
}

static const Elf64_Shdr *section_of_type(const Elf64_Shdr *sections, size_t count, uint32_t type) {
    for (size_t i = 0; i < count; i++) {
        if (sections[i].sh_type == type && sections[i].sh_link < count) {
            return &sections[i];
        }
    }
    return NULL;
}

#define LINK_MAX 4096u

/* The section .gnu_debuglink: a name with a zero after it, and a checksum. */
static void find_debug_link(elf_file_t *file, const reader_source_t *source,
                            const Elf64_Shdr *sections, size_t count, size_t names_at) {
    static const char wanted[] = ".gnu_debuglink";
    uint64_t bytes = names_at < count ? sections[names_at].sh_size : 0;
    char *names = bytes ? part_of(source, sections[names_at].sh_offset, bytes) : NULL;
    for (size_t i = 0; names && i < count; i++) {
        const Elf64_Shdr *section = &sections[i];
        if (section->sh_name < bytes && strcmp(names + section->sh_name, wanted) == 0) {
            uint64_t size = section->sh_size;
            char *link = size <= LINK_MAX ? part_of(source, section->sh_offset, size) : NULL;
            if (link && strlen(link) < sizeof(file->debug_link) && !strchr(link, '/')) {
                memcpy(file->debug_link, link, strlen(link) + 1);
            }
            free(link);
            break; /* a file has one */
        }
    }
    free(names);
}

static void load_symbols(elf_file_t *file, const reader_source_t *source, const Elf64_Ehdr *head) {
    Elf64_Shdr *sections = head->e_shentsize == sizeof(Elf64_Shdr)
                               ? part_of(source, head->e_shoff, head->e_shnum * sizeof(Elf64_Shdr))
                               : NULL;
    size_t count = sections ? head->e_shnum : 0;
    const Elf64_Shdr *table = section_of_type(sections, count, SHT_SYMTAB);
    file->has_all_symbols = table != NULL;
    table = table ? table : section_of_type(sections, count, SHT_DYNSYM);
    if (table) {
        const Elf64_Shdr *names = &sections[table->sh_link];
        Elf64_Sym *symbols = part_of(source, table->sh_offset, table->sh_size);
        file->names = symbols ? part_of(source, names->sh_offset, names->sh_size) : NULL;
        file->name_bytes = file->names ? names->sh_size : 0;
        if (file->names) {
            take_symbols(file, symbols, (size_t)(table->sh_size / sizeof(*symbols)));
        }
        free(symbols);
    }
    find_debug_link(file, source, sections, count, head->e_shstrndx);
    free(sections);
}

/* --- files ------------------------------------------------------------------------------------ */

static void load_from(elf_file_t *file, const reader_source_t *source) {
    static const unsigned char ident[] = {ELFMAG0, ELFMAG1,    ELFMAG2,
                                          ELFMAG3, ELFCLASS64, ELFDATA2LSB};
    Elf64_Ehdr head;
    reader_read(source, 0, &head, sizeof(head));
    if (memcmp(head.e_ident, ident, sizeof(ident)) == 0) {
        load_segments(file, source, &head);
        load_symbols(file, source, &head);
    }
}

void elf_load(elf_file_t *file, const char *path) {
    memset(file, 0, sizeof(*file));
    /* Not to wait for the other end of a pipe. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat stat;
    if (fd >= 0 && fstat(fd, &stat) == 0 && S_ISREG(stat.st_mode)) {
        load_from(file, &(reader_source_t){fd, NULL, (uint64_t)stat.st_size});
    }
    if (fd >= 0) {
        close(fd);
    }
}

void elf_free(elf_file_t *file) {
    free(file->segments);
    free(file->symbols);
    free(file->names);
}

static const char *function_at(const elf_file_t *file, uint64_t address, uint64_t *inside) {
    size_t low = 0, high = file->symbol_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (file->symbols[middle].address <= address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    const elf_symbol_t *symbol = low ? &file->symbols[low - 1] : NULL;
    /* Code in assembler may not say how long it is. */
    if (!symbol || (symbol->size && address - symbol->address >= symbol->size)) {
        return NULL;
    }
    *inside = address - symbol->address;
    return file->names + symbol->name;
}

bool elf_address(const elf_file_t *file, uint64_t offset, uint64_t *address) {
    for (size_t i = 0; i < file->segment_count; i++) {
        const elf_segment_t *segment = &file->segments[i];
        if (offset >= segment->offset && offset - segment->offset < segment->size) {
            *address = offset - segment->offset + segment->address;
            return true;
        }
    }
    return false;
}

const char *elf_function(const elf_file_t *file, const elf_file_t *symbols, uint64_t offset,
                         uint64_t *inside) {
    uint64_t address;
    return elf_address(file, offset, &address) ? function_at(symbols, address, inside) : NULL;
}
