/* Load generator for one broker: C connections, each keeping D requests in flight.
 *
 * One thread uses epoll.  Each request has its own opaque, born timestamp and unique keys of
 * messages, as a real client's has, so that a broker cannot reuse anything wrongly.  Every answer is
 * decoded: its opaque must belong to a request still in flight, its code must be 0, and a pull must
 * return as many records as it requested.  Violations are counted and printed, and the exit status
 * is then 1.
 *
 * A connection refills its window when half of it is free, so requests travel in bursts, as from a
 * client's send buffer.  It sends to, or pulls from, one queue: connection number modulo the number
 * of queues.  With --topics N its requests cycle through the topics TOPIC-0 to TOPIC-(N-1).  Pulls
 * read that queue from its minimum to its maximum, repeatedly.
 *
 * With --rate R, R messages are sent per second, regardless of answers, as long as the windows
 * allow.  The latency of a message that waits for a window counts from the time when it was due.
 *
 * With --flood F, an additional connection keeps F requests in flight and is not measured; only its
 * effect on the others is.
 *
 *   main.c      options, the loop, the result
 *   requests.c  the requests, prepared except for the parts that change
 *   signing.c   signatures of sends, with --access-key and --secret
 *   answers.c   frames, headers and records of answers
 *   flows.c     how each mode processes its answers, and what it sends next
 *   wire.c      connections, their buffers and their requests in flight
 *   asking.c    requests outside of the load: the offsets of queues
 *   measure.c   clocks, CPU time, latencies
 *   foreign.c   the common code of other brokers' protocols; redis.c, nats.c, amqp.c, kafka.c: one each
 *
 * Frame:  total size (4, without itself) | serialization (1) | header size (3) | header | body
 * JSON header: text.  Binary header: code (2) language (1) version (2) opaque (4) flag (4)
 *              remark size (4) remark, ext size (4), then key size (2) key value size (4) value ...
 */
#ifndef LOADGEN_H
#define LOADGEN_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum mode {
    ECHO,        /* frames of a bare echo */
    SINGLE,      /* SEND_MESSAGE_V2, JSON */
    BINARY,      /* the same with a binary header */
    V1,          /* SEND_MESSAGE, whose fields have long names */
    ONEWAY,      /* bursts of sends without an answer, the last of each with one; counted in queues */
    BATCH,       /* SEND_BATCH_MESSAGE */
    DELAY,       /* sends with a delay level */
    TRANSACTION, /* a half message and its commit; counted in queues, where commits make them visible */
    COMMIT,      /* UPDATE_CONSUMER_OFFSET */
    PULL,        /* pulls of whole batches */
    SQL,         /* the same with a filter that matches 12 of 32 messages */
    LONGPULL,    /* parked pulls of one message, and another connection's sends that release them */
    POP,         /* pops of whole batches, each message acknowledged separately */
    REDIS,       /* XADD to streams */
    NATS,        /* PUB to JetStream, each with an inbox for its acknowledgement */
    AMQP,        /* persistent messages to durable classic queues, with confirms */
    AMQP_QUORUM, /* the same to quorum queues */
    KAFKA,       /* Produce of one record, acks=all */
    KAFKA_BATCH, /* Produce of one batch of records */
    KAFKA_FETCH, /* Fetch of one batch of records */
    REDIS_RANGE, /* XRANGE of whole batches */
    MODE_COUNT
};
extern const char *const MODE_NAMES[MODE_COUNT];

enum { MESSAGES_PER_REQUEST_MAX = 1024, FIELDS_MAX = 32 };

struct options {
    enum mode mode;
    int port, connections, in_flight, flood, queues, topics, body_size, batch, delay_level, property;
    double warm_up_s, seconds, drain_s, rate;
    pid_t pid;
    const char *topic, *broker, *access_key, *secret; /* without an access key nothing is signed */
};
extern struct options opt;

/* A field of a JSON header. */
struct field {
    size_t name_at, name_size, value_at, value_size;
};

/* A prepared request, and the places in it that change. */
struct request {
    unsigned char *bytes;
    size_t size, opaque_at, born_at, flag_at;
    size_t cut; /* the place of a text of any size; places after it move by that size */
    int opaque_is_text;
    int key_count;
    size_t counter_at[MESSAGES_PER_REQUEST_MAX]; /* the last 12 hex digits of each unique key */
    size_t signature_at;                         /* 0: it is not signed */
    size_t signed_size;                          /* of the frame before the body */
    struct field fields[FIELDS_MAX];             /* all but the signature, sorted by name */
    int field_count;
};

enum kind { MAIN, END, ACK, RELEASE };

/* A request in flight. */
struct slot {
    uint64_t sent_ns; /* 0 = free */
    uint64_t sequence;
    enum kind kind;
    int weight; /* its share of the window */
    int about;  /* the queue of a parked pull */
};

