/*
 * Money is exact: text here, numeric in SQL, never a float. How many digits stand behind the point depends on the currency.
 */
#ifndef EXAMPLES_BANK_MONEY_H
#define EXAMPLES_BANK_MONEY_H

#define MONEY_SIZE           24 /* an amount as text, with its terminator */
#define MONEY_CURRENCIES_MAX 64

/* Makes a currency known: bank.currencies is read at the start. 0, or -1 if there are too many or the code is malformed. */
int money_know(const char *code, int digits);

/* Its digits behind the point, or -1: not known. */
int money_digits(const char *code);

/*
 * Reads an amount such as 12.50, greater than zero, and writes it with exactly as many digits as its currency has. Returns NULL, or
 * what is wrong with it.
 */
const char *money_parse(const char *text, int digits, char out[MONEY_SIZE]);

#endif
