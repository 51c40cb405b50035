/* The requests, prepared except for the parts that change. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SEND_MESSAGE = 10, PULL_MESSAGE = 11, UPDATE_CONSUMER_OFFSET = 15, END_TRANSACTION = 37,
    SEND_MESSAGE_V2 = 310, SEND_BATCH_MESSAGE = 320, POP_MESSAGE = 200050, ACK_MESSAGE = 200051
};
enum { CLIENT_VERSION = 479, PREPARED = 4 };
enum { UNIQUE_KEY_SIZE = 32, UNIQUE_KEY_COUNTER_SIZE = 12, OPAQUE_DIGITS = 8, MS_DIGITS = 13 };
enum { HEADER_SIZE_MAX = 4096, PROPERTIES_SIZE_MAX = 256, TOPIC_SIZE_MAX = 160 };

#define CUT "\x7f" /* in a header, marks the place of the cut */
#define NO_SIGNATURE "AAAAAAAAAAAAAAAAAAAAAAAAAAAA" /* of the size of one */
#define SOME_MS "1700000000000"
#define SOME_OPAQUE "10000000"
#define PRODUCERS "load_producers"
#define CONSUMERS "load_consumers"

static uint64_t key_counter;
static struct request **mains, **follow_ups; /* by queue */

/* Starts the keys so that no key of an earlier run is repeated. */
void start_keys(void) {
    key_counter = (wall_ms() & 0x3fffffff) << 16;
    mains = calloc(opt.queues, sizeof *mains);
    follow_ups = calloc(opt.queues, sizeof *follow_ups);
}

static void put_digits(unsigned char *p, int count, uint64_t value) {
    while (count--) p[count] = '0' + value % 10, value /= 10;
}
static void put_hex(unsigned char *p, int count, uint64_t value) {
    while (count--) p[count] = "0123456789ABCDEF"[value & 15], value >>= 4;
}

static char *unique_key(void) {
    static char key[UNIQUE_KEY_SIZE + 1];
    snprintf(key, sizeof key, "7F000001%04X251A69AC000000000000", (unsigned)getpid() & 0xffff);
    return key;
}

const char *topic_name(int topic) {
    static char name[TOPIC_SIZE_MAX];
    if (opt.topics == 1) return opt.topic;
    snprintf(name, sizeof name, "%s-%d", opt.topic, topic);
    return name;
}

static size_t place_of(const struct request *request, const char *text) {
    unsigned char *hit = memmem(request->bytes + 8, request->size - 8, text, strlen(text));
    if (!hit) fail("template without %s", text);
    return hit - request->bytes;
}

static void add_key(struct request *request, size_t key_at) {
    request->counter_at[request->key_count++] = key_at + UNIQUE_KEY_SIZE - UNIQUE_KEY_COUNTER_SIZE;
}

static void start_frame(struct request *request, int serialization, size_t header_size) {
    request->size = 8 + header_size;
    put32(request->bytes + 4, (uint32_t)serialization << 24 | header_size);
}

__attribute__((format(printf, 3, 4))) static void json_header(struct request *request, int code,
                                                              const char *ext_format, ...) {
    char ext[HEADER_SIZE_MAX / 2], *text = (char *)request->bytes + 8;
    va_list arguments;
    va_start(arguments, ext_format);
    vsnprintf(ext, sizeof ext, ext_format, arguments);
    va_end(arguments);
    if (opt.access_key) {
        size_t room = sizeof ext, used = strlen(ext);
        snprintf(ext + used, room - used, ",\"AccessKey\":\"%s\",\"Signature\":\"" NO_SIGNATURE "\"", opt.access_key);
    }
    int size = sprintf(text,
                       "{\"code\":%d,\"extFields\":{%s},\"flag\":0,\"language\":\"JAVA\",\"opaque\":" SOME_OPAQUE ","
                       "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":%d}",
                       code, ext, CLIENT_VERSION);
    char *cut = strchr(text, *CUT);
    if (cut) memmove(cut, cut + 1, text + size-- - cut);
    request->cut = cut ? (size_t)(cut - text + 8) : 0;
    start_frame(request, 0, size);
    request->opaque_is_text = 1;
    request->opaque_at = place_of(request, "\"opaque\":") + strlen("\"opaque\":");
    request->flag_at = place_of(request, "\"flag\":0") + strlen("\"flag\":");
}

/* Writes properties in stored form. With --property, 12 of 32 messages have an `a` above 5. */
static void write_properties(char *out, int number) {
    out += sprintf(out, "UNIQ_KEY\001%s\002WAIT\001true\002TAGS\001TagA", unique_key());
    if (opt.property) out += sprintf(out, "\002a\001%d\002b\001x", number % 10);
    if (opt.mode == DELAY) out += sprintf(out, "\002DELAY\001%d", opt.delay_level);
    if (opt.mode == TRANSACTION) sprintf(out, "\002TRAN_MSG\001true\002PGROUP\001" PRODUCERS);
}

