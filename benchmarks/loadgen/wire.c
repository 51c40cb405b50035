/* Connections, their buffers and their requests in flight. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OPAQUE_BASE = 10000000 }; /* eight digits, for the first 90 million requests of a connection */
enum { INPUT_SIZE = 256 << 10, INPUT_SIZE_MAX = 32 << 20, READ_SIZE = 256 << 10 };

uint64_t slot_mask;

int connect_socket(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(opt.port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (struct sockaddr *)&address, sizeof address))
        fail("cannot connect to port %d: %s", opt.port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    return fd;
}

void connect_to_broker(struct connection *c, int index, int epoll) {
    c->index = index;
    c->queue = index % opt.queues;
    c->is_measured = index < opt.connections;
    c->fd = connect_socket();
    c->input = malloc(c->input_capacity = INPUT_SIZE);
    if (foreign()) foreign()->greet(c);
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    c->slots = calloc(slot_mask + 1, sizeof *c->slots);
    struct epoll_event event = {EPOLLIN, {.ptr = c}};
    epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &event);
}

/* Reserves room for `size` more bytes of output. */
unsigned char *reserve(struct connection *c, size_t size) {
    if (c->output_size + size > c->output_capacity) {
        c->output_capacity = 2 * (c->output_size + size);
        c->output = realloc(c->output, c->output_capacity);
        if (!c->output) fail("no memory for %zu bytes of output", c->output_capacity);
    }
    return c->output + c->output_size;
}

uint32_t next_opaque(struct connection *c) { return opaque_of(c->sequence++); }
uint32_t opaque_of(uint64_t sequence) { return OPAQUE_BASE + sequence; }

/* Returns the slot of the next opaque; NULL while its last user still waits, overtaken by several windows. */
struct slot *take_slot(struct connection *c, enum kind kind, int weight, uint64_t sent_ns) {
    struct slot *slot = &c->slots[c->sequence & slot_mask];
    if (slot->sent_ns) return NULL;
    *slot = (struct slot){.sent_ns = sent_ns, .sequence = c->sequence, .kind = kind, .weight = weight};
    c->in_flight += weight;
    return slot;
}

/* Returns the slot of the request in flight with exactly this opaque, not one of a lap before; else NULL. */
struct slot *slot_of(struct connection *c, long opaque) {
    if (opaque < OPAQUE_BASE) return NULL;
    uint64_t sequence = (uint64_t)opaque - OPAQUE_BASE;
    struct slot *slot = &c->slots[sequence & slot_mask];
    return slot->sent_ns && slot->sequence == sequence ? slot : NULL;
}

static void make_room(struct connection *c, size_t size) {
    if (size > INPUT_SIZE_MAX) fail("an answer of %zu bytes", size);
    if (size <= c->input_capacity) return;
    c->input = realloc(c->input, c->input_capacity = 2 * size);
    if (!c->input) fail("no memory for an answer of %zu bytes", size);
}

/* Processes the complete answers; returns their size. */
static size_t take_foreign(struct connection *c, uint64_t read_ns) {
    const struct protocol *protocol = foreign();
    size_t at = 0;
    for (size_t size; (size = protocol->answer_size(c->input + at, c->input_size - at)); at += size)
        protocol->take(c, c->input + at, size, read_ns);
    return at;
}

void read_answers(struct connection *c) {
    size_t room = c->input_capacity - c->input_size;
    ssize_t got = read(c->fd, c->input + c->input_size, room < READ_SIZE ? room : READ_SIZE);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0) fail("the broker closed a connection (%s)", got ? strerror(errno) : "end of stream");
    c->input_size += got;
    uint64_t read_ns = now_ns();
    size_t at = 0, size = 0;
    if (foreign()) {
        at = take_foreign(c, read_ns);
        size = c->input_size - at;
    } else
        for (; c->input_size - at >= 4; at += size + 4, size = 0) {
            size = get32(c->input + at);
            if (c->input_size - at < size + 4) break;
            take_answer(c, c->input + at + 4, size, read_ns);
        }
    memmove(c->input, c->input + at, c->input_size - at);
    c->input_size -= at;
    make_room(c, size + 4);
}

void write_requests(struct connection *c, int epoll) {
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
