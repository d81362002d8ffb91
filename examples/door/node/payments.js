// Payments that are made exactly once: the payment and the record of it are one transaction. Runs behind `once gate`.
//
//     DATABASE=postgres://shop@localhost/shop PORT=3000 node payments.js
'use strict';
const http = require('http');
const { Pool } = require('pg');

const pool = new Pool({ connectionString: process.env.DATABASE || 'postgres://localhost/shop', max: 10 });
pool.on('error', () => {}); // a connection that broke while idle

const PLAIN = /^[\w.:-]{1,100}$/, AMOUNT = /^(0\.0[1-9]|0\.[1-9]\d|[1-9]\d{0,2}\.\d\d)$/; // more than nothing
const HEADERS = '{"Content-Type": "application/json"}';
const UPSERT = `INSERT INTO accounts AS a (id, spent) VALUES ($1, $2)
  ON CONFLICT (id) DO UPDATE SET spent = a.spent + excluded.spent WHERE a.spent + excluded.spent <= a.credit
  RETURNING xmax = 0 AS first`;

// The business. What it decides is recorded, whether money moved or not.
async function pay(db, claim, key, asked) {
  // Still ours? And one at a time for this order: a second click may well come with a key of its own.
  await db.query("SELECT once.renew($1), once.lock('order:' || $2::text)", [claim, asked.order]);
  const paid = await db.query('SELECT id FROM payments WHERE order_id = $1', [asked.order]);
  if (paid.rowCount) return [409, { error: 'this order is paid', payment: Number(paid.rows[0].id) }];
  const account = await db.query(UPSERT, [asked.account, asked.amount]);
  if (!account.rowCount) return [402, { error: 'over the limit of the account' }]; // the guard did not let it through
  const made = await db.query(
    'INSERT INTO payments (idempotency_key, order_id, account, amount) VALUES ($1, $2, $3, $4) RETURNING id',
    [key.replace(/^"|"$/g, ''), asked.order, asked.account, asked.amount]);
  // first: the account's row was inserted just now, and by us (xmax = 0)
  return [201, { payment: Number(made.rows[0].id), order: asked.order, amount: asked.amount, first: account.rows[0].first }];
}

async function transaction(claim, key, asked) {
  const db = await pool.connect();
  db.on('error', () => {}); // the query that meets it reports it
  let broken;
  try {
    await db.query('BEGIN');
    const [status, result] = await pay(db, claim, key, asked);
    const body = JSON.stringify(result);
    await db.query('SELECT once.complete($1, $2, $3, $4)', [claim, status, HEADERS, body]);
    await db.query('COMMIT');
    return [status, body];
  } catch (error) {
    broken = !/^[0-9A-Z]{5}$/.test(error.code); // not the server's word: the connection is gone
    if (!broken) await db.query('ROLLBACK');
    if (error.code !== 'ON002') throw error;
    const { rows } = await db.query('SELECT status, body FROM once.recorded($1)', [claim]); // we were here before
    return [rows[0].status, rows[0].body];
  } finally {
    db.release(broken);
  }
}

async function handle(request, response) {
  const answer = (status, body) => {
    response.writeHead(status, { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) });
    response.end(body);
  };
  let asked;
  try {
    const parts = [];
    for await (const part of request) parts.push(part);
    asked = JSON.parse(Buffer.concat(parts).toString());
    const is = (text, pattern) => typeof text === 'string' && pattern.test(text);
    if (!is(asked.order, PLAIN) || !is(asked.account, PLAIN) || !is(asked.amount, AMOUNT)) throw new Error('wrong');
  } catch (error) {
    return answer(422, '{"error": "order, account and an amount like 12.50 are needed"}');
  }
  for (let attempt = 0; attempt < 2; attempt++) { // a COMMIT whose reply was lost may be done: then once.renew tells
    try {
      return answer(...await transaction(request.headers['once-claim'], request.headers['idempotency-key'], asked));
    } catch (error) {
      console.log(error.code, error.message);
    }
  }
  return answer(503, '{"error": "not now"}'); // ON001, or no database: the gate answers from the record
}

const server = http.createServer(handle);
server.listen(Number(process.env.PORT || 3000), '127.0.0.1', () => {
  console.log(`listening on http://127.0.0.1:${server.address().port}`);
});
