/* How each mode processes its answers, and what it sends next. */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 512, FIELD_SIZE = 256 };
enum { PULL_NOT_FOUND = 19, PULL_RETRY_IMMEDIATELY = 20, POLLING_FULL = 209, POLLING_TIMEOUT = 210 };
/* One in so many ends of transactions is answered, so that the others do not pile up. */
enum { ENDS_PER_ANSWER = 16 };
enum { PARKING_NS = 100000000 };
/* A filter matches 12 of 32 messages: this many times the messages of a pull contain enough matches. */
enum { SQL_STRIDE = 3, SQL_SPAN = 4 };

/* Parked pulls: each queue has one, or a message in flight that releases it. */
static struct parked {
    int64_t offset;
    uint64_t released_ns; /* 0 = not yet */
} *parked;
static uint64_t all_parked_ns; /* when all pulls have presumably been parked once */
static int *parked_queues, first_parked, parked_count; /* a ring, the longest-parked first */

static uint64_t run_id;

static void count_answer(const struct connection *c, uint64_t sent_ns, uint64_t read_ns, int count) {
    if (!measuring || !c->is_measured) return;
    requests++;
    messages += count;
    record_latency(read_ns - sent_ns);
}

static void walk(struct connection *c) {
    int stride = opt.mode == SQL ? SQL_STRIDE * opt.batch : opt.batch;
    int span = opt.mode == SQL ? SQL_SPAN * opt.batch : opt.batch;
    c->offset += stride;
    if (c->offset + span > c->offset_max) c->offset = c->offset_min;
}

static void prepare_walk(struct connection *c) {
    c->offset = c->offset_min = ask_offset(GET_MIN_OFFSET, opt.topic, c->queue);
    c->offset_max = ask_offset(GET_MAX_OFFSET, opt.topic, c->queue);
    int64_t held = c->offset_max - c->offset_min, wanted = opt.mode == SQL ? SQL_SPAN * opt.batch : opt.batch;
    if (held < wanted)
        fail("queue %d of topic %s holds %lld messages, fewer than the %lld of one pull; send some first", c->queue,
             opt.topic, (long long)held, (long long)wanted);
}

static void group_of(const struct connection *c, char *text) {
    sprintf(text, "load_pop_%llx_%d_%d", (unsigned long long)run_id, c->index, c->lap);
}

/* Returns the text in the cut of the next request; NULL if it has none. */
static const char *next_text(struct connection *c, char *text) {
    switch (opt.mode) {
    case COMMIT: sprintf(text, "%lld", (long long)c->offset++); return text;
    case PULL:
    case SQL:
        sprintf(text, "%lld", (long long)c->offset);
        walk(c);
        return text;
    case POP: group_of(c, text); return text;
    default: break;
    }
    if (opt.topics == 1) return NULL;
    c->topic = (c->topic + 1) % opt.topics;
    return topic_name(c->topic);
}

static void send_unanswered(struct connection *c, const struct request *r, const char *text) {
    *append_request(c, r, text, next_opaque(c)) = '2';
    counted_in_queues++;
}

/* Sends the next request; returns 0 if it must wait. */
static int send_next(struct connection *c, uint64_t since_ns) {
    char text[TEXT_SIZE];
    int weight = 1;
    if (foreign()) {
        if (!take_slot(c, MAIN, weight, since_ns)) return 0;
        foreign()->append(c, c->sequence++);
        return 1;
    }
    const struct request *r = main_request(c->queue);
    if (opt.mode == ONEWAY) {
        weight = c->window > 1 ? c->window / 2 : 1;
        for (int i = 1; i < weight; i++) send_unanswered(c, r, next_text(c, text));
    }
    if (!take_slot(c, MAIN, weight, since_ns)) return 0;
    if (opt.mode == ONEWAY) counted_in_queues++;
    append_request(c, r, next_text(c, text), next_opaque(c));
    return 1;
}

void fill_window(struct connection *c) {
    long half = c->window > 1 ? c->window / 2 : 1;
    if (opt.mode == LONGPULL || (opt.rate && c->is_measured)) return;
    if (c->window - c->in_flight < half || c->wants_write) return;
    if (opt.mode == POP) {
        if (!c->is_popping) c->is_popping = send_next(c, now_ns());
        return;
    }
    for (uint64_t since_ns = now_ns(); c->in_flight < c->window && send_next(c, since_ns);) continue;
}

/* Sends a request that was due at that time, if the window allows it. */
int send_one(struct connection *c, uint64_t due_ns) {
    return c->in_flight < c->window && !c->wants_write && send_next(c, due_ns);
}

