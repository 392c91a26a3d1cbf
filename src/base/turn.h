/* A turn: what a program's first thread does between two checks for signals. With the failpoint
 * "turn.long" armed, turns are measured in bytes of work instead of time: a busy machine slows the
 * clock down, but does not change the amount of work. Unarmed, a turn costs one predictable branch.
 */
#ifndef STK_BASE_TURN_H
#define STK_BASE_TURN_H

#include <stdint.h>

#include "base/failpoint.h"

/* Hashing or copying this many bytes takes about 50 ms. Making, visiting or removing a file counts
 * as STK_TURN_FILE bytes. */
#define STK_TURN_BYTES (16ll << 20)
enum { STK_TURN_FILE = 4096 };

/* Call after checking for signals, from the first thread only. Nothing is counted before the first
 * call. */
void stk_turn_begin(void);
void stk_turn_count(int64_t bytes); /* use the macro; any thread */

#define STK_TURN(bytes) (__builtin_expect(stk_failpoint_armed, 0) ? stk_turn_count(bytes) : (void)0)

#endif
