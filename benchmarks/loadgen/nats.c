/* NATS: PUB to the subject TOPIC.QUEUE, which the stream TOPIC-QUEUE of JetStream stores in files. The
 * acknowledgement goes to the inbox that the request names; the inbox's last word is the request's number. */
#include "loadgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_SIZE = 1024 };
#define INBOX "_INBOX.rockhopperloadgenerator."

/* Waits for a message; the server may send information about itself at any time. */
static const unsigned char *await_message(struct connection *c, size_t *size) {
    const unsigned char *p;
    while (!memcmp(p = await_answer(c, size), "INFO", 4)) drop_answer(c, *size);
    return p;
}

static void expect(struct connection *c, const char *beginning) {
    size_t size;
    const unsigned char *p = await_message(c, &size);
    if (size < strlen(beginning) || memcmp(p, beginning, strlen(beginning))) refuse("NATS", p, size);
    drop_answer(c, size);
}

static const unsigned char *payload_of(const unsigned char *p, size_t size, size_t *payload_size) {
    size_t line = line_size(p, size);
    *payload_size = size - line - 2;
    return p + line;
}

static int holds(const unsigned char *p, size_t size, const char *text) {
    size_t length = strlen(text);
    for (; size >= length; p++, size--)
        if (!memcmp(p, text, length)) return 1;
    return 0;
}

static void make_stream(struct connection *c) {
    char text[TEXT_SIZE], config[TEXT_SIZE / 2];
    int size = snprintf(config, sizeof config,
                        "{\"name\":\"%s-%d\",\"subjects\":[\"%s.%d\"],\"retention\":\"limits\",\"storage\":\"file\","
                        "\"discard\":\"old\",\"max_msgs\":-1,\"max_bytes\":-1,\"num_replicas\":1}",
                        opt.topic, c->queue, opt.topic, c->queue);
    size = snprintf(text, sizeof text, "PUB $JS.API.STREAM.CREATE.%s-%d " INBOX "%d.new %d\r\n%s\r\n", opt.topic,
                    c->queue, c->index, size, config);
    write_text(c, text, size);
    size_t answer_size, payload_size;
    const unsigned char *p = await_message(c, &answer_size);
    const unsigned char *payload = payload_of(p, answer_size, &payload_size);
    if (memcmp(p, "MSG ", 4) || holds(payload, payload_size, "\"error\"")) refuse("NATS", p, answer_size);
    drop_answer(c, answer_size);
}

static void greet(struct connection *c) {
    char text[TEXT_SIZE];
    int size = snprintf(text, sizeof text,
                        "CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"c\",\"version\":\"1\",\"protocol\":1,"
                        "\"headers\":true,\"no_responders\":true}\r\nSUB " INBOX "%d.* 1\r\nPING\r\n",
                        c->index);
    write_text(c, text, size);
    expect(c, "PONG");
    if (c->index < opt.queues) make_stream(c);
    size = snprintf(text, sizeof text, "PUB %s.%d " INBOX "%d.", opt.topic, c->queue, c->index);
    c->template = malloc(c->template_size = size);
    memcpy(c->template, text, size);
}

static void append(struct connection *c, uint64_t sequence) {
    char text[64];
    int size = snprintf(text, sizeof text, "%llu %d\r\n", (unsigned long long)sequence, opt.body_size);
    append_bytes(c, c->template, c->template_size);
    append_bytes(c, text, size);
    append_stamped_body(c);
    append_bytes(c, "\r\n", 2);
}

static int is_message(const unsigned char *p, size_t size) {
    return (size > 4 && !memcmp(p, "MSG ", 4)) || (size > 5 && !memcmp(p, "HMSG ", 5));
}

static size_t answer_size(const unsigned char *p, size_t size) {
    size_t line = line_size(p, size);
    if (!line || !is_message(p, line)) return line;
    const unsigned char *number = p + line - 2;
    while (number[-1] >= '0' && number[-1] <= '9') number--;
    size_t whole = line + strtoul((const char *)number, NULL, 10) + 2;
    return whole <= size ? whole : 0;
}

static void take(struct connection *c, const unsigned char *p, size_t size, uint64_t read_ns) {
    if (!memcmp(p, "MSG ", 4)) {
        size_t payload_size;
        const unsigned char *payload = payload_of(p, size, &payload_size);
        if (!holds(payload, payload_size, "\"seq\":") || holds(payload, payload_size, "\"error\""))
            refuse("NATS", payload, payload_size);
        const char *connection_number = (const char *)p + 4 + strlen(INBOX);
        take_acknowledgement(c, strtoull(strchr(connection_number, '.') + 1, NULL, 10), read_ns);
    } else if (*p == 'H' || *p == '-') refuse("NATS", p, size);
    else if (!memcmp(p, "PING", 4)) append_bytes(c, "PONG\r\n", 6);
}

const struct protocol NATS_PROTOCOL = {0, greet, append, answer_size, take};
