// A person and a page of another origin, in a real browser. cors.mjs ORIGIN GATE DIRECTORY: of the page and of the gate; where the
// profile goes. Node's modules are in the current directory.
import assert from 'node:assert/strict';
import { launch } from './chromium.mjs';

const [origin, gate, directory] = process.argv.slice(2);

const { context, page } = await launch(directory);
const ok = (what) => console.log(`ok: ${what}`);
// In the page: `send` is its own.
const send = (...args) => page.evaluate((words) => send(...words), args);

await page.goto(`${origin}/#${encodeURIComponent(gate)}`);

const first = await send('/payments', 'order-1');
const again = await send('/payments', 'order-1');
assert.equal(first.status, 201);
assert.equal(first['Idempotent-Replayed'], null);
assert.ok(Date.parse(first['Idempotency-Expires']) > Date.now());
assert.deepEqual([again.status, again.body, again['Idempotent-Replayed']], [201, first.body, 'true']);
ok('a page of another origin pays, and reads that an answer is a replay and until when');

const other = await send('/payments', 'order-1', 9900);
const missing = await send('/payments', null);
assert.deepEqual([other.status, other.body.type], [422, 'urn:once:problem:key-reused']);
assert.deepEqual([missing.status, missing.body.type], [400, 'urn:once:problem:key-missing']);
ok("the page reads the gate's own errors");

const refused = await page.evaluate(() => send('/closed', 'order-2').then(() => null, (error) => error.name));
assert.equal(refused, 'TypeError');
ok('without the key among the allowed headers, the browser sends nothing');

await page.locator('#pay').dblclick();
const clicks = await page.evaluate(() => Promise.all(paid));
assert.equal(clicks.length, 2);
assert.deepEqual([clicks[0].status, clicks[1].status], [201, 201]);
assert.equal(clicks[0].body.id, clicks[1].body.id);
ok('two clicks are one payment');

const lost = await page.evaluate(async (gateAddress) => {
    const controller = new AbortController();
    const aborted = send('/slow', 'order-3', 4200, { signal: controller.signal }).then(() => null, (error) => error.name);
    await fetch(`${gateAddress}/paying`); // the backend is at it
    controller.abort();
    const gaveUp = await aborted;
    const early = await send('/slow', 'order-3');
    await fetch(`${gateAddress}/answer`);
    let late;
    do {
        late = await send('/slow', 'order-3');
    } while (late.status === 409);
    return { gaveUp, early, late };
}, gate);
assert.equal(lost.gaveUp, 'AbortError');
assert.deepEqual([lost.early.status, lost.early.body.type, lost.early['Retry-After']], [409, 'urn:once:problem:in-flight', '1']);
assert.deepEqual([lost.late.status, lost.late['Idempotent-Replayed']], [201, 'true']);
ok('a lost answer is got by the same request, and Retry-After can be read');

// A browser that gives every POST a key of its own, as Firefox can: after the page, and after the rules of CORS.
let made = 0;
await page.route(`${gate}/own`, (route) => {
    made += 1;
    route.continue({ headers: { ...route.request().headers(), 'idempotency-key': `"browser-${made}"` } });
});
const own = [await send('/own', null), await send('/own', null)];
assert.deepEqual([own[0].status, own[1].status, made], [201, 201, 2]);
assert.notEqual(own[0].body.id, own[1].body.id);
assert.deepEqual([own[0]['Idempotent-Replayed'], own[1]['Idempotent-Replayed']], [null, null]);
ok('keys that the browser makes are harmless: each request is an intent of its own');

await context.close();
