/* Kafka: Produce, version 8, with acks=all: one record, or one batch of them, to a partition of TOPIC.
 * Fetch, version 4, of one batch, from the first of a partition to its last, repeatedly; all batches of TOPIC
 * must have the same number of records.
 *
 * Request:  size (4) api (2) version (2) correlation (4) client id | transactional id acks timeout topics
 * Batch:    base offset (8) size (4) leader epoch (4) magic (1) CRC-32C (4) | attributes (2) last offset
 *           delta (4) first and last timestamp (8, 8) producer (8, 2, 4) count (4) records */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FETCH = 1, FETCH_VERSION = 4, FETCH_BYTES_MAX = 32 << 20, BATCH_HEAD_SIZE = 61, BATCH_COUNT_AT = 57 };
enum { PRODUCE = 0, PRODUCE_VERSION = 8, METADATA = 3, METADATA_VERSION = 4, TIMEOUT_MS = 30000 };
enum { UNKNOWN_TOPIC = 3, LEADER_NOT_AVAILABLE = 5, TRIES = 1000, POLL_US = 10000 };
enum { CORRELATION_AT = 8, CRC_SLICES = 8, HEAD_SIZE_MAX = 512, RECORD_HEAD_SIZE_MAX = 32 };

static uint32_t crc_tables[CRC_SLICES][256];
static size_t fetch_offset_at, batch_at, first_body_at, body_stride, record_count;

static void prepare_crc(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        crc_tables[0][i] = crc;
    }
    for (int slice = 1; slice < CRC_SLICES; slice++)
        for (int i = 0; i < 256; i++)
            crc_tables[slice][i] =
                crc_tables[slice - 1][i] >> 8 ^ crc_tables[0][crc_tables[slice - 1][i] & 255];
}

static uint32_t crc32c(const unsigned char *p, size_t size) {
    uint32_t crc = ~0u;
    for (; size >= 8; p += 8, size -= 8) {
        uint32_t low = crc ^ (p[0] | p[1] << 8 | p[2] << 16 | (uint32_t)p[3] << 24);
        crc = crc_tables[7][low & 255] ^ crc_tables[6][low >> 8 & 255] ^ crc_tables[5][low >> 16 & 255] ^
              crc_tables[4][low >> 24] ^ crc_tables[3][p[4]] ^ crc_tables[2][p[5]] ^ crc_tables[1][p[6]] ^
              crc_tables[0][p[7]];
    }
    for (; size; size--) crc = crc >> 8 ^ crc_tables[0][(crc ^ *p++) & 255];
    return ~crc;
}

struct writer {
    unsigned char *bytes;
    size_t size;
};
static void put_short(struct writer *w, int value) { put16(w->bytes + w->size, value), w->size += 2; }
static void put_int(struct writer *w, uint32_t value) { put32(w->bytes + w->size, value), w->size += 4; }
static void put_long(struct writer *w, uint64_t value) { put64(w->bytes + w->size, value), w->size += 8; }
static void put_byte(struct writer *w, int value) { w->bytes[w->size++] = value; }
static void put_text(struct writer *w, const char *text) {
    put_short(w, strlen(text));
    memcpy(w->bytes + w->size, text, strlen(text));
    w->size += strlen(text);
}
static void put_varint(struct writer *w, int32_t value) {
    uint32_t zigzag = (uint32_t)value << 1 ^ (uint32_t)(value >> 31);
    for (; zigzag >= 128; zigzag >>= 7) put_byte(w, zigzag | 128);
    put_byte(w, zigzag);
}

static void begin_request(struct writer *w, int api, int version) {
    put_int(w, 0), put_short(w, api), put_short(w, version), put_int(w, 0), put_text(w, "loadgen");
}
static void end_request(struct writer *w) { put32(w->bytes, w->size - 4); }

/* Reads an answer field by field. */
struct reader {
    const unsigned char *p, *end;
};
static const unsigned char *skip(struct reader *r, size_t size) {
    if ((size_t)(r->end - r->p) < size) fail("an answer of Kafka ends in the middle");
    const unsigned char *at = r->p;
    r->p += size;
    return at;
}
static int read_short(struct reader *r) {
    const unsigned char *p = skip(r, 2);
    return (int16_t)(p[0] << 8 | p[1]);
}
static int32_t read_int(struct reader *r) { return (int32_t)get32(skip(r, 4)); }
/* Reads a text; a negative size means none. */
static const unsigned char *read_text(struct reader *r, int *size) {
    *size = read_short(r);
    return skip(r, *size < 0 ? 0 : *size);
}
static void skip_text(struct reader *r) {
    int size;
    read_text(r, &size);
}

