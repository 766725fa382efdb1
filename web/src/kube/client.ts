// Requests to the Kubernetes API by way of the server that served the page.
import { asFailure, cut, Failure, fromBody, unreachable } from './failure';
import type { Source } from './follower';
import { collection, withQuery, type Kind, type Query } from './paths';
import type { KubeObject, List, WatchEvent } from './types';

// The page's half of the session, beside the cookie.
export interface Session {
  secret: string;
  // Called when the server no longer knows the session.
  ended: () => void;
}

let session: Session | undefined;

export function setSession(value: Session): void {
  session = value;
}

const secretHeader = 'X-Drydock-Session';
const secretProtocol = 'drydock.session.';
const watchProtocol = 'watch.drydock.dev';

function current(): Session {
  if (!session) throw new Failure(401, 'Unauthorized', 'there is no session');
  return session;
}

export interface Call {
  method?: string;
  body?: unknown;
  contentType?: string;
  signal?: AbortSignal;
}

// A request without an answer for so long is given up.
const patience = 60_000;

export async function request<T>(path: string, call: Call = {}): Promise<T> {
  const { secret, ended } = current();
  const headers: Record<string, string> = { Accept: 'application/json', [secretHeader]: secret };
  if (call.body !== undefined) headers['Content-Type'] = call.contentType ?? 'application/json';
  const init: RequestInit = {
    method: call.method ?? 'GET',
    headers,
    body: call.body === undefined ? undefined : JSON.stringify(call.body),
    cache: 'no-store',
    redirect: 'error',
    signal: call.signal ? AbortSignal.any([call.signal, AbortSignal.timeout(patience)]) : AbortSignal.timeout(patience),
  };
  let response: Response | undefined;
  let text: string;
  try {
    response = await fetch(path, init);
    text = await response.text();
  } catch (error) {
    throw new Failure(unreachable, response ? cut : '', asFailure(error).message);
  }
  if (!response.ok) {
    const failure = fromBody(response.status, text);
    if (response.status === 401) ended();
    throw failure;
  }
  if (text.trim() === '') return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    return text as T;
  }
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
      return watchBySocket<T>(openSocket(address, watchProtocol), handlers);
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
