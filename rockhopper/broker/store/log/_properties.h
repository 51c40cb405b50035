/* The properties that matter to the broker, and the index keys that follow from them. */

#ifndef ROCKHOPPER_PROPERTIES_H
#define ROCKHOPPER_PROPERTIES_H

#include "_bytes.h"

#define INDEX_KEY_SIZE 12
/* An index key followed by the store time. */
#define TIMED_KEY_SIZE 20

/* Packed index keys under construction; a small number needs no memory of its own. */
typedef struct {
    unsigned char *data;
    Py_ssize_t size, room;
    unsigned char first[64 * INDEX_KEY_SIZE];
} Keys;

void start_keys(Keys *keys);
void free_keys(Keys *keys);
/* Allocates memory for each as needed: returns -1 with an exception without memory. */
int append_keys(Keys *packed, uint32_t seed, Span unique_key, Span keys, int64_t position);
PyObject *packed_keys(const Keys *keys);

/* The properties that matter to the broker. The last of two with one name counts, and a pair
   without a name or a value is ignored. */
typedef struct {
    Span unique_key, tags, keys, wait;
    int special, barred;
} Properties;

Properties read_properties(const char *data, Py_ssize_t size);

/* Returns whether decoding and encoding leaves the properties unchanged. */
int are_regular(Span properties);

/* The properties of a message that waits elsewhere before it gets to its topic: one with a delay
   level, or a half message. */
typedef struct {
    Span delay, prepared, group;
} Waiting;

/* Returns 0 for any other property with an effect, or if the properties are not regular. */
int read_waiting(Span properties, Waiting *found);

/* Returns whether a half message's properties, without its target, have no further effect. */
int is_plain_half(Span properties);

#endif
