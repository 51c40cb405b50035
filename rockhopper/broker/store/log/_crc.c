/* CRC-32 as in zlib and java.util.zip, by carry-less multiplication if the processor has it. */

#include "_bytes.h"

static uint32_t crc_table[8][256];

static void make_table(void)
{
    for (uint32_t n = 0; n < 256; n++) {
        uint32_t c = n;
        for (int k = 0; k < 8; k++)
            c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[0][n] = c;
    }
    for (uint32_t n = 0; n < 256; n++)
        for (int t = 1; t < 8; t++)
            crc_table[t][n] = crc_table[0][crc_table[t - 1][n] & 0xFF] ^ (crc_table[t - 1][n] >> 8);
}

/* Returns the register after the bytes at *p*, processed by table. */
static uint32_t crc_on(uint32_t c, const unsigned char *p, Py_ssize_t size)
{
    while (size >= 8) {
        uint32_t low = c ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
                            | (uint32_t)p[3] << 24);
        c = crc_table[7][low & 0xFF] ^ crc_table[6][(low >> 8) & 0xFF]
            ^ crc_table[5][(low >> 16) & 0xFF] ^ crc_table[4][low >> 24]
            ^ crc_table[3][p[4]] ^ crc_table[2][p[5]] ^ crc_table[1][p[6]] ^ crc_table[0][p[7]];
        p += 8;
        size -= 8;
    }
    while (size-- > 0)
        c = crc_table[0][(c ^ *p++) & 0xFF] ^ (c >> 8);
    return c;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define CAN_FOLD 1

/* Multiplies each of two 64-bit polynomials by the factor that shifts it over the following bits,
   and adds those bits. */
__attribute__((target("pclmul,sse4.1")))
static inline __m128i fold(__m128i value, __m128i movers, __m128i following)
{
    __m128i low = _mm_clmulepi64_si128(value, movers, 0x00);
    __m128i high = _mm_clmulepi64_si128(value, movers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), following);
}

/* Returns the register for a block of 16 bytes: folded to 96 and to 64 bits, then reduced by
   Barrett's method, whose quotient is that by x^64, bits reflected. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t reduce(__m128i block)
{
    const __m128i over_8_and_4_bytes = _mm_set_epi64x(0x163cd6124, 0x0ccaa009e);
    const __m128i polynomial_and_quotient = _mm_set_epi64x(0x1f7011641, 0x1db710641);
    const __m128i low_32 = _mm_set_epi32(0, 0, 0, -1);
    __m128i a = _mm_xor_si128(_mm_clmulepi64_si128(block, over_8_and_4_bytes, 0x00),
                              _mm_srli_si128(block, 8));
    a = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(a, low_32), over_8_and_4_bytes, 0x10),
                      _mm_srli_si128(a, 4));
    __m128i b = _mm_clmulepi64_si128(_mm_and_si128(a, low_32), polynomial_and_quotient, 0x10);
    b = _mm_clmulepi64_si128(_mm_and_si128(b, low_32), polynomial_and_quotient, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(a, b), 1);
}

/* Folds all whole blocks of 16 bytes, at least 64 bytes, into the last one, which then stands for
   all of them: multiplication by x^n mod P, bits reflected, shifts a block by n bits. */
__attribute__((target("pclmul,sse4.1")))
static uint32_t crc_folded(uint32_t c, const unsigned char *p, Py_ssize_t size)
{
    const __m128i over_64_bytes = _mm_set_epi64x(0x1c6e41596, 0x154442bd4);
    const __m128i over_16_bytes = _mm_set_epi64x(0x0ccaa009e, 0x1751997d0);
    const __m128i *block = (const __m128i *)p;
    __m128i a = _mm_xor_si128(_mm_loadu_si128(block), _mm_cvtsi32_si128((int)c));
    __m128i b = _mm_loadu_si128(block + 1);
    __m128i d = _mm_loadu_si128(block + 2);
    __m128i e = _mm_loadu_si128(block + 3);
    for (block += 4, size -= 64; size >= 64; block += 4, size -= 64) {
        a = fold(a, over_64_bytes, _mm_loadu_si128(block));
        b = fold(b, over_64_bytes, _mm_loadu_si128(block + 1));
        d = fold(d, over_64_bytes, _mm_loadu_si128(block + 2));
        e = fold(e, over_64_bytes, _mm_loadu_si128(block + 3));
    }
    a = fold(a, over_16_bytes, b);
    a = fold(a, over_16_bytes, d);
    a = fold(a, over_16_bytes, e);
    for (; size >= 16; block++, size -= 16)
        a = fold(a, over_16_bytes, _mm_loadu_si128(block));
    return crc_on(reduce(a), (const unsigned char *)block, size);
}

static int can_fold;
#endif

uint32_t crc32_of(const unsigned char *p, Py_ssize_t size)
{
#ifdef CAN_FOLD
    if (size >= 64 && can_fold)
        return ~crc_folded(0xFFFFFFFFu, p, size);
#endif
    return ~crc_on(0xFFFFFFFFu, p, size);
}

void prepare_crc(void)
{
    make_table();
#ifdef CAN_FOLD
    __builtin_cpu_init();
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}
