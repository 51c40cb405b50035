/* The common code of other brokers' protocols: a blocking handshake, bodies, and the end at a refusal. */
#include "loadgen.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { STAMP_SIZE = 16 };

const struct protocol *foreign(void) {
    switch (opt.mode) {
    case REDIS: return &REDIS_PROTOCOL;
    case NATS: return &NATS_PROTOCOL;
    case AMQP: return &AMQP_PROTOCOL;
    case AMQP_QUORUM: return &AMQP_QUORUM_PROTOCOL;
    case KAFKA: return &KAFKA_PROTOCOL;
    case KAFKA_BATCH: return &KAFKA_BATCH_PROTOCOL;
    case KAFKA_FETCH: return &KAFKA_FETCH_PROTOCOL;
    case REDIS_RANGE: return &REDIS_RANGE_PROTOCOL;
    default: return NULL;
    }
}

void write_text(struct connection *c, const void *bytes, size_t size) {
    for (const char *p = bytes; size;) {
        ssize_t wrote = write(c->fd, p, size);
        if (wrote <= 0) fail("the broker closed a connection (%s)", strerror(errno));
        p += wrote, size -= wrote;
    }
}

/* Waits for the next answer of a handshake; it stays in the input until it is dropped. */
const unsigned char *await_answer(struct connection *c, size_t *size) {
    int now = 1; /* else a server that waits for it takes 40 ms for each step */
    while (!(*size = foreign()->answer_size(c->input, c->input_size))) {
        setsockopt(c->fd, IPPROTO_TCP, TCP_QUICKACK, &now, sizeof now);
        ssize_t got = read(c->fd, c->input + c->input_size, c->input_capacity - c->input_size);
        if (got <= 0) fail("the broker closed a connection (%s)", got ? strerror(errno) : "end of stream");
        c->input_size += got;
    }
    return c->input;
}

void drop_answer(struct connection *c, size_t size) {
    memmove(c->input, c->input + size, c->input_size - size);
    c->input_size -= size;
}

void append_bytes(struct connection *c, const void *bytes, size_t size) {
    memcpy(reserve(c, size), bytes, size);
    c->output_size += size;
}

/* Makes each body different, if it is long enough. */
void stamp_body(unsigned char *body) {
    static uint64_t count;
    if (opt.body_size < STAMP_SIZE) return;
    uint64_t value = ++count;
    for (int i = STAMP_SIZE - 1; i >= 0; i--, value >>= 4) body[i] = "0123456789abcdef"[value & 15];
}

void append_stamped_body(struct connection *c) {
    unsigned char *body = reserve(c, opt.body_size);
    memset(body, 'x', opt.body_size);
    stamp_body(body);
    c->output_size += opt.body_size;
}

void refuse(const char *broker, const unsigned char *p, size_t size) {
    while (size && (p[size - 1] == '\r' || p[size - 1] == '\n')) size--;
    fail("%s refused: %.*s", broker, (int)size, p);
}

/* Returns the size of a line with its end; 0 while the end is missing. */
size_t line_size(const unsigned char *p, size_t size) {
    const unsigned char *end = memchr(p, '\n', size);
    return end ? (size_t)(end - p) + 1 : 0;
}
