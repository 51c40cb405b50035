/* Frames, headers and records of answers. */
#define _GNU_SOURCE
#include "loadgen.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

enum { RECORD_SIZE_MIN = 91, RECORD_HEAD_SIZE = 88 };

uint32_t get32(const unsigned char *p) {
    uint32_t value;
    memcpy(&value, p, 4);
    return ntohl(value);
}
uint64_t get64(const unsigned char *p) { return (uint64_t)get32(p) << 32 | get32(p + 4); }
void put16(unsigned char *p, unsigned value) { p[0] = value >> 8, p[1] = value; }
void put32(unsigned char *p, uint32_t value) { value = htonl(value), memcpy(p, &value, 4); }
void put64(unsigned char *p, uint64_t value) { put32(p, value >> 32), put32(p + 4, value); }

/* Reads the top-level "code" and "opaque" of a JSON header; keys inside extFields do not count. */
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

/* Decodes a frame of `size` bytes after the length word. */
void decode_answer(const unsigned char *frame, size_t size, struct answer *answer) {
    answer->code = 0, answer->opaque = -1;
    answer->header = frame + 4, answer->body = answer->end = frame + size;
    if (opt.mode == ECHO) {
        if (size == (size_t)opt.body_size - 4) answer->opaque = get32(frame + 4);
        return;
    }
    uint32_t word = get32(frame);
    size_t header_size = word & 0xffffff;
    if (header_size + 4 > size) fail("an answer whose header is longer than its frame");
    answer->body = answer->header + header_size;
    if (word >> 24 == 1 && header_size >= 9)
        answer->code = answer->header[0] << 8 | answer->header[1], answer->opaque = get32(answer->header + 5);
    else if (word >> 24 != 0 || !json_answer(answer->header, answer->body, &answer->code, &answer->opaque))
        fail("an answer with an unreadable header: %.*s", (int)header_size, answer->header);
}

/* Copies a field of a JSON header, as text; returns whether it exists. */
int field_of(const struct answer *answer, const char *name, char *value, size_t capacity) {
    char key[64];
    size_t used = 0, key_size = snprintf(key, sizeof key, "\"%s\":", name);
    const unsigned char *p = memmem(answer->header, answer->body - answer->header, key, key_size);
    if (!p) return 0;
    for (p += key_size; p < answer->body && (*p == ' ' || *p == '"');) p++;
    while (p < answer->body && *p != '"' && *p != ',' && *p != '}' && used < capacity - 1) value[used++] = *p++;
    value[used] = 0;
    return 1;
}

int records_in(const unsigned char *p, const unsigned char *end) {
    int count = 0;
    while (end - p >= 8) {
        uint32_t size = get32(p), magic = get32(p + 4);
        if ((magic != 0xDAA320A7u && magic != 0xDAA320A3u) || size < RECORD_SIZE_MIN || size > (size_t)(end - p))
            return -1;
        p += size;
        count++;
    }
    return p == end ? count : -1;
}

/* Returns how many of the complete records match the SQL expression of our pulls: a above 5. The offsets
 * in a record's head may look like the name of a property. */
int matches_in(const unsigned char *p, const unsigned char *end) {
    int count = 0;
    for (; p < end; p += get32(p)) {
        const unsigned char *hit = memmem(p + RECORD_HEAD_SIZE, get32(p) - RECORD_HEAD_SIZE, "\002a\001", 3);
        count += hit && hit[3] > '5' && hit[3] <= '9';
    }
    return count;
}

void note_refusal(const struct answer *answer) {
    refused++;
    if (first_refusal != -1) return;
    first_refusal = answer->code;
    size_t size = answer->body - answer->header, used = 0;
    const unsigned char *remark = memmem(answer->header, size, "\"remark\":", 9);
    if (!remark) return;
    remark += 9;
    while (remark < answer->body && (*remark == ' ' || *remark == '"')) remark++;
    while (remark < answer->body && *remark != '"' && *remark != '\\' && used < sizeof first_remark - 1)
        first_remark[used++] = *remark++;
}
