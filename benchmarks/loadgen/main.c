/* Options, the loop, the result: one line of JSON on standard output. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/timerfd.h>
#include <unistd.h>

const char *const MODE_NAMES[MODE_COUNT] = {"echo",        "single", "binary", "v1",  "oneway",   "batch", "delay",
                                            "transaction", "commit", "pull",   "sql", "longpull", "pop",
                                            "redis",       "nats",   "amqp",   "amqp-quorum", "kafka", "kafka-batch", "kafka-fetch", "redis-range"};
enum { BYTES_IN_FLIGHT_MAX = 64 << 20, SLOTS_MIN = 1024, TOPICS_COUNTED_MAX = 16 };
enum { TICK_NS_MIN = 100000, TICKS_WAITING_MAX = 1 << 20, POLL_US = 10000 };

struct options opt = {.mode = SINGLE, .port = 10911, .connections = 4, .in_flight = 64, .queues = 4, .topics = 1,
                      .body_size = 128, .batch = 32, .delay_level = 3, .warm_up_s = 0.5, .seconds = 3.0,
                      .drain_s = 10.0, .topic = "LoadTest", .broker = "broker-a"};

struct connection *connections;
int connection_count, measuring, sending, first_refusal = -1;
long refused, mismatched, short_pulls, messages, requests, lost;
uint64_t counted_in_queues;
char first_remark[160];

/* The messages that are due and wait for a window, tick by tick. */
static struct {
    uint64_t due_ns;
    long count;
} ticks[TICKS_WAITING_MAX];
static long first_tick, tick_count, paced_count;
static uint64_t pace_start_ns;
static int pace_fd = -1;

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("loadgen: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(2);
}

int is_counted_in_queues(void) { return opt.mode == ONEWAY || opt.mode == TRANSACTION; }

static enum mode mode_named(const char *name) {
    for (int mode = ECHO; mode < MODE_COUNT; mode++)
        if (!strcmp(name, MODE_NAMES[mode])) return mode;
    fail("unknown mode %s", name);
}

static void check_options(void) {
    if (opt.connections < 1 || opt.in_flight < 1 || opt.queues < 1 || opt.topics < 1 || opt.batch < 1 ||
        opt.body_size < 0 || opt.flood < 0 || opt.rate < 0)
        fail("counts must be at least 1");
    if (opt.batch > MESSAGES_PER_REQUEST_MAX) fail("at most %d messages a request", MESSAGES_PER_REQUEST_MAX);
    if (opt.mode == ECHO && opt.body_size < 16) fail("an echo frame has at least 16 bytes");
    int is_plain_send = opt.mode >= SINGLE && opt.mode <= DELAY;
    if (opt.topics > 1 && (!is_plain_send || opt.mode == BINARY)) fail("--topics is for sends with JSON headers");
    if (is_counted_in_queues() && opt.topics > TOPICS_COUNTED_MAX)
        fail("messages are counted in the queues of %d topics at most", TOPICS_COUNTED_MAX);
    if ((opt.rate || opt.flood) && (is_counted_in_queues() || opt.mode >= LONGPULL))
        fail("neither --rate nor --flood is for %s", MODE_NAMES[opt.mode]);
    if (opt.access_key && (!is_plain_send || is_counted_in_queues() || opt.mode == BINARY || opt.topics > 1))
        fail("--access-key is for sends to one topic with JSON headers and answers");
    if (!opt.access_key != !opt.secret) fail("--access-key needs --secret, and vice versa");
    if (opt.mode == LONGPULL) opt.batch = 1, opt.queues = opt.connections * opt.in_flight;
}

