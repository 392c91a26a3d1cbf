/* What a machine, an image or a stack offers to runs, and what stands in their way: `stoker
 * doctor`. The level of a finding says whether to act: ok, note (good to know), warning (some runs
 * will suffer), problem. */
#ifndef STK_RUN_DOCTOR_H
#define STK_RUN_DOCTOR_H

#include "host/preflight/preflight.h"

/* This machine. `accel` NULL: its devices are looked for. `python`: the interpreter that was named,
 * or NULL. */
void stk_run_doctor(const char *python, stk_accel *accel, stk_findings *findings);
/* Can this image be had, and does it fit this host? With `inside` also what is in it, by a
 * container of it. What can't be found out is a finding as well. `accel` may be NULL. */
void stk_run_doctor_image(const char *name, bool inside, stk_accel *accel, stk_findings *findings);
/* CUDA, framework and Python of two stacks: the images they run steps in, or this host. 0, or the
 * error of a stack that isn't there. */
int stk_run_doctor_compare(const char *a, const char *b, const char *python, stk_accel *accel,
                           stk_findings *findings, stk_err *err);

#endif
