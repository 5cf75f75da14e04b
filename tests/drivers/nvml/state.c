#include "state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct {
    int code;
    const char *name;
} ERRORS[] = {
    {0, "SUCCESS"},
    {1, "UNINITIALIZED"},
    {2, "INVALID_ARGUMENT"},
    {3, "NOT_SUPPORTED"},
    {4, "NO_PERMISSION"},
    {6, "NOT_FOUND"},
    {7, "INSUFFICIENT_SIZE"},
    {8, "INSUFFICIENT_POWER"},
    {9, "DRIVER_NOT_LOADED"},
    {10, "TIMEOUT"},
    {11, "IRQ_ISSUE"},
    {12, "LIBRARY_NOT_FOUND"},
    {13, "FUNCTION_NOT_FOUND"},
    {14, "CORRUPTED_INFOROM"},
    {15, "GPU_IS_LOST"},
    {16, "RESET_REQUIRED"},
    {17, "OPERATING_SYSTEM"},
    {18, "LIB_RM_VERSION_MISMATCH"},
    {19, "IN_USE"},
    {20, "MEMORY"},
    {21, "NO_DATA"},
    {25, "ARGUMENT_VERSION_MISMATCH"},
    {26, "DEPRECATED"},
    {27, "NOT_READY"},
    {28, "GPU_NOT_FOUND"},
    {999, "UNKNOWN"},
};

#define ERROR_COUNT (sizeof(ERRORS) / sizeof(ERRORS[0]))

int error_code(const char *name)
{
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (strcmp(ERRORS[i].name, name) == 0)
            return ERRORS[i].code;
    char *end;
    long number = strtol(name, &end, 10);
    return end != name && *end == '\0' ? (int)number : 999;
}

const char *error_name(int code)
{
    for (size_t i = 0; i < ERROR_COUNT; i++)
        if (ERRORS[i].code == code)
            return ERRORS[i].name;
    return "an error that the fake driver does not know";
}

double monotonic_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void *grown(void *items, size_t count, size_t size)
{
    void *larger = realloc(items, (count + 1) * size);
    if (larger == NULL)
        abort();
    return larger;
}

static char *copied(const char *text, size_t length)
{
    char *copy = malloc(length + 1);
    if (copy == NULL)
        abort();
    memcpy(copy, text, length);
    copy[length] = '\0';
    return copy;
}

/* A copy without the white space at both ends. */
static char *trimmed(const char *text, size_t length)
{
    while (length > 0 && strchr(" \t\r", text[0]) != NULL)
        text++, length--;
    while (length > 0 && strchr(" \t\r", text[length - 1]) != NULL)
        length--;
    return copied(text, length);
}

static void add_section(struct state *state, const char *line, size_t length)
{
    size_t word = 0;
    while (word < length && line[word] != ' ')
        word++;
    state->sections = grown(state->sections, state->count, sizeof(struct section));
    struct section *section = &state->sections[state->count++];
    memset(section, 0, sizeof(*section));
    section->kind = trimmed(line, word);
    section->id = trimmed(line + word, length - word);
}

static bool in_family(const char *key, const char *family)
{
    size_t length = strlen(family);
    return strncmp(key, family, length) == 0 && (key[length] == '\0' || key[length] == '.');
}

static void add_pair(struct section *section, char *key, char *value)
{
    section->pairs = grown(section->pairs, section->count, sizeof(struct pair));
    struct pair *pair = &section->pairs[section->count++];
    pair->key = key;
    pair->value = value;
    pair->remaining = -1;
    if (in_family(key, "error")) {
        section->has_errors = true;
        char *times = strstr(value, " x");
        if (times != NULL) {
            pair->remaining = strtol(times + 2, NULL, 10);
            *times = '\0';
        }
    }
    section->has_latency |= in_family(key, "latency_us");
    section->has_hangs |= in_family(key, "hang");
}

static void add_line(struct state *state, const char *line, size_t length)
{
    if (length == 0 || line[0] == '#')
        return;
    if (line[0] == '[' && line[length - 1] == ']') {
        add_section(state, line + 1, length - 2);
        return;
    }
    const char *equals = memchr(line, '=', length);
    if (equals == NULL || state->count == 0)
        return;
    size_t before = (size_t)(equals - line);
    add_pair(&state->sections[state->count - 1], trimmed(line, before),
             trimmed(equals + 1, length - before - 1));
}

