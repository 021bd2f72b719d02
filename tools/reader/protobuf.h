/* Messages of protocol buffers, as they are made. */
#ifndef UMF_READER_PROTOBUF_H
#define UMF_READER_PROTOBUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message that is being made. `bytes` is to be freed. */
typedef struct message_t {
    unsigned char *bytes;
    size_t size, room;
    bool has_failed; /* there was no memory */
} message_t;

/* A number without a member in front, for packed ones. */
void put_number(message_t *message, uint64_t number);
void put_varint(message_t *message, unsigned member, uint64_t number);
void put_part(message_t *message, unsigned member, const void *bytes, size_t size);
void put_text(message_t *message, unsigned member, const char *text);
/* The part is empty afterwards. */
void put_message(message_t *message, unsigned member, message_t *part);

#endif
