/* Which records of a queue a test of their properties wants, as selecting.py has it. */

#ifndef ROCKHOPPER_SELECTING_H
#define ROCKHOPPER_SELECTING_H

#include "_soundness.h"

#define TEST_NAMES_MAX 64

/* The properties that a test looks at, and what is known of their values. */
typedef struct {
    Span names[TEST_NAMES_MAX];
    Py_ssize_t count;
    PyObject *verdicts, *judge;
} Test;

/* The units of what is chosen, and how many were looked at. */
typedef struct {
    unsigned char *units;
    int64_t scanned;
} Chosen;

/* 0 with an exception if it is none. It lives for as long as *object*. */
int take_test(PyObject *object, Test *test);
/* Looks at units until there is enough, with room for all of them in *chosen*; 0 if one of them takes
   more, or with an exception. What is chosen is counted in *wanted*. */
int choose(Wanted *wanted, const Owner *owner, const Test *test, Chosen *chosen);

#endif
