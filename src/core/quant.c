/* quant.c - the checks that every operation with a quantised output shares.
 * SPDX-License-Identifier: Apache-2.0 */
#include "op.h"

saker_status skr_check_quant(skr_call *call, const skr_view *y, const skr_view *q, const skr_view *scale, int32_t quant)
{
    static const char *const names[] = {"none", "tensor", "row", "block"};
    if (!y->present && !q->present)
        return skr_fail(call, SAKER_NULL_POINTER, "%s and %s are both NULL, expected at least one of them", y->name,
                        q->name);
    if (quant == SAKER_QUANT_NONE) {
        const skr_view *given = q->present ? q : scale;
        if (given->present)
            return skr_fail(call, SAKER_INVALID_ARG, "%s is given but quant is none, expected tensor, row or block",
                            given->name);
        return SAKER_OK;
    }
    if (!q->present)
        return skr_fail(call, SAKER_NULL_POINTER, "%s is NULL but quant is %s, expected a tensor for the result",
                        q->name, names[quant]);
    if (!scale->present)
        return skr_fail(call, SAKER_NULL_POINTER, "%s is NULL but quant is %s, expected a tensor of scales",
                        scale->name, names[quant]);
    if (quant == SAKER_QUANT_TENSOR && scale->count != 1) {
        char text[192];
        return skr_fail(call, SAKER_INVALID_ARG, "%s has shape %s, expected one element (quant is tensor)", scale->name,
                        skr_shape_text(scale, text));
    }
    return SAKER_OK;
}

saker_status skr_rows_add_scale(skr_call *call, skr_row_builder *b, const skr_view *scale, int32_t quant, int64_t n,
                                skr_rows *out)
{
    if (quant == SAKER_QUANT_ROW)
        return skr_rows_add_stat(call, b, scale, out);
    if (quant == SAKER_QUANT_BLOCK)
        return skr_rows_add_block(call, b, scale, (n + SKR_QUANT_GROUP - 1) / SKR_QUANT_GROUP, out);
    *out = (skr_rows){.data = quant == SAKER_QUANT_TENSOR ? scale->data : NULL, .type = SKR_F32};
    return SAKER_OK;
}
