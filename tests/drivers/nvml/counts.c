#include "counts.h"

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SLOTS 8192 /* a power of two */

struct slot {
    char name[120];
    uint64_t count;
};

static struct slot *slots;
static char slots_path[1100];

static void map_slots(const char *state_path)
{
    char path[1100];
    snprintf(path, sizeof(path), "%.1024s.calls.%d", state_path, (int)getpid());
    if (slots != NULL && strcmp(path, slots_path) == 0)
        return;
    if (slots != NULL)
        munmap(slots, SLOTS * sizeof(struct slot));
    slots = NULL;
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0)
        return;
    if (ftruncate(file, SLOTS * sizeof(struct slot)) == 0) {
        void *memory =
            mmap(NULL, SLOTS * sizeof(struct slot), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        slots = memory != MAP_FAILED ? memory : NULL;
    }
    close(file);
    snprintf(slots_path, sizeof(slots_path), "%s", path);
}

void count_call(const char *state_path, const char *function, const char *id)
{
    map_slots(state_path);
    if (slots == NULL)
        return;
    char name[sizeof(slots->name)] = {0};
    int length = snprintf(name, sizeof(name), "%s %s", function, id);
    uint64_t hash = 1469598103934665603u;
    for (int i = 0; i < length && i < (int)sizeof(name) - 1; i++)
        hash = (hash ^ (unsigned char)name[i]) * 1099511628211u;
    for (size_t probe = 0; probe < SLOTS; probe++) {
        struct slot *slot = &slots[(hash + probe) & (SLOTS - 1)];
        if (slot->name[0] == '\0')
            memcpy(slot->name, name, sizeof(name));
        if (strcmp(slot->name, name) == 0) {
            slot->count++;
            return;
        }
    }
}
