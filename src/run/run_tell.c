#include "run/run_tell.h"

#include "run/run_python.h"

int stk_run_tell(const stk_run_plan *p, const stk_run_options *options, const stk_run_calls *calls,
                 const char *run, const stk_view *view, stk_observe **ret, stk_err *err)
{
    const stk_tools *tools = &p->containers.stack.tools;
    stk_observe_config config = {.openlineage = tools->openlineage,
                                 .opentelemetry = tools->opentelemetry,
                                 .trackers = tools->trackers,
                                 .store = stk_store_path(p->store),
                                 .run = run,
                                 .view = view,
                                 .say = calls->on_trouble,
                                 .arg = calls->arg};
    if (tools->trackers != NULL) {
        config.python = stk_run_spec_python(p->spec, options->python, p->arena);
        stk_err why = {0};
        if (stk_run_need_front(options->program, p->arena, &config.front, &why) < 0 &&
            calls->on_trouble != NULL) {
            calls->on_trouble(calls->arg, &why);
        }
    }
    return stk_observe_open(&config, ret, err);
}