struct state *state_parse(const char *text, size_t length)
{
    struct state *state = calloc(1, sizeof(*state));
    if (state == NULL)
        abort();
    const char *end = text + length;
    while (text < end) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        const char *stop = newline != NULL ? newline : end;
        add_line(state, text, (size_t)(stop - text));
        text = stop + 1;
    }
    return state;
}

void state_free(struct state *state)
{
    if (state == NULL)
        return;
    for (size_t i = 0; i < state->count; i++) {
        struct section *section = &state->sections[i];
        for (size_t k = 0; k < section->count; k++) {
            free(section->pairs[k].key);
            free(section->pairs[k].value);
        }
        free(section->pairs);
        free(section->kind);
        free(section->id);
    }
    free(state->sections);
    free(state);
}

static bool is_kind(const struct section *section, const char *kind)
{
    return strcmp(section->kind, kind) == 0;
}

struct section *state_library(struct state *state)
{
    for (size_t i = 0; i < state->count; i++)
        if (is_kind(&state->sections[i], "library"))
            return &state->sections[i];
    return NULL;
}

struct section *state_find(struct state *state, const char *id)
{
    for (size_t i = 0; i < state->count; i++)
        if (!is_kind(&state->sections[i], "library") && strcmp(state->sections[i].id, id) == 0)
            return &state->sections[i];
    return NULL;
}

struct section *state_device(struct state *state, size_t index)
{
    for (size_t i = 0; i < state->count; i++)
        if (is_kind(&state->sections[i], "device") && index-- == 0)
            return &state->sections[i];
    return NULL;
}

size_t state_device_count(const struct state *state)
{
    size_t devices = 0;
    for (size_t i = 0; i < state->count; i++)
        devices += is_kind(&state->sections[i], "device");
    return devices;
}

struct section *state_instance(struct state *state, const struct section *device, size_t index)
{
    const struct section *end = state->sections + state->count;
    for (const struct section *next = device + 1; next < end && is_kind(next, "mig"); next++)
        if (index-- == 0)
            return &state->sections[next - state->sections];
    return NULL;
}

struct section *state_parent(struct state *state, const struct section *instance)
{
    struct section *section = &state->sections[instance - state->sections];
    while (section > state->sections && is_kind(section, "mig"))
        section--;
    return is_kind(section, "device") ? section : NULL;
}

struct pair *section_pair(const struct section *section, const char *key)
{
    for (size_t i = 0; section != NULL && i < section->count; i++)
        if (strcmp(section->pairs[i].key, key) == 0)
            return &section->pairs[i];
    return NULL;
}

const char *section_text(const struct section *section, const char *key)
{
    const struct pair *pair = section_pair(section, key);
    return pair != NULL ? pair->value : NULL;
}

bool section_flag(const struct section *section, const char *key)
{
    const char *text = section_text(section, key);
    return text != NULL && strcmp(text, "") != 0 && strcmp(text, "0") != 0;
}

double section_real(const struct section *section, const char *key, double otherwise)
{
    const char *text = section_text(section, key);
    return text != NULL ? strtod(text, NULL) : otherwise;
}

bool section_number(const struct section *section, const char *key, unsigned long long *number)
{
    static double loaded;
    if (loaded == 0)
        loaded = monotonic_seconds();
    const char *text = section_text(section, key);
    if (text == NULL || *text == '\0')
        return false;
    char *rest;
    unsigned long long base = strtoull(text, &rest, 0);
    if (*rest == '+') {
        double rate = strtod(rest + 1, &rest);
        const char *since = strchr(rest, '@');
        double start = since != NULL ? strtod(since + 1, NULL) : loaded;
        double grown_by = rate * (monotonic_seconds() - start);
        base += grown_by > 0 ? (unsigned long long)grown_by : 0;
    }
    *number = base;
    return true;
}

struct pair *section_for(const struct section *section, const char *family, const char *function)
{
    char key[160];
    snprintf(key, sizeof(key), "%s.%s", family, function);
    struct pair *pair = section_pair(section, key);
    return pair != NULL ? pair : section_pair(section, family);
}
