#include "calls.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "counts.h"
#include "objects.h"

#define STATE_VARIABLE "ACCELSCALE_FAKE_NVML_STATE"
#define DEFAULT_HANG_LIMIT_SECONDS 20.0

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The state as last read. */
static struct state *current;
static char current_path[1024];
static struct stat current_file;

static bool unchanged(const struct stat *file)
{
    return file->st_ino == current_file.st_ino && file->st_size == current_file.st_size &&
           file->st_mtim.tv_sec == current_file.st_mtim.tv_sec &&
           file->st_mtim.tv_nsec == current_file.st_mtim.tv_nsec;
}

static struct state *read_state(const char *path, const struct stat *file)
{
    FILE *stream = fopen(path, "r");
    if (stream == NULL)
        return NULL;
    char *text = malloc((size_t)file->st_size + 1);
    if (text == NULL)
        abort();
    size_t length = fread(text, 1, (size_t)file->st_size, stream);
    fclose(stream);
    struct state *state = state_parse(text, length);
    free(text);
    return state;
}

/* A driver without a state file is a driver that is not loaded. */
static struct state *refreshed(void)
{
    const char *path = getenv(STATE_VARIABLE);
    struct stat file;
    if (path == NULL || strlen(path) >= sizeof(current_path) || stat(path, &file) != 0)
        return NULL;
    if (current != NULL && strcmp(path, current_path) == 0 && unchanged(&file))
        return current;
    struct state *state = read_state(path, &file);
    if (state != NULL) {
        state_free(current);
        current = state;
        current_file = file;
        snprintf(current_path, sizeof(current_path), "%s", path);
    }
    return state;
}

/* A handle stands for one life of one card. Instances that say the same "handle" get the same one,
 * as real drivers use the handle of an instance that is gone for another. */
struct issued {
    char name[96];
    unsigned long long generation;
    struct issued *next;
};

static struct issued *handles;

static unsigned long long generation_of(const struct section *section)
{
    unsigned long long generation = 0;
    section_number(section, "generation", &generation);
    return generation;
}

static const char *handle_name(const struct section *section)
{
    const char *name = section_text(section, "handle");
    return name != NULL ? name : section->id;
}

static struct section *section_of(struct state *state, const char *name)
{
    for (size_t i = 0; i < state->count; i++) {
        struct section *section = &state->sections[i];
        if (strcmp(section->kind, "library") != 0 && strcmp(handle_name(section), name) == 0)
            return section;
    }
    return NULL;
}

void *handle_of(const struct section *section)
{
    unsigned long long generation = generation_of(section);
    const char *name = handle_name(section);
    for (struct issued *known = handles; known != NULL; known = known->next)
        if (known->generation == generation && strcmp(known->name, name) == 0)
            return known;
    struct issued *fresh = calloc(1, sizeof(*fresh));
    if (fresh == NULL)
        abort();
    snprintf(fresh->name, sizeof(fresh->name), "%s", name);
    fresh->generation = generation;
    fresh->next = handles;
    handles = fresh;
    return fresh;
}

/* Finds the section of a handle; a card that is gone or has come back since answers "lost". */
static int resolve(struct state *state, const void *handle, struct section **section)
{
    const struct issued *known = handles;
    while (known != NULL && known != handle)
        known = known->next;
    if (known == NULL)
        return error_code("INVALID_ARGUMENT");
    *section = section_of(state, known->name);
    if (*section != NULL && generation_of(*section) == known->generation)
        return 0;
    *section = NULL;
    const char *stale = section_text(state_library(state), "stale_handle");
    return error_code(stale != NULL ? stale : "GPU_IS_LOST");
}

/* Who uses the library, and what it listed at the first init. */
static int users;
static unsigned long long shutdowns_by_others;
static char (*listed)[96];
static size_t listed_length;

static void note_shutdown_by_others(const struct section *library)
{
    unsigned long long asked = 0;
    section_number(library, "shut_down_by_others", &asked);
    for (; asked > shutdowns_by_others && users > 0; users--)
        count_call(current_path, "shut down", "");
    if (users == 0)
        objects_end(current_path, "orphaned");
    shutdowns_by_others = asked;
}

static void list_devices(struct state *state)
{
    free(listed);
    listed_length = state_device_count(state);
    listed = calloc(listed_length + 1, sizeof(*listed));
    if (listed == NULL)
        abort();
    for (size_t i = 0; i < listed_length; i++)
        snprintf(listed[i], sizeof(listed[i]), "%s", state_device(state, i)->id);
}

static bool fixed_at_init(struct state *state)
{
    return section_flag(state_library(state), "enumerate_at_init");
}

size_t listed_count(struct state *state)
{
    return fixed_at_init(state) ? listed_length : state_device_count(state);
}

struct section *listed_device(struct state *state, size_t index)
{
    if (!fixed_at_init(state))
        return state_device(state, index);
    return index < listed_length ? state_find(state, listed[index]) : NULL;
}

bool is_listed(struct state *state, const struct section *device)
{
    if (!fixed_at_init(state))
        return true;
    for (size_t i = 0; i < listed_length; i++)
        if (strcmp(listed[i], device->id) == 0)
            return true;
    return false;
}

void pause_microseconds(double microseconds)
{
    if (microseconds <= 0)
        return;
    long nanoseconds = (long)(microseconds * 1000);
    struct timespec pause = {nanoseconds / 1000000000L, nanoseconds % 1000000000L};
    nanosleep(&pause, NULL);
}