static void json_send_header(struct request *request, int code, int queue, const char *properties) {
    char escaped[6 * PROPERTIES_SIZE_MAX], *out = escaped;
    for (; *properties; properties++)
        if (*properties >= ' ') *out++ = *properties;
        else out += sprintf(out, "\\u%04x", *properties);
    *out = 0;
    const char *topic = opt.topics > 1 ? CUT : opt.topic;
    if (code == SEND_MESSAGE)
        json_header(request, code,
                    "\"producerGroup\":\"" PRODUCERS "\",\"topic\":\"%s\",\"defaultTopic\":\"TBW102\","
                    "\"defaultTopicQueueNums\":\"4\",\"queueId\":\"%d\",\"sysFlag\":\"0\","
                    "\"bornTimestamp\":\"" SOME_MS "\",\"flag\":\"0\",\"properties\":\"%s\",\"reconsumeTimes\":\"0\","
                    "\"unitMode\":\"false\",\"maxReconsumeTimes\":\"0\"",
                    topic, queue, escaped);
    else
        json_header(request, code,
                    "\"a\":\"" PRODUCERS "\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"%d\",\"f\":\"%d\","
                    "\"g\":\"" SOME_MS "\",\"h\":\"0\",\"i\":\"%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"%s\","
                    "\"n\":\"%s\"",
                    topic, queue, opt.mode == TRANSACTION ? PREPARED : 0, escaped,
                    code == SEND_BATCH_MESSAGE ? "true" : "false", opt.broker);
    request->born_at = place_of(request, SOME_MS);
}

static size_t binary_field(unsigned char *p, const char *key, const char *value) {
    size_t key_size = strlen(key), value_size = strlen(value);
    put16(p, key_size);
    memcpy(p + 2, key, key_size);
    put32(p + 2 + key_size, value_size);
    memcpy(p + 6 + key_size, value, value_size);
    return 6 + key_size + value_size;
}

static void binary_send_header(struct request *request, int queue, const char *properties) {
    unsigned char *p = request->bytes + 8;
    char queue_text[12];
    snprintf(queue_text, sizeof queue_text, "%d", queue);
    const char *fields[][2] = {{"a", PRODUCERS}, {"b", opt.topic}, {"c", "TBW102"}, {"d", "4"},
                               {"e", queue_text}, {"f", "0"}, {"g", SOME_MS}, {"h", "0"},
                               {"i", properties}, {"j", "0"}, {"k", "false"}, {"m", "false"},
                               {"n", opt.broker}};
    memset(p, 0, 21);
    put16(p, SEND_MESSAGE_V2);
    put16(p + 3, CLIENT_VERSION);
    size_t ext_size = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        ext_size += binary_field(p + 21 + ext_size, fields[i][0], fields[i][1]);
    put32(p + 17, ext_size);
    start_frame(request, 1, 21 + ext_size);
    request->opaque_at = 8 + 5;
    request->born_at = place_of(request, SOME_MS);
}

static void append_body(struct request *request) {
    memset(request->bytes + request->size, 'x', opt.body_size);
    request->size += opt.body_size;
}

static void append_inner_message(struct request *request, int number) {
    unsigned char *p = request->bytes + request->size;
    char properties[PROPERTIES_SIZE_MAX];
    write_properties(properties, number);
    size_t properties_size = strlen(properties), size = 20 + opt.body_size + 2 + properties_size;
    memset(p, 0, 20); /* magic, CRC and flag are 0 inside a batch */
    put32(p, size);
    put32(p + 16, opt.body_size);
    memset(p + 20, 'x', opt.body_size);
    put16(p + 20 + opt.body_size, properties_size);
    memcpy(p + 22 + opt.body_size, properties, properties_size);
    add_key(request, request->size + 22 + opt.body_size + strlen("UNIQ_KEY") + 1);
    request->size += size;
}

static void build_send(struct request *request, int queue) {
    char properties[PROPERTIES_SIZE_MAX];
    write_properties(properties, 0);
    if (opt.mode == BINARY) binary_send_header(request, queue, properties);
    else json_send_header(request, opt.mode == V1 ? SEND_MESSAGE : SEND_MESSAGE_V2, queue, properties);
    add_key(request, place_of(request, unique_key()));
    append_body(request);
}

/* The cut is at the offset; for a parked pull, which goes to many queues, it is at the queue before it. */
static void build_pull(struct request *request, int queue) {
    char where[64] = "\"queueId\":\"" CUT;
    if (opt.mode != LONGPULL) sprintf(where, "\"queueId\":\"%d\",\"queueOffset\":\"" CUT, queue);
    json_header(request, PULL_MESSAGE,
                "%s\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"%d\",\"suspendTimeoutMillis\":\"15000\","
                "\"commitOffset\":\"0\",\"topic\":\"%s\",\"expressionType\":\"%s\",\"subscription\":\"%s\","
                "\"subVersion\":\"" SOME_MS "\",\"consumerGroup\":\"" CONSUMERS "\"",
                where, opt.batch, opt.mode == LONGPULL ? 6 : 4, opt.topic, opt.mode == SQL ? "SQL92" : "TAG",
                opt.mode == SQL ? "a > 5" : "*");
}