static void parse_options(int count, char **words) {
    static const struct option names[] = {
        {"mode", 1, 0, 'm'},     {"port", 1, 0, 'p'},     {"connections", 1, 0, 'c'}, {"in-flight", 1, 0, 'd'},
        {"body", 1, 0, 'b'},     {"batch", 1, 0, 'n'},    {"seconds", 1, 0, 's'},     {"warm-up", 1, 0, 'w'},
        {"queues", 1, 0, 'q'},   {"pid", 1, 0, 'P'},      {"topic", 1, 0, 't'},       {"drain", 1, 0, 'D'},
        {"flood", 1, 0, 'f'},    {"topics", 1, 0, 'T'},   {"rate", 1, 0, 'r'},        {"delay-level", 1, 0, 'l'},
        {"property", 0, 0, 'a'}, {"broker", 1, 0, 'B'},   {"access-key", 1, 0, 'k'},
        {"secret", 1, 0, 'S'},   {0, 0, 0, 0}};
    for (int name; (name = getopt_long(count, words, "", names, NULL)) != -1;) switch (name) {
        case 'm': opt.mode = mode_named(optarg); break;
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
        case 'T': opt.topics = atoi(optarg); break;
        case 'r': opt.rate = atof(optarg); break;
        case 'l': opt.delay_level = atoi(optarg); break;
        case 'a': opt.property = 1; break;
        case 'B': opt.broker = optarg; break;
        case 'k': opt.access_key = optarg; break;
        case 'S': opt.secret = optarg; break;
        default: exit(2);
        }
    check_options();
}

/* Limits the bytes in flight to 64 MiB: windows shrink, at least to one request. */
static void bound_windows(void) {
    if (opt.mode == LONGPULL) return; /* its queues are counted by the window, and its messages are small */
    long size = foreign() ? (long)opt.body_size * opt.batch + 1 : (long)main_request(0)->size, most = BYTES_IN_FLIGHT_MAX / size / opt.connections;
    if (most < 1) fail("%d requests of %ld bytes are more than may be in flight", opt.connections, size);
    if (opt.in_flight > most) opt.in_flight = most;
}

static void start_pace(int epoll) {
    if (!opt.rate) return;
    double tick_ns = 1e9 / opt.rate < TICK_NS_MIN ? TICK_NS_MIN : 1e9 / opt.rate;
    struct timespec tick = {.tv_sec = tick_ns / 1e9, .tv_nsec = (long)tick_ns % 1000000000};
    struct itimerspec every = {tick, tick};
    struct epoll_event event = {EPOLLIN, {.ptr = NULL}};
    pace_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    timerfd_settime(pace_fd, 0, &every, NULL);
    epoll_ctl(epoll, EPOLL_CTL_ADD, pace_fd, &event);
    pace_start_ns = now_ns();
}

static void note_tick(void) {
    uint64_t expired, now = now_ns();
    if (read(pace_fd, &expired, sizeof expired) != sizeof expired) return;
    long messages_each = opt.mode == BATCH || opt.mode == PULL || opt.mode == SQL ? opt.batch : 1;
    long due = (now - pace_start_ns) * 1e-9 * opt.rate / messages_each - paced_count;
    if (due < 1) return;
    if (tick_count == TICKS_WAITING_MAX) fail("the broker is far behind %.0f messages a second", opt.rate);
    ticks[(first_tick + tick_count) % TICKS_WAITING_MAX].due_ns = now;
    ticks[(first_tick + tick_count++) % TICKS_WAITING_MAX].count = due;
    paced_count += due;
}

static int send_paced(uint64_t due_ns) {
    static int next;
    for (int tried = 0; tried < opt.connections; tried++) {
        struct connection *c = connections + next;
        next = (next + 1) % opt.connections;
        if (send_one(c, due_ns)) return 1;
    }
    return 0;
}

static void keep_pace(int epoll) {
    while (tick_count && send_paced(ticks[first_tick].due_ns))
        if (!--ticks[first_tick].count) first_tick = (first_tick + 1) % TICKS_WAITING_MAX, tick_count--;
    for (int i = 0; i < opt.connections; i++)
        if (connections[i].output_size) write_requests(connections + i, epoll);
}

static long requests_in_flight(void) {
    long in_flight = 0;
    for (int i = 0; i < connection_count; i++) in_flight += connections[i].in_flight;
    return in_flight;
}

static void serve(struct connection *c, uint32_t events, int epoll) {
    if (events & ~EPOLLOUT) read_answers(c);
    if (sending) fill_window(c);
    if (c->output_size) write_requests(c, epoll);
}