/* The error that a section asks for; only_named: the key for all functions does not count. */
static int asked_error(struct section *section, const char *function, bool only_named)
{
    if (section == NULL || !section->has_errors)
        return 0;
    struct pair *pair = section_for(section, "error", function);
    if (only_named && pair != NULL && strcmp(pair->key, "error") == 0)
        return 0;
    if (pair == NULL || pair->remaining == 0)
        return 0;
    if (pair->remaining > 0)
        pair->remaining--;
    return error_code(pair->value);
}

static double asked_latency(const struct section *section, const char *function)
{
    if (section == NULL || !section->has_latency)
        return -1;
    const struct pair *pair = section_for(section, "latency_us", function);
    return pair != NULL ? strtod(pair->value, NULL) : -1;
}

static bool asked_hang(const struct section *section, const char *function)
{
    if (section == NULL || !section->has_hangs)
        return false;
    const struct pair *pair = section_for(section, "hang", function);
    return pair != NULL && strcmp(pair->value, "0") != 0;
}

/* A lost card takes its instances with it. */
static int lost_error(struct state *state, const struct section *device)
{
    const char *lost = section_text(device, "lost");
    if (lost == NULL && strcmp(device->kind, "mig") == 0)
        lost = section_text(state_parent(state, device), "lost");
    return lost != NULL ? error_code(lost) : 0;
}

int lookup_error(struct state *state, struct section *device, const char *function)
{
    int error = lost_error(state, device);
    return error != 0 ? error : asked_error(device, function, true);
}

/* The error of a call whose section is known: what was asked of the card, then of the library. */
static int error_of(struct state *state, struct section *device, const char *function)
{
    struct section *library = state_library(state);
    if (users == 0)
        return error_code("UNINITIALIZED");
    int error = device != NULL ? lost_error(state, device) : 0;
    bool frees = strstr(function, "Free") != NULL; /* even a broken driver frees memory */
    if (error == 0)
        error = asked_error(device, function, frees);
    return error != 0 ? error : asked_error(library, function, frees);
}

static int begin(const char *function, void *handle, bool needs_device, struct state **state,
                 struct section **section)
{
    double started = monotonic_seconds();
    bool counted = false, waited = false;
    for (;;) {
        pthread_mutex_lock(&lock);
        *state = refreshed();
        if (*state == NULL) {
            pthread_mutex_unlock(&lock);
            return error_code(users > 0 ? "UNKNOWN" : "UNINITIALIZED");
        }
        struct section *library = state_library(*state), *device = NULL;
        note_shutdown_by_others(library);
        int error = needs_device ? resolve(*state, handle, &device) : 0;
        if (!counted) {
            count_call(current_path, function, "");
            if (device != NULL)
                count_call(current_path, function, device->id);
            counted = true;
        }
        bool hangs = asked_hang(device, function) || asked_hang(library, function);
        double limit = section_real(library, "hang_limit_s", DEFAULT_HANG_LIMIT_SECONDS);
        double latency = asked_latency(device, function);
        if (latency < 0)
            latency = asked_latency(library, function);
        if (!hangs && (waited || latency <= 0)) {
            if (error == 0)
                error = error_of(*state, device, function);
            *section = needs_device ? device : library;
            if (error != 0)
                pthread_mutex_unlock(&lock);
            return error;
        }
        pthread_mutex_unlock(&lock);
        if (hangs && monotonic_seconds() - started > limit)
            return error_code("TIMEOUT");
        pause_microseconds(hangs ? 2000 : latency);
        waited = !hangs;
    }
}

int call_library(const char *function, struct state **state, struct section **section)
{
    return begin(function, NULL, false, state, section);
}

int call_device(const char *function, void *handle, struct state **state, struct section **section)
{
    return begin(function, handle, true, state, section);
}

bool call_again(struct state **state)
{
    pthread_mutex_lock(&lock);
    *state = refreshed();
    if (*state == NULL || users == 0) {
        pthread_mutex_unlock(&lock);
        return false;
    }
    return true;
}

void call_note(const char *what)
{
    pthread_mutex_lock(&lock);
    count_call(current_path, what, "");
    pthread_mutex_unlock(&lock);
}

void call_end(void)
{
    pthread_mutex_unlock(&lock);
}

/* One attempt to init; -1 while the state says that init hangs. */
static int try_init(double *latency)
{
    struct state *state = refreshed();
    if (state == NULL)
        return error_code("DRIVER_NOT_LOADED");
    struct section *library = state_library(state);
    note_shutdown_by_others(library);
    if (asked_hang(library, "nvmlInitWithFlags"))
        return -1;
    *latency = asked_latency(library, "nvmlInitWithFlags");
    count_call(current_path, "nvmlInitWithFlags", "");
    const char *refused = section_text(library, "init");
    if (refused != NULL)
        return error_code(refused);
    count_call(current_path, "initialised", "");
    if (users++ == 0)
        list_devices(state);
    return 0;
}

int call_init(void)
{
    double started = monotonic_seconds(), latency = 0;
    for (;;) {
        pthread_mutex_lock(&lock);
        int result = try_init(&latency);
        pthread_mutex_unlock(&lock);
        if (result >= 0) {
            pause_microseconds(latency);
            return result;
        }
        if (monotonic_seconds() - started > DEFAULT_HANG_LIMIT_SECONDS)
            return error_code("TIMEOUT");
        pause_microseconds(2000);
    }
}

int call_shutdown(void)
{
    pthread_mutex_lock(&lock);
    struct state *state = refreshed();
    if (state != NULL) {
        note_shutdown_by_others(state_library(state));
        count_call(current_path, "nvmlShutdown", "");
    }
    int error = users > 0 ? 0 : error_code("UNINITIALIZED");
    if (error == 0) {
        users--;
        if (state != NULL)
            count_call(current_path, "shut down", "");
        if (users == 0)
            objects_end(current_path, "leaked");
    }
    pthread_mutex_unlock(&lock);
    return error;
}
