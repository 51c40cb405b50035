/* Clocks, CPU time and latencies. */
#include "loadgen.h"

#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + t.tv_nsec;
}

uint64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (uint64_t)t.tv_sec * 1000u + t.tv_nsec / 1000000;
}

double cpu_seconds_of(pid_t pid) {
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = fopen(path, "r");
    if (!file) fail("process %d, whose CPU time is wanted, is gone", (int)pid);
    size_t size = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[size] = 0;
    unsigned long user, system; /* fields 14 and 15; the name in field 2 may contain blanks */
    char *rest = strrchr(text, ')');
    if (!rest || sscanf(rest + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
        fail("%s cannot be read", path);
    return (double)(user + system) / sysconf(_SC_CLK_TCK);
}

double own_cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Latencies in nanoseconds, 64 buckets to each power of two: 1.6 % wide at most. */
enum { SUB_BITS = 6, BUCKETS = 64 << SUB_BITS };
static uint64_t histogram[BUCKETS];
uint64_t latency_max_ns;

void record_latency(uint64_t ns) {
    if (ns > latency_max_ns) latency_max_ns = ns;
    unsigned bucket = ns;
    if (ns >= 1u << SUB_BITS) {
        unsigned shift = 63 - SUB_BITS - __builtin_clzll(ns);
        bucket = ((shift + 1) << SUB_BITS) + ((ns >> shift) & ((1u << SUB_BITS) - 1));
    }
    histogram[bucket < BUCKETS ? bucket : BUCKETS - 1]++;
}

double latency_us(double quantile) {
    uint64_t total = 0, seen = 0;
    for (unsigned i = 0; i < BUCKETS; i++) total += histogram[i];
    for (unsigned i = 0; i < BUCKETS; i++) {
        seen += histogram[i];
        if (total && seen >= quantile * total) {
            if (i < 1u << SUB_BITS) return i * 1e-3;
            unsigned shift = (i >> SUB_BITS) - 1;
            return ((uint64_t)((1u << SUB_BITS) + (i & ((1u << SUB_BITS) - 1))) << shift) * 1e-3;
        }
    }
    return 0;
}
