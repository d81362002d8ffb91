/** Give it to `once.idempotent` instead of a database: no server is needed. */
export class Memory {
  /** `connection` is what handlers find as `once.current().connection`. */
  constructor(connection?: unknown);
  transport(): any;
  readonly events: { topic: string; key: string | null; type: string; payload: Buffer }[];
  readonly accepted: Set<string>;
}
