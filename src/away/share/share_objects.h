/* Private to share: an object of a bucket as its users see it, with what is kept beside its
 * content. */
#ifndef STK_SHARE_OBJECTS_H
#define STK_SHARE_OBJECTS_H

#include "away/share/share_s3.h"

enum { STK_OBJECT_META = 4096 };

typedef struct stk_object_facts {
    int64_t size; /* of the whole object */
    int64_t from; /* what was read of it */
    int64_t n;
    int64_t modified_s; /* Unix time; -1: unknown */
    char etag[128];
    char type[256];             /* MIME; "": unknown */
    char encryption[64];        /* at the server; "": none */
    char meta[STK_OBJECT_META]; /* Metaflow's attributes of the user, JSON; "": none */
} stk_object_facts;

typedef struct stk_object_range {
    bool given;
    int64_t from; /* from < 0: the last -from bytes */
    int64_t n;    /* -1: to the end */
} stk_object_range;

/* `key` is below the bucket, of any form. STK_E_NOT_FOUND. */
int stk_object_look(stk_share *share, const char *key, stk_object_facts *ret, stk_err *err);
/* Writes what the range names into the file `path`, several parts at a time. STK_E_USAGE: the range
 * begins behind the object's end. */
int stk_object_get(stk_share *share, const char *key, const stk_object_range *range,
                   const char *path, stk_object_facts *ret, stk_err *err);

#endif
