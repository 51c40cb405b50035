/* Signatures: the Base64 of HMAC-SHA1 over the values of the header fields, by their names, and the body. */
#include "loadgen.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK_SIZE = 64, DIGEST_SIZE = 20 };

/* A hash so far. */
struct hash {
    uint32_t state[5];
    unsigned char block[BLOCK_SIZE];
    uint64_t size;
};

static struct hash inner, outer; /* each with its padded secret */

static uint32_t rotate(uint32_t value, int by) { return value << by | value >> (32 - by); }

static void hash_block(uint32_t *state, const unsigned char *block) {
    uint32_t w[80], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int t = 0; t < 16; t++) w[t] = get32(block + 4 * t);
    for (int t = 16; t < 80; t++) w[t] = rotate(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
#define TWENTY(from, mixed)                                            \
    for (int t = from; t < from + 20; t++) {                           \
        uint32_t next = rotate(a, 5) + (mixed) + e + w[t];             \
        e = d, d = c, c = rotate(b, 30), b = a, a = next;              \
    }
    TWENTY(0, (d ^ (b & (c ^ d))) + 0x5A827999)
    TWENTY(20, (b ^ c ^ d) + 0x6ED9EBA1)
    TWENTY(40, ((b & c) | (d & (b | c))) + 0x8F1BBCDC)
    TWENTY(60, (b ^ c ^ d) + 0xCA62C1D6)
    state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
}

static void add(struct hash *hash, const void *bytes, size_t size) {
    const unsigned char *p = bytes;
    while (size) {
        size_t used = hash->size % BLOCK_SIZE, part = size < BLOCK_SIZE - used ? size : BLOCK_SIZE - used;
        memcpy(hash->block + used, p, part);
        p += part, size -= part, hash->size += part;
        if (hash->size % BLOCK_SIZE == 0) hash_block(hash->state, hash->block);
    }
}

static void finish(struct hash *hash, unsigned char *digest) {
    unsigned char bits[8];
    put64(bits, hash->size * 8);
    add(hash, "\x80", 1);
    while (hash->size % BLOCK_SIZE != BLOCK_SIZE - sizeof bits) add(hash, "", 1);
    add(hash, bits, sizeof bits);
    for (int i = 0; i < 5; i++) put32(digest + 4 * i, hash->state[i]);
}

static void start_hash(struct hash *hash, unsigned char pad) {
    unsigned char block[BLOCK_SIZE] = {0};
    if (strlen(opt.secret) > BLOCK_SIZE) fail("a secret of more than %d bytes", BLOCK_SIZE);
    memcpy(block, opt.secret, strlen(opt.secret));
    for (int i = 0; i < BLOCK_SIZE; i++) block[i] ^= pad;
    *hash = (struct hash){{0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0}, {0}, 0};
    add(hash, block, BLOCK_SIZE);
}

static const unsigned char *sorted_bytes;

static int by_name(const void *a, const void *b) {
    const struct field *one = a, *other = b;
    size_t common = one->name_size < other->name_size ? one->name_size : other->name_size;
    int order = memcmp(sorted_bytes + one->name_at, sorted_bytes + other->name_at, common);
    return order ? order : (one->name_size > other->name_size) - (one->name_size < other->name_size);
}

/* Notes where the fields of a JSON header are, for `sign`. */
void find_fields(struct request *request) {
    char *text = (char *)request->bytes, *p = strstr(text + 8, "\"extFields\":{") + strlen("\"extFields\":{");
    start_hash(&inner, 0x36);
    start_hash(&outer, 0x5c);
    request->signed_size = 8 + (get32(request->bytes + 4) & 0xffffff);
    while (*p == '"' || *p == ',') {
        if (request->field_count == FIELDS_MAX) fail("more than %d fields", FIELDS_MAX);
        char *name = strchr(p, '"') + 1, *name_end = strchr(name, '"'), *value = name_end + 3, *end = strchr(value, '"');
        if ((size_t)(name_end - name) == strlen("Signature") && !memcmp(name, "Signature", name_end - name))
            request->signature_at = value - text;
        else
            request->fields[request->field_count++] = (struct field){name - text, name_end - name, value - text, end - value};
        p = end + 1;
    }
    sorted_bytes = request->bytes;
    qsort(request->fields, request->field_count, sizeof *request->fields, by_name);
}

/* Adds a value whose only escapes are \u00XX. */
static void add_value(struct hash *hash, const unsigned char *p, size_t size) {
    const unsigned char *end = p + size;
    while (p < end) {
        const unsigned char *escape = memchr(p, '\\', end - p);
        add(hash, p, (escape ? escape : end) - p);
        if (!escape) return;
        char digits[3] = {escape[4], escape[5], 0};
        unsigned char value = strtoul(digits, NULL, 16);
        add(hash, &value, 1);
        p = escape + 6;
    }
}

/* Writes the signature into `bytes`, a copy of `request` whose parts that change are set. */
void sign(const struct request *request, unsigned char *bytes) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct hash hash = inner;
    unsigned char digest[DIGEST_SIZE + 1] = {0}, *out = bytes + request->signature_at;
    for (int i = 0; i < request->field_count; i++)
        add_value(&hash, bytes + request->fields[i].value_at, request->fields[i].value_size);
    add(&hash, bytes + request->signed_size, request->size - request->signed_size);
    finish(&hash, digest);
    hash = outer;
    add(&hash, digest, DIGEST_SIZE);
    finish(&hash, digest);
    for (int i = 0; i < DIGEST_SIZE; i += 3) {
        uint32_t three = digest[i] << 16 | digest[i + 1] << 8 | digest[i + 2];
        for (int shift = 18; shift >= 0; shift -= 6) *out++ = letters[three >> shift & 63];
    }
    out[-1] = '=';
}
