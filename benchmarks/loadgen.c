/* Load generator for one broker: C connections, each keeping D requests in flight.
 *
 * One thread around epoll.  Every request differs as a real client's would: the opaque, the born
 * timestamp and the unique key of each message, so that a broker can reuse nothing it should not.
 * Every answer is decoded: its opaque must belong to a request still in flight, its code must be 0,
 * and a pull must bring as many records as it asked for.  What falls short is counted and printed,
 * and the exit status is 1.
 *
 * A connection refills its window when half of it is free, so requests travel in bursts as a
 * client's send buffer forms them.  It sends to, or pulls from, one queue: connection number modulo
 * the number of queues.  Pulls walk that queue from its minimum to its maximum, again and again.
 *
 * With --flood F one more connection keeps F requests in flight, and is not measured: what the
 * others tell is how they fare beside it.
 *
 * The result is one line of JSON on standard output; latencies run from the moment a request is
 * put into the send buffer to the moment its answer has been read.
 *
 * Frame:  total size (4, without itself) | serialization (1) | header size (3) | header | body
 * JSON header: text.  Binary header: code (2) language (1) version (2) opaque (4) flag (4)
 *              remark size (4) remark, ext size (4), then key size (2) key value size (4) value ...
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum mode { ECHO, SINGLE, BINARY, BATCH, PULL };
static const char *const MODE_NAMES[] = {"echo", "single", "binary", "batch", "pull"};

enum { GET_MAX_OFFSET = 30, GET_MIN_OFFSET = 31, CLIENT_VERSION = 479 };
enum { OPAQUE_BASE = 10000000 }; /* eight digits, for the first 90 million requests of a connection */
enum { UNIQUE_KEY_SIZE = 32, UNIQUE_KEY_COUNTER_SIZE = 12, MESSAGES_PER_REQUEST_MAX = 1024 };
enum { OFFSET_DIGITS = 12, INPUT_SIZE = 8 << 20, READ_SIZE = 256 << 10 };

static struct {
    enum mode mode;
    int port, connections, in_flight, flood, queues, body_size, batch;
    double warm_up_s, seconds, drain_s;
    pid_t pid;
    const char *topic;
} opt = {SINGLE, 10911, 4, 64, 0, 4, 128, 32, 0.5, 3.0, 10.0, 0, "LoadTest"};

/* A request ready to be copied, and the places in it that change from one to the next. */
struct request {
    unsigned char *bytes;
    size_t size, opaque_at, born_at, offset_at;
    int opaque_is_text;
    int key_count;
    size_t counter_at[MESSAGES_PER_REQUEST_MAX]; /* the last 12 hex digits of each unique key */
};

struct connection {
    int fd;
    struct request request;
    unsigned char *input, *output;
    size_t input_size, output_size, output_sent;
    uint64_t *sent_ns; /* by sequence number modulo slot count; 0 = not in flight */
    uint64_t sequence; /* of the next request */
    long in_flight, window;
    int is_measured;
    int64_t pull_offset, pull_min, pull_max;
    int wants_write;
};

static struct connection *connections;
static int connection_count; /* the measured ones, then the flood */
static uint64_t slot_mask, key_counter;

static long refused, mismatched, short_pulls, messages, requests;
static int first_refusal = -1;
static char first_remark[160];
static int measuring;

/* Latencies in nanoseconds, 64 buckets to each power of two: 1.6 % wide at most. */
enum { SUB_BITS = 6, BUCKETS = 64 << SUB_BITS };
static uint64_t histogram[BUCKETS], latency_max_ns;

static void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(2);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

static uint64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + t.tv_nsec / 1000000;
}

static double cpu_seconds_of(pid_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) fail("process %d, whose CPU time is wanted, is gone", (int)pid);
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    unsigned long user, system; /* fields 14 and 15; the name in field 2 may hold blanks */
    char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("%s cannot be read", path);
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

static double own_cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static void record_latency(uint64_t ns) {
    if (ns > latency_max_ns) latency_max_ns = ns;
    unsigned bucket = ns;
    if (ns >= 1u << SUB_BITS) {
        unsigned shift = 63 - SUB_BITS - __builtin_clzll(ns);
        bucket = ((shift + 1) << SUB_BITS) + ((ns >> shift) & ((1u << SUB_BITS) - 1));
    }
    histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
}

