/* The state file of the fake driver: sections of key = value lines, read again when it changes. */
#ifndef FAKE_NVML_STATE_H
#define FAKE_NVML_STATE_H

#include <stdbool.h>
#include <stddef.h>

struct pair {
    char *key;
    char *value;
    long remaining; /* how often an error given as "NAME xN" is still to be answered; -1: always */
};

struct section {
    char *kind; /* "library", "device" or "mig" */
    char *id;   /* the UUID */
    struct pair *pairs;
    size_t count;
    bool has_errors, has_latency, has_hangs; /* whether any key of that family is present */
};

struct state {
    struct section *sections;
    size_t count;
};

/* Parses text of that length; takes no ownership. Lines that are not understood are skipped. */
struct state *state_parse(const char *text, size_t length);
void state_free(struct state *state);

struct section *state_library(struct state *state);
struct section *state_find(struct state *state, const char *id); /* a device or a MIG instance */
struct section *state_device(struct state *state, size_t index);
size_t state_device_count(const struct state *state);
struct section *state_instance(struct state *state, const struct section *device, size_t index);
struct section *state_parent(struct state *state, const struct section *instance);

struct pair *section_pair(const struct section *section, const char *key);
const char *section_text(const struct section *section, const char *key);
bool section_flag(const struct section *section, const char *key);
double section_real(const struct section *section, const char *key, double otherwise);

/* "12", "-1", "0xff", or a counter "1000+250/s@12.5": 250 a second since 12.5 on the monotonic
 * clock, or since the library was loaded where the time is left out. */
bool section_number(const struct section *section, const char *key, unsigned long long *number);

/* The key "family.function", else "family". */
struct pair *section_for(const struct section *section, const char *family, const char *function);

/* The number of an error that is written as its name or as digits. */
int error_code(const char *name);
const char *error_name(int code);

double monotonic_seconds(void);

#endif
