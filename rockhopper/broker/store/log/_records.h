/* Records: the bytes of one message, or of each message of a batch, and its consume queue unit. */

#ifndef ROCKHOPPER_RECORDS_H
#define ROCKHOPPER_RECORDS_H

#include "_properties.h"

/* The fields of the next record from its queue and its pass; position and queue_offset are its own. */
typedef struct {
    uint32_t magic, seed;
    int32_t queue_id, sys_flag;
    int64_t position, queue_offset, store_time_ms, born_time_ms;
    const char *topic_field, *born_host, *store_host;
    Py_ssize_t topic_field_size, born_host_size, store_host_size;
} Shared;

/* Reads the constants of a queue (encoding.py). Returns 0 with an exception, or without one for a
   number that does not fit. */
int take_constants(PyObject *constants, Shared *shared);

/* Sets the flags for the widths of hosts, whatever *sys_flag* has. */
void set_host_flags(Shared *shared);

/* Which code must handle a message: only the general path; these functions; their Python twins. */
typedef enum { NOT_PLAIN, PLAIN, PLAIN_IN_PYTHON } Plainness;

/* The plan of the record of a producer's message. */
typedef struct {
    Properties found;
    Span front, back; /* the remaining properties, without WAIT=true */
    int waits, is_closed;
    Py_ssize_t size, properties_size;
    int64_t tags_code;
} PlainRecord;

Plainness plan_plain(const Shared *shared, Py_ssize_t body_size, Span properties, Span suffix,
                     PlainRecord *record);
/* The same for a message whose special properties the caller has handled: they are in
   *record*->found. */
Plainness plan_record(const Shared *shared, Py_ssize_t body_size, Span properties, Span suffix,
                      PlainRecord *record);
/* Writes *record*.size bytes, UNIT_SIZE bytes to *unit*, and the index keys to *keys*. Returns 0
   without memory. */
int write_plain(unsigned char *p, const Shared *shared, Span body, Span suffix, int32_t flag,
                int32_t reconsume_times, const PlainRecord *record, unsigned char *unit, Keys *keys);

/* The same for a message whose properties are written unchanged. */
Py_ssize_t copy_size(const Shared *shared, Py_ssize_t body_size, Py_ssize_t properties_size);
int write_copy(unsigned char *p, const Shared *shared, Span body, Span properties,
               const Properties *found, int32_t flag, int32_t reconsume_times, unsigned char *unit,
               Keys *keys);

/* Returns how many messages a batch body has, and the size of their records; 0 if it is not sound. */
Py_ssize_t count_batch(const Shared *shared, Span body, Py_ssize_t *size);
/* Writes *count* records and units from *shared*'s offsets on, and advances these. Returns a
   Plainness (only PLAIN makes the output valid), or -1 with an exception, without memory. */
int write_batch(unsigned char *p, Shared *shared, Span body, Py_ssize_t count, unsigned char *units,
                Keys *keys);

/* The same for a batch body whose messages are plain single ones, with *suffix* after the
   properties of each: *size* is that of all records, and *count* is their number. */
Plainness plan_run(const Shared *shared, Span body, Span suffix, Py_ssize_t *count, Py_ssize_t *size);
int write_run(unsigned char *p, Shared *shared, Span body, Span suffix, Py_ssize_t count,
              unsigned char *units, Keys *keys);

#endif
