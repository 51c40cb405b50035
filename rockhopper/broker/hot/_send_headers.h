/* Headers of sends: SEND_MESSAGE (10), SEND_MESSAGE_V2 (310), SEND_BATCH_MESSAGE (320). Reads only
   what known clients write: JSON with the code first and no blanks, or RocketMQ's binary header;
   each field once, canonical numbers, escapes only in the properties. Python reads everything else,
   valid or not. Names and values of fields are those from which a signature is computed. */

#ifndef ROCKHOPPER_SEND_HEADERS_H
#define ROCKHOPPER_SEND_HEADERS_H

#include "_signatures.h"

#define SERIALIZE_JSON 0
#define SERIALIZE_BINARY 1

typedef struct {
    Span group, topic, properties;
    int64_t born_time_ms;
    int32_t queue_id, sys_flag, flag, reconsume_times, opaque;
    int is_batch, is_oneway;
} SendHeader;

/* Memory for properties with escapes; they stay there until the next header. */
typedef struct {
    unsigned char *data;
    Py_ssize_t room;
} Scratch;

/* Returns 1 if read, 0 if Python must read it, -1 without memory, with an exception. The spans
   point into *header* and *scratch*. *fields* gets all fields, to check a signature; it may be
   NULL. */
int read_send_header(int64_t serialize_type, Span header, Scratch *scratch, SignedFields *fields,
                     SendHeader *read);

/* Reads the fields of any JSON header whose parts are as those of sends, without escapes; returns 0
   if Python must read it. */
int read_json_fields(Span header, SignedFields *fields);

#endif
