/* JSON as known clients print it: no blanks, strings of ASCII without escapes, numbers as printed.

   Each function says 0 for anything else, wrong or only unusual. */

#ifndef ROCKHOPPER_JSON_TEXT_H
#define ROCKHOPPER_JSON_TEXT_H

#include "../store/log/_bytes.h"

/* What is left of a text. */
typedef struct {
    const char *p, *end;
} Cursor;

int read_number(Span text, int64_t *value);
int read_int32(Span text, int32_t *value);
int is_boolean(Span text);
int take_char(Cursor *cursor, char c);
int take_plain_string(Cursor *cursor, Span *text);
/* Whether no string comes next, but a bare number, true, false or null. */
int is_bare(const Cursor *cursor);
int take_word(Cursor *cursor, Span *text);
/* A value that plays no part. */
int pass_over(Cursor *cursor);

#endif