struct connection {
    int fd, index, queue;
    unsigned char *input, *output;
    size_t input_size, input_capacity, output_size, output_sent, output_capacity;
    struct slot *slots; /* indexed by sequence number modulo slot count */
    uint64_t sequence;  /* the number of the next request */
    long in_flight, window;
    int is_measured, wants_write;
    int64_t offset, offset_min, offset_max; /* the next pull's offset, and the ends of the queue */
    int topic;                              /* the next request's */
    int is_popping, lap, empty_laps;        /* each lap of pops is a separate group */
    unsigned char *template;                /* another protocol's request, or its start */
    size_t template_size;
    uint64_t acknowledged; /* another protocol's: all requests before this one are answered */
};

/* Parts of one answer. */
struct answer {
    long code, opaque;
    const unsigned char *header, *body, *end;
};

/* The protocol of another broker. A request has one send, or one batch, or asks for one batch. An answer other
 * than an acknowledgement or messages ends the run with the broker's text. */
struct protocol {
    int is_batch;
    void (*greet)(struct connection *c); /* everything before the first send, including queues; waits */
    void (*append)(struct connection *c, uint64_t sequence);
    size_t (*answer_size)(const unsigned char *p, size_t size); /* 0 while it is incomplete */
    void (*take)(struct connection *c, const unsigned char *p, size_t size, uint64_t read_ns);
};
extern const struct protocol REDIS_PROTOCOL, NATS_PROTOCOL, AMQP_PROTOCOL, AMQP_QUORUM_PROTOCOL, KAFKA_PROTOCOL,
    KAFKA_BATCH_PROTOCOL, KAFKA_FETCH_PROTOCOL, REDIS_RANGE_PROTOCOL;

/* main.c */
extern struct connection *connections;
extern int connection_count; /* the measured ones, then the flood or the releasers of pulls */
extern int measuring, sending;
extern long refused, mismatched, short_pulls, messages, requests, lost;
extern uint64_t counted_in_queues; /* messages that must be in the queues at the end */
extern int first_refusal;
extern char first_remark[160];
int is_counted_in_queues(void);
__attribute__((noreturn, format(printf, 1, 2))) void fail(const char *format, ...);

/* measure.c */
uint64_t now_ns(void);
uint64_t wall_ms(void);
double cpu_seconds_of(pid_t pid);
double own_cpu_seconds(void);
void record_latency(uint64_t ns);
double latency_us(double quantile);
extern uint64_t latency_max_ns;

/* requests.c */
const struct request *main_request(int queue);
const struct request *follow_up(int queue); /* the request after an answer: an end, an ack, a release */
size_t build_question(unsigned char *bytes, int code, const char *topic, int queue);
const char *topic_name(int topic);
void start_keys(void);
unsigned char *append_request(struct connection *c, const struct request *r, const char *text, uint32_t opaque);

/* signing.c */
void find_fields(struct request *request);
void sign(const struct request *request, unsigned char *bytes);

/* answers.c */
uint32_t get32(const unsigned char *p);
uint64_t get64(const unsigned char *p);
void put16(unsigned char *p, unsigned value);
void put32(unsigned char *p, uint32_t value);
void put64(unsigned char *p, uint64_t value);
void decode_answer(const unsigned char *frame, size_t size, struct answer *answer);
int field_of(const struct answer *answer, const char *name, char *value, size_t capacity);
int records_in(const unsigned char *p, const unsigned char *end);
int matches_in(const unsigned char *p, const unsigned char *end);
void note_refusal(const struct answer *answer);

/* wire.c */
void connect_to_broker(struct connection *c, int index, int epoll);
int connect_socket(void);
unsigned char *reserve(struct connection *c, size_t size);
struct slot *take_slot(struct connection *c, enum kind kind, int weight, uint64_t sent_ns);
uint32_t next_opaque(struct connection *c);
struct slot *slot_of(struct connection *c, long opaque);
uint32_t opaque_of(uint64_t sequence);
void read_answers(struct connection *c);
void write_requests(struct connection *c, int epoll);
extern uint64_t slot_mask;

/* flows.c */
void start_flows(void);
void take_answer(struct connection *c, const unsigned char *frame, size_t size, uint64_t read_ns);
void fill_window(struct connection *c);
int send_one(struct connection *c, uint64_t due_ns);
void release_parked(int epoll);

void take_acknowledgement(struct connection *c, uint64_t sequence, uint64_t read_ns);

/* foreign.c */
const struct protocol *foreign(void); /* NULL for RocketMQ's own */
void write_text(struct connection *c, const void *bytes, size_t size);
const unsigned char *await_answer(struct connection *c, size_t *size);
void drop_answer(struct connection *c, size_t size);
void append_bytes(struct connection *c, const void *bytes, size_t size);
void append_stamped_body(struct connection *c);
void stamp_body(unsigned char *body);
__attribute__((noreturn)) void refuse(const char *broker, const unsigned char *p, size_t size);
size_t line_size(const unsigned char *p, size_t size);

/* asking.c */
int64_t ask_offset(int code, const char *topic, int queue);
uint64_t messages_in_queues(void);
enum { GET_MAX_OFFSET = 30, GET_MIN_OFFSET = 31 };

#endif
