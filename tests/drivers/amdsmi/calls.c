#include "calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "../nvml/counts.h"

#define STATE_VARIABLE "ACCELSCALE_FAKE_AMDSMI_STATE"
#define HANG_LIMIT_SECONDS 20.0

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct state *current;
static int users;

/* The state, read anew at every call: this driver is for tests of what is said, not of how fast. */
static const char *read_state(void)
{
    const char *path = getenv(STATE_VARIABLE);
    FILE *stream = path != NULL ? fopen(path, "r") : NULL;
    if (stream == NULL)
        return NULL;
    static char text[65536];
    size_t length = fread(text, 1, sizeof(text), stream);
    fclose(stream);
    state_free(current);
    current = state_parse(text, length);
    return path;
}

struct issued {
    char id[96];
    struct issued *next;
};

static struct issued *handles;

void *handle_of(const struct section *section)
{
    for (struct issued *known = handles; known != NULL; known = known->next)
        if (strcmp(known->id, section->id) == 0)
            return known;
    struct issued *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        abort();
    snprintf(fresh->id, sizeof(fresh->id), "%s", section->id);
    fresh->next = handles;
    handles = fresh;
    return fresh;
}

static struct section *section_of(const void *handle)
{
    for (const struct issued *known = handles; known != NULL; known = known->next)
        if (known == handle)
            return state_find(current, known->id);
    return NULL;
}

static bool hangs(struct section *section, const char *function)
{
    return section != NULL && section->has_hangs && section_for(section, "hang", function) != NULL;
}

static int error_of(struct section *section, const char *function)
{
    const struct pair *pair =
        section != NULL && section->has_errors ? section_for(section, "error", function) : NULL;
    return pair != NULL ? atoi(pair->value) : SUCCESS;
}

/* The answer that is asked for, -1 while the call is to hang; the lock is held. */
static int answer(const char *function, const void *handle, bool needs_device, bool counts,
                  struct section **section)
{
    const char *path = read_state();
    if (path == NULL)
        return users > 0 ? DRIVER_NOT_LOADED : NOT_INITIALISED;
    struct section *library = state_library(current);
    struct section *device = needs_device ? section_of(handle) : NULL;
    if (counts)
        count_call(path, function, "");
    if (counts && device != NULL)
        count_call(path, function, device->id);
    if (hangs(device, function) || hangs(library, function))
        return -1;
    if (users == 0)
        return NOT_INITIALISED;
    if (needs_device && device == NULL)
        return NOT_FOUND;
    *section = needs_device ? device : library;
    int error = error_of(device, function);
    return error != SUCCESS ? error : error_of(library, function);
}

static int begin(const char *function, const void *handle, bool needs_device,
                 struct section **section)
{
    double started = monotonic_seconds();
    for (bool first = true;; first = false) {
        pthread_mutex_lock(&lock);
        int result = answer(function, handle, needs_device, first, section);
        if (result == SUCCESS)
            return SUCCESS;
        pthread_mutex_unlock(&lock);
        if (result > 0)
            return result;
        if (monotonic_seconds() - started > HANG_LIMIT_SECONDS)
            return TIMEOUT;
        struct timespec pause = {0, 2000000};
        nanosleep(&pause, NULL);
    }
}

int call_library(const char *function, struct state **state, struct section **section)
{
    int status = begin(function, NULL, false, section);
    if (status == SUCCESS)
        *state = current;
    return status;
}

int call_device(const char *function, const void *handle, struct section **section)
{
    return begin(function, handle, true, section);
}

void call_end(void)
{
    pthread_mutex_unlock(&lock);
}

int call_init(void)
{
    pthread_mutex_lock(&lock);
    const char *path = read_state();
    int status = path == NULL ? DRIVER_NOT_LOADED : error_of(state_library(current), "amdsmi_init");
    if (status == SUCCESS) {
        users++;
        count_call(path, "initialised", "");
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int call_shut_down(void)
{
    pthread_mutex_lock(&lock);
    const char *path = read_state();
    int status = users > 0 ? SUCCESS : NOT_INITIALISED;
    if (status == SUCCESS) {
        users--;
        if (path != NULL)
            count_call(path, "shut down", "");
    }
    pthread_mutex_unlock(&lock);
    return status;
}

int call_stub(const char *function)
{
    pthread_mutex_lock(&lock);
    const char *path = read_state();
    if (path != NULL)
        count_call(path, function, "");
    pthread_mutex_unlock(&lock);
    return NOT_YET_IMPLEMENTED;
}
