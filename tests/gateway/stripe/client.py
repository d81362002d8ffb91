"""As client.mjs, with Stripe's SDK for Python: client.py HOST PORT COUNT TIMEOUT_MS, or HOST PORT once KEY AMOUNT..."""
import concurrent.futures
import json
import sys

import stripe

host, port, count, timeout, *amounts = sys.argv[1:]
ONCE = count == "once"
client = stripe.StripeClient("sk_test_gateway", base_addresses={"api": f"http://{host}:{port}"},
                             max_network_retries=0 if ONCE else 6,
                             http_client=stripe.RequestsClient(timeout=5 if ONCE else int(timeout) / 1000))


def pay(number, options=None):
    try:
        payment = client.v1.payment_intents.create({"amount": 1000 + number, "currency": "eur"}, options)
        return {"number": number, "id": payment.id, "amount": payment.amount, "key": payment.last_response.idempotency_key}
    except stripe.StripeError as error:
        # its names are IdempotencyError, APIError, ...; `code` is in the body only
        return {"number": number, "error": f"Stripe{type(error).__name__}: {error}", "status": error.http_status,
                "code": error.json_body["error"]["code"]}


for amount in amounts:
    print(json.dumps(pay(int(amount), {"idempotency_key": timeout})))
if not ONCE:
    with concurrent.futures.ThreadPoolExecutor(int(count)) as pool:
        for result in pool.map(pay, range(int(count))):
            print(json.dumps(result))
