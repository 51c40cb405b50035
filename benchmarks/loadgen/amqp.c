/* AMQP 0-9-1: Basic.Publish of a persistent message to the durable queue TOPIC-QUEUE, on a channel with
 * confirms. A message that reaches no queue is returned; this counts as a refusal.
 *
 * Frame:  type (1) channel (2) size (4) payload end (1).  Method: class (2) method (2) arguments. */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { METHOD = 1, HEADER = 2, BODY = 3, HEARTBEAT = 8, FRAME_END = 0xCE };
enum { HEAD_SIZE = 7, TEXT_SIZE = 512, CHANNEL_MAX = 2047, FRAME_SIZE_MAX = 131072 };
enum { DURABLE = 2, MANDATORY = 1, HAS_DELIVERY_MODE = 0x1000, PERSISTENT = 2 };
#define ID(class, method) ((uint32_t)(class) << 16 | (method))
enum {
    START = ID(10, 10), START_OK = ID(10, 11), TUNE = ID(10, 30), TUNE_OK = ID(10, 31), OPEN = ID(10, 40),
    OPEN_OK = ID(10, 41), CLOSE = ID(10, 50), CHANNEL_OPEN = ID(20, 10), CHANNEL_OPEN_OK = ID(20, 11),
    CHANNEL_CLOSE = ID(20, 40), DECLARE = ID(50, 10), DECLARE_OK = ID(50, 11), SELECT = ID(85, 10),
    SELECT_OK = ID(85, 11), PUBLISH = ID(60, 40), RETURNED = ID(60, 50), ACKNOWLEDGED = ID(60, 80),
};

struct writer {
    unsigned char bytes[TEXT_SIZE];
    size_t size, start;
};

static void put_byte(struct writer *w, unsigned value) { w->bytes[w->size++] = value; }
static void put_short(struct writer *w, unsigned value) { put16(w->bytes + w->size, value), w->size += 2; }
static void put_long(struct writer *w, uint32_t value) { put32(w->bytes + w->size, value), w->size += 4; }
static void put_bytes(struct writer *w, const void *bytes, size_t size) {
    memcpy(w->bytes + w->size, bytes, size);
    w->size += size;
}
static void put_name(struct writer *w, const char *name) {
    put_byte(w, strlen(name));
    put_bytes(w, name, strlen(name));
}

static void begin_frame(struct writer *w, int type, int channel) {
    put_byte(w, type), put_short(w, channel), put_long(w, 0);
    w->start = w->size;
}
static void end_frame(struct writer *w) {
    put32(w->bytes + w->start - 4, w->size - w->start);
    put_byte(w, FRAME_END);
}
static void begin_method(struct writer *w, int channel, uint32_t id) {
    begin_frame(w, METHOD, channel);
    put_long(w, id);
}

static size_t answer_size(const unsigned char *p, size_t size) {
    if (size >= 8 && !memcmp(p, "AMQP", 4)) return 8; /* the server requires another version */
    if (size < HEAD_SIZE) return 0;
    size_t whole = HEAD_SIZE + (size_t)get32(p + 3) + 1;
    return whole <= size ? whole : 0;
}

/* Connection.Close, Channel.Close and Basic.Return all begin with a code and a text. */
static __attribute__((noreturn)) void refuse_method(const unsigned char *p, size_t size) {
    const unsigned char *arguments = p + HEAD_SIZE + 4;
    uint32_t id = size < HEAD_SIZE + 4 ? 0 : get32(p + HEAD_SIZE);
    if ((id == CLOSE || id == CHANNEL_CLOSE || id == RETURNED) && arguments + 3 < p + size)
        fail("RabbitMQ refused: %d %.*s", arguments[0] << 8 | arguments[1], arguments[2], arguments + 3);
    fail("RabbitMQ refused: method %u.%u", id >> 16, id & 0xffff);
}

static void expect(struct connection *c, uint32_t id) {
    size_t size;
    const unsigned char *p = await_answer(c, &size);
    if (p[0] != METHOD || get32(p + HEAD_SIZE) != id) refuse_method(p, size);
    drop_answer(c, size);
}

static void ask(struct connection *c, struct writer *w, uint32_t answer) {
    end_frame(w);
    write_text(c, w->bytes, w->size);
    *w = (struct writer){.size = 0};
    expect(c, answer);
}

