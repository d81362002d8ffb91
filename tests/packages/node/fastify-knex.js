// Fastify with Knex.
'use strict';
const fastify = require('fastify');
const knex = require('knex');
const once = require('once-idempotency');
const business = require('./business');

const db = knex({ client: 'pg', connection: business.DATABASE, pool: { min: 0, max: 10 } });
const idempotent = once.idempotent(business.store ?? db, business.options);
const query = async (text, values) => (await (once.current().connection ?? db).raw(text.replace(/\$\d/g, '?'), values)).rows;
const refuse = (statusCode) => { throw Object.assign(new Error('refused'), { statusCode }); };

const app = fastify();
app.register(once.fastify);

app.post('/payments', idempotent(async (request, reply) => {
  const { status, value, headers = {} } = await business.pay(query, once.current(), request.body, refuse);
  return reply.code(status).headers(headers).send(value);
}));

app.post('/payouts', idempotent(async (request, reply) => {
  reply.code(201);
  return business.payOut(query, once.current(), request.body);
}));

app.post('/events', async (request) => db.transaction(
  async (trx) => ({ new: await once.bind(trx).accept('ledger', JSON.stringify(request.body)) })));

app.listen({ port: business.port, host: '127.0.0.1' }, () => business.announce(app.server));
