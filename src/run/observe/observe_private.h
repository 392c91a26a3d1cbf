/* Private to observe. */
#ifndef STK_OBSERVE_PRIVATE_H
#define STK_OBSERVE_PRIVATE_H

#include "base/buf.h"
#include "run/observe/observe.h"

enum { OBSERVE_TEXT_BYTES = 64 << 20 };

/* --- observe_channel.c: brings texts to one receiver, in order --- */

typedef struct observe_channel observe_channel;

/* The receiver: a file that gets a line for each text, an address that each is posted to, or a
 * program that reads lines and answers with sentences for the user. */
typedef struct observe_receiver {
    const char *name; /* "OpenLineage" */
    const char *file;
    const char *url;
    const char *const *headers;
    const char *const *argv; /* of the program … */
    const char *const *env;
    const char *log; /* … and the file of its stderr */
} observe_receiver;

/* Copies nothing; the caller keeps the texts. */
int stk_observe_channel_open(const observe_receiver *receiver, observe_channel **ret, stk_err *err);
/* Queues a text, and clears the buffer. */
void stk_observe_channel_put(observe_channel *channel, stk_buf *text);
/* Takes a sentence for the user; false: there is none. */
bool stk_observe_channel_said(observe_channel *channel, stk_err *ret);
/* After the last text: a descriptor that is readable when the channel is done. */
int stk_observe_channel_end(observe_channel *channel);
/* Ends what is still on its way (a program goes on by itself), and says what is missing. */
void stk_observe_channel_stop(observe_channel *channel);
void stk_observe_channel_close(observe_channel *channel); /* NULL is fine */

/* --- what the texts say --- */

typedef struct observe_of {
    const stk_view *view;
    const stk_event_row *row;
    stk_arena *arena; /* for this event */
    stk_buf *out;     /* the text; none if it stays empty */
    int64_t begun_ms; /* when this engine took up the run */
    int part;         /* 0, and then 1: the second text of this event, if it has one */
} observe_of;

int stk_observe_lineage(const observe_of *of, stk_err *err); /* OpenLineage's RunEvent */
int stk_observe_span(const observe_of *of, stk_err *err);    /* OTLP's ExportTraceServiceRequest */
int stk_observe_tracked(const observe_of *of, stk_err *err); /* python/stoker/_trackers reads it */

/* The first `n` (at most 64) hex digits of a digest of the run and the task's attempt: the same in
 * every process. Task UINT32_MAX: the run itself. */
const char *stk_observe_id(const observe_of *of, uint32_t task, uint32_t attempt, size_t n);
/* Does this event end an attempt that has started? */
bool stk_observe_ends(const observe_of *of);

#endif
