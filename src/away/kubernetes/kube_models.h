/* Which values of the nodes' labels mean a model (pure). Users write "A100-80GB"; the device
 * plugins' labels say "NVIDIA-A100-SXM4-80GB", GKE's "nvidia-a100-80gb" (tbl/node_labels.def). */
#ifndef STK_KUBE_MODELS_H
#define STK_KUBE_MODELS_H

#include "away/kubernetes/kube_manifest.h"

/* True if nodes whose `label` has this value have devices of the class. A label that isn't in the
 * table: false. A shared or split device is no whole one, unless the class says so. */
bool stk_kube_model_fits(const char *gpu_class, const char *label, const char *value);
/* True if the label tells models of this vendor (NULL: of any) apart. */
bool stk_kube_tells_models(const char *vendor, const char *label);
/* Adds a value of a label to the choice. False: there is no room for it. */
bool stk_kube_match_add(stk_kube_wanted *to, const char *label, const char *value);
/* Adds all labels and values that the class is known to have; only itself if it is such a value.
 * False: none is known, or there is no memory or room for them. */
bool stk_kube_model_add(const char *gpu_class, const char *vendor, stk_arena *arena,
                        stk_kube_wanted *to);
/* "A100, A100-80GB": short names of models.def that the value stands for; "": none. */
const char *stk_kube_model_names(const char *label, const char *value, char *buf, size_t size);
/* "nvidia.com/gpu.product, cloud.google.com/gke-accelerator": the labels of a vendor. */
const char *stk_kube_model_labels(const char *vendor, char *buf, size_t size);

#endif
