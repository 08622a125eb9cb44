/* The widest head of attention that all backends take. */
#ifndef FERRY_OPSET_FORMULAS_ATTENTION_H_
#define FERRY_OPSET_FORMULAS_ATTENTION_H_

enum { FY__ATTENTION_WIDTH = 4096 };

#endif
