#include "client/budget.h"

#define RETRY   1000 /* thousandths */
#define EARNED  200
#define SIXTEEN 16
#define FULL_MS ((uint64_t)SIXTEEN * 1000) /* after so long it is full at any rate */

static void add(once__client_budget_t *budget, uint64_t more)
{
    budget->left = budget->max - budget->left > more ? budget->left + more : budget->max;
}

void once__client_budget_init(once__client_budget_t *budget, unsigned connections, uint64_t now)
{
    budget->left = budget->max = (uint64_t)(connections > SIXTEEN ? connections : SIXTEEN) * RETRY;
    budget->rate = budget->max / RETRY / SIXTEEN;
    budget->at = now;
}

void once__client_budget_earn(once__client_budget_t *budget)
{
    add(budget, EARNED);
}

int once__client_budget_take(once__client_budget_t *budget, uint64_t now)
{
    uint64_t passed = now > budget->at ? now - budget->at : 0;

    add(budget, (passed < 2 * FULL_MS ? passed : 2 * FULL_MS) * budget->rate);
    budget->at = now;
    if (budget->left < RETRY) {
        return 0;
    }
    budget->left -= RETRY;
    return 1;
}
