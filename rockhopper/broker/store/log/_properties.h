/* What a properties string says to the broker, and the index keys that follow from it. */

#ifndef ROCKHOPPER_PROPERTIES_H
#define ROCKHOPPER_PROPERTIES_H

#include "_bytes.h"

#define INDEX_KEY_SIZE 12
/* With the store time behind it. */
#define TIMED_KEY_SIZE 20

/* Packed index keys under construction; few enough, they need no memory of their own. */
typedef struct {
    unsigned char *data;
    Py_ssize_t size, room;
    unsigned char first[64 * INDEX_KEY_SIZE];
} Keys;

void start_keys(Keys *keys);
void free_keys(Keys *keys);
/* Memory for each is taken as it is needed: -1 with an exception without any. */
int append_keys(Keys *packed, uint32_t seed, Span unique_key, Span keys, int64_t position);
PyObject *packed_keys(const Keys *keys);

/* What a properties string says to the broker; of two with one name the last one counts, and a pair
   without a name or a value is none. */
typedef struct {
    Span unique_key, tags, keys, wait;
    int special, barred;
} Properties;

Properties read_properties(const char *data, Py_ssize_t size);

/* Whether properties look the same once they were read and written anew. */
int are_regular(Span properties);

/* What a message says that waits elsewhere before it comes to its topic: with a delay level, or as a
   half one. */
typedef struct {
    Span delay, prepared, group;
} Waiting;

/* 0 if it says anything else that means more than itself, or if its properties are not regular. */
int read_waiting(Span properties, Waiting *found);

/* Whether the properties of a half message, without the place that it is for, mean no more than that
   it goes there. */
int is_plain_half(Span properties);

#endif
