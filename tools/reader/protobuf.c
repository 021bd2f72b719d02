#include "protobuf.h"

#include <stdlib.h>
#include <string.h>

static void put_bytes(message_t *message, const void *bytes, size_t size) {
    if (!message->has_failed && message->room - message->size < size) {
        size_t room = 2 * message->room + size + 64;
        unsigned char *more = realloc(message->bytes, room);
        message->has_failed = !more;
        message->bytes = more ? more : message->bytes;
        message->room = more ? room : message->room;
    }
    if (!message->has_failed && size > 0) {
        memcpy(message->bytes + message->size, bytes, size);
        message->size += size;
    }
}

void put_number(message_t *message, uint64_t number) {
    unsigned char bytes[10];
    size_t size = 0;
    do {
        bytes[size++] = (unsigned char)((number & 0x7f) | (number > 0x7f ? 0x80 : 0));
        number >>= 7;
    } while (number > 0);
    put_bytes(message, bytes, size);
}

void put_varint(message_t *message, unsigned member, uint64_t number) {
    put_number(message, (uint64_t)member << 3);
    put_number(message, number);
}

void put_part(message_t *message, unsigned member, const void *bytes, size_t size) {
    put_number(message, (uint64_t)member << 3 | 2);
    put_number(message, size);
    put_bytes(message, bytes, size);
}

void put_message(message_t *message, unsigned member, message_t *part) {
    message->has_failed |= part->has_failed;
    put_part(message, member, part->bytes, part->size);
    part->size = 0;
}

void put_text(message_t *message, unsigned member, const char *text) {
    put_part(message, member, text, strlen(text));
}
