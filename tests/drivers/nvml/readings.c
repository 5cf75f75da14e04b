/* What a device does: every reading that is a call of its own.
 *
 * The records are declared in our own words; their sizes and order are those of the ctypes
 * structures of the binding `pynvml`. */

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "calls.h"
#include "state.h"
#include "values.h"

typedef struct {
    unsigned int gpu, memory;
} utilization_t;

typedef struct {
    unsigned long long total, free, used;
} memory_t;

typedef struct {
    unsigned int version;
    unsigned long long total, reserved, free, used;
} memory_v2_t;

typedef struct {
    unsigned int version;
    int sensor, temperature;
} temperature_t;

typedef struct {
    unsigned long long reference_time, violation_time;
} violation_t;

typedef struct {
    unsigned int pid;
    unsigned long long memory;
    unsigned int gpu_instance, compute_instance;
} process_t;

EXPORT int nvmlDeviceGetUtilizationRates(void *handle, utilization_t *utilization)
{
    struct state *state;
    struct section *device;
    int error = call_device(__func__, handle, &state, &device);
    if (error != 0)
        return error;
    unsigned long long gpu = 0, memory = 0;
    bool known = !section_flag(device, "mig_mode") &&
                 section_number(device, "utilization_gpu", &gpu) &&
                 section_number(device, "utilization_memory", &memory);
    utilization->gpu = (unsigned int)gpu;
    utilization->memory = (unsigned int)memory;
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}

static int codec(const char *function, void *handle, const char *key, unsigned int *share,
                 unsigned int *window)
{
    struct state *state;
    struct section *device;
    int error = call_device(function, handle, &state, &device);
    if (error != 0)
        return error;
    unsigned long long number = 0;
    bool known = !section_flag(device, "mig_mode") && section_number(device, key, &number);
    *share = (unsigned int)number;
    *window = 167000;
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetEncoderUtilization(void *handle, unsigned int *share, unsigned int *window)
{
    return codec(__func__, handle, "encoder", share, window);
}

EXPORT int nvmlDeviceGetDecoderUtilization(void *handle, unsigned int *share, unsigned int *window)
{
    return codec(__func__, handle, "decoder", share, window);
}

static int memory_of(const char *function, void *handle, memory_v2_t *memory)
{
    struct state *state;
    struct section *device;
    int error = call_device(function, handle, &state, &device);
    if (error != 0)
        return error;
    memory->reserved = 0;
    bool known = section_number(device, "memory_total", &memory->total) &&
                 section_number(device, "memory_used", &memory->used);
    section_number(device, "memory_reserved", &memory->reserved);
    if (known && !section_number(device, "memory_free", &memory->free))
        memory->free = memory->total - memory->used - memory->reserved;
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}

EXPORT int nvmlDeviceGetMemoryInfo(void *handle, memory_t *memory)
{
    memory_v2_t found = {0};
    int error = memory_of(__func__, handle, &found);
    if (error == 0)
        *memory = (memory_t){found.total, found.free, found.used + found.reserved};
    return error;
}

EXPORT int nvmlDeviceGetMemoryInfo_v2(void *handle, memory_v2_t *memory)
{
    if (memory->version != (sizeof(memory_v2_t) | 2u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    return memory_of(__func__, handle, memory);
}

static int temperature_of(const char *function, void *handle, int *temperature)
{
    unsigned int number = 0;
    int error = one_number(function, handle, "temperature", &number);
    *temperature = (int)number;
    return error;
}

EXPORT int nvmlDeviceGetTemperature(void *handle, unsigned int sensor, unsigned int *temperature)
{
    int found;
    int error = sensor == 0 ? temperature_of(__func__, handle, &found) : INVALID_ARGUMENT;
    if (error == 0)
        *temperature = (unsigned int)found;
    return error;
}

EXPORT int nvmlDeviceGetTemperatureV(void *handle, temperature_t *temperature)
{
    if (temperature->version != (sizeof(temperature_t) | 1u << 24))
        return ARGUMENT_VERSION_MISMATCH;
    return temperature_of(__func__, handle, &temperature->temperature);
}

EXPORT int nvmlDeviceGetTemperatureThreshold(void *handle, unsigned int which, unsigned int *limit)
{
    const char *key = which == 0 ? "temperature_shutdown" : "temperature_slowdown";
    return which <= 1 ? one_number(__func__, handle, key, limit) : NOT_SUPPORTED;
}

PLAIN_CALL_WITH_KEY(nvmlDeviceGetPowerUsage, "power_mw")
PLAIN_CALL_WITH_KEY(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
PLAIN_CALL_WITH_KEY(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")

EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *energy)
{
    return one_counter(__func__, handle, "energy_mj", energy);
}

EXPORT int nvmlDeviceGetClockInfo(void *handle, unsigned int which, unsigned int *clock)
{
    static const char *const KEYS[] = {"clock_graphics", "clock_sm", "clock_memory", "clock_video"};
    return which < 4 ? one_number(__func__, handle, KEYS[which], clock) : INVALID_ARGUMENT;
}

EXPORT int nvmlDeviceGetViolationStatus(void *handle, unsigned int policy, violation_t *violation)
{
    if (policy > 1)
        return NOT_SUPPORTED;
    violation->reference_time = (unsigned long long)(monotonic_seconds() * 1e6);
    const char *key = policy == 0 ? "violation_power_ns" : "violation_thermal_ns";
    return one_counter(__func__, handle, key, &violation->violation_time);
}

/* The one reading that costs its caller 20 ms; here so that tests can see that nobody takes it. */
EXPORT int nvmlDeviceGetPcieThroughput(void *handle, unsigned int direction, unsigned int *rate)
{
    (void)direction;
    pause_microseconds(20000);
    return one_number(__func__, handle, "pcie_throughput_kbps", rate);
}

EXPORT int nvmlDeviceGetTotalEccErrors(void *handle, unsigned int type, unsigned int counter,
                                       unsigned long long *errors)
{
    (void)counter;
    return one_counter(__func__, handle, type == 1 ? "ecc_uncorrected" : "ecc_corrected", errors);
}

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
