/* Selects the records of a queue whose properties match a test, as selecting.py does. */

#ifndef ROCKHOPPER_SELECTING_H
#define ROCKHOPPER_SELECTING_H

#include "_soundness.h"

#define TEST_NAMES_MAX 64

/* The properties that a test uses, and the known verdicts on their values. */
typedef struct {
    Span names[TEST_NAMES_MAX];
    Py_ssize_t count;
    PyObject *verdicts, *judge;
} Test;

/* The units of the selected records, and how many units were scanned. */
typedef struct {
    unsigned char *units;
    int64_t scanned;
} Chosen;

/* Returns 0 with an exception if *object* is not a test. *test* is valid as long as *object* exists. */
int take_test(PyObject *object, Test *test);
/* Scans units until there are enough; *chosen* must have room for all. Returns 0 if one of them
   needs a closer check, or with an exception. Selected records are counted in *wanted*. */
int choose(Wanted *wanted, const Owner *owner, const Test *test, Chosen *chosen);

#endif
