// Requests to the Kubernetes API by way of the server that served the page.
import { Assurance } from './assurance';
import { asFailure, cut, Failure, fromBody, tooLarge, unreachable } from './failure';
import type { Source } from './follower';
import { collection, withQuery, type Kind, type Query } from './paths';
import { isProof } from './proof';
import type { KubeObject, List, WatchEvent } from './types';

// The page's half of the session, beside the cookie, and the key by which the server proves that it is the same. A server
// in a cluster has none: TLS proves its name.
export interface Session {
  secret: string;
  key: string | undefined;
  // Called when the server no longer knows the session, or when another program answers.
  ended: (foreign: boolean) => void;
}

const secretHeader = 'X-Drydock-Session';
const secretProtocol = 'drydock.session.';
const watchProtocol = 'watch.drydock.dev';
const lifeProtocol = 'life.drydock.dev';

let session: (Session & { assurance: Assurance }) | undefined;
const listeners = new Set<() => void>();

export function setSession(value: Session): void {
  const foreign = (): void => {
    end(true);
  };
  const changed = (): void => {
    for (const listener of listeners) listener();
    if (!isAssured()) assured().catch(() => undefined); // the lists ask again
  };
  session = { ...value, assurance: new Assurance({ prove: () => (value.key === undefined ? answers(value.secret) : prove(value.key)), hold, foreign, changed }) };
}

function end(foreign: boolean): void {
  const over = session;
  session = undefined;
  over?.ended(foreign);
}

function current(): Session & { assurance: Assurance } {
  if (!session) throw new Failure(401, 'Unauthorized', 'there is no session');
  return session;
}

// A server without an answer for so long is given up.
const proofPatience = 10_000;

async function prove(key: string): Promise<boolean> {
  const nonce = crypto.randomUUID();
  let response: Response;
  let text: string;
  try {
    response = await fetch(withQuery('/proof', { nonce }), {
      credentials: 'omit', cache: 'no-store', redirect: 'error', signal: AbortSignal.timeout(proofPatience),
    });
    text = await response.text();
  } catch (error) {
    throw new Failure(unreachable, '', asFailure(error).message);
  }
  try {
    return response.ok && (await isProof(key, nonce, (JSON.parse(text) as { proof?: unknown }).proof));
  } catch {
    return false; // what can't be read proves nothing
  }
}

// answers says that the server of a cluster is there and knows the session, after it was away, too.
async function answers(secret: string): Promise<boolean> {
  let response: Response;
  try {
    response = await fetch('/session', {
      headers: { [secretHeader]: secret }, credentials: 'same-origin', cache: 'no-store', redirect: 'error', signal: AbortSignal.timeout(proofPatience),
    });
  } catch (error) {
    throw new Failure(unreachable, '', asFailure(error).message);
  }
  if (response.status === 401) {
    end(false);
    throw new Failure(401, 'Unauthorized', 'there is no session');
  }
  // An Ingress whose server is away answers itself.
  if (!response.ok) throw new Failure(unreachable, '', `HTTP ${String(response.status)}`);
  return true;
}

// provenNow asks the server for a proof, however sure the page was before.
export async function provenNow(): Promise<boolean> {
  return session?.key !== undefined && isAssured() && (await prove(session.key));
}

function hold(lost: () => void): Promise<() => void> {
  const socket = openSocket('/session', lifeProtocol);
  return new Promise((resolve, reject) => {
    socket.onopen = () => {
      resolve(() => {
        socket.onclose = null;
        socket.close();
      });
    };
    socket.onclose = () => {
      lost();
      reject(new Failure(unreachable, '', 'the connection to the server was lost'));
    };
  });
}

// assured returns when the page's own server is known to be there.
export async function assured(): Promise<void> {
  await current().assurance.wait();
}

export function isAssured(): boolean {
  return session?.assurance.isSure() ?? false;
}

