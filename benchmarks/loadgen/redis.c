/* Redis: XADD to the stream TOPIC-QUEUE, answered in order by the id of the entry. XRANGE of its entries, from
 * one of the ids that the first connection of a stream has found, each a request's entries after the last. */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 512, ID_SIZE = 48, QUEUES_MAX = 64, STARTS_MAX = 2000, VALUE_MAX = 16 << 20 };

/* The ids from which a stream is read: the first entry, then the last of each request. */
static struct {
    char ids[STARTS_MAX][ID_SIZE];
    int count;
} starts[QUEUES_MAX];

static void greet(struct connection *c) {
    char key[128], text[TEXT_SIZE];
    int key_size = snprintf(key, sizeof key, "%s-%d", opt.topic, c->queue);
    int size = snprintf(text, sizeof text, "*5\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n$1\r\nb\r\n$%d\r\n", key_size, key,
                        opt.body_size);
    c->template = malloc(c->template_size = size);
    memcpy(c->template, text, size);
}

static void append(struct connection *c, uint64_t sequence) {
    (void)sequence;
    append_bytes(c, c->template, c->template_size);
    append_stamped_body(c);
    append_bytes(c, "\r\n", 2);
}

/* Returns the size of a value with all that it contains; 0 while it is incomplete. */
static size_t answer_size(const unsigned char *p, size_t size) {
    size_t at = 0;
    for (long missing = 1; missing; missing--) {
        size_t line = line_size(p + at, size - at);
        if (!line) return 0;
        long length = p[at] == '$' || p[at] == '*' ? atol((const char *)p + at + 1) : 0;
        if (length < 0 || length > VALUE_MAX) length = 0;
        if (p[at] == '*') missing += length;
        at += line;
        if (p[at - line] == '$' && p[at - line + 1] != '-') at += length + 2;
        if (at > size) return 0;
    }
    return at;
}

static void take(struct connection *c, const unsigned char *p, size_t size, uint64_t read_ns) {
    if (p[0] != '$' || p[1] == '-') refuse("Redis", p, size);
    take_acknowledgement(c, c->acknowledged++, read_ns);
}

const struct protocol REDIS_PROTOCOL = {0, greet, append, answer_size, take};

/* Returns the entries of an answer of XRANGE; copies the id of the last one. */
static long entries_of(const unsigned char *p, size_t size, char *last_id) {
    if (p[0] != '*') refuse("Redis", p, size);
    long count = atol((const char *)p + 1);
    size_t at = line_size(p, size);
    for (long i = 0; i < count; i++) {
        size_t whole = answer_size(p + at, size - at), id = at + line_size(p + at, size - at);
        long length = whole && p[id] == '$' ? atol((const char *)p + id + 1) : 0;
        if (length < 1 || length >= ID_SIZE) refuse("Redis", p, size);
        memcpy(last_id, p + id + line_size(p + id, size - id), length);
        last_id[length] = 0;
        at += whole;
    }
    return count;
}

static int write_range(char *text, const struct connection *c, const char *after) {
    char key[128];
    int key_size = snprintf(key, sizeof key, "%s-%d", opt.topic, c->queue), is_first = !*after;
    return snprintf(text, TEXT_SIZE, "*6\r\n$6\r\nXRANGE\r\n$%d\r\n%s\r\n$%zu\r\n%s%s\r\n$1\r\n+\r\n$5\r\nCOUNT\r\n$%d\r\n%d\r\n",
                    key_size, key, is_first ? 1 : strlen(after) + 1, is_first ? "-" : "(", after,
                    snprintf(NULL, 0, "%d", opt.batch), opt.batch);
}

/* Finds the ids once for each stream. */
static void greet_range(struct connection *c) {
    char text[TEXT_SIZE], id[ID_SIZE] = "";
    if (c->queue >= QUEUES_MAX) fail("at most %d streams are read", QUEUES_MAX);
    int *count = &starts[c->queue].count;
    for (long entries = opt.batch; c->index < opt.queues && *count < STARTS_MAX;) {
        size_t size;
        strcpy(starts[c->queue].ids[*count], id);
        write_text(c, text, write_range(text, c, id));
        const unsigned char *p = await_answer(c, &size);
        entries = entries_of(p, size, id);
        drop_answer(c, size);
        if (entries < opt.batch) break;
        ++*count;
    }
    if (!*count) fail("stream %s-%d has fewer entries than the %d of one request; send some first", opt.topic, c->queue, opt.batch);
}

static void append_range(struct connection *c, uint64_t sequence) {
    char text[TEXT_SIZE];
    append_bytes(c, text, write_range(text, c, starts[c->queue].ids[sequence % starts[c->queue].count]));
}

static void take_range(struct connection *c, const unsigned char *p, size_t size, uint64_t read_ns) {
    char id[ID_SIZE];
    if (entries_of(p, size, id) != opt.batch) short_pulls++;
    take_acknowledgement(c, c->acknowledged++, read_ns);
}

const struct protocol REDIS_RANGE_PROTOCOL = {1, greet_range, append_range, answer_size, take_range};
