#include "_signatures.h"

#define BLOCK_SIZE 64
#define DIGEST_SIZE 20
#define SIGNATURE_SIZE 28
#define SIZE_AT 56

/* A hash so far; *used* bytes of the next block are known. */
typedef struct {
    uint32_t state[5];
    unsigned char block[BLOCK_SIZE];
    size_t used;
    uint64_t size;
} Hash;

static const uint32_t FIRST_STATE[5] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u,
                                        0xC3D2E1F0u};

static inline uint32_t rotate(uint32_t value, int by)
{
    return value << by | value >> (32 - by);
}

/* Word *t* of a block, for t > 15 made of earlier ones; *w* has the last 16. */
static inline uint32_t word(uint32_t *w, int t)
{
    if (t > 15)
        w[t & 15] = rotate(w[(t + 13) & 15] ^ w[(t + 8) & 15] ^ w[(t + 2) & 15] ^ w[t & 15], 1);
    return w[t & 15];
}

/* One of 80 steps; the caller names the five numbers in another order each time. */
#define STEP(a, b, c, d, e, mixed, constant, t)                                                    \
    e += rotate(a, 5) + (mixed) + constant + word(w, t);                                           \
    b = rotate(b, 30)

#define CHOOSE(b, c, d) (d ^ (b & (c ^ d)))
#define PARITY(b, c, d) (b ^ c ^ d)
#define MAJORITY(b, c, d) ((b & c) | (d & (b | c)))

#define FIVE(mix, constant, t)                                                                     \
    STEP(a, b, c, d, e, mix(b, c, d), constant, t);                                                \
    STEP(e, a, b, c, d, mix(a, b, c), constant, t + 1);                                            \
    STEP(d, e, a, b, c, mix(e, a, b), constant, t + 2);                                            \
    STEP(c, d, e, a, b, mix(d, e, a), constant, t + 3);                                            \
    STEP(b, c, d, e, a, mix(c, d, e), constant, t + 4)

#define TWENTY(mix, constant, t)                                                                   \
    FIVE(mix, constant, t);                                                                        \
    FIVE(mix, constant, t + 5);                                                                    \
    FIVE(mix, constant, t + 10);                                                                   \
    FIVE(mix, constant, t + 15)

static void hash_block(uint32_t *state, const unsigned char *block)
{
    uint32_t w[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 16; i++)
        w[i] = get32(block + 4 * i);
    TWENTY(CHOOSE, 0x5A827999u, 0);
    TWENTY(PARITY, 0x6ED9EBA1u, 20);
    TWENTY(MAJORITY, 0x8F1BBCDCu, 40);
    TWENTY(PARITY, 0xCA62C1D6u, 60);
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
}

static void hash_on_bytes(Hash *hash, Span bytes)
{
    const unsigned char *p = (const unsigned char *)bytes.data;
    size_t left = (size_t)bytes.size;
    hash->size += left;
    while (left > 0) {
        if (hash->used == 0 && left >= BLOCK_SIZE) {
            hash_block(hash->state, p);
            p += BLOCK_SIZE;
            left -= BLOCK_SIZE;
            continue;
        }
        size_t part = left < BLOCK_SIZE - hash->used ? left : BLOCK_SIZE - hash->used;
        memcpy(hash->block + hash->used, p, part);
        p += part;
        left -= part;
        hash->used = (hash->used + part) % BLOCK_SIZE;
        if (hash->used == 0)
            hash_block(hash->state, hash->block);
    }
}

static void put_state(const uint32_t *state, unsigned char *out)
{
    for (int i = 0; i < 5; i++)
        put32(out + 4 * i, state[i]);
}

static void finish_hash(Hash *hash, unsigned char *digest)
{
    static const unsigned char padding[BLOCK_SIZE] = {0x80};
    uint64_t bits = hash->size * 8;
    size_t padded = hash->used < SIZE_AT ? SIZE_AT - hash->used : SIZE_AT + BLOCK_SIZE - hash->used;
    unsigned char size[8];
    put64(size, bits);
    hash_on_bytes(hash, (Span){(const char *)padding, (Py_ssize_t)padded});
    hash_on_bytes(hash, (Span){(const char *)size, 8});
    put_state(hash->state, digest);
}

