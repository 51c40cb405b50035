#include "_json_text.h"

/* A number as it is printed; 0 for any other form. */
int read_number(Span text, int64_t *value)
{
    const char *p = text.data, *end = text.data + text.size;
    int is_negative = p < end && *p == '-';
    p += is_negative;
    if (p >= end || end - p > 18 || (*p == '0' && (end - p > 1 || is_negative)))
        return 0;
    int64_t number = 0;
    for (; p < end; p++) {
        if (*p < '0' || *p > '9')
            return 0;
        number = number * 10 + (*p - '0');
    }
    *value = is_negative ? -number : number;
    return 1;
}

int read_int32(Span text, int32_t *value)
{
    int64_t wide;
    if (!read_number(text, &wide) || wide < INT32_MIN || wide > INT32_MAX)
        return 0;
    *value = (int32_t)wide;
    return 1;
}

int is_boolean(Span text)
{
    return is_text(text, "true") || is_text(text, "false");
}

int take_char(Cursor *cursor, char c)
{
    if (cursor->p >= cursor->end || *cursor->p != c)
        return 0;
    cursor->p++;
    return 1;
}

static int is_usual(char c)
{
    return (unsigned char)c >= 0x20 && (unsigned char)c < 0x80 && c != '"' && c != '\\';
}

/* A string of ASCII without escapes. */
int take_plain_string(Cursor *cursor, Span *text)
{
    if (!take_char(cursor, '"'))
        return 0;
    const char *p = cursor->p;
    while (p < cursor->end && is_usual(*p))
        p++;
    *text = (Span){cursor->p, p - cursor->p};
    cursor->p = p;
    return take_char(cursor, '"');
}

/* A bare number, true, false or null. */
int take_word(Cursor *cursor, Span *text)
{
    const char *p = cursor->p;
    while (p < cursor->end && (*p == '-' || (*p >= '0' && *p <= '9') || (*p >= 'a' && *p <= 'z')))
        p++;
    *text = (Span){cursor->p, p - cursor->p};
    cursor->p = p;
    return text->size > 0;
}

int is_bare(const Cursor *cursor)
{
    return cursor->p < cursor->end && *cursor->p != '"';
}

/* A value that plays no part. */
int pass_over(Cursor *cursor)
{
    Span text;
    int64_t number;
    if (cursor->p < cursor->end && *cursor->p == '"')
        return take_plain_string(cursor, &text);
    return take_word(cursor, &text)
           && (read_number(text, &number) || is_boolean(text) || is_text(text, "null"));
}
