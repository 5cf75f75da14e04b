/* GPM: two samples of a device, taken some time apart, and the metrics that lie between them.
 *
 * Real drivers crash when two threads use GPM at once (plazonic/nvidia_gpu_prometheus_exporter#7),
 * and give nonsense for samples less than 100 ms apart. Here both are counted, so that a test sees
 * it, and the latter gives nonsense too. */

#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "objects.h"
#include "state.h"
#include "values.h"

#define SAMPLE "gpm sample"
#define LEAST_SECONDS 0.1
#define METRICS_AT_MOST 477
#define NONSENSE 1e12

typedef struct {
    unsigned int version, supported;
} support_t;

typedef struct {
    unsigned int metric;
    int result;
    double value;
    const char *short_name, *long_name, *unit;
} metric_t;

typedef struct {
    unsigned int version, count;
    void *older, *newer;
    metric_t metrics[];
} metrics_t;

struct sample {
    char id[96];
    void *handle;
    double time;
};

static atomic_int busy;

static void enter(void)
{
    if (atomic_fetch_add(&busy, 1) > 0)
        call_note("gpm used by two threads at once");
}

static int leave(int result)
{
    atomic_fetch_sub(&busy, 1);
    return result;
}

static bool has_gpm(struct state *state, const struct section *section)
{
    bool is_instance = strcmp(section->kind, "mig") == 0;
    return section_flag(is_instance ? state_parent(state, section) : section, "gpm");
}

EXPORT int nvmlGpmQueryDeviceSupport(void *handle, support_t *support)
{
    struct state *state;
    struct section *section;
    if (support->version != 1)
        return ARGUMENT_VERSION_MISMATCH;
    int error = call_device(__func__, handle, &state, &section);
    if (error != 0)
        return error;
    support->supported = has_gpm(state, section);
    call_end();
    return SUCCESS;
}

EXPORT int nvmlGpmSampleAlloc(void **sample)
{
    struct state *state;
    struct section *library;
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return error;
    *sample = object_new(SAMPLE, sizeof(struct sample));
    call_end();
    return SUCCESS;
}

EXPORT int nvmlGpmSampleFree(void *sample)
{
    struct state *state;
    struct section *library;
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return error;
    bool freed = object_free(SAMPLE, sample);
    call_end();
    return freed ? SUCCESS : INVALID_ARGUMENT;
}

/* Takes the sample of a section that may be NULL, and ends the call. */
static int take(struct state *state, const struct section *section, void *pointer)
{
    struct sample *sample = object_of(SAMPLE, pointer);
    int error = SUCCESS;
    if (sample == NULL || section == NULL)
        error = INVALID_ARGUMENT;
    else if (!has_gpm(state, section))
        error = NOT_SUPPORTED;
    else {
        snprintf(sample->id, sizeof(sample->id), "%s", section->id);
        sample->handle = handle_of(section);
        sample->time = monotonic_seconds();
    }
    call_end();
    return error;
}

EXPORT int nvmlGpmSampleGet(void *handle, void *sample)
{
    struct state *state;
    struct section *section;
    enter();
    int error = call_device(__func__, handle, &state, &section);
    return leave(error != 0 ? error : take(state, section, sample));
}

EXPORT int nvmlGpmMigSampleGet(void *handle, unsigned int gpu_instance, void *sample)
{
    struct state *state;
    struct section *device, *found = NULL, *instance;
    enter();
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return leave(error);
    for (size_t i = 0; (instance = state_instance(state, device, i)) != NULL; i++) {
        unsigned long long number;
        if (found == NULL && section_number(instance, "gpu_instance_id", &number) &&
            number == gpu_instance)
            found = instance;
    }
    return leave(take(state, found, sample));
}

static void answer(const struct section *section, metric_t *metric, bool is_nonsense)
{
    char key[64];
    memset(&metric->value, 0xA5, sizeof(metric->value));
    snprintf(key, sizeof(key), "gpm_error.%u", metric->metric);
    const char *error = section_text(section, key);
    snprintf(key, sizeof(key), "gpm.%u", metric->metric);
    const char *value = section_text(section, key);
    if (error != NULL || value == NULL) {
        metric->result = error != NULL ? error_code(error) : NOT_SUPPORTED;
        return;
    }
    metric->result = SUCCESS;
    metric->value = is_nonsense ? NONSENSE : section_real(section, key, 0);
}

EXPORT int nvmlGpmMetricsGet(metrics_t *metrics)
{
    struct state *state;
    struct section *library;
    enter();
    if (metrics->version != 1)
        return leave(ARGUMENT_VERSION_MISMATCH);
    int error = call_library(__func__, &state, &library);
    if (error != 0)
        return leave(error);
    struct sample *older = object_of(SAMPLE, metrics->older);
    struct sample *newer = object_of(SAMPLE, metrics->newer);
    bool usable = older != NULL && newer != NULL && older->handle != NULL &&
                  newer->handle == older->handle && strcmp(older->id, newer->id) == 0 &&
                  newer->time > older->time && metrics->count <= METRICS_AT_MOST;
    struct section *section = usable ? state_find(state, newer->id) : NULL;
    bool is_nonsense = usable && newer->time - older->time < LEAST_SECONDS;
    for (unsigned int i = 0; section != NULL && i < metrics->count; i++)
        answer(section, &metrics->metrics[i], is_nonsense);
    call_end();
    if (is_nonsense)
        call_note("gpm samples less than 100 ms apart");
    return leave(section != NULL ? SUCCESS : INVALID_ARGUMENT);
}
