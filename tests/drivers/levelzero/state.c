#include "state.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define STATE_VARIABLE "ACCELSCALE_FAKE_LEVEL_ZERO_STATE"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *lines; /* "key = value", each ended by a null character, and an empty one at the end */
static char read_path[1024];
static struct stat read_file;
static double now;

static bool is_fresh(const char *path, const struct stat *file)
{
    return lines != NULL && strcmp(path, read_path) == 0 && file->st_ino == read_file.st_ino &&
           file->st_size == read_file.st_size &&
           file->st_mtim.tv_sec == read_file.st_mtim.tv_sec &&
           file->st_mtim.tv_nsec == read_file.st_mtim.tv_nsec;
}

static bool refresh(void)
{
    const char *path = getenv(STATE_VARIABLE);
    struct stat file;
    if (path == NULL || strlen(path) >= sizeof(read_path) || stat(path, &file) != 0)
        return false;
    if (is_fresh(path, &file))
        return true;
    FILE *stream = fopen(path, "r");
    if (stream == NULL)
        return false;
    char *text = calloc((size_t)file.st_size + 2, 1);
    if (text == NULL)
        abort();
    size_t length = fread(text, 1, (size_t)file.st_size, stream);
    fclose(stream);
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\n')
            text[i] = '\0';
    free(lines);
    lines = text;
    read_file = file;
    snprintf(read_path, sizeof(read_path), "%s", path);
    return true;
}

bool state_begin(void)
{
    struct timespec moment;
    pthread_mutex_lock(&lock);
    clock_gettime(CLOCK_MONOTONIC, &moment);
    now = (double)moment.tv_sec + (double)moment.tv_nsec / 1e9;
    if (refresh())
        return true;
    pthread_mutex_unlock(&lock);
    return false;
}

void state_end(void)
{
    pthread_mutex_unlock(&lock);
}

static const char *value_of(const char *format, va_list arguments)
{
    char key[160];
    int length = vsnprintf(key, sizeof(key), format, arguments);
    for (const char *line = lines; *line != '\0'; line += strlen(line) + 1)
        if (strncmp(line, key, (size_t)length) == 0 && strncmp(line + length, " = ", 3) == 0)
            return line + length + 3;
    return NULL;
}

const char *state_text(const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    const char *value = value_of(key, arguments);
    va_end(arguments);
    return value;
}

double state_real(const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    const char *value = value_of(key, arguments);
    va_end(arguments);
    return value != NULL ? strtod(value, NULL) : 0.0;
}

uint64_t state_number(const char *key, ...)
{
    va_list arguments;
    va_start(arguments, key);
    const char *value = value_of(key, arguments);
    va_end(arguments);
    if (value == NULL)
        return 0;
    char *rest;
    uint64_t base = strtoull(value, &rest, 0);
    if (*rest == '+') {
        double rate = strtod(rest + 1, &rest);
        double grown = rate * (now - (*rest == '@' ? strtod(rest + 1, NULL) : 0.0));
        base += grown > 0 ? (uint64_t)grown : 0;
    }
    return base;
}