static size_t answer_size(const unsigned char *p, size_t size) {
    size_t whole = size < 4 ? 0 : 4 + (size_t)get32(p);
    return whole <= size ? whole : 0;
}

/* Returns how many partitions have a leader; 0 while the topic does not exist. */
static int ready_partitions(struct reader *r) {
    skip(r, 4 + 4 + 4); /* size, correlation, throttling */
    for (int brokers = read_int(r); brokers > 0; brokers--) skip(r, 4), skip_text(r), skip(r, 4), skip_text(r);
    skip_text(r), skip(r, 4); /* cluster, controller */
    if (read_int(r) != 1) fail("Kafka tells of other topics than it was asked for");
    int code = read_short(r), ready = 0;
    if (code == UNKNOWN_TOPIC || code == LEADER_NOT_AVAILABLE) return 0;
    if (code) fail("Kafka refused: error code %d about the topic %s", code, opt.topic);
    skip_text(r), skip(r, 1);
    for (int partitions = read_int(r); partitions > 0; partitions--) {
        int problem = read_short(r);
        skip(r, 4);
        ready += !problem && read_int(r) >= 0;
        skip(r, 4 * read_int(r));
        skip(r, 4 * read_int(r));
    }
    return ready;
}

/* Requests a topic, which creates it with the number of partitions in the broker's settings. */
static void await_topic(struct connection *c) {
    unsigned char bytes[HEAD_SIZE_MAX];
    struct writer w = {.bytes = bytes};
    begin_request(&w, METADATA, METADATA_VERSION), put_int(&w, 1), put_text(&w, opt.topic), put_byte(&w, 1);
    end_request(&w);
    for (int tries = 0; tries < TRIES; tries++) {
        size_t size;
        write_text(c, w.bytes, w.size);
        const unsigned char *p = await_answer(c, &size);
        int ready = ready_partitions(&(struct reader){p, p + size});
        drop_answer(c, size);
        if (ready >= opt.queues) return;
        usleep(POLL_US);
    }
    fail("Kafka has no leader for the %d partitions of topic %s", opt.queues, opt.topic);
}

static void put_records(struct writer *w, int count) {
    unsigned char scratch[RECORD_HEAD_SIZE_MAX];
    for (int i = 0; i < count; i++) {
        struct writer head = {.bytes = scratch};
        put_byte(&head, 0), put_varint(&head, 0), put_varint(&head, i), put_varint(&head, -1);
        put_varint(&head, opt.body_size);
        size_t start = w->size;
        put_varint(w, head.size + opt.body_size + 1);
        memcpy(w->bytes + w->size, scratch, head.size);
        w->size += head.size;
        if (!i) first_body_at = w->size;
        memset(w->bytes + w->size, 'x', opt.body_size);
        w->size += opt.body_size;
        put_varint(w, 0);
        body_stride = w->size - start;
    }
}

static void prepare_produce(struct connection *c) {
    record_count = foreign()->is_batch ? opt.batch : 1;
    if (record_count > 64) fail("offsets above 63 take more than one byte"); /* one stride for all records */
    struct writer w = {malloc(HEAD_SIZE_MAX + record_count * (opt.body_size + RECORD_HEAD_SIZE_MAX)), 0};
    begin_request(&w, PRODUCE, PRODUCE_VERSION);
    put_short(&w, -1), put_short(&w, -1), put_int(&w, TIMEOUT_MS);
    put_int(&w, 1), put_text(&w, opt.topic), put_int(&w, 1), put_int(&w, c->queue);
    size_t size_at = w.size;
    put_int(&w, 0);
    batch_at = w.size;
    put_long(&w, 0), put_int(&w, 0), put_int(&w, -1), put_byte(&w, 2), put_int(&w, 0);
    put_short(&w, 0), put_int(&w, record_count - 1), put_long(&w, 0), put_long(&w, 0);
    put_long(&w, -1), put_short(&w, -1), put_int(&w, -1), put_int(&w, record_count);
    put_records(&w, record_count);
    put32(w.bytes + size_at, w.size - batch_at);
    put32(w.bytes + batch_at + 8, w.size - batch_at - 12);
    end_request(&w);
    c->template = w.bytes, c->template_size = w.size;
}

static void greet(struct connection *c) {
    if (!crc_tables[0][1]) prepare_crc();
    if (!c->index) await_topic(c);
    prepare_produce(c);
}

static void append(struct connection *c, uint64_t sequence) {
    unsigned char *request = reserve(c, c->template_size), *batch = request + batch_at;
    memcpy(request, c->template, c->template_size);
    put32(request + CORRELATION_AT, sequence);
    put64(batch + 27, wall_ms()), put64(batch + 35, wall_ms());
    for (size_t i = 0; i < record_count; i++) stamp_body(request + first_body_at + i * body_stride);
    put32(batch + 17, crc32c(batch + 21, c->template_size - batch_at - 21));
    c->output_size += c->template_size;
}

