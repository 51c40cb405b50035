/* Redis: XADD to the stream TOPIC-QUEUE, answered in order by the id of the entry. */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 512 };

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

static size_t answer_size(const unsigned char *p, size_t size) {
    size_t line = line_size(p, size);
    if (!line || *p != '$') return line;
    int length = atoi((const char *)p + 1);
    size_t whole = line + (length < 0 ? 0 : length + 2);
    return whole <= size ? whole : 0;
}

static void take(struct connection *c, const unsigned char *p, size_t size, uint64_t read_ns) {
    if (p[0] != '$' || p[1] == '-') refuse("Redis", p, size);
    take_acknowledgement(c, c->acknowledged++, read_ns);
}

const struct protocol REDIS_PROTOCOL = {0, greet, append, answer_size, take};
