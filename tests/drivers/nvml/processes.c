/* Who uses a device: the lists of processes, and what share of its time each took. */

#include <stdint.h>
#include <stdio.h>

#include "calls.h"
#include "state.h"
#include "values.h"

typedef struct {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
} process_t;

typedef struct {
    unsigned int pid;
    unsigned long long time;
    unsigned int sm, memory, encoder, decoder;
} use_t;

/* Reads "PID:BYTES PID:none ..." into at most `room` records; the number that there are. */
static unsigned int parse_processes(const char *text, process_t *processes, unsigned int room)
{
    unsigned int found = 0;
    unsigned long long pid;
    char memory[32];
    int length;
    while (sscanf(text, "%llu:%31s%n", &pid, memory, &length) == 2) {
        if (found < room) {
            process_t *process = &processes[found];
            process->pid = (unsigned int)pid;
            unsigned long long bytes;
            process->memory = sscanf(memory, "%llu", &bytes) == 1 ? bytes : ~0ULL;
            process->gpu_instance = process->compute_instance = ~0u;
        }
        found++;
        text += length;
    }
    return found;
}

static int processes_of(const char *function, void *handle, const char *key, unsigned int *count,
                        process_t *processes)
{
    struct state *state;
    struct section *device;
    int error = call_device(function, handle, &state, &device);
    if (error != 0)
        return error;
    const char *text = section_text(device, key);
    unsigned int room = processes != NULL ? *count : 0;
    if (text != NULL)
        *count = parse_processes(text, processes, room);
    call_end();
    if (text == NULL)
        return NOT_SUPPORTED;
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}

#define PROCESS_CALL(function, key) \
    EXPORT int function(void *handle, unsigned int *count, process_t *processes) \
    { \
        return processes_of(__func__, handle, key, count, processes); \
    }

PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v2, "processes_compute")
PROCESS_CALL(nvmlDeviceGetComputeRunningProcesses_v3, "processes_compute")
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v2, "processes_graphics")
PROCESS_CALL(nvmlDeviceGetGraphicsRunningProcesses_v3, "processes_graphics")
PROCESS_CALL(nvmlDeviceGetMPSComputeRunningProcesses_v3, "processes_mps")

/* Reads "PID:SHARE:MICROSECONDS ..." into at most `room` records, those newer than `since`; the
 * number that there are. */
static unsigned int parse_uses(const char *text, unsigned long long since, use_t *uses,
                               unsigned int room)
{
    unsigned int found = 0;
    unsigned long long pid, share, time;
    int length;
    while (sscanf(text, "%llu:%llu:%llu%n", &pid, &share, &time, &length) == 3) {
        text += length;
        if (time <= since)
            continue;
        if (found < room)
            uses[found] = (use_t){(unsigned int)pid, time, (unsigned int)share, 0, 0, 0};
        found++;
    }
    return found;
}

EXPORT int nvmlDeviceGetProcessUtilization(void *handle, use_t *uses, unsigned int *count,
                                           unsigned long long since)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    const char *text = section_text(device, "process_utilization");
    bool known = text != NULL && !section_flag(device, "mig_mode");
    unsigned int room = uses != NULL ? *count : 0;
    if (known)
        *count = parse_uses(text, since, uses, room);
    call_end();
    if (!known)
        return NOT_SUPPORTED;
    if (*count == 0)
        return NOT_FOUND;
    return *count > room ? INSUFFICIENT_SIZE : SUCCESS;
}
