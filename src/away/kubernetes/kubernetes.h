/* The driver of Kubernetes: Jobs, Indexed Jobs and JobSets. */
#ifndef STK_KUBERNETES_H
#define STK_KUBERNETES_H

#include "away/remote/remote.h"

extern const stk_driver_kind stk_driver_kubernetes;

#endif
