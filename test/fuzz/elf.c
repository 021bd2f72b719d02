/*
 * Files that a recording names as modules: a file of another format has no names, and the names of
 * one that was damaged are texts with an end.
 *
 * Input: 'x' and differences bit by bit to a good file; anything else is the file itself.
 */
#define _GNU_SOURCE
#include "fuzz/support.h"

#include <elf.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "reader/elf.h"

#define FILE_MAX 8192

typedef struct small_t {
    Elf64_Ehdr head;
    Elf64_Phdr parts[2];
    Elf64_Shdr sections[3];
    Elf64_Sym symbols[3];
    struct {
        Elf64_Nhdr head;
        char name[4];
        unsigned char id[20];
    } note;
    char names[16];
} small_t;

static void make_good(small_t *file) {
    *file = (small_t){.head = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
                                           ELFDATA2LSB, EV_CURRENT},
                               .e_phoff = offsetof(small_t, parts),
                               .e_shoff = offsetof(small_t, sections),
                               .e_phentsize = sizeof(Elf64_Phdr),
                               .e_phnum = 2,
                               .e_shentsize = sizeof(Elf64_Shdr),
                               .e_shnum = 3},
                      .parts = {{.p_type = PT_LOAD, .p_vaddr = 0x1000, .p_filesz = 4096},
                                {.p_type = PT_NOTE,
                                 .p_offset = offsetof(small_t, note),
                                 .p_filesz = sizeof(file->note)}},
                      .sections = {[1] = {.sh_type = SHT_SYMTAB,
                                          .sh_offset = offsetof(small_t, symbols),
                                          .sh_size = sizeof(file->symbols),
                                          .sh_link = 2},
                                   [2] = {.sh_type = SHT_STRTAB,
                                          .sh_offset = offsetof(small_t, names),
                                          .sh_size = sizeof(file->names)}},
                      .symbols = {[1] = {.st_name = 1,
                                         .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                         .st_shndx = 1,
                                         .st_value = 0x1010,
                                         .st_size = 32},
                                  [2] = {.st_name = 5,
                                         .st_info = ELF64_ST_INFO(STB_GLOBAL, STT_FUNC),
                                         .st_shndx = 1,
                                         .st_value = 0x1100}},
                      .note = {.head = {4, 20, NT_GNU_BUILD_ID}, .name = "GNU", .id = {1, 2, 3}},
                      .names = "\0one\0_Z5threev"};
}

static void look_up_all(const elf_file_t *file) {
    uint64_t inside = 0;
    for (uint64_t offset = 0; offset < FILE_MAX; offset += 16) {
        const char *name = elf_function(file, file, offset, &inside);
        FUZZ_CHECK(!name || strlen(name) <= file->name_bytes);
    }
    for (size_t i = 0; i < file->segment_count; i++) {
        const elf_segment_t *segment = &file->segments[i];
        elf_function(file, file, segment->offset, &inside);
        elf_function(file, file, segment->offset + segment->size - 1, &inside);
    }
}

static void load(elf_file_t *file, const void *bytes, size_t size) {
    char path[64];
    int fd = memfd_create("fuzz_elf", MFD_CLOEXEC);
    FUZZ_CHECK(fd >= 0 && write(fd, bytes, size) == (ssize_t)size);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    elf_load(file, path);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    elf_file_t file;
    small_t good;
    if (size > 0 && data[0] == 'x') {
        make_good(&good);
        for (size_t i = 0; i < size - 1 && i < sizeof(good); i++) {
            ((unsigned char *)&good)[i] ^= data[i + 1];
        }
        load(&file, &good, sizeof(good));
    } else {
        load(&file, data, size);
    }
    FUZZ_CHECK(size != 1 || data[0] != 'x' || (file.symbol_count == 2 && file.build_id[2] == 3));
    look_up_all(&file);
    elf_free(&file);
    return 0;
}