export function subscribeAssurance(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export interface Call {
  method?: string;
  body?: unknown;
  contentType?: string;
  signal?: AbortSignal;
}

// A request without an answer for so long is given up.
const patience = 60_000;

function begin(call: Call, secret: string): RequestInit {
  const headers: Record<string, string> = { Accept: 'application/json', [secretHeader]: secret };
  if (call.body !== undefined) headers['Content-Type'] = call.contentType ?? 'application/json';
  return {
    method: call.method ?? 'GET',
    headers,
    body: call.body === undefined ? undefined : JSON.stringify(call.body),
    cache: 'no-store',
    redirect: 'error',
    signal: call.signal ? AbortSignal.any([call.signal, AbortSignal.timeout(patience)]) : AbortSignal.timeout(patience),
  };
}

// ask returns an answer that is a success, as read returns it.
async function ask<T>(path: string, call: Call, read: (response: Response) => Promise<T>): Promise<T> {
  await assured();
  const init = begin(call, current().secret);
  let response: Response | undefined;
  let text: string;
  try {
    response = await fetch(path, init);
    if (response.ok) return await read(response);
    text = await response.text();
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure(unreachable, response ? cut : '', asFailure(error).message);
  }
  if (response.status === 401) end(false);
  throw fromBody(response.status, text);
}

export async function request<T>(path: string, call: Call = {}): Promise<T> {
  const text = await ask(path, call, (response) => response.text());
  if (text.trim() === '') return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    return text as T;
  }
}

async function readBytes(response: Response, most: number): Promise<Blob> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let size = 0;
  // Leaving the loop ends the answer.
  for await (const part of response.body as unknown as AsyncIterable<Uint8Array<ArrayBuffer>>) {
    size += part.byteLength;
    if (size > most) throw new Failure(response.status, tooLarge, `the answer has more than ${String(most)} bytes`);
    parts.push(part);
  }
  return new Blob(parts, { type: response.headers.get('Content-Type') ?? '' });
}

// requestBytes returns an answer that is no text, of so many bytes at most.
export function requestBytes(path: string, most: number, signal: AbortSignal): Promise<Blob> {
  return ask(path, { signal }, (response) => readBytes(response, most));
}

export const put = <T>(path: string, body?: unknown): Promise<T> => request<T>(path, { method: 'PUT', body: body ?? {} });
export const post = <T>(path: string, body: unknown): Promise<T> => request<T>(path, { method: 'POST', body });
export const remove = <T>(path: string): Promise<T> => request<T>(path, { method: 'DELETE' });

export function openSocket(path: string, protocol: string): WebSocket {
  const url = new URL(path, location.href);
  url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return new WebSocket(url, [protocol, secretProtocol + current().secret]);
}

export interface Selection {
  fields?: string;
  labels?: string;
}

export function sourceOf<T extends KubeObject>(kind: Kind, namespace: string, selection: Selection = {}): Source<T> {
  const path = collection(kind, namespace);
  const selectors: Query = { fieldSelector: selection.fields, labelSelector: selection.labels };
  return {
    page: (token, limit, signal) =>
      request<List<T>>(withQuery(path, { ...selectors, limit: String(limit), continue: token }), { signal }),
    watch: (version, handlers) => {
      const address = withQuery(path, { ...selectors, watch: 'true', allowWatchBookmarks: 'true', resourceVersion: version });
      let over = false;
      let close = (): void => {
        over = true;
      };
      assured().then(() => {
        if (!over) close = watchBySocket<T>(openSocket(address, watchProtocol), handlers);
      }).catch(() => {
        if (!over) handlers.closed(false); // a list says why
      });
      return () => {
        close();
      };
    },
  };
}

function watchBySocket<T>(
  socket: WebSocket,
  handlers: { event: (event: WatchEvent<T>) => void; closed: (opened: boolean) => void },
): () => void {
  let opened = false;
  let over = false;
  socket.onopen = () => {
    opened = true;
  };
  socket.onmessage = (message) => {
    if (over || typeof message.data !== 'string') return;
    try {
      handlers.event(JSON.parse(message.data) as WatchEvent<T>);
    } catch {
      socket.close(); // what can't be read is listed again
    }
  };
  socket.onclose = () => {
    if (over) return;
    over = true;
    handlers.closed(opened);
  };
  return () => {
    over = true;
    socket.close();
  };
}