static void open_channel(struct connection *c) {
    struct writer w = {.size = 0};
    write_text(c, "AMQP\0\0\x09\x01", 8);
    expect(c, START);
    begin_method(&w, 0, START_OK), put_long(&w, 0), put_name(&w, "PLAIN");
    put_long(&w, 12), put_bytes(&w, "\0guest\0guest", 12), put_name(&w, "en_US");
    ask(c, &w, TUNE);
    begin_method(&w, 0, TUNE_OK), put_short(&w, CHANNEL_MAX), put_long(&w, FRAME_SIZE_MAX), put_short(&w, 0);
    end_frame(&w);
    begin_method(&w, 0, OPEN), put_name(&w, "/"), put_name(&w, ""), put_byte(&w, 0);
    ask(c, &w, OPEN_OK);
    begin_method(&w, 1, CHANNEL_OPEN), put_name(&w, "");
    ask(c, &w, CHANNEL_OPEN_OK);
}

static void declare_queue(struct connection *c, const char *name) {
    const char *type = opt.mode == AMQP_QUORUM ? "quorum" : "classic", *key = "x-queue-type";
    struct writer w = {.size = 0};
    begin_method(&w, 1, DECLARE), put_short(&w, 0), put_name(&w, name), put_byte(&w, DURABLE);
    put_long(&w, 1 + strlen(key) + 1 + 4 + strlen(type));
    put_name(&w, key), put_byte(&w, 'S'), put_long(&w, strlen(type)), put_bytes(&w, type, strlen(type));
    ask(c, &w, DECLARE_OK);
    begin_method(&w, 1, SELECT), put_byte(&w, 0);
    ask(c, &w, SELECT_OK);
}

/* Prepares everything except the body and the end of its frame. */
static void prepare_publish(struct connection *c, const char *queue) {
    struct writer w = {.size = 0};
    begin_method(&w, 1, PUBLISH), put_short(&w, 0), put_name(&w, ""), put_name(&w, queue), put_byte(&w, MANDATORY);
    end_frame(&w);
    begin_frame(&w, HEADER, 1), put_short(&w, 60), put_short(&w, 0), put_long(&w, 0), put_long(&w, opt.body_size);
    put_short(&w, HAS_DELIVERY_MODE), put_byte(&w, PERSISTENT);
    end_frame(&w);
    put_byte(&w, BODY), put_short(&w, 1), put_long(&w, opt.body_size);
    c->template = malloc(c->template_size = w.size);
    memcpy(c->template, w.bytes, w.size);
}

static void greet(struct connection *c) {
    char queue[128];
    snprintf(queue, sizeof queue, "%s-%d", opt.topic, c->queue);
    if (opt.body_size > FRAME_SIZE_MAX - HEAD_SIZE - 1) fail("a body of more than one frame");
    open_channel(c);
    declare_queue(c, queue);
    prepare_publish(c, queue);
}

static void append(struct connection *c, uint64_t sequence) {
    unsigned char end = FRAME_END;
    (void)sequence;
    append_bytes(c, c->template, c->template_size);
    append_stamped_body(c);
    append_bytes(c, &end, 1);
}

/* Delivery tags count from 1 and may be acknowledged in any order, or all up to one at once. */
static void take(struct connection *c, const unsigned char *p, size_t size, uint64_t read_ns) {
    if (p[0] == HEARTBEAT) return;
    if (p[0] != METHOD || size < HEAD_SIZE + 4 || get32(p + HEAD_SIZE) != ACKNOWLEDGED) refuse_method(p, size);
    uint64_t tag = get64(p + HEAD_SIZE + 4);
    int is_multiple = p[HEAD_SIZE + 12] & 1;
    if (!is_multiple) {
        take_acknowledgement(c, tag - 1, read_ns);
        return;
    }
    if (tag > slot_mask && c->acknowledged < tag - slot_mask) c->acknowledged = tag - slot_mask;
    for (; c->acknowledged < tag; c->acknowledged++)
        if (slot_of(c, opaque_of(c->acknowledged))) take_acknowledgement(c, c->acknowledged, read_ns);
}

const struct protocol AMQP_PROTOCOL = {0, greet, append, answer_size, take};
const struct protocol AMQP_QUORUM_PROTOCOL = {0, greet, append, answer_size, take};
