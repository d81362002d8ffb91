// Strings, objects and bytes as node-pg sends them. See ../test_drivers.py.
'use strict';
const readline = require('readline');
const { Client } = require('pg');

function valueOf(kind, data) {
  if (kind === 'string') return data.toString();
  if (kind === 'object') return JSON.parse(data.toString());
  return data;
}

async function main() {
  const db = new Client({ connectionString: process.env.DATABASE });
  await db.connect();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [id, kind, claim, data] = line.split('\t');
    const value = valueOf(kind, Buffer.from(data, 'base64'));
    const cast = kind === 'cast' ? '::bytea' : '';
    try {
      await db.query('BEGIN');
      await db.query(`SELECT once.complete($1, $2, $3, $4${cast})`, [claim, 201, process.env.HEADERS, value]);
      await db.query(`SELECT once.emit('drivers', $1, 'made', $2${cast}, $3)`, [id, value, process.env.HEADERS]);
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