static void build_pop(struct request *request, int queue) {
    json_header(request, POP_MESSAGE,
                "\"consumerGroup\":\"" CUT "\",\"topic\":\"%s\",\"queueId\":\"%d\",\"maxMsgNums\":\"%d\","
                "\"invisibleTime\":\"60000\",\"pollTime\":\"0\",\"bornTime\":\"" SOME_MS "\",\"initMode\":\"0\","
                "\"expType\":\"TAG\",\"exp\":\"*\",\"order\":\"false\"",
                opt.topic, queue, opt.batch);
    request->born_at = place_of(request, SOME_MS);
}

static void build_main(struct request *request, int queue) {
    switch (opt.mode) {
    case ECHO:
        request->size = opt.body_size;
        request->opaque_at = 8;
        memset(request->bytes + 12, 'x', opt.body_size - 12);
        break;
    case BATCH:
        json_send_header(request, SEND_BATCH_MESSAGE, queue, "WAIT\001true");
        for (int i = 0; i < opt.batch; i++) append_inner_message(request, i);
        break;
    case COMMIT:
        json_header(request, UPDATE_CONSUMER_OFFSET,
                    "\"consumerGroup\":\"" CONSUMERS "\",\"topic\":\"%s\",\"queueId\":\"%d\","
                    "\"commitOffset\":\"" CUT "\"",
                    opt.topic, queue);
        break;
    case PULL:
    case SQL:
    case LONGPULL: build_pull(request, queue); break;
    case POP: build_pop(request, queue); break;
    default: build_send(request, queue); break;
    }
}

/* After the cut are the fields from an answer, one after another. */
static void build_follow_up(struct request *request, int queue) {
    if (opt.mode == TRANSACTION)
        json_header(request, END_TRANSACTION,
                    "\"topic\":\"%s\",\"producerGroup\":\"" PRODUCERS "\",\"commitOrRollback\":\"8\","
                    "\"fromTransactionCheck\":\"false\",\"bname\":\"%s\",\"tranStateTableOffset\":\"" CUT "\"",
                    opt.topic, opt.broker);
    else if (opt.mode == POP)
        json_header(request, ACK_MESSAGE, "\"topic\":\"%s\",\"queueId\":\"%d\",\"consumerGroup\":\"" CUT "\"",
                    opt.topic, queue);
    else build_send(request, queue);
}

static struct request *built(struct request **known, int queue, void (*build)(struct request *, int)) {
    if (known[queue]) return known[queue];
    struct request *request = known[queue] = calloc(1, sizeof *request);
    request->bytes = calloc(1, HEADER_SIZE_MAX + (size_t)opt.batch * (opt.body_size + 256) + opt.body_size);
    build(request, queue);
    put32(request->bytes, request->size - 4);
    if (opt.access_key) find_fields(request);
    return request;
}

const struct request *main_request(int queue) { return built(mains, queue, build_main); }
const struct request *follow_up(int queue) { return built(follow_ups, queue, build_follow_up); }

size_t build_question(unsigned char *bytes, int code, const char *topic, int queue) {
    struct request request = {.bytes = bytes};
    json_header(&request, code, "\"queueId\":\"%d\",\"topic\":\"%s\"", queue, topic);
    put32(bytes, request.size - 4);
    return request.size;
}

/* Appends a request to the output, with a text in its cut; returns the place of its flag. */
unsigned char *append_request(struct connection *c, const struct request *r, const char *text, uint32_t opaque) {
    size_t more = text ? strlen(text) : 0;
    unsigned char *out = reserve(c, r->size + more), *moved = out + more;
    memcpy(out, r->bytes, r->size);
    if (more) {
        memcpy(out + r->cut, text, more);
        memcpy(moved + r->cut, r->bytes + r->cut, r->size - r->cut);
        put32(out, r->size + more - 4);
        put32(out + 4, get32(r->bytes + 4) + more);
    }
    if (r->opaque_is_text) put_digits(moved + r->opaque_at, OPAQUE_DIGITS, opaque);
    else put32(moved + r->opaque_at, opaque);
    if (r->born_at) put_digits(moved + r->born_at, MS_DIGITS, wall_ms());
    for (int i = 0; i < r->key_count; i++) put_hex(moved + r->counter_at[i], UNIQUE_KEY_COUNTER_SIZE, key_counter++);
    if (r->signature_at) sign(r, out);
    c->output_size += r->size + more;
    return moved + r->flag_at;
}
