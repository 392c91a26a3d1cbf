/* run_export: `stoker export`: a run's steps as files that need no Stoker. The engine runs the
 * pipeline with a driver that writes what it would submit (stk_driver_slurm_export), so every step
 * is ordered as in a run. What follows a step by its result can't be known then: graphs that grow,
 * and hooks of the engine's, are refused. */
#ifndef STK_RUN_EXPORT_H
#define STK_RUN_EXPORT_H

#include "run/run.h"

/* Writes the folder, which must not be there or be empty, outside of the project. options: `share`
 * is the folder, `drivers` finds the driver that writes. Uses the store of STOKER_STORE, in which
 * nothing of worth is left. */
int stk_run_export_slurm(stk_spec *spec, const stk_run_options *options, stk_err *err);

#endif
