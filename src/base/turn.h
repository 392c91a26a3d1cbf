/* A turn: what a program's first thread does between two looks at its signals. With a failpoint
 * "turn.long" armed it is measured, in bytes and not by a clock: the more the machine has to do,
 * the longer everything takes, and no more is done. Without one it costs a predictable branch. */
#ifndef STK_BASE_TURN_H
#define STK_BASE_TURN_H

#include <stdint.h>

#include "base/failpoint.h"

/* So much is summed or copied within some 50 ms; a file that is made, seen or removed counts as
 * STK_TURN_FILE. */
#define STK_TURN_BYTES (16ll << 20)
enum { STK_TURN_FILE = 4096 };

/* Signals were looked at. Nothing is counted before the first time. Only the first thread calls it.
 */
void stk_turn_begin(void);
void stk_turn_count(int64_t bytes); /* use the macro; any thread */

#define STK_TURN(bytes) (__builtin_expect(stk_failpoint_armed, 0) ? stk_turn_count(bytes) : (void)0)

#endif
