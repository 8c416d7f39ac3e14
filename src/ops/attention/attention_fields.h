/* attention_fields.h - rows of the field table that attention and attention_backward share, and how to take them.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_ATTENTION_FIELDS_H
#define SKR_ATTENTION_FIELDS_H

#include "../../core/op.h"

/* Tensors that both have side by side; the first is bias. */
enum { BIAS, MASK, KEY_MASK, SLOPES, SINKS, CU_Q, CU_K, Q_POSITIONS, K_POSITIONS, Q_IDS, K_IDS, N_SHARED };

static const uint32_t attention_flags[] = {SAKER_BOOL, SAKER_U8, 0};

#define ATTENTION_SHARED(op, first)                                                                                    \
    [first +                                                                                                           \
        BIAS] = SKR_IN(op, bias, 0, skr_floats, "added to the scores: repeated to [B, Hq, Sq, Sk]"),                   \
        [first + MASK] = SKR_IN(op, mask, 0, attention_flags, "nonzero: seen; repeated to [B, Hq, Sq, Sk]"),           \
        [first + KEY_MASK] = SKR_IN(op, key_mask, 0, attention_flags, "nonzero: seen; [B, Sk] or [Tk]"),               \
        [first + SLOPES] = SKR_IN(op, slopes, 0, skr_f32_only, "[Hq] or [B, Hq]: ALiBi"),                              \
        [first + SINKS] = SKR_IN(op, sinks, 0, skr_f32_only, "[Hq]: one more score in each sum"),                      \
        [first + CU_Q] = SKR_IN(op, cu_seqlens_q, 0, skr_i32_only, "[B + 1] first query of each sequence, and Tq"),    \
        [first + CU_K] = SKR_IN(op, cu_seqlens_k, 0, skr_i32_only, "[B + 1] first key of each sequence, and Tk"),      \
        [first + Q_POSITIONS] = SKR_IN(op, q_positions, 0, skr_i32_only, "[B, Sq] or [Tq]: replaces i in masks"),      \
        [first + K_POSITIONS] = SKR_IN(op, k_positions, 0, skr_i32_only, "[B, Sk] or [Tk]: replaces j in masks"),      \
        [first + Q_IDS] = SKR_IN(op, q_ids, 0, skr_i32_only, "[B, Sq] or [Tq]: compared with k_ids"),                  \
        [first + K_IDS] = SKR_IN(op, k_ids, 0, skr_i32_only, "[B, Sk] or [Tk]: compared with q_ids as id_rule says")

#define ATTENTION_OPTIONS(op)                                                                                          \
    SKR_OPTION_I64(op, seed, 0, "dropout: key of the random numbers"),                                                 \
        SKR_OPTION_I64(op, offset, 0, "dropout: last word of their counter"),                                          \
        SKR_OPTION_I64(op, window_left, 0, "keys seen before the diagonal; -1: all"),                                  \
        SKR_OPTION_I64(op, window_right, 0, "keys seen after the diagonal; -1: all"),                                  \
        SKR_OPTION_I64(op, max_q, 0, "thd: the longest Sq, a hint; 0: not known"),                                     \
        SKR_OPTION_I64(op, max_k, 0, "thd: the longest Sk, a hint; 0: not known"),                                     \
        SKR_OPTION_F32(op, scale, 0, "on q . k; 0: 1 / sqrt(D)"),                                                      \
        SKR_OPTION_F32(op, softcap, 0, "c: scores become c tanh(s / c); 0: none"),                                     \
        SKR_OPTION_F32(op, dropout, 0, "share of the probabilities that is left out"),                                 \
        SKR_OPTION_ENUM(op, layout, "bshd|bhsd|thd", "order of the dimensions"),                                       \
        SKR_OPTION_BOOL(op, causal, "a query sees keys up to the diagonal"),                                           \
        SKR_OPTION_BOOL(op, top_left, "the diagonal is i = j, not the one that ends at the last key"),                 \
        SKR_OPTION_BOOL(op, has_window, "window_left and window_right bound what a query sees"),                       \
        SKR_OPTION_ENUM(op, id_rule, "same|up_to", "which ids a query sees")

#define ATTENTION_TAKE_OPTIONS(a)                                                                                      \
    {                                                                                                                  \
        .seed = (a)->seed, .offset = (a)->offset, .window_left = (a)->window_left, .window_right = (a)->window_right,  \
        .max_q = (a)->max_q, .max_k = (a)->max_k, .scale = (a)->scale, .softcap = (a)->softcap,                        \
        .dropout = (a)->dropout, .layout = (a)->layout, .causal = (a)->causal, .top_left = (a)->top_left,              \
        .has_window = (a)->has_window, .id_rule = (a)->id_rule                                                         \
    }

#define ATTENTION_VIEWS(v, first, q_at, k_at, v_at, o_at, lse_at)                                                      \
    {                                                                                                                  \
        &v[q_at], &v[k_at], &v[v_at], &v[o_at], &v[lse_at], &v[first + BIAS], &v[first + MASK], &v[first + KEY_MASK],  \
            &v[first + SLOPES], &v[first + SINKS], &v[first + CU_Q], &v[first + CU_K], &v[first + Q_POSITIONS],        \
            &v[first + K_POSITIONS], &v[first + Q_IDS], &v[first + K_IDS]                                              \
    }

#endif