static void take_half(struct connection *c, const struct answer *answer) {
    static int ends;
    char offset[FIELD_SIZE], id[FIELD_SIZE], transaction[FIELD_SIZE], text[4 * FIELD_SIZE];
    if (!field_of(answer, "queueOffset", offset, sizeof offset) || !field_of(answer, "msgId", id, sizeof id) ||
        !field_of(answer, "transactionId", transaction, sizeof transaction) || strlen(id) < 16)
        fail("a half message was answered without its place: %.*s", (int)(answer->body - answer->header),
             answer->header);
    unsigned long long log_offset = strtoull(id + strlen(id) - 16, NULL, 16);
    sprintf(text, "%s\",\"commitLogOffset\":\"%llu\",\"msgId\":\"%s\",\"transactionId\":\"%s", offset, log_offset,
            transaction, transaction);
    const struct request *end = follow_up(c->queue);
    if (++ends % ENDS_PER_ANSWER || !take_slot(c, END, 1, now_ns())) {
        send_unanswered(c, end, text);
        return;
    }
    append_request(c, end, text, next_opaque(c));
    counted_in_queues++;
}

static void acknowledge(struct connection *c, const struct answer *answer) {
    char pop_time[FIELD_SIZE], invisible[FIELD_SIZE], revive[FIELD_SIZE], start[FIELD_SIZE];
    char group[FIELD_SIZE], text[6 * FIELD_SIZE];
    int retry, queue;
    long long first;
    if (!field_of(answer, "popTime", pop_time, sizeof pop_time) ||
        !field_of(answer, "reviveQid", revive, sizeof revive) ||
        !field_of(answer, "invisibleTime", invisible, sizeof invisible) ||
        !field_of(answer, "startOffsetInfo", start, sizeof start) || strchr(start, ';') ||
        sscanf(start, "%d %d %lld", &retry, &queue, &first) != 3)
        fail("a pop was answered without what an acknowledgement needs: %.*s", (int)(answer->body - answer->header),
             answer->header);
    group_of(c, group);
    for (const unsigned char *p = answer->body; p < answer->end; p += get32(p)) {
        unsigned long long offset = get64(p + 20);
        sprintf(text, "%s\",\"offset\":\"%llu\",\"extraInfo\":\"%lld %s %s %s %d %s %d %llu", group, offset, first,
                pop_time, invisible, revive, retry, opt.broker, queue, offset);
        if (!take_slot(c, ACK, 1, now_ns())) fail("acknowledgements pile up");
        append_request(c, follow_up(c->queue), text, next_opaque(c));
    }
}

/* After a group has emptied its queue, a new group starts at the queue's beginning. */
static void take_pop(struct connection *c, const struct answer *answer, uint64_t sent_ns, uint64_t read_ns) {
    char rest[FIELD_SIZE] = "0";
    c->is_popping = 0;
    if (answer->code == PULL_NOT_FOUND || answer->code == POLLING_FULL || answer->code == POLLING_TIMEOUT) {
        c->lap++;
        if (c->empty_laps++) note_refusal(answer);
        return;
    }
    if (answer->code != 0) {
        note_refusal(answer);
        return;
    }
    int count = records_in(answer->body, answer->end);
    field_of(answer, "restNum", rest, sizeof rest);
    if (count < 1 || (count < opt.batch && atoll(rest) > 0)) short_pulls++;
    if (count < 1) return;
    c->empty_laps = 0;
    acknowledge(c, answer);
    count_answer(c, sent_ns, read_ns, 0);
}

static void park(struct connection *c, int queue) {
    char text[TEXT_SIZE];
    struct slot *slot = NULL;
    /* A pull that the broker has not answered for a while still owns its number when numbers wrap around. */
    for (uint64_t tries = 0; !slot && tries <= slot_mask; tries++)
        if (!(slot = take_slot(c, MAIN, 1, now_ns()))) c->sequence++;
    if (!slot) fail("as many pulls are parked as there are numbers for them");
    slot->about = queue;
    sprintf(text, "%d\",\"queueOffset\":\"%lld", queue, (long long)parked[queue].offset);
    append_request(c, main_request(0), text, next_opaque(c));
    parked[queue].released_ns = 0;
    parked_queues[(first_parked + parked_count++) % opt.queues] = queue;
}

/* Half of the pulls stay parked, so that the released pull has been parked for a while: Apache's broker
 * may take 5 s to notice a message that arrives while its pull is being parked. */
