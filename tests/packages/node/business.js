// What every application of the suite does (../README.md), with statements that its driver runs, and how it is started.
'use strict';
const once = require('once-idempotency');

const { DATABASE, LEASE, ONCE_SERVE, ONCE_TOKEN, PORT } = process.env;
const store = ONCE_SERVE ? once.serve(ONCE_SERVE, { token: ONCE_TOKEN }) : undefined;
const options = { scope: 'tenant-7', ...(LEASE ? { lease: Number(LEASE) } : {}) };

/** `query` gives rows, `refuse` throws the framework's own exception. Returns status, value and headers. */
async function pay(query, op, { order, note = null, then }, refuse) {
  const before = () => {
    if (then === 'refuse') refuse(402);
    if (then === 'release') throw new once.NothingDone();
    return then === 'later' ? { status: 429, value: { error: 'later' } } : undefined;
  };
  const early = store && before();
  if (early) return early;
  const [{ number }] = await query('SELECT count(*) + 1 AS number FROM payments WHERE order_id = $1', [order]);
  const [{ id }] = await query('INSERT INTO payments (order_id, number, note) VALUES ($1, $2::bigint, $3) RETURNING id',
    [order, Number(number), note]);
  const event = store ? null : await op.emit('payments', order, 'paid', { order, note });
  if (then === 'raise') throw new Error('as asked');
  if (then === 'refuse later') refuse(429);
  if (then === 'refuse in the transaction') return { status: 402, value: { error: 'no' } };
  if (then === 'bytes') return { status: 200, value: Buffer.from(Array.from({ length: 512 }, (_, at) => at % 256)) };
  return before() ?? { status: 201, value: { payment: Number(id), number: Number(number), order, note, event },
    headers: { 'X-Order': order } };
}

async function transfer(provider, key, order) {
  const response = await fetch(provider, { method: 'POST', body: JSON.stringify({ order }), headers: { 'Idempotency-Key': key } });
  return (await response.json()).id;
}

/** Three steps, one of which is a provider's. `query` is on the transaction that is open. */
async function payOut(query, op, { order, provider }) {
  if (store) {
    const id = await transfer(provider, await op.derive('transfer'), order);
    await query('INSERT INTO payments (order_id, number, note) VALUES ($1, 0, $2)', [order, id]);
    return { transfer: id };
  }
  let done = await op.resume();
  const key = await op.derive('transfer');
  if (!done) {
    await query("INSERT INTO payments (order_id, number, note) VALUES ($1, 0, 'reserved')", [order]);
    await op.checkpoint('reserved');
  }
  if (done?.name !== 'transferred') {
    done = { state: { id: await transfer(provider, key, order) } };
    await op.checkpoint('transferred', done.state);
  }
  await query('UPDATE payments SET note = $1 WHERE order_id = $2', [done.state.id, order]);
  return { transfer: done.state.id };
}

const port = Number(PORT ?? 0);
const announce = (server) => console.log(`listening on http://127.0.0.1:${server.address().port}`);

module.exports = { DATABASE, announce, options, pay, payOut, port, store };
