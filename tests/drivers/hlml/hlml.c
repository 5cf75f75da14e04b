/* A fake libhlml.so: it answers what a small text file says, and nothing it does not say.
 *
 * The file is named by ACCELSCALE_FAKE_HLML_STATE and read at every call. A line is a key, a space
 * and a value. Keys of a card begin with its PCI address and a slash. See state.py. */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
#define LINE 256
#define KEY 128
#define MOST_CARDS 64

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
       INSUFFICIENT_SIZE = 7 };

struct card { char address[32]; };
struct utilization { unsigned int aip, memory; };
struct memory { unsigned long long free, total, used; };

static struct card cards[MOST_CARDS];
static int users;

static int find(const char *key, char *value)
{
    const char *path = getenv("ACCELSCALE_FAKE_HLML_STATE");
    FILE *file = path ? fopen(path, "r") : NULL;
    size_t length = strlen(key);
    char line[LINE];
    int found = 0;

    if (!file)
        return 0;
    while (!found && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, key, length) == 0 && line[length] == ' ') {
            strcpy(value, line + length + 1);
            found = 1;
        }
    }
    fclose(file);
    return found;
}

static int find_of(const struct card *card, const char *key, char *value)
{
    char name[LINE];
    snprintf(name, sizeof name, "%.31s/%.127s", card->address, key);
    return find(name, value);
}

/* What a call answers before it looks at any value; it hangs while the state says so. */
static int begin(const struct card *card, const char *function)
{
    char key[KEY], value[LINE];
    const struct timespec pause = {0, 10 * 1000 * 1000};

    if (users == 0)
        return UNINITIALIZED;
    if (!card || !card->address[0])
        return INVALID_ARGUMENT;
    snprintf(key, sizeof key, "hang.%s", function);
    while (find_of(card, key, value))
        nanosleep(&pause, NULL);
    if (find_of(card, "error", value))
        return atoi(value);
    snprintf(key, sizeof key, "error.%s", function);
    return find_of(card, key, value) ? atoi(value) : SUCCESS;
}

static int number(const struct card *card, const char *function, const char *key,
                  unsigned long long *result)
{
    char value[LINE];
    int answer = begin(card, function);
    if (answer != SUCCESS)
        return answer;
    if (!find_of(card, key, value))
        return NOT_SUPPORTED;
    *result = strtoull(value, NULL, 0);
    return SUCCESS;
}

static int number32(const struct card *card, const char *function, const char *key,
                    unsigned int *result)
{
    unsigned long long value = 0;
    int answer = number(card, function, key, &value);
    if (answer == SUCCESS)
        *result = (unsigned int)value;
    return answer;
}

static int text(const struct card *card, const char *function, const char *key, char *result,
                unsigned int size)
{
    char value[LINE];
    int answer = begin(card, function);
    if (answer != SUCCESS)
        return answer;
    if (!find_of(card, key, value))
        return NOT_SUPPORTED;
    if (strlen(value) >= size)
        return INSUFFICIENT_SIZE;
    strcpy(result, value);
    return SUCCESS;
}

API int hlml_init(void)
{
    char value[LINE];
    if (find("print", value)) {
        printf("%s\n", value); /* not flushed, as a library would */
    }
    if (find("crash", value))
        abort();
    while (find("hang", value)) {
        const struct timespec pause = {0, 10 * 1000 * 1000};
        nanosleep(&pause, NULL);
    }
    if (find("init", value) && atoi(value) != SUCCESS)
        return atoi(value);
    users++;
    return SUCCESS;
}

API int hlml_shutdown(void)
{
    if (users == 0)
        return UNINITIALIZED;
    users--;
    return SUCCESS;
}

API int hlml_get_driver_version(char *version, unsigned int size)
{
    char value[LINE];
    if (users == 0)
        return UNINITIALIZED;
    if (!find("driver_version", value))
        return NOT_SUPPORTED;
    snprintf(version, size, "%s", value);
    return SUCCESS;
}

API int hlml_device_get_handle_by_pci_bus_id(const char *address, void **device)
{
    struct card asked = {""};
    char value[LINE];

    if (users == 0)
        return UNINITIALIZED;
    snprintf(asked.address, sizeof asked.address, "%s", address);
    if (find_of(&asked, "error.hlml_device_get_handle_by_pci_bus_id", value))
        return atoi(value);
    if (!find_of(&asked, "name", value))
        return NOT_FOUND;
    for (int i = 0; i < MOST_CARDS; i++) {
        if (!cards[i].address[0])
            cards[i] = asked;
        if (strcmp(cards[i].address, address) == 0) {
            *device = &cards[i];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

API int hlml_device_get_name(void *device, char *name, unsigned int size)
{
    return text(device, __func__, "name", name, size);
}

API int hlml_device_get_uuid(void *device, char *uuid, unsigned int size)
{
    return text(device, __func__, "uuid", uuid, size);
}

API int hlml_device_get_serial(void *device, char *serial, unsigned int size)
{
    return text(device, __func__, "serial", serial, size);
}

API int hlml_device_get_utilization_rates(void *device, struct utilization *rates)
{
    return number32(device, __func__, "utilization", &rates->aip);
}

API int hlml_device_get_memory_info(void *device, struct memory *memory)
{
    int answer = number(device, __func__, "memory_total", &memory->total);
    if (answer == SUCCESS)
        answer = number(device, __func__, "memory_used", &memory->used);
    memory->free = memory->total - memory->used;
    return answer;
}

API int hlml_device_get_temperature(void *device, unsigned int sensor, unsigned int *celsius)
{
    char key[KEY];
    snprintf(key, sizeof key, "temperature.%u", sensor);
    return number32(device, __func__, key, celsius);
}

API int hlml_device_get_temperature_threshold(void *device, int kind, unsigned int *celsius)
{
    char key[KEY];
    snprintf(key, sizeof key, "threshold.%d", kind);
    return number32(device, __func__, key, celsius);
}

API int hlml_device_get_power_usage(void *device, unsigned int *milliwatts)
{
    return number32(device, __func__, "power_mw", milliwatts);
}

API int hlml_device_get_total_energy_consumption(void *device, unsigned long long *millijoules)
{
    return number(device, __func__, "energy_mj", millijoules);
}

API int hlml_device_get_total_ecc_errors(void *device, unsigned int kind, unsigned int counter,
                                         long long *count)
{
    unsigned long long value = 0;
    char key[KEY];
    snprintf(key, sizeof key, "ecc.%u.%u", kind, counter);
    int answer = number(device, __func__, key, &value);
    if (answer == SUCCESS)
        *count = (long long)value;
    return answer;
}