/* Begins a hash after its first block, with the state that a signing key has for it. */
static void begin_hash(Hash *hash, const unsigned char *state)
{
    for (int i = 0; i < 5; i++)
        hash->state[i] = get32(state + 4 * i);
    hash->used = 0;
    hash->size = BLOCK_SIZE;
}

static void hash_padded(const unsigned char *secret, unsigned char pad, unsigned char *out)
{
    unsigned char block[BLOCK_SIZE];
    uint32_t state[5];
    memcpy(state, FIRST_STATE, sizeof state);
    for (int i = 0; i < BLOCK_SIZE; i++)
        block[i] = secret[i] ^ pad;
    hash_block(state, block);
    put_state(state, out);
}

void make_signing_key(Span secret, unsigned char *key)
{
    unsigned char whole[BLOCK_SIZE] = {0};
    if (secret.size > BLOCK_SIZE) {
        Hash hash = {.used = 0};
        memcpy(hash.state, FIRST_STATE, sizeof hash.state);
        hash_on_bytes(&hash, secret);
        finish_hash(&hash, whole);
    } else {
        memcpy(whole, secret.data, (size_t)secret.size);
    }
    hash_padded(whole, 0x36, key);
    hash_padded(whole, 0x5C, key + DIGEST_SIZE);
}

static int compare(Span a, Span b)
{
    Py_ssize_t common = a.size < b.size ? a.size : b.size;
    int order = memcmp(a.data, b.data, (size_t)common);
    return order != 0 ? order : (a.size > b.size) - (a.size < b.size);
}

int add_field(SignedFields *fields, Span name, Span value)
{
    /* Clients up to 4.9.3 add the first after they have signed; the second limits a user's rights
       (protocol/signing/visitors.py). */
    if (fields->count == SIGNED_FIELDS_MAX || is_text(name, "_UNIQUE_KEY_QUERY")
        || is_text(name, "RhVisitor"))
        return 0;
    int at = fields->count;
    for (; at > 0; at--) {
        int order = compare(fields->fields[at - 1].name, name);
        if (order == 0)
            return 0;
        if (order < 0)
            break;
        fields->fields[at] = fields->fields[at - 1];
    }
    fields->fields[at] = (Field){name, value};
    fields->count++;
    return 1;
}

Span find_field(const SignedFields *fields, const char *name)
{
    for (int i = 0; i < fields->count; i++)
        if (is_text(fields->fields[i].name, name))
            return fields->fields[i].value;
    return (Span){NULL, -1};
}

static void write_base64(const unsigned char *digest, char *text)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char padded[DIGEST_SIZE + 1] = {0};
    memcpy(padded, digest, DIGEST_SIZE);
    for (int i = 0; i < DIGEST_SIZE; i += 3, text += 4) {
        uint32_t three = (uint32_t)padded[i] << 16 | (uint32_t)padded[i + 1] << 8 | padded[i + 2];
        for (int part = 0; part < 4; part++)
            text[part] = letters[three >> (18 - 6 * part) & 63];
    }
    text[-1] = '=';
}

int is_signed_by(const unsigned char *key, const SignedFields *fields, Span body)
{
    Hash inner, outer;
    unsigned char digest[DIGEST_SIZE];
    char right[SIGNATURE_SIZE];
    Span signature = {NULL, -1};
    begin_hash(&inner, key);
    for (int i = 0; i < fields->count; i++) {
        if (is_text(fields->fields[i].name, "Signature"))
            signature = fields->fields[i].value;
        else
            hash_on_bytes(&inner, fields->fields[i].value);
    }
    if (signature.size != SIGNATURE_SIZE)
        return 0;
    hash_on_bytes(&inner, body);
    finish_hash(&inner, digest);
    begin_hash(&outer, key + DIGEST_SIZE);
    hash_on_bytes(&outer, (Span){(const char *)digest, DIGEST_SIZE});
    finish_hash(&outer, digest);
    write_base64(digest, right);
    volatile unsigned char difference = 0;
    for (int i = 0; i < SIGNATURE_SIZE; i++)
        difference |= (unsigned char)(signature.data[i] ^ right[i]);
    return difference == 0;
}
