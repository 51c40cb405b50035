#include "_soundness.h"

int is_sound(const unsigned char *p, const unsigned char *unit, const Owner *owner,
                    int64_t queue_offset, int64_t unchecked_from)
{
    int64_t position = get64(unit), size = get32(unit + 8);
    uint32_t magic = get32(p + 4);
    if (get32(p) != size || get64(p + 28) != position || (magic != MAGIC_V1 && magic != MAGIC_V2))
        return 0;
    uint32_t sys_flag = get32(p + 36);
    int64_t body_at = HEAD_SIZE + (sys_flag & BORN_HOST_V6 ? 12 : 0)
                      + (sys_flag & STORE_HOST_V6 ? 12 : 0);
    if (body_at + 3 > size)
        return 0;
    int32_t body_size = (int32_t)get32(p + body_at - 4);
    int64_t at = body_at + body_size;
    if (body_size < 0 || at + 3 > size)
        return 0;
    if (queue_offset >= 0
        && ((int32_t)get32(p + 12) != owner->queue_id || get64(p + 20) != queue_offset
            || at + owner->topic_field_size + 2 > size
            || memcmp(p + at, owner->topic_field, (size_t)owner->topic_field_size) != 0))
        return 0;
    at += magic == MAGIC_V1 ? 1 + p[at] : 2 + (p[at] << 8 | p[at + 1]);
    if (at + 2 > size || at + 2 + (p[at] << 8 | p[at + 1]) != size)
        return 0;
    return position >= unchecked_from || body_size == 0
           || (crc32_of(p + body_at, body_size) & 0x7FFFFFFFu) == get32(p + 8);
}

int is_all_sound(Wanted *wanted, const Owner *owner)
{
    for (; wanted->count < wanted->unit_count; wanted->count++) {
        const unsigned char *unit = wanted->units + wanted->count * UNIT_SIZE;
        int64_t position = get64(unit), size = (int32_t)get32(unit + 8);
        if (wanted->count > 0
            && (wanted->count >= wanted->count_max || size > wanted->size_max - wanted->size))
            break;
        if (size < RECORD_SIZE_MIN || position < wanted->base || position > wanted->end
            || size > wanted->end - position
            || !is_sound(wanted->log + (position - wanted->base), unit, owner,
                         wanted->queue_offset + wanted->count, wanted->unchecked_from))
            return 0;
        wanted->size += size;
    }
    return wanted->count > 0;
}

unsigned char *copy_records(unsigned char *p, const Wanted *wanted)
{
    const unsigned char *unit = wanted->units, *end = unit + wanted->count * UNIT_SIZE;
    while (unit < end) {
        int64_t start = get64(unit), size = 0;
        for (; unit < end && get64(unit) == start + size; unit += UNIT_SIZE)
            size += get32(unit + 8);
        p = put_bytes(p, wanted->log + (start - wanted->base), (Py_ssize_t)size);
    }
    return p;
}
