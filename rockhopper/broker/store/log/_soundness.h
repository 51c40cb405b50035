/* Whether records are what their consume queue units say, as checking.py has it. */

#ifndef ROCKHOPPER_SOUNDNESS_H
#define ROCKHOPPER_SOUNDNESS_H

#include "_bytes.h"

/* What all records of one queue have in common. */
typedef struct {
    const char *topic_field;
    Py_ssize_t topic_field_size;
    int32_t queue_id;
} Owner;

/* Whether the record at *p* is the one of *unit*, of message *queue_offset* (any for -1). */
int is_sound(const unsigned char *p, const unsigned char *unit, const Owner *owner,
             int64_t queue_offset, int64_t unchecked_from);

/* The records that an answer has room for. */
typedef struct {
    const unsigned char *units;
    int64_t unit_count, count_max, size_max;
    /* What stands in the mapping: the log from base to end. */
    const unsigned char *log;
    int64_t base, end, unchecked_from, queue_offset;
    int64_t count, size;
} Wanted;

/* Whether all that is wanted is sound and there; sets its count and its size. */
int is_all_sound(Wanted *wanted, const Owner *owner);
/* *wanted*.size bytes. */
unsigned char *copy_records(unsigned char *p, const Wanted *wanted);

#endif
