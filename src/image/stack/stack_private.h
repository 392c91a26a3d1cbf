/* Private to stack. */
#ifndef STK_STACK_PRIVATE_H
#define STK_STACK_PRIVATE_H

#include "image/stack/stack.h"
#include "model/spec/spec_read.h"

/* The kind of a backend's name; -1: unknown. */
int stk_stack_kind(const char *word);

/* stack_inherit.c. Completes a stack of other machines; `options` holds its file's. STK_E_SPEC: a
 * setting is malformed. */
int stk_stack_inherit(stk_stack *stack, stk_arena *arena, stk_err *err);
/* Lays options (a map, or nothing) over those that the stack inherits. */
int stk_stack_lay_over(const stk_stack *stack, const stk_json *own, stk_arena *arena, stk_json *ret,
                       stk_err *err);

/* The number that an option says, by any of its names; `otherwise`: it says none. */
int64_t stk_stack_whole_option(const stk_stack *stack, const stk_json *options, const char *name,
                               int64_t otherwise);

/* stack_given.c. Lays `given` ("NAME=VALUE,NAME=VALUE") over the options that the stack's file has;
 * what is derived from them has to be completed again. `said`: all that the user wrote.
 * STK_E_USAGE: it has a part without a name, or the stack is this machine. */
int stk_stack_take_given(stk_stack *stack, const char *given, const char *said, stk_arena *arena,
                         stk_err *err);

/* stack_hosts.c: machines over SSH. */
#define STK_STACK_FIRST_HOST "the first host" /* store_from */
int stk_stack_read_hosts(stk_spec_reader *r, const stk_json *node, stk_stack *stack);
/* Puts the hosts into the backend's options; without a store it is on the first of them. */
int stk_stack_lay_hosts(stk_stack *stack, stk_arena *arena, stk_err *err);
bool stk_stack_is_on_a_host(const char *url);

/* stack_tools.c: other tools that hear of a run. */
typedef enum { STK_TOOLS_TRACKERS, STK_TOOLS_OPENLINEAGE, STK_TOOLS_OPENTELEMETRY } stk_tools_key;
int stk_stack_read_tools(stk_spec_reader *r, stk_tools_key key, const stk_json *node,
                         stk_tools *tools);
/* STOKER_TRACKERS, STOKER_OPENLINEAGE and STOKER_OPENTELEMETRY win over the file. STK_E_USAGE. */
int stk_stack_ask_tools(stk_tools *tools, stk_arena *arena, stk_err *err);

/* stack_prices.c. `ret` begins as STK_PRICES_UNSET. */
int stk_stack_read_prices(stk_spec_reader *r, const stk_json *map, bool is_of_stack,
                          stk_prices *ret);

/* stack_unused.c. Adds to the place's note which of the step's options are other backends' and have
 * no effect here; `backend`: the step's, or a NULL node. */
int stk_stack_note_unused(const stk_json *backend, const char *step, const stk_resources *res,
                          stk_arena *arena, stk_place *place, stk_err *err);

#endif
