// Strings, objects and bytes as node-pg sends them. See ../test_drivers.py.
'use strict';
const readline = require('readline');
const { Client } = require('pg');

function valueOf(kind, data) {
  if (kind === 'string') return data.toString();
  if (kind === 'object') return JSON.parse(data.toString());
  return data;
}

function statementOf(call, name, value, cast) {
  const headers = process.env.HEADERS;
  switch (call) {
    case 'complete':
      return [`SELECT once.complete($1, $2, $3, $4${cast})`, [name, 201, headers, value]];
    case 'emit':
      return [`SELECT once.emit('drivers', $1, 'made', $2${cast}, $3)`, [name, value, headers]];
    case 'claim':
      return [`INSERT INTO answers SELECT $1, outcome FROM once.claim('drivers', $2, 'POST', '/', $3${cast}, lease => '1 hour')`,
        [name, name, value]];
    case 'settle':
      return [`SELECT once.settle($1, 'completed', $2, $3, $4${cast}, force => true)`, [name, 201, headers, value]];
    default:
      throw new Error(`no call ${call}`);
  }
}

async function main() {
  const db = new Client({ connectionString: process.env.DATABASE });
  await db.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [id, call, kind, name, data] = line.split('\t');
    const value = valueOf(kind, Buffer.from(data, 'base64'));
    const cast = kind === 'cast' ? '::bytea' : '';
    try {
      await db.query('BEGIN');
      await db.query(...statementOf(call, name, value, cast));
      await db.query('COMMIT');
      console.log(`${id}\tok`);
    } catch (error) {
      await db.query('ROLLBACK');
      console.log(`${id}\t${error.message.replace(/\n/g, ' ')}`);
    }
  }
  await db.end();
}

main();
