/* Checks that records match their consume queue units, as checking.py does. */

#ifndef ROCKHOPPER_SOUNDNESS_H
#define ROCKHOPPER_SOUNDNESS_H

#include "_bytes.h"

/* The common fields of all records of one queue. */
typedef struct {
    const char *topic_field;
    Py_ssize_t topic_field_size;
    int32_t queue_id;
} Owner;

/* Returns whether the record at *p* is that of *unit* and of message *queue_offset* (-1 for any). */
int is_sound(const unsigned char *p, const unsigned char *unit, const Owner *owner,
             int64_t queue_offset, int64_t unchecked_from);

/* The records that fit a response. */
typedef struct {
    const unsigned char *units;
    int64_t unit_count, count_max, size_max;
    /* The mapped part of the log, from base to end. */
    const unsigned char *log;
    int64_t base, end, unchecked_from, queue_offset;
    int64_t count, size;
} Wanted;

/* Returns whether all wanted records are in the log and sound; sets their count and size. */
int is_all_sound(Wanted *wanted, const Owner *owner);
/* Writes *wanted*.size bytes. */
unsigned char *copy_records(unsigned char *p, const Wanted *wanted);

#endif
