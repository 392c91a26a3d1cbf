/* The driver of Slurm: each attempt is a batch job. */
#ifndef STK_SLURM_H
#define STK_SLURM_H

#include "away/remote/remote.h"

extern const stk_driver_kind stk_driver_slurm;
/* Writes batch scripts instead of submitting them, for `stoker export slurm-script`: steps/STEP.sh
 * in the share. Needs no Slurm. */
extern const stk_driver_kind stk_driver_slurm_export;

#endif
