/* suite_random.c - see suite_random.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "suite_random.h"

#include "suite_list.h"

void suite_say_random(suite_case *c, int random)
{
    if (random)
        suite_say(c, "random%d ", random - 1);
}

uint64_t suite_draws(int number)
{
    return (uint64_t)number * 0x9e3779b97f4a7c15u + 1;
}

int suite_draw(uint64_t *draws, int n)
{
    *draws = *draws * 6364136223846793005u + 1442695040888963407u;
    return (int)((*draws >> 33) % (uint64_t)n);
}

bool suite_draw_once_in(uint64_t *draws, int n)
{
    return suite_draw(draws, n) == 0;
}

saker_type suite_draw_float(uint64_t *draws)
{
    return floats[suite_draw(draws, 3)];
}

saker_type suite_draw_near(uint64_t *draws, saker_type type)
{
    return suite_draw_once_in(draws, 3) ? suite_draw_float(draws) : type;
}

int64_t suite_draw_width(uint64_t *draws)
{
    switch (suite_draw(draws, 8)) {
    case 0:
        return 1 + suite_draw(draws, 5000);
    case 1:
        return 8 * (1 + suite_draw(draws, 400));
    case 2:
    case 3:
    case 4: {
        int64_t edge = (int64_t)64 << suite_draw(draws, 5);
        return edge - 1 + suite_draw(draws, 3);
    }
    default:
        return 1 + suite_draw(draws, 40);
    }
}

int suite_draw_lead(uint64_t *draws, int most, int64_t width, int64_t *lead)
{
    static const int64_t rows[] = {0, 1, 2, 3, 4, 7, 16, 33, 65, 130};
    const int many = width < 300 ? 10 : width < 1100 ? 7 : 5;
    const int n = suite_draw_once_in(draws, 2) ? 1 : suite_draw(draws, most + 1);
    if (n == 1)
        lead[0] = rows[suite_draw(draws, many)];
    for (int d = 0; n > 1 && d < n; d++)
        lead[d] = suite_draw_once_in(draws, 32) ? 0 : 1 + suite_draw(draws, width < 300 ? 5 : 3);
    return n;
}