static void take(struct connection *c, const unsigned char *p, size_t size, uint64_t read_ns) {
    struct reader r = {p + 4, p + size};
    uint32_t sequence = read_int(&r);
    int text_size = -1;
    const unsigned char *text = NULL;
    if (read_int(&r) != 1) fail("an answer of Kafka about other topics than one");
    skip_text(&r);
    if (read_int(&r) != 1) fail("an answer of Kafka about other partitions than one");
    skip(&r, 4);
    int code = read_short(&r);
    skip(&r, 8 + 8 + 8); /* first offset, time of the append, start of the log */
    for (int errors = read_int(&r); errors > 0; errors--) skip(&r, 4), text = read_text(&r, &text_size);
    if (text_size < 0) text = read_text(&r, &text_size);
    if (code) fail("Kafka refused: error code %d %.*s", code, text_size < 0 ? 0 : text_size, text);
    take_acknowledgement(c, sequence, read_ns);
}

/* The least number of bytes gets one whole batch. */
static void prepare_fetch(struct connection *c) {
    struct writer w = {malloc(HEAD_SIZE_MAX), 0};
    if (!w.bytes) fail("no memory for a request");
    begin_request(&w, FETCH, FETCH_VERSION);
    put_int(&w, -1), put_int(&w, 0), put_int(&w, 1), put_int(&w, FETCH_BYTES_MAX), put_byte(&w, 0);
    put_int(&w, 1), put_text(&w, opt.topic), put_int(&w, 1), put_int(&w, c->queue);
    fetch_offset_at = w.size;
    put_long(&w, 0), put_int(&w, 1);
    end_request(&w);
    c->template = w.bytes, c->template_size = w.size;
}

static long records_of(struct reader *r) {
    long count = 0;
    int32_t set_size = read_int(r);
    struct reader set = {r->p, skip(r, set_size < 0 ? 0 : set_size) + (set_size < 0 ? 0 : set_size)};
    while (set.end - set.p >= BATCH_HEAD_SIZE) {
        size_t whole = 12 + (size_t)get32(set.p + 8);
        if (whole > (size_t)(set.end - set.p)) break;
        count += get32(set.p + BATCH_COUNT_AT);
        set.p += whole;
    }
    return count;
}

/* Returns the number of records of an answer, and the end of the partition. */
static long take_records(struct reader *r, int64_t *end) {
    skip(r, 4); /* throttling */
    if (read_int(r) != 1) fail("an answer of Kafka about other topics than one");
    skip_text(r);
    if (read_int(r) != 1) fail("an answer of Kafka about other partitions than one");
    skip(r, 4);
    int code = read_short(r);
    if (code) fail("Kafka refused: error code %d", code);
    *end = (int64_t)get64(skip(r, 8));
    skip(r, 8); /* the last stable offset */
    for (int aborted = read_int(r); aborted > 0; aborted--) skip(r, 8 + 8);
    return records_of(r);
}

static void greet_fetch(struct connection *c) {
    size_t size;
    if (!c->index) await_topic(c);
    prepare_fetch(c);
    write_text(c, c->template, c->template_size);
    const unsigned char *p = await_answer(c, &size);
    struct reader r = {p + 8, p + size};
    take_records(&r, &c->offset_max);
    drop_answer(c, size);
    if (c->offset_max < opt.batch)
        fail("partition %d of topic %s holds %lld messages, fewer than the %d of one fetch; send some first",
             c->queue, opt.topic, (long long)c->offset_max, opt.batch);
}

static void append_fetch(struct connection *c, uint64_t sequence) {
    unsigned char *request = reserve(c, c->template_size);
    memcpy(request, c->template, c->template_size);
    put32(request + CORRELATION_AT, sequence);
    put64(request + fetch_offset_at, c->offset);
    c->output_size += c->template_size;
    c->offset += opt.batch;
    if (c->offset + opt.batch > c->offset_max) c->offset = 0;
}

static void take_fetch(struct connection *c, const unsigned char *p, size_t size, uint64_t read_ns) {
    struct reader r = {p + 4, p + size};
    int64_t end;
    uint32_t sequence = read_int(&r);
    if (take_records(&r, &end) != opt.batch) short_pulls++;
    take_acknowledgement(c, sequence, read_ns);
}

const struct protocol KAFKA_PROTOCOL = {0, greet, append, answer_size, take};
const struct protocol KAFKA_BATCH_PROTOCOL = {1, greet, append, answer_size, take};
const struct protocol KAFKA_FETCH_PROTOCOL = {1, greet_fetch, append_fetch, answer_size, take_fetch};