static double latency_us(double quantile) {
    uint64_t total = 0, seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) total += histogram[i];
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (total && seen >= quantile * total) {
            if (i < 1u << SUB_BITS) return i * 1e-3;
            unsigned shift = (i >> SUB_BITS) - 1;
            return ((uint64_t)((1u << SUB_BITS) + (i & ((1u << SUB_BITS) - 1))) << shift) * 1e-3;
        }
    }
    return 0;
}

static void put16(unsigned char *p, unsigned value) { p[0] = value >> 8, p[1] = value; }
static void put32(unsigned char *p, uint32_t value) { value = htonl(value), memcpy(p, &value, 4); }
static uint32_t get32(const unsigned char *p) {
    uint32_t value;
    memcpy(&value, p, 4);
    return ntohl(value);
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

static size_t place_of(const struct request *request, size_t from, const char *text) {
    unsigned char *hit = memmem(request->bytes + from, request->size - from, text, strlen(text));
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

static void end_frame(struct request *request) { put32(request->bytes, request->size - 4); }

static void json_header(struct request *request, int code, const char *ext_format, ...) {
    char ext[1024];
    va_list arguments;
    va_start(arguments, ext_format);
    vsnprintf(ext, sizeof ext, ext_format, arguments);
    va_end(arguments);
    int size = sprintf((char *)request->bytes + 8,
                       "{\"code\":%d,\"extFields\":{%s},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,"
                       "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":%d}",
                       code, ext, OPAQUE_BASE, CLIENT_VERSION);
    start_frame(request, 0, size);
    request->opaque_is_text = 1;
    request->opaque_at = place_of(request, 8, "\"opaque\":") + strlen("\"opaque\":");
}

static void json_send_header(struct request *request, int code, int queue, const char *properties) {
    json_header(request, code,
                "\"a\":\"load_producers\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"4\",\"e\":\"%d\",\"f\":\"0\","
                "\"g\":\"1700000000000\",\"h\":\"0\",\"i\":\"%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"%s\","
                "\"n\":\"broker-a\"",
                opt.topic, queue, properties, code == 320 ? "true" : "false");
    request->born_at = place_of(request, 8, "\"g\":\"") + strlen("\"g\":\"");
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
    const char *fields[][2] = {{"a", "load_producers"}, {"b", opt.topic}, {"c", "TBW102"}, {"d", "4"},
                               {"e", queue_text}, {"f", "0"}, {"g", "1700000000000"}, {"h", "0"},
                               {"i", properties}, {"j", "0"}, {"k", "false"}, {"m", "false"},
                               {"n", "broker-a"}};
    memset(p, 0, 21);
    put16(p, 310);
    put16(p + 3, CLIENT_VERSION);
    size_t ext_size = 0;
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        ext_size += binary_field(p + 21 + ext_size, fields[i][0], fields[i][1]);
    put32(p + 17, ext_size);
    start_frame(request, 1, 21 + ext_size);
    request->opaque_at = 8 + 5;
    request->born_at = place_of(request, 8, "1700000000000");
}

static void append_body(struct request *request) {
    memset(request->bytes + request->size, 'x', opt.body_size);
    request->size += opt.body_size;
}

static void append_inner_message(struct request *request) {
    unsigned char *p = request->bytes + request->size;
    char properties[128];
    int properties_size = sprintf(properties, "UNIQ_KEY\001%s\002WAIT\001true\002TAGS\001TagA", unique_key());
    size_t size = 20 + opt.body_size + 2 + properties_size;
    memset(p, 0, 20); /* magic, CRC and flag are 0 inside a batch */
    put32(p, size);
    put32(p + 16, opt.body_size);
    memset(p + 20, 'x', opt.body_size);
    put16(p + 20 + opt.body_size, properties_size);
    memcpy(p + 22 + opt.body_size, properties, properties_size);
    add_key(request, request->size + 22 + opt.body_size + strlen("UNIQ_KEY") + 1);
    request->size += size;
}

static void build_request(struct request *request, int queue) {
    char properties[160];
    request->bytes = calloc(1, 4096 + (size_t)opt.batch * (opt.body_size + 256) + opt.body_size);
    switch (opt.mode) {
    case ECHO:
        request->size = opt.body_size;
        request->opaque_at = 8;
        memset(request->bytes + 12, 'x', opt.body_size - 12);
        break;
    case SINGLE:
        sprintf(properties, "UNIQ_KEY\\u0001%s\\u0002WAIT\\u0001true\\u0002TAGS\\u0001TagA", unique_key());
        json_send_header(request, 310, queue, properties);
        add_key(request, place_of(request, 8, unique_key()));
        append_body(request);
        break;
    case BINARY:
        sprintf(properties, "UNIQ_KEY\001%s\002WAIT\001true\002TAGS\001TagA", unique_key());
        binary_send_header(request, queue, properties);
        add_key(request, place_of(request, 8, unique_key()));
        append_body(request);
        break;
    case BATCH:
        json_send_header(request, 320, queue, "WAIT\\u0001true");
        for (int i = 0; i < opt.batch; i++) append_inner_message(request);
        break;
    case PULL:
        json_header(request, 11,
                    "\"queueId\":\"%d\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"4\",\"suspendTimeoutMillis\":\"15000\","
                    "\"commitOffset\":\"0\",\"topic\":\"%s\",\"queueOffset\":\"%0*d\",\"expressionType\":\"TAG\","
                    "\"subscription\":\"*\",\"subVersion\":\"1700000000000\",\"consumerGroup\":\"load_consumers\"",
                    queue, opt.batch, opt.topic, OFFSET_DIGITS, 0);
        request->offset_at = place_of(request, 8, "\"queueOffset\":\"") + strlen("\"queueOffset\":\"");
        break;
    }
    end_frame(request);
}

/* Takes the top-level "code" and "opaque" of a JSON header; keys inside extFields do not count. */
static int json_answer(const unsigned char *p, const unsigned char *end, long *code, long *opaque) {
    int depth = 0, found = 0;
    while (p < end) {
        unsigned char c = *p++;
        if (c == '{' || c == '[') depth++;
        else if (c == '}' || c == ']') depth--;
        else if (c == '"') {
            const unsigned char *word = p;
            while (p < end && *p != '"') p += *p == '\\' ? 2 : 1;
            size_t size = p++ - word;
            if (depth != 1 || p >= end || *p != ':') continue;
            long *field = size == 4 && !memcmp(word, "code", 4)     ? code
                          : size == 6 && !memcmp(word, "opaque", 6) ? opaque
                                                                    : NULL;
            if (!field) continue;
            long value = 0, sign = 1;
            do p++;
            while (p < end && *p == ' ');
            if (p < end && *p == '-') sign = -1, p++;
            while (p < end && *p >= '0' && *p <= '9') value = value * 10 + *p++ - '0';
            *field = sign * value;
            found++;
        }
    }
    return found == 2;
}

static int records_in(const unsigned char *p, const unsigned char *end) {
    int count = 0;
    while (end - p >= 8) {
        uint32_t size = get32(p), magic = get32(p + 4);
        if ((magic != 0xDAA320A7u && magic != 0xDAA320A3u) || size < 91 || size > (size_t)(end - p)) return -1;
        p += size;
        count++;
    }
    return p == end ? count : -1;
}

static void note_refusal(long code, const unsigned char *header, size_t size) {
    refused++;
    if (first_refusal != -1) return;
    first_refusal = code;
    const unsigned char *remark = memmem(header, size, "\"remark\":", 9);
    if (!remark) return;
    remark += 9;
    while (remark < header + size && (*remark == ' ' || *remark == '"')) remark++;
    size_t used = 0;
    while (remark < header + size && *remark != '"' && *remark != '\\' && used < sizeof first_remark - 1)
        first_remark[used++] = *remark++;
}

/* Decodes one answer (frame of `size` bytes after the length word) and accounts for it. */
static void take_answer(struct connection *c, const unsigned char *frame, size_t size, uint64_t read_ns) {
    long code = 0, opaque = -1;
    const unsigned char *end = frame + size, *header = frame + 4, *body = end;
    int count = opt.mode == BATCH ? opt.batch : 1;
    if (opt.mode == ECHO) {
        opaque = size == (size_t)opt.body_size - 4 ? (long)get32(frame + 4) : -1;
    } else {
        uint32_t word = get32(frame);
        size_t header_size = word & 0xffffff;
        if (header_size + 4 > size) fail("an answer whose header is longer than its frame");
        body = header + header_size;
        if (word >> 24 == 1 && header_size >= 9)
            code = header[0] << 8 | header[1], opaque = get32(header + 5);
        else if (word >> 24 != 0 || !json_answer(header, body, &code, &opaque))
            fail("an answer with an unreadable header: %.*s", (int)header_size, header);
    }
    uint64_t sequence = (uint64_t)opaque - OPAQUE_BASE, *slot = &c->sent_ns[sequence & slot_mask];
    /* The slot must be in flight, and with this very sequence number, not one a lap before. */
    if (opaque < OPAQUE_BASE || c->sequence - 1 - sequence > slot_mask || !*slot) {
        mismatched++;
        return;
    }
    uint64_t latency = read_ns - *slot;
    *slot = 0;
    c->in_flight--;
    if (code != 0) {
        note_refusal(code, header, body - header);
        return;
    }
    if (opt.mode == PULL) {
        count = records_in(body, end);
        if (count != opt.batch) short_pulls++;
        if (count < 0) count = 0;
    }
    if (!measuring || !c->is_measured) return;
    requests++;
    messages += count;
    record_latency(latency);
}

static void read_answers(struct connection *c) {
    ssize_t got = read(c->fd, c->input + c->input_size,
                       INPUT_SIZE - c->input_size < READ_SIZE ? INPUT_SIZE - c->input_size : READ_SIZE);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker closed a connection (%s)", got ? strerror(errno) : "end of stream");
    c->input_size += got;
    uint64_t read_ns = now_ns();
    size_t at = 0;
    while (c->input_size - at >= 4) {
        size_t size = get32(c->input + at);
        if (size + 4 > INPUT_SIZE) fail("an answer of %zu bytes", size);
        if (c->input_size - at < size + 4) break;
        take_answer(c, c->input + at + 4, size, read_ns);
        at += size + 4;
    }
    memmove(c->input, c->input + at, c->input_size - at);
    c->input_size -= at;
}

/* Writes the offset of the next pull as clients do, without leading zeros; returns the frame's size. */
static size_t put_pull_offset(struct connection *c, unsigned char *out) {
    const struct request *r = &c->request;
    int digits = sprintf((char *)out + r->offset_at, "%lld", (long long)c->pull_offset);
    size_t rest = r->offset_at + OFFSET_DIGITS, size = r->size - OFFSET_DIGITS + digits;
    memcpy(out + r->offset_at + digits, r->bytes + rest, r->size - rest);
    put32(out, size - 4);
    put32(out + 4, size - 8);
    c->pull_offset += opt.batch;
    if (c->pull_offset + opt.batch > c->pull_max) c->pull_offset = c->pull_min;
    return size;
}

static void fill_window(struct connection *c) {
    struct request *r = &c->request;
    long half = c->window > 1 ? c->window / 2 : 1;
    if (c->window - c->in_flight < half || c->output_size) return;
    uint64_t sent_ns = now_ns(), born_ms = wall_ms();
    for (; c->in_flight < c->window; c->in_flight++, c->sequence++) {
        size_t size = r->size;
        uint64_t *slot = &c->sent_ns[c->sequence & slot_mask];
        if (*slot) break; /* answers overtook this one by several windows: wait for it */
        *slot = sent_ns;
        unsigned char *out = c->output + c->output_size;
        memcpy(out, r->bytes, r->size);
        if (r->offset_at) size = put_pull_offset(c, out);
        unsigned char *opaque_at = out + r->opaque_at - (r->size - size);
        uint32_t opaque = OPAQUE_BASE + c->sequence;
        if (r->opaque_is_text) put_digits(opaque_at, 8, opaque);
        else put32(opaque_at, opaque);
        if (r->born_at) put_digits(out + r->born_at, 13, born_ms);
        for (int i = 0; i < r->key_count; i++)
            put_hex(out + r->counter_at[i], UNIQUE_KEY_COUNTER_SIZE, key_counter++);
        c->output_size += size;
    }
}

static void write_requests(struct connection *c, int epoll) {
    while (c->output_sent < c->output_size) {
        ssize_t wrote = write(c->fd, c->output + c->output_sent, c->output_size - c->output_sent);
        if (wrote < 0 && errno == EINTR) continue;
        if (wrote < 0 && errno == EAGAIN) break;
        if (wrote < 0) fail("the broker closed a connection (%s)", strerror(errno));
        c->output_sent += wrote;
    }
    int blocked = c->output_sent < c->output_size;
    if (!blocked) c->output_size = c->output_sent = 0;
    if (blocked == c->wants_write) return;
    c->wants_write = blocked;
    struct epoll_event event = {EPOLLIN | (blocked ? EPOLLOUT : 0), {.ptr = c}};
    epoll_ctl(epoll, EPOLL_CTL_MOD, c->fd, &event);
}

/* One GET_MIN_OFFSET or GET_MAX_OFFSET, waited for on the still blocking socket. */
static int64_t ask_offset(struct connection *c, int code, int queue) {
    unsigned char bytes[4096];
    struct request request = {.bytes = bytes};
    json_header(&request, code, "\"queueId\":\"%d\",\"topic\":\"%s\"", queue, opt.topic);
    end_frame(&request);
    if (write(c->fd, bytes, request.size) != (ssize_t)request.size) fail("cannot ask for an offset");
    size_t have = 0, want = 4;
    while (have < want) {
        ssize_t got = read(c->fd, bytes + have, want - have);
        if (got <= 0) fail("no answer to request code %d", code);
        have += got;
        if (have == 4 && want == 4) want = 4 + get32(bytes);
        if (want > sizeof bytes - 1) fail("an answer of %zu bytes to request code %d", want, code);
    }
    bytes[want] = 0;
    char *offset = strstr((char *)bytes + 8, "\"offset\":");
    if (!offset) fail("request code %d on topic %s was refused: %s", code, opt.topic, bytes + 8);
    offset += strlen("\"offset\":");
    return atoll(offset + strspn(offset, " \""));
}

static void connect_to_broker(struct connection *c, int index, int epoll) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(opt.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, queue = index % opt.queues;
    c->is_measured = index < opt.connections;
    c->window = c->is_measured ? opt.in_flight : opt.flood;
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(c->fd, (struct sockaddr *)&address, sizeof address))
        fail("cannot connect to port %d: %s", opt.port, strerror(errno));
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    build_request(&c->request, queue);
    if (opt.mode == PULL) {
        c->pull_min = c->pull_offset = ask_offset(c, GET_MIN_OFFSET, queue);
        c->pull_max = ask_offset(c, GET_MAX_OFFSET, queue);
        if (c->pull_max - c->pull_min < opt.batch)
            fail("queue %d of topic %s holds %lld messages, fewer than one pull of %d; send some first", queue,
                 opt.topic, (long long)(c->pull_max - c->pull_min), opt.batch);
    }
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->input = malloc(INPUT_SIZE);
    c->output = malloc(c->request.size * c->window);
    c->sent_ns = calloc(slot_mask + 1, sizeof *c->sent_ns);
    struct epoll_event event = {EPOLLIN, {.ptr = c}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
}

static void parse_options(int count, char **words) {
    static const struct option names[] = {
        {"mode", 1, 0, 'm'},    {"port", 1, 0, 'p'},    {"connections", 1, 0, 'c'}, {"in-flight", 1, 0, 'd'},
        {"body", 1, 0, 'b'},    {"batch", 1, 0, 'n'},   {"seconds", 1, 0, 's'},     {"warm-up", 1, 0, 'w'},
        {"queues", 1, 0, 'q'},  {"pid", 1, 0, 'P'},     {"topic", 1, 0, 't'},       {"drain", 1, 0, 'D'},
        {"flood", 1, 0, 'f'},
        {0, 0, 0, 0}};
    for (int name; (name = getopt_long(count, words, "", names, NULL)) != -1;) switch (name) {
        case 'm':
            for (opt.mode = ECHO; opt.mode <= PULL && strcmp(optarg, MODE_NAMES[opt.mode]); opt.mode++);
            if (opt.mode > PULL) fail("unknown mode %s: echo, single, binary, batch or pull", optarg);
            break;
        case 'p': opt.port = atoi(optarg); break;
        case 'c': opt.connections = atoi(optarg); break;
        case 'd': opt.in_flight = atoi(optarg); break;
        case 'f': opt.flood = atoi(optarg); break;
        case 'b': opt.body_size = atoi(optarg); break;
        case 'n': opt.batch = atoi(optarg); break;
        case 's': opt.seconds = atof(optarg); break;
        case 'w': opt.warm_up_s = atof(optarg); break;
        case 'q': opt.queues = atoi(optarg); break;
        case 'P': opt.pid = atoi(optarg); break;
        case 'D': opt.drain_s = atof(optarg); break;
        case 't': opt.topic = optarg; break;
        default: exit(2);
        }
    if (opt.connections < 1 || opt.in_flight < 1 || opt.queues < 1 || opt.batch < 1 || opt.body_size < 0 ||
        opt.flood < 0)
        fail("counts must be at least 1");
    if (opt.batch > MESSAGES_PER_REQUEST_MAX) fail("at most %d messages a request", MESSAGES_PER_REQUEST_MAX);
    if (opt.mode == ECHO && opt.body_size < 16) fail("an echo frame has at least 16 bytes");
}

static void run_until(int epoll, uint64_t end_ns, int sending) {
    struct epoll_event events[64];
    while (now_ns() < end_ns) {
        long in_flight = 0;
        int count = epoll_wait(epoll, events, 64, 10);
        for (int i = 0; i < count; i++) {
            struct connection *c = events[i].data.ptr;
            if (events[i].events & ~EPOLLOUT) read_answers(c);
            if (sending) fill_window(c);
            if (c->output_size) write_requests(c, epoll);
        }
        for (int i = 0; i < connection_count && !sending; i++) in_flight += connections[i].in_flight;
        if (!sending && !in_flight) break;
    }
}

int main(int count, char **words) {
    parse_options(count, words);
    long window_max = opt.flood > opt.in_flight ? opt.flood : opt.in_flight;
    for (slot_mask = 1; slot_mask < 4u * window_max; slot_mask *= 2);
    slot_mask--;
    key_counter = (wall_ms() & 0x3fffffff) << 16; /* no key of an earlier run comes again */
    connection_count = opt.connections + (opt.flood > 0);
    connections = calloc(connection_count, sizeof *connections);
    int epoll = epoll_create1(0);
    for (int i = 0; i < connection_count; i++) connect_to_broker(connections + i, i, epoll);
    for (int i = 0; i < connection_count; i++) fill_window(connections + i), write_requests(connections + i, epoll);

    run_until(epoll, now_ns() + opt.warm_up_s * 1e9, 1);
    double cpu = opt.pid ? cpu_seconds_of(opt.pid) : 0, own_cpu = own_cpu_seconds();
    uint64_t start_ns = now_ns();
    measuring = 1;
    run_until(epoll, start_ns + opt.seconds * 1e9, 1);
    measuring = 0;
    double seconds = (now_ns() - start_ns) * 1e-9;
    cpu = opt.pid ? cpu_seconds_of(opt.pid) - cpu : 0;
    own_cpu = own_cpu_seconds() - own_cpu;

    run_until(epoll, now_ns() + opt.drain_s * 1e9, 0);
    long unanswered = 0;
    for (int i = 0; i < connection_count; i++) unanswered += connections[i].in_flight;
    printf("{\"mode\":\"%s\",\"connections\":%d,\"in_flight\":%d,\"seconds\":%.3f,\"requests\":%ld,\"messages\":%ld,"
           "\"messages_per_s\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,\"cpu_us_per_message\":%.3f,"
           "\"cpu_share\":%.3f,\"load_cpu_share\":%.3f,\"refused\":%ld,\"mismatched\":%ld,\"unanswered\":%ld,"
           "\"short_pulls\":%ld,\"first_refusal\":%d,\"first_remark\":\"%s\"}\n",
           MODE_NAMES[opt.mode], opt.connections, opt.in_flight, seconds, requests, messages, messages / seconds,
           latency_us(0.5), latency_us(0.99), latency_max_ns * 1e-3, messages ? cpu * 1e6 / messages : 0,
           cpu / seconds, own_cpu / seconds, refused, mismatched, unanswered, short_pulls, first_refusal,
           first_remark);
    return refused || mismatched || unanswered || short_pulls || !messages;
}
