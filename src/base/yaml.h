/* yaml: a document in YAML or JSON → one tree of nodes with lines (base/json.h). */
#ifndef STK_BASE_YAML_H
#define STK_BASE_YAML_H

#include "base/json.h"

/* YAML 1.2's core schema (null, true, false, numbers; `yes` and `on` stay text), plus anchors,
 * aliases and merge keys (<<). One document. Errors as stk_json_parse. */
int stk_yaml_parse(const char *text, size_t len, const char *path, const stk_json_limits *limits,
                   stk_arena *arena, stk_json *ret_root, stk_err *err);
/* JSON where the first byte that is no space is '{', else YAML. */
int stk_yaml_or_json_parse(const char *text, size_t len, const char *path,
                           const stk_json_limits *limits, stk_arena *arena, stk_json *ret_root,
                           stk_err *err);

#endif
