"""An application that can be killed: commits an order and its event together, or neither. The table is the truth."""
import os
import random
import sys
import time

import psycopg2

URL, TOPIC, NAME, ENDS, PACE = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), float(sys.argv[5])


def work(connection, number):
    """One transaction; every seventh is rolled back."""
    key = f"{NAME}-{number % 5}"
    with connection.cursor() as cursor:
        cursor.execute("SELECT once.emit(%s, %s, 'placed', %s::text::bytea)", (TOPIC, key, number))
        event = cursor.fetchone()[0]
        cursor.execute("INSERT INTO truth VALUES (%s, %s, %s)", (event, key, number))
    if number % 7 == 0:
        connection.rollback()
    else:
        connection.commit()


def main():
    random.seed(os.getpid())
    number, connection = 0, None
    while time.time() < ENDS:
        number += 1
        try:
            if connection is None:
                connection = psycopg2.connect(URL)
            work(connection, number)
            time.sleep(PACE)
        except psycopg2.Error:
            connection = None
            time.sleep(0.05)


main()
