// packages/node/src/client.js against a real gate. Started by world.py; a second process of the journal's test is this file, too.
'use strict';
const assert = require('node:assert/strict');
const { spawn, execFile } = require('node:child_process');
const crypto = require('node:crypto');
const fs = require('node:fs');
const os = require('node:os');
const path = require('node:path');
const { test } = require('node:test');
const { promisify } = require('node:util');
const axios = require('axios'); // NODE_PATH
const { IntentChanged, IntentExpired, Journal, Redirected, onceAdapter, onceFetch, problem } = require('../../packages/node/src/client.js');

const { GATE, LOSSY } = process.env;
const FAST = { deadline: 120e3, base: 10, cap: 50 };
const BODY = '{"amount": 4200}';
const seen = async (key, verb = 'seen') => (await fetch(`${GATE}/${verb}/${key}`)).json();

const ways = {
  async fetch(url, headers, options = FAST, body = BODY) {
    const answer = await onceFetch(fetch, options)(url, { method: 'POST', headers, body });
    return { status: answer.status, header: (name) => answer.headers.get(name), text: await answer.text() };
  },
  async axios(url, headers, options = FAST, body = BODY) {
    const instance = axios.create({ adapter: onceAdapter(axios, options) });
    try {
      const answer = await instance.post(url, body, { headers });
      return { status: answer.status, header: (name) => answer.headers.get(name) || null, text: JSON.stringify(answer.data) };
    } catch (error) {
      if (!error.response) throw error;
      const answer = error.response;
      return { status: answer.status, header: (name) => answer.headers.get(name) || null, text: JSON.stringify(answer.data) };
    }
  },
};

