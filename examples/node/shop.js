// Payments that are made exactly once, with Express and pg: docs/node.md.
const express = require('express');
const once = require('once-idempotency');
const { Pool } = require('pg');

const pool = new Pool({ connectionString: process.env.DATABASE ?? 'postgres:///shop' });
pool.on('error', (error) => console.log(error.message)); // a connection that broke while nobody used it
const idempotent = once.idempotent(pool, { scope: 'the only client' });

const app = express();
app.use(express.json({ verify: once.rawBody }));

app.post('/payments', idempotent(async (request, response) => {
  const { order, amount } = request.body;
  const op = once.current();
  const { rows } = await op.connection.query('INSERT INTO paid (order_id, amount) VALUES ($1, $2) RETURNING id', [order, amount]);
  await op.emit('payments', order, 'paid', { order, amount });
  response.status(201).json({ payment: rows[0].id, order });
}));

app.listen(process.env.PORT ?? 8000, '127.0.0.1', () => console.log('shop: ready'));
