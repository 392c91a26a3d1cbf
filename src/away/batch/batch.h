/* The driver of AWS Batch: jobs, arrays and multi-node jobs. */
#ifndef STK_BATCH_H
#define STK_BATCH_H

#include "away/remote/remote.h"

extern const stk_driver_kind stk_driver_batch;

#endif
