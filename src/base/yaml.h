/* yaml: parses a YAML or JSON document into one tree of nodes with line numbers (base/json.h). */
#ifndef STK_BASE_YAML_H
#define STK_BASE_YAML_H

#include "base/json.h"

/* YAML 1.2's core schema (null, true, false, numbers; `yes` and `on` stay text), plus anchors,
 * aliases and merge keys (<<). Accepts one document only. Errors as for stk_json_parse. */
int stk_yaml_parse(const char *text, size_t len, const char *path, const stk_json_limits *limits,
                   stk_arena *arena, stk_json *ret_root, stk_err *err);
/* Parses JSON if the first non-space byte is '{', else YAML. */
int stk_yaml_or_json_parse(const char *text, size_t len, const char *path,
                           const stk_json_limits *limits, stk_arena *arena, stk_json *ret_root,
                           stk_err *err);

#endif
