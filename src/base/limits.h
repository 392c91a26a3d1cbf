/* Every limit on what a user can make grow, in one place. Tests check each limit and one above it.
 */
#ifndef STK_BASE_LIMITS_H
#define STK_BASE_LIMITS_H

enum {
    STK_LIMIT_STEPS = 1000000,     /* steps in one spec */
    STK_LIMIT_TASKS = 2000000,     /* tasks in one run, growth included */
    STK_LIMIT_INPUTS = 100000,     /* inputs of one step, list members included */
    STK_LIMIT_OUTPUTS = 10000,     /* outputs of one step */
    STK_LIMIT_DEPTH = 64,          /* nesting of a document written by a user */
    STK_LIMIT_NESTED = 2048,       /* nesting of a document written by a program */
    STK_LIMIT_ALIASES = 10000,     /* YAML alias uses in one document */
    STK_LIMIT_NAME = 128,          /* bytes of a step, output or pipeline name */
    STK_LIMIT_ARTIFACT_NAME = 255, /* bytes of a name under which artifacts are stored */
    STK_LIMIT_RETRIES = 1000,      /* max_retries */
    STK_LIMIT_PREEMPTIONS = 1000,  /* free attempts of one task, each of which made progress */
    STK_LIMIT_RANKS = 1024,        /* processes of one gang on a node */
    STK_LIMIT_ALL_RANKS = 1 << 20, /* … and on all of its nodes */
    STK_LIMIT_DEVICES = 256,       /* devices of one host */
    STK_LIMIT_WORKERS = 10000,     /* --max-workers */
    STK_LIMIT_ENV = 4096,          /* environment entries of one step */
    STK_LIMIT_INPUTS_ENV =
        1000, /* with more inputs, a command finds its files only in $STOKER_INPUT */
    STK_LIMIT_INPUT_COPY = 64 << 10, /* a command gets its own copy of inputs up to this size */
    STK_LIMIT_INPUT_COPIES = 64,     /* at most this many copies per step */
    STK_LIMIT_INPUT_MOUNTS = 1000,   /* at most this many inputs per step are mounted read-only */
    STK_LIMIT_ENV_BYTES = 128 << 10, /* one NAME=value: the kernel's own limit */
    STK_LIMIT_ASKS = 8,              /* alternatives of one request (any_of) */
    STK_LIMIT_SAMPLE_MS_MIN = 10,    /* 100 Hz */
    STK_LIMIT_SAMPLE_MS_MAX = 3600000,
    STK_LIMIT_CPUS_PINNED = 256,         /* CPUs one task can be pinned to */
    STK_LIMIT_METRICS = 10000,           /* metrics of one task, of all its ranks */
    STK_LIMIT_METRIC_NAME = 255,         /* bytes */
    STK_LIMIT_METRIC_VALUES = 100000000, /* of one task */
};

#define STK_LIMIT_SPEC_BYTES (512u << 20)      /* a spec document */
#define STK_LIMIT_YAML_NODES (40u * 1000000u)  /* nodes of one YAML document, aliases expanded */
#define STK_LIMIT_RESULT_BYTES (64u << 20)     /* a result.json */
#define STK_LIMIT_RESULT_NODES (4u * 1000000u) /* values in a result.json */
#define STK_LIMIT_MESSAGE_BYTES (64u << 20)    /* one message of the fork-server protocol */
#define STK_LIMIT_INLINE_BYTES                                                                     \
    (64u << 10) /* a json artifact up to this size is also passed by value */
#define STK_LIMIT_INLINE_GROWN                                                                     \
    256 /* the same in a growing graph, where thousands of steps may get it */
#define STK_LIMIT_IDLE_READ_AGE_MS                                                                 \
    (14ll * 86400000ll) /* re-reads an artifact when its last check is this old */
#define STK_LIMIT_IDLE_READ_BYTES (64ll << 30) /* read by one engine for these checks */
#define STK_LIMIT_MEMORY_MIN (6ll << 20)       /* with less, no container starts */
#define STK_LIMIT_TIMEOUT_MS (366ll * 86400000ll)

#endif
