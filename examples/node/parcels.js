// Parcels that are sent once, with the records in any store: docs/node.md. The carrier takes its time, and does not know keys.
const { appendFile } = require('node:fs/promises');
const { setTimeout: sleep } = require('node:timers/promises');
const express = require('express');
const once = require('once-idempotency');

const idempotent = once.idempotent(once.serve('unix:/tmp/once.sock'), { scope: 'the only client', lease: 2 });
const app = express();

app.post('/parcels', idempotent(async (request, response) => {
  await appendFile('/tmp/sent.txt', `${request.body.to}\n`);
  await sleep(2000);
  response.status(201).json({ sent: request.body.to });
}));

app.listen(8001, '127.0.0.1', () => console.log('parcels: ready'));
