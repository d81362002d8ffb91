// Makes payments with Stripe's own SDK, which invents keys and retries by itself. Prints one JSON line for each.
//
//   node client.mjs HOST PORT COUNT TIMEOUT_MS
//   node client.mjs HOST PORT once KEY AMOUNT...     one payment for each amount, all with the key, without retries

import Stripe from "stripe";

const [host, port, count, timeout, ...amounts] = process.argv.slice(2);
const once = count === "once";
const stripe = new Stripe("sk_test_gateway", {
    host,
    port: Number(port),
    protocol: "http",
    maxNetworkRetries: once ? 0 : 6,
    timeout: once ? 5000 : Number(timeout),
    telemetry: false,
});

async function pay(number, options) {
    try {
        const payment = await stripe.paymentIntents.create({ amount: 1000 + number, currency: "eur" }, options);
        return { number, id: payment.id, amount: payment.amount, key: payment.lastResponse.idempotencyKey };
    } catch (error) {
        return { number, error: `${error.type}: ${error.message}`, status: error.statusCode, code: error.code };
    }
}

for (const amount of amounts) {
    console.log(JSON.stringify(await pay(Number(amount), { idempotencyKey: timeout })));
}
const results = once ? [] : await Promise.all(Array.from({ length: Number(count) }, (_, number) => pay(number)));
for (const result of results) {
    console.log(JSON.stringify(result));
}
