/* Blocking requests outside of the load: the offsets of queues. */
#include "loadgen.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int fd = -1;

static void read_exactly(unsigned char *bytes, size_t size, int code) {
    while (size) {
        ssize_t got = read(fd, bytes, size);
        if (got <= 0) fail("no answer to request code %d", code);
        bytes += got, size -= got;
    }
}

/* Returns an offset of a queue; `code` is GET_MIN_OFFSET or GET_MAX_OFFSET. */
int64_t ask_offset(int code, const char *topic, int queue) {
    unsigned char bytes[4096];
    if (fd < 0) fd = connect_socket();
    size_t size = build_question(bytes, code, topic, queue);
    if (write(fd, bytes, size) != (ssize_t)size) fail("cannot ask for an offset");
    read_exactly(bytes, 4, code);
    size = get32(bytes);
    if (size >= sizeof bytes) fail("an answer of %zu bytes to request code %d", size, code);
    read_exactly(bytes, size, code);
    struct answer answer;
    char offset[32];
    decode_answer(bytes, size, &answer);
    if (answer.code || !field_of(&answer, "offset", offset, sizeof offset))
        fail("request code %d on topic %s was refused: %.*s", code, topic, (int)(size - 4), bytes + 4);
    return atoll(offset);
}

/* Returns how many messages were ever in the queues that the connections send to. */
uint64_t messages_in_queues(void) {
    uint64_t count = 0;
    int queues = opt.connections < opt.queues ? opt.connections : opt.queues;
    for (int topic = 0; topic < opt.topics; topic++)
        for (int queue = 0; queue < queues; queue++) count += ask_offset(GET_MAX_OFFSET, topic_name(topic), queue);
    return count;
}
