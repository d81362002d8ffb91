/*
 * Which request is for whom.
 */
#ifndef EXAMPLES_BANK_ROUTES_H
#define EXAMPLES_BANK_ROUTES_H

#include "bank.h"

bank_handler_t route;

#endif
