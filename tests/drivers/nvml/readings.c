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

/* These three do not say whose power it is. Where a card is one module with a processor, they mean
 * the module. */
static int power_of(const char *function, void *handle, const char *key, const char *of_module,
                    unsigned long long *value)
{
    struct state *state;
    struct section *device;
    int error = call_device(function, handle, &state, &device);
    if (error != 0)
        return error;
    bool known = section_number(device, of_module, value) || section_number(device, key, value);
    call_end();
    return known ? SUCCESS : NOT_SUPPORTED;
}

static int milliwatts(const char *function, void *handle, const char *key, const char *of_module,
                      unsigned int *value)
{
    unsigned long long found = 0;
    int error = power_of(function, handle, key, of_module, &found);
    *value = (unsigned int)found;
    return error;
}

EXPORT int nvmlDeviceGetPowerUsage(void *handle, unsigned int *power)
{
    return milliwatts(__func__, handle, "power_mw", "module_power_mw", power);
}

EXPORT int nvmlDeviceGetEnforcedPowerLimit(void *handle, unsigned int *limit)
{
    return milliwatts(__func__, handle, "power_limit_mw", "module_power_limit_mw", limit);
}

EXPORT int nvmlDeviceGetTotalEnergyConsumption(void *handle, unsigned long long *energy)
{
    return power_of(__func__, handle, "energy_mj", "module_energy_mj", energy);
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
