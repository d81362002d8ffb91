/** The journal has another request under this name. */
export class IntentChanged extends Error {}
/** The key of this name may be forgotten by now: sending it again could take effect a second time. */
export class IntentExpired extends Error {}
/** The answer to a write is a redirect, and is not followed. */
export class Redirected extends Error {
  readonly response: Response;
}

/**
 * Intents in a directory, a file for each, which processes may share. `keep`: for how many milliseconds after its first attempt an intent
 * may be sent again if no answer has said for how long the key is remembered.
 */
export class Journal {
  constructor(directory: string, options?: { keep?: number });
}

export interface ClientOptions {
  /** Milliseconds from the first attempt to the last; 0: one attempt. */
  deadline?: number;
  /** The pause is drawn from 0 to base * 2^n milliseconds, at most cap. */
  base?: number;
  cap?: number;
  /** Which methods get a key: POST and PATCH. */
  methods?: string[];
  /** Draws a pause of at most so many milliseconds. */
  draw?: (most: number) => number;
  /** Where the header Once-Intent finds its key. */
  journal?: Journal | null;
}

/** A `fetch` that gives each POST and PATCH a key, and repeats it until the answer says that repeating is of no use. A redirect is not
 * followed: `Redirected` is thrown, or with `redirect: 'manual'` the answer is returned. */
export function onceFetch(inner?: typeof fetch, options?: ClientOptions): typeof fetch;
/** An adapter for `axios.create({ adapter: onceAdapter(axios) })`. A redirect is not followed: it is an answer that `validateStatus` judges. */
export function onceAdapter(axios: any, options?: ClientOptions): (config: any) => Promise<any>;
/** The name of the gateway's problem in an answer, such as outcome-unknown; null: it is none. */
export function problem(status: number, type: string | null, body: string | ArrayBufferView): string | null;