static void run_until(int epoll, uint64_t end_ns) {
    struct epoll_event events[64];
    while (now_ns() < end_ns) {
        int count = epoll_wait(epoll, events, 64, 10);
        for (int i = 0; i < count; i++)
            if (events[i].data.ptr) serve(events[i].data.ptr, events[i].events, epoll);
            else note_tick();
        if (opt.rate && sending) keep_pace(epoll);
        if (opt.mode == LONGPULL) release_parked(epoll);
        if (!sending && !requests_in_flight()) break;
    }
}

static void connect_all(int epoll) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    uint64_t window_max = opt.flood > opt.in_flight ? opt.flood : opt.in_flight;
    for (slot_mask = SLOTS_MIN; slot_mask < 4 * window_max; slot_mask *= 2);
    slot_mask--;
    connection_count = opt.connections + (opt.mode == LONGPULL ? opt.connections : opt.flood > 0);
    connections = calloc(connection_count, sizeof *connections);
    for (int i = 0; i < connection_count; i++) connect_to_broker(connections + i, i, epoll);
}

/* Checks that exactly the sent messages arrive in the queues, for sends without answers. */
static void look_for_lost(uint64_t before, uint64_t end_ns) {
    long missing;
    do {
        missing = before + counted_in_queues - messages_in_queues();
        if (missing) usleep(POLL_US);
    } while (missing > 0 && now_ns() < end_ns);
    lost = labs(missing);
}

static void print_result(double seconds, double cpu_s, double own_cpu_s, long unanswered) {
    printf("{\"mode\":\"%s\",\"connections\":%d,\"in_flight\":%d,\"seconds\":%.3f,\"requests\":%ld,\"messages\":%ld,"
           "\"messages_per_s\":%.0f,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,\"cpu_us_per_message\":%.3f,"
           "\"cpu_share\":%.3f,\"load_cpu_share\":%.3f,\"refused\":%ld,\"mismatched\":%ld,\"unanswered\":%ld,"
           "\"short_pulls\":%ld,\"lost\":%ld,\"first_refusal\":%d,\"first_remark\":\"%s\"}\n",
           MODE_NAMES[opt.mode], opt.connections, opt.in_flight, seconds, requests, messages, messages / seconds,
           latency_us(0.5), latency_us(0.99), latency_max_ns * 1e-3, messages ? cpu_s * 1e6 / messages : 0,
           cpu_s / seconds, own_cpu_s / seconds, refused, mismatched, unanswered, short_pulls, lost, first_refusal,
           first_remark);
}

int main(int count, char **words) {
    parse_options(count, words);
    start_keys();
    bound_windows();
    int epoll = epoll_create1(0);
    connect_all(epoll);
    uint64_t before = is_counted_in_queues() ? messages_in_queues() : 0, counted = 0;
    start_flows();
    start_pace(epoll);
    sending = 1;
    for (int i = 0; i < connection_count; i++) serve(connections + i, 0, epoll);

    run_until(epoll, now_ns() + opt.warm_up_s * 1e9);
    if (is_counted_in_queues()) counted = messages_in_queues();
    double cpu = opt.pid ? cpu_seconds_of(opt.pid) : 0, own_cpu = own_cpu_seconds();
    uint64_t start_ns = now_ns();
    measuring = 1;
    run_until(epoll, start_ns + opt.seconds * 1e9);
    measuring = 0;
    if (is_counted_in_queues()) messages = messages_in_queues() - counted;
    double seconds = (now_ns() - start_ns) * 1e-9;
    cpu = opt.pid ? cpu_seconds_of(opt.pid) - cpu : 0;
    own_cpu = own_cpu_seconds() - own_cpu;

    sending = 0;
    uint64_t end_ns = now_ns() + opt.drain_s * 1e9;
    run_until(epoll, end_ns);
    if (is_counted_in_queues()) look_for_lost(before, end_ns);
    long unanswered = requests_in_flight();
    print_result(seconds, cpu, own_cpu, unanswered);
    return refused || mismatched || unanswered || short_pulls || lost || !messages;
}
