import type { IncomingMessage, ServerResponse } from 'node:http';

export type Headers = [name: string, value: string][];
export type Payload = unknown;

/** A Pool of pg, Knex, a PrismaClient, `serve(...)`, or `Memory` of `once-idempotency/testing`. */
export type Database =
  | { connect(...values: any[]): any; query(...values: any[]): any }
  | { raw(...values: any[]): any; transaction(...values: any[]): any }
  | { $queryRawUnsafe(query: string, ...values: any[]): any }
  | { operation(ticket: any): any }
  | { transport(): any };

/** Anything else is refused: an object would be the same text for every caller. Nothing: 400. */
export type Scope = string | number | bigint | null | undefined;

export interface Options {
  /** Whose key it is: text, or a function of the framework's request. A client must not be able to choose it. */
  scope: Scope | ((request: any) => Scope | Promise<Scope>);
  /** Waits for a request with the same key that is at work, instead of answering 409. Default: false. */
  wait?: boolean;
  /** Seconds for which a checkpoint, or a claim in `once serve`, holds the key. Default: 30. */
  lease?: number;
  /** Seconds for which the response is kept. Default: 86400. */
  ttl?: number;
  /** Of the transaction, when it conflicts or its connection is lost. Default: 6. */
  attempts?: number;
  /** With `serve`: what becomes of an operation whose process died. Default: hold. */
  recover?: 'hold' | 'retry';
  /** For the database: isolationLevel; with Prisma also maxWait and timeout, in milliseconds. */
  transaction?: { isolationLevel?: string; maxWait?: number; timeout?: number };
  /** Default: console.warn. */
  log?: (text: string) => void;
}

export class Response {
  constructor(status: number, headers?: Headers, body?: Buffer);
  /** Bytes and text as they are, everything else as JSON. */
  static of(value: Payload, status?: number, headers?: Headers): Response;
  readonly status: number;
  readonly headers: Headers;
  readonly body: Buffer;
  readonly recordedHeaders: Headers;
  /** Whether it answers the key for good. Everything else rolls back and leaves the key free. */
  readonly isFinal: boolean;
}

/** What tells one operation from another. */
export class Request {
  constructor(method: string, target: string, headers?: Headers | Record<string, string | string[]>, body?: Payload, native?: unknown);
  static of(message: IncomingMessage, target: string, body: Payload, native?: unknown): Request;
  readonly method: string;
  readonly target: string;
  readonly headers: [name: string, value: string | string[]][];
  readonly body: Buffer;
  readonly native: unknown;
  /** All values of a header, by its name in small letters. */
  all(name: string): string[];
  /** Throws Answered if there is none, or not one. */
  readonly key: string;
  readonly claim: string | undefined;
}

/** There is nothing to run: `response` is what the client gets. */
export class Answered extends Error {
  readonly response: Response;
  readonly outcome: string;
}

/** For a handler to throw when nothing was done: the key is free. */
export class NothingDone extends Error {
  constructor(message?: string, status?: number);
  readonly status: number;
  readonly statusCode: number;
}

/** What any transaction may call. */
export interface Bound<Connection = any> {
  readonly connection: Connection;
  /** Writes an event that `once relay` publishes if and only if the transaction commits. Returns its id. */
  emit(topic: string, key: string | null | undefined, type: string, payload: Payload, headers?: Record<string, string>): Promise<string>;
  /** Whether the message is new to the subscriber: if so, handle it in this transaction. */
  accept(subscriber: string, messageId: string): Promise<boolean>;
  /** One transaction at a time for an account, an order, and so on. */
  lock(naturalKey: string): Promise<void>;
}

export interface Operation<Connection = any> extends Bound<Connection> {
  readonly request: Request;
  readonly claim: string | undefined;
  /** A key to send to a third party: the same in every attempt, another one for every operation and step. */
  derive(step: string): Promise<string>;
  /** Commits what was done so far as the step `name`: a later attempt begins behind it. */
  checkpoint(name: string, state?: unknown): Promise<void>;
  /** The last checkpoint and its state; undefined: begin at the beginning. */
  resume(): Promise<{ name: string; state: any } | undefined>;
}

/** Wraps handlers of Express and Fastify: with one Idempotency-Key they take effect once. */
export function idempotent(database: Database, options: Options): <Handler extends (...args: any[]) => unknown>(handler: Handler) => Handler;

/** Without a framework: runs `produce` until its response is recorded. Returns the response that the client gets. */
export function run<Connection = any>(database: Database, request: Request, options: Options,
  produce: (op: Operation<Connection>) => Payload | Promise<Payload>): Promise<Response>;

/** The operation of the handler that is running. */
export function current<Connection = any>(): Operation<Connection>;

/** For a transaction without a request, such as that of a consumer. */
export function bind<Connection>(connection: Connection): Bound<Connection>;

/** `once serve` at `unix:PATH`, or at `http://127.0.0.1:PORT` with a token. A request is repeated for `patience` seconds (10), before the handler runs for 5 at most. */
export function serve(where: string, options?: { token?: string; patience?: number }): Database;

/** For `express.json({ verify: once.rawBody })`. */
export function rawBody(request: IncomingMessage, response: ServerResponse, bytes: Buffer): void;

/** For `app.register(once.fastify)`. */
export function fastify(app: any): Promise<void>;
