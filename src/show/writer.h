/* writer: a thread that writes text to our stdout and stderr, so that a slow terminal or a full
 * pipe never holds up its caller.
 *
 * The caller queues text for several descriptors and hands all of it over; the thread writes it in
 * that order. While the thread is busy, the caller leaves its text where it comes from.
 */
#ifndef STK_SHOW_WRITER_H
#define STK_SHOW_WRITER_H

#include <stdbool.h>
#include <stddef.h>

typedef struct stk_writer stk_writer;

stk_writer *stk_writer_new(void); /* NULL: out of memory */
/* Queues the text. Drops it if writing to `fd` has failed, as it does when a pipe's reader ends. */
void stk_writer_put(stk_writer *writer, int fd, const char *text, size_t len);
/* Hands over what is queued. Does nothing while the thread is busy. Without a thread (the system
 * refuses one) it writes at once. */
void stk_writer_go(stk_writer *writer);
bool stk_writer_is_busy(stk_writer *writer);
/* Hands over what is queued and waits until it is written. Returns false at once when `signal_fd`
 * (-1: none) becomes readable. */
bool stk_writer_wait(stk_writer *writer, int signal_fd);
/* Drops what is not written yet. NULL is fine. */
void stk_writer_free(stk_writer *writer);

#endif
