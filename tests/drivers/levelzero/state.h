/* What the fake answers: lines "key = value" of a file that is read again whenever it changes. */
#ifndef FAKE_LEVEL_ZERO_STATE_H
#define FAKE_LEVEL_ZERO_STATE_H

#include <stdbool.h>
#include <stdint.h>

/* Takes the lock and reads the file if it changed; false if there is none. Ends with state_end. */
bool state_begin(void);
void state_end(void);

/* A key is made like a message of printf: state_has("%d.name", 0). All need the lock. */
const char *state_text(const char *key, ...) __attribute__((format(printf, 1, 2)));
double state_real(const char *key, ...) __attribute__((format(printf, 1, 2)));

/* 0 where the key is missing. "BASE+RATE@START" grows by RATE a second since START, in seconds of
 * the monotonic clock; the same moment counts for all numbers between begin and end. */
uint64_t state_number(const char *key, ...) __attribute__((format(printf, 1, 2)));

#endif
