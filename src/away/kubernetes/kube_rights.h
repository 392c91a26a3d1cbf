/* The table of rights that the driver needs, and the request that asks whether we have one. */
#ifndef STK_KUBE_RIGHTS_H
#define STK_KUBE_RIGHTS_H

#include "base/buf.h"

typedef enum {
    KUBE_FOR_NONE, /* optional */
    KUBE_FOR_ALL,
    KUBE_FOR_SECRETS,
    KUBE_FOR_SERVICES,
    KUBE_FOR_SETS
} stk_kube_need;

typedef struct stk_kube_right {
    const char *group, *resource, *sub, *verb, *why;
    stk_kube_need need;
} stk_kube_right;

enum { KUBE_RIGHTS = 16 };
extern const stk_kube_right stk_kube_rights[KUBE_RIGHTS];

/* Writes the SelfSubjectAccessReview for one right. */
enum { KUBE_REVIEW_BYTES = 4096 };
void stk_kube_review(const stk_kube_right *right, const char *name_space, stk_buf *out);

#endif
