#include "pickle.h"

#include <string.h>

#include "json.h"

/* Numbers are little-endian. */
static void put_number(pickle_t *pickle, uint64_t number, unsigned bytes) {
    for (unsigned i = 0; i < bytes; i++) {
        putc((int)(number >> 8 * i & 0xff), pickle->out);
    }
}

static void put(pickle_t *pickle, unsigned char code) {
    putc(code, pickle->out);
}

void pickle_begin(pickle_t *pickle, FILE *out) {
    *pickle = (pickle_t){.out = out};
    put(pickle, 0x80); /* PROTO */
    put(pickle, 2);
}

void pickle_end(pickle_t *pickle) {
    put(pickle, '.'); /* STOP */
}

void pickle_int(pickle_t *pickle, uint64_t number) {
    if (number <= INT32_MAX) {
        put(pickle, 'J'); /* BININT */
        put_number(pickle, number, 4);
        return;
    }
    /* Signed: a ninth byte keeps the highest bit from being the sign. */
    unsigned bytes = number <= INT64_MAX ? 8 : 9;
    put(pickle, 0x8a); /* LONG1 */
    put(pickle, (unsigned char)bytes);
    put_number(pickle, number, 8);
    put_number(pickle, 0, bytes - 8);
}

void pickle_bool(pickle_t *pickle, bool truth) {
    put(pickle, truth ? 0x88 : 0x89); /* NEWTRUE, NEWFALSE */
}

void pickle_text(pickle_t *pickle, const char *text) {
    size_t length = strlen(text);
    put(pickle, 'X'); /* BINUNICODE */
    put_number(pickle, length, 4);
    while (*text) {
        uint32_t code;
        size_t character = umf_reader_character(text, &code);
        if (character) {
            fwrite(text, 1, character, pickle->out);
        } else {
            putc('?', pickle->out);
        }
        text += character ? character : 1;
    }
}

void pickle_keep(pickle_t *pickle, uint32_t number) {
    put(pickle, number < 256 ? 'q' : 'r'); /* BINPUT, LONG_BINPUT */
    put_number(pickle, number, number < 256 ? 1 : 4);
}

void pickle_give(pickle_t *pickle, uint32_t number) {
    put(pickle, number < 256 ? 'h' : 'j'); /* BINGET, LONG_BINGET */
    put_number(pickle, number, number < 256 ? 1 : 4);
}

void pickle_dict(pickle_t *pickle) {
    put(pickle, '}'); /* EMPTY_DICT */
}

void pickle_list(pickle_t *pickle) {
    put(pickle, ']'); /* EMPTY_LIST */
}

void pickle_open(pickle_t *pickle) {
    put(pickle, '('); /* MARK */
}

void pickle_close_dict(pickle_t *pickle) {
    put(pickle, 'u'); /* SETITEMS */
}

void pickle_close_list(pickle_t *pickle) {
    put(pickle, 'e'); /* APPENDS */
}