void release_parked(int epoll) {
    int kept = sending ? opt.queues / 2 : 0;
    if (now_ns() < all_parked_ns) return;
    for (; parked_count > kept; parked_count--) {
        int queue = parked_queues[first_parked];
        struct connection *c = connections + opt.connections + queue / opt.in_flight;
        parked[queue].released_ns = now_ns();
        if (!take_slot(c, RELEASE, 1, parked[queue].released_ns)) break;
        append_request(c, follow_up(queue), NULL, next_opaque(c));
        first_parked = (first_parked + 1) % opt.queues;
    }
    for (int i = opt.connections; i < connection_count; i++)
        if (connections[i].output_size) write_requests(connections + i, epoll);
}

static void take_delivered(struct connection *c, const struct answer *answer, int queue, uint64_t read_ns) {
    struct parked *it = parked + queue;
    int count = records_in(answer->body, answer->end);
    if (!it->released_ns) mismatched++;
    else if (answer->code) note_refusal(answer);
    else if (count != 1 || (int64_t)get64(answer->body + 20) != it->offset) short_pulls++;
    else {
        count_answer(c, it->released_ns, read_ns, 1);
        it->offset++;
        if (sending) park(c, queue);
    }
}

/* A filtered pull may return fewer messages than requested, but only matching ones. */
static void take_pulled(struct connection *c, const struct answer *answer, uint64_t sent_ns, uint64_t read_ns) {
    int count = records_in(answer->body, answer->end);
    if (opt.mode == SQL ? count > opt.batch || (count > 0 && count != matches_in(answer->body, answer->end))
                        : count != opt.batch)
        short_pulls++;
    count_answer(c, sent_ns, read_ns, count < 0 ? 0 : count);
}

static void take_main(struct connection *c, const struct answer *answer, const struct slot *slot, uint64_t read_ns) {
    if (opt.mode == POP) take_pop(c, answer, slot->sent_ns, read_ns);
    else if (opt.mode == LONGPULL) take_delivered(c, answer, slot->about, read_ns);
    else if (answer->code && !(opt.mode == SQL && answer->code == PULL_RETRY_IMMEDIATELY)) note_refusal(answer);
    else if (opt.mode == PULL || opt.mode == SQL) take_pulled(c, answer, slot->sent_ns, read_ns);
    else {
        if (opt.mode == TRANSACTION) take_half(c, answer);
        count_answer(c, slot->sent_ns, read_ns, is_counted_in_queues() ? 0 : opt.mode == BATCH ? opt.batch : 1);
    }
}

/* Another broker has stored the messages of this request. */
void take_acknowledgement(struct connection *c, uint64_t sequence, uint64_t read_ns) {
    struct slot *slot = slot_of(c, opaque_of(sequence));
    if (!slot) {
        mismatched++;
        return;
    }
    uint64_t sent_ns = slot->sent_ns;
    slot->sent_ns = 0;
    c->in_flight--;
    count_answer(c, sent_ns, read_ns, foreign()->is_batch ? opt.batch : 1);
}

/* Decodes one answer (frame of `size` bytes after the length word) and accounts for it. */
void take_answer(struct connection *c, const unsigned char *frame, size_t size, uint64_t read_ns) {
    struct answer answer;
    decode_answer(frame, size, &answer);
    struct slot *slot = slot_of(c, answer.opaque);
    if (!slot) {
        mismatched++;
        return;
    }
    struct slot taken = *slot;
    slot->sent_ns = 0;
    c->in_flight -= taken.weight;
    if (taken.kind == MAIN) take_main(c, &answer, &taken, read_ns);
    else if (answer.code) note_refusal(&answer);
    else if (taken.kind == ACK && measuring) messages++;
}

/* Requests the offsets that the mode needs before its first request, and parks the pulls to release. */
void start_flows(void) {
    run_id = wall_ms();
    for (int i = 0; i < connection_count; i++) {
        struct connection *c = connections + i;
        c->topic = (int)((int64_t)i * opt.topics / connection_count);
        c->window = c->is_measured ? opt.in_flight : opt.flood;
        if (opt.mode == POP) c->window = 2 * opt.batch;
        if (opt.mode == PULL || opt.mode == SQL) prepare_walk(c);
    }
    if (opt.mode != LONGPULL) return;
    parked = calloc(opt.queues, sizeof *parked);
    parked_queues = calloc(opt.queues, sizeof *parked_queues);
    for (int queue = 0; queue < opt.queues; queue++) {
        parked[queue].offset = ask_offset(GET_MAX_OFFSET, opt.topic, queue);
        park(connections + queue / opt.in_flight, queue);
    }
    all_parked_ns = now_ns() + PARKING_NS;
}
