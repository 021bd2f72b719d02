/* Dumps of memory to stdout. */
#include "umem/own.h"

#include <stdio.h>

static void write_hex(unsigned char byte) {
    printf(" %02x", byte);
}

static void write_bits(unsigned char byte) {
    putchar(' ');
    for (int bit = 7; bit >= 0; bit--) {
        putchar('0' + ((byte >> bit) & 1));
    }
}

static void write_text(const unsigned char *bytes, int count) {
    for (int i = 0; i < count; i++) {
        putchar(bytes[i] >= ' ' && bytes[i] <= '~' ? bytes[i] : '.');
    }
}

/* `width` bytes a line, each written in `columns` characters. */
static void dump(const char *desc, const void *addr, int len, int width, int columns,
                 void (*write)(unsigned char)) {
    UMEM_KEEP_ERRNO;
    const unsigned char *bytes = addr;
    if (desc) {
        printf("%s:\n", desc);
    }
    for (int at = 0; at < len; at += width) {
        int count = len - at < width ? len - at : width;
        printf("  %04x ", (unsigned)at);
        for (int i = 0; i < count; i++) {
            write(bytes[at + i]);
        }
        printf("%*s  ", (width - count) * columns, "");
        write_text(&bytes[at], count);
        putchar('\n');
    }
}

void hexDump(char *desc, void *addr, int len) {
    dump(desc, addr, len, 16, 3, write_hex);
}

void binDump(char *desc, void *addr, int len) {
    dump(desc, addr, len, 8, 9, write_bits);
}
