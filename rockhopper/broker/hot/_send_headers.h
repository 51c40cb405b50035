/* Headers of requests that send: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320).

   Only what known clients write is read here: JSON that names the code first, without blanks, or
   RocketMQ's binary header; each field once, numbers as they are printed, escapes in the properties
   alone. Whatever else there may be, right or wrong, is for Python to read. */

#ifndef ROCKHOPPER_SEND_HEADERS_H
#define ROCKHOPPER_SEND_HEADERS_H

#include "../store/log/_bytes.h"

#define SERIALIZE_JSON 0
#define SERIALIZE_BINARY 1

typedef struct {
    Span group, topic, properties;
    int64_t born_time_ms;
    int32_t queue_id, sys_flag, flag, reconsume_times, opaque;
    int is_batch, is_oneway, has_long_names;
} SendHeader;

/* Room for properties that have escapes; they stay there until the next header. */
typedef struct {
    unsigned char *data;
    Py_ssize_t room;
} Scratch;

/* 1: read; 0: it is for Python; -1 without memory, with an exception. The spans are those of *header*
   and *scratch*. */
int read_send_header(int64_t serialize_type, Span header, Scratch *scratch, SendHeader *read);

#endif
