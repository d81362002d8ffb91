// Payments that are made exactly once: the payment and the record of it are one transaction.
//
//     npm install --install-links ../../../packages/node express pg
//     DATABASE=postgres://shop@localhost/shop PORT=3000 node payments.js
'use strict';
const express = require('express');
const once = require('once-idempotency');
const { Pool } = require('pg');

const pool = new Pool({ connectionString: process.env.DATABASE ?? 'postgres://localhost/shop' });
pool.on('error', () => {}); // a connection that broke while idle
// Behind the gate the claim comes with the request. Without it, a second request waits for the transaction of the first.
const idempotent = once.idempotent(pool, { scope: 'shop', wait: true });

const PLAIN = /^[\w.:-]{1,100}$/, AMOUNT = /^(0\.0[1-9]|0\.[1-9]\d|[1-9]\d{0,2}\.\d\d)$/; // more than nothing
const UPSERT = `INSERT INTO accounts AS a (id, spent) VALUES ($1, $2)
  ON CONFLICT (id) DO UPDATE SET spent = a.spent + excluded.spent WHERE a.spent + excluded.spent <= a.credit
  RETURNING xmax = 0 AS first`;

// What can never be paid is refused before anything of it reaches the database.
function check({ body }, response, next) {
  const is = (text, pattern) => typeof text === 'string' && pattern.test(text);
  next(is(body.order, PLAIN) && is(body.account, PLAIN) && is(body.amount, AMOUNT) ? undefined : { status: 400 });
}

// The business. What it decides is recorded, whether money moved or not.
async function pay({ body: { order, account, amount } }, response) {
  const op = once.current(), db = op.connection;
  await op.lock(`order:${order}`); // one at a time: a second click may well come with a key of its own
  const paid = await db.query('SELECT id FROM payments WHERE order_id = $1', [order]);
  if (paid.rowCount) return response.status(409).json({ error: 'this order is paid', payment: Number(paid.rows[0].id) });
  const spent = await db.query(UPSERT, [account, amount]);
  if (!spent.rowCount) return response.status(402).json({ error: 'over the limit of the account' }); // the guard of the UPSERT
  const made = await db.query(
    'INSERT INTO payments (idempotency_key, order_id, account, amount) VALUES ($1, $2, $3, $4) RETURNING id',
    [op.request.key, order, account, amount]);
  // first: the account's row was inserted just now, and by us (xmax = 0)
  return response.status(201).json({ payment: Number(made.rows[0].id), order, amount, first: spent.rows[0].first });
}

const app = express();
app.use(express.json({ type: () => true, verify: once.rawBody }));
app.post('/payments', check, idempotent(pay));
app.use((error, request, response, next) => (error.status === 400
  ? response.status(422).json({ error: 'order, account and an amount like 12.50 are needed' }) : next(error)));

const server = app.listen(Number(process.env.PORT ?? 3000), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
