// Makes payments with Stripe's own SDK, which invents keys and retries by itself. Prints one JSON line for each.
//
//   node client.mjs HOST PORT COUNT TIMEOUT_MS

import Stripe from "stripe";

const [host, port, count, timeout] = process.argv.slice(2);
const stripe = new Stripe("sk_test_gateway", {
    host,
    port: Number(port),
    protocol: "http",
    maxNetworkRetries: 6,
    timeout: Number(timeout),
    telemetry: false,
});

async function pay(number) {
    try {
        const payment = await stripe.paymentIntents.create({ amount: 1000 + number, currency: "eur" });
        return { number, id: payment.id, amount: payment.amount, key: payment.lastResponse.idempotencyKey };
    } catch (error) {
        return { number, error: `${error.type}: ${error.message}`, status: error.statusCode };
    }
}

const results = await Promise.all(Array.from({ length: Number(count) }, (_, number) => pay(number)));
for (const result of results) {
    console.log(JSON.stringify(result));
}
