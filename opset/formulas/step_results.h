/* Which results a step of an optimizer has, in this order: the parameter and its states, trust
 * ratios, the step number, a copy of the parameter in half precision. Next: step.h. */
#ifndef FERRY_OPSET_FORMULAS_STEP_RESULTS_H_
#define FERRY_OPSET_FORMULAS_STEP_RESULTS_H_

#include <ferry/op.h>

#include "opset/formulas/formula.h"

typedef struct fy__step_results {
    int nalike;             /* the parameter and its states, of one shape */
    int trust, number, low; /* indices; -1: the step has none */
} fy__step_results_t;

FY_FORMULA fy__step_results_t fy__step_results(uint32_t op, int ndst)
{
    fy__step_results_t r = { 3, -1, -1, -1 };
    int n;
    if (op == FY_OP_SGD_STEP) r.nalike = 1;
    if (op == FY_OP_SGD_MOMENTUM_STEP || op == FY_OP_RMSPROP_STEP || op == FY_OP_LARS_STEP)
        r.nalike = 2;
    n = r.nalike;
    if (op == FY_OP_LARS_STEP || op == FY_OP_LAMB_STEP) r.trust = n++;
    if (op == FY_OP_ADAM_STEP || op == FY_OP_SGD_MOMENTUM_STEP || op == FY_OP_LAMB_STEP)
        r.number = n++;
    if (ndst > n) r.low = n;
    return r;
}

#endif
