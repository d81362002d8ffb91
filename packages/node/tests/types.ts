// Only compiled: the declarations are what the sources export, and what is written with them has types.
import type * as declared from '../types/index';
import type * as declaredTesting from '../types/testing';
import implemented = require('../src/index');
import implementedTesting = require('../src/testing');

export const once: typeof declared = implemented;
export const testing: typeof declaredTesting = implementedTesting;

const idempotent = once.idempotent(new testing.Memory('a connection'), { scope: (request) => request.user.id, ttl: 60 });

export const handler = idempotent(async (request: { body: { order: string } }, response: { json(value: unknown): void }) => {
  const op = once.current<{ query(text: string): Promise<number> }>();
  const count: number = await op.connection.query('SELECT 1');
  const event: string = await op.emit('orders', request.body.order, 'placed', { count });
  const isNew: boolean = await op.accept('ledger', event);
  const done = await op.resume();
  if (done?.name !== 'charged') await op.checkpoint('charged', { key: await op.derive('charge') });
  response.json({ isNew });
});

export async function withoutFramework(): Promise<number> {
  const request = new once.Request('POST', '/orders', { 'Idempotency-Key': 'k' }, '{}');
  const response = await once.run(once.serve('unix:/run/once.sock'), request, { scope: 't' }, () => once.Response.of({}, 201));
  return response.status;
}

const memory = new testing.Memory();
// @ts-expect-error: a scope is needed
once.idempotent(memory, {});
// @ts-expect-error: there is no such option
once.idempotent(memory, { scope: 't', tll: 1 });
// @ts-expect-error: this is no database
once.idempotent({ url: 'postgres:///shop' }, { scope: 't' });
