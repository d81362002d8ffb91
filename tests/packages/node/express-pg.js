// Express with a Pool of pg.
'use strict';
const express = require('express');
const once = require('once-idempotency');
const { Pool } = require('pg');
const business = require('./business');

const pool = new Pool({ connectionString: business.DATABASE });
pool.on('error', () => {}); // a connection that broke while idle
const idempotent = once.idempotent(business.store ?? pool, business.options);
const query = async (text, values) => (await (once.current().connection ?? pool).query(text, values)).rows;
const refuse = (status) => { throw Object.assign(new Error('refused'), { status }); };

const app = express();
app.use(express.json({ verify: once.rawBody, limit: '1mb' }));

app.post('/payments', idempotent(async (request, response) => {
  const { status, value, headers = {} } = await business.pay(query, once.current(), request.body, refuse);
  response.status(status).set(headers).send(value);
}));

app.post('/payouts', idempotent(async (request, response) => {
  response.status(201).json(await business.payOut(query, once.current(), request.body));
}));

app.post('/events', async (request, response) => {
  response.json({ new: await once.bind(pool).accept('ledger', JSON.stringify(request.body)) });
});

app.use((error, request, response, next) => {
  response.status(error.status ?? 500).json({ error: error.message });
});

const server = app.listen(business.port, '127.0.0.1', () => business.announce(server));