if (process.argv[2] === 'child') { // WAY URL HEADERS DIRECTORY
  const [way, url, headers, directory] = process.argv.slice(3);
  ways[way](url, JSON.parse(headers), { ...FAST, journal: new Journal(directory) });
} else {
  for (const way of Object.keys(ways)) {
    const post = ways[way];
    test(`${way}: the key is made once`, async () => {
      const answer = await post(`${GATE}/payments?plan=429,500,ok`, {});
      assert.equal(answer.status, 201);
      assert.deepEqual(await seen(JSON.parse(answer.text).key), { requests: 3, payments: 1 });
    });

    test(`${way}: a lost answer is a replay`, async () => {
      const key = crypto.randomUUID(), answer = await post(`${LOSSY}/payments`, { 'Idempotency-Key': key });
      assert.deepEqual([answer.status, answer.header('idempotent-replayed')], [201, 'true']);
      assert.deepEqual(await seen(key), { requests: 1, payments: 1 });
    });

    test(`${way}: in-flight waits`, async () => {
      const key = crypto.randomUUID(), url = `${GATE}/payments?plan=hold`, pauses = [];
      const first = promisify(execFile)('curl', ['-s', '-H', `Idempotency-Key: ${key}`, '--data-binary', BODY, url]);
      await seen(key, 'reached');
      const draw = (most) => {
        pauses.push(most);
        seen(key, 'release');
        return 0;
      };
      const answer = await post(url, { 'Idempotency-Key': key }, { deadline: 120e3, draw });
      await first;
      assert.ok(pauses.length > 0);
      assert.deepEqual([answer.status, answer.header('idempotent-replayed')], [201, 'true']);
      assert.deepEqual(await seen(key), { requests: 1, payments: 1 });
    });

    test(`${way}: unknown outcomes and other requests stop`, async () => {
      const key = crypto.randomUUID(), held = await post(`${GATE}/held?plan=cut`, { 'Idempotency-Key': key });
      assert.deepEqual([held.status, problem(held.status, held.header('content-type'), held.text)], [409, 'outcome-unknown']);
      const other = crypto.randomUUID();
      assert.equal((await post(`${GATE}/payments`, { 'Idempotency-Key': other })).status, 201);
      const reused = await post(`${GATE}/payments`, { 'Idempotency-Key': other }, FAST, '{}');
      assert.deepEqual([reused.status, problem(reused.status, reused.header('content-type'), reused.text)], [422, 'key-reused']);
      for (const used of [key, other]) assert.deepEqual(await seen(used), { requests: 1, payments: 1 });
    });

    for (const status of [301, 302, 303, 307, 308]) {
      test(`${way}: ${status} is neither followed nor success`, async () => {
        const key = crypto.randomUUID(), headers = { 'Idempotency-Key': key, Authorization: 'Bearer s3cret' };
        await assert.rejects(async () => {
          const answer = await post(`${GATE}/payments?plan=${status}`, headers);
          throw new Redirected({ status: answer.status, headers: new Map([['location', answer.header('location')]]) }); // of axios
        }, (error) => error instanceof Redirected && error.response.status === status && error.message.includes(key));
        assert.deepEqual(await seen(key), { requests: 1, payments: 0 });
      });
    }

    test(`${way}: the deadline ends it`, async () => {
      const key = crypto.randomUUID();
      const short = () => {
        const drawn = [0, 0, 0, 1e6];
        return { deadline: 500e3, draw: () => drawn.shift() };
      };
      const answer = await post(`${GATE}/payments?plan=429`, { 'Idempotency-Key': key }, short());
      assert.equal(answer.status, 429);
      assert.deepEqual(await seen(key), { requests: 4, payments: 0 });
      await assert.rejects(post('http://127.0.0.1:1/payments', {}, short()));
    });

    test(`${way}: a killed process goes on`, async () => {
      const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'once-journal-'));
      const key = crypto.randomUUID(), url = `${GATE}/payments?plan=hold`, headers = { 'Once-Intent': 'order-1' };
      const child = spawn(process.execPath, [__filename, 'child', way, url, JSON.stringify({ ...headers, 'Idempotency-Key': key }), directory],
        { stdio: 'inherit' });
      const ended = new Promise((resolve) => { child.on('exit', (code, signal) => resolve(signal)); });
      await seen(key, 'reached');
      child.kill('SIGKILL');
      assert.equal(await ended, 'SIGKILL');
      await seen(key, 'release');
      const journal = new Journal(directory), options = { ...FAST, journal };
      const answer = await post(url, headers, options);
      assert.deepEqual([answer.status, JSON.parse(answer.text).key, answer.header('idempotent-replayed')], [201, key, 'true']);
      await assert.rejects(post(url, headers, options, '{}'), IntentChanged);
      journal.ended('order-1', Date.now() / 1000 - 1);
      await assert.rejects(post(url, headers, options), IntentExpired);
      await assert.rejects(post(url, headers), /needs a journal/);
      assert.deepEqual(await seen(key), { requests: 1, payments: 1 });
      assert.equal(fs.readdirSync(directory).length, 1);
      fs.rmSync(directory, { recursive: true });
    });
  }

  test('old intents are forgotten, and other files are left alone', () => {
    const directory = fs.mkdtempSync(path.join(os.tmpdir(), 'once-journal-'));
    const journal = new Journal(directory, { keep: 1000 }), others = ['half.new', 'notes.txt', 'orders.json'];
    journal.key('old', 'r', 'k');
    for (const name of others) fs.writeFileSync(path.join(directory, name), '{');
    fs.mkdirSync(path.join(directory, 'orders'));
    let torn;
    const link = fs.linkSync;
    fs.linkSync = (from) => { torn = from; }; // what a process that is killed leaves
    journal.key('torn', 'r', 'k');
    fs.linkSync = link;
    fs.writeFileSync(torn, '{');
    for (const name of fs.readdirSync(directory)) fs.utimesSync(path.join(directory, name), 0, 0);
    journal.key('new', 'r', 'k');
    new Journal(directory, { keep: 1000 });
    assert.deepEqual(fs.readdirSync(directory).sort(), [path.basename(journal.path('new')), 'orders', ...others].sort());
    fs.rmSync(directory, { recursive: true });
  });

  test('other ways to ask for redirects', async () => {
    const headers = { 'Idempotency-Key': crypto.randomUUID() }, url = `${GATE}/payments?plan=307`;
    assert.equal((await onceFetch(fetch, FAST)(url, { method: 'POST', headers, body: BODY, redirect: 'manual' })).status, 307);
    const other = { ...axios, defaults: { adapter: 'fetch' }, getAdapter: axios.getAdapter, getUri: (config) => axios.getUri(config) };
    const instance = axios.create({ adapter: onceAdapter(other, FAST), maxRedirects: 5 });
    await assert.rejects(instance.post(url, BODY, { headers }), (error) => error.response.status === 307);
    const { elsewhere } = await seen(headers['Idempotency-Key']);
    assert.equal(elsewhere, undefined);
  });

  test('nothing is sent when the key may be forgotten', async () => {
    let count = 0;
    const inner = async () => {
      count += 1;
      return new Response('', { status: 503, headers: count === 1 ? { 'Idempotency-Expires': new Date(Date.now() + 60e3).toUTCString() } : {} });
    };
    const pauses = [0, 0, 120e3, 0];
    const answer = await onceFetch(inner, { deadline: 3600e3, draw: () => pauses.shift() })('http://127.0.0.1/', { method: 'POST' });
    assert.deepEqual([answer.status, count], [503, 3]);
  });

  test('an abort is the end', async () => {
    const key = crypto.randomUUID(), controller = new AbortController();
    const answer = onceFetch(fetch, FAST)(`${GATE}/payments?plan=hold`, {
      method: 'POST', headers: { 'Idempotency-Key': key }, body: BODY, signal: controller.signal,
    });
    await seen(key, 'reached');
    controller.abort();
    await assert.rejects(answer, { name: 'AbortError' });
    await seen(key, 'release');
  });
}
