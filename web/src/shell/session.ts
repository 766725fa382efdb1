// The session with the server. The address of virtctl web has a code in the fragment, which is good once; the server answers
// with a cookie and a secret, and wants both with each request. In a cluster people sign in, and the cookie is the session.
import { provenNow, setSession } from '../kube/client';
import { asFailure, Failure, fromBody } from '../kube/failure';
import { follow, keepFor, type Change } from './account';
import { askTabs, offer } from './tabs';

export interface SessionFacts {
  namespace: string;
  context: string;
  server: string;
}

export type Opened = { facts: SessionFacts } | { failure: Failure | undefined } | { signIn: true };

const place = 'drydock-session';
const keyPlace = 'drydock-session-key';

// takeCode returns the code of the address, and removes it from there and from the history.
export function takeCode(): string | undefined {
  const found = /^#code=([A-Za-z0-9_-]+)$/.exec(location.hash);
  if (!found) return undefined;
  history.replaceState(null, '', '#/machines');
  return found[1];
}

interface Answer {
  user?: string;
  secret?: string;
  proof?: string;
  namespace?: string;
  context?: string;
  server?: string;
}

async function ask(init: RequestInit): Promise<Answer> {
  const response = await fetch('/session', { cache: 'no-store', credentials: 'same-origin', redirect: 'error', ...init });
  const text = await response.text();
  if (!response.ok) throw fromBody(response.status, text);
  return JSON.parse(text) as Answer;
}

// In a cluster a page asks for its half of the session, and says that it is a page of this origin, which others can't.
const ofThePage = 'cluster';
const header = 'X-Drydock-Session';

let user: string | undefined;
let half = ofThePage;
let tellTabs: (change: Change) => void = () => undefined;

// account is who has signed in, or undefined with virtctl web.
export const account = (): string | undefined => user;

function begin(secret: string, key: string | undefined, answer: Answer, ended: (foreign: boolean) => void): Opened {
  setSession({ secret, key, ended });
  if (key !== undefined) offer({ secret, key }, provenNow);
  return { facts: { namespace: answer.namespace ?? '', context: answer.context ?? '', server: answer.server ?? '' } };
}

function beginAnew(): void {
  location.reload();
}

async function signsIn(): Promise<boolean> {
  return (await fetch('/signin', { cache: 'no-store', credentials: 'same-origin', redirect: 'error' })).ok;
}

// signIn begins a session with a token, which the page does not keep. The page begins anew, since it may still have what
// another person has seen.
export async function signIn(token: string): Promise<void> {
  await ask({ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ token }) });
  tellTabs('in');
  beginAnew();
}

export async function signOut(): Promise<void> {
  // A draft is of the one who wrote it.
  sessionStorage.clear();
  await ask({ method: 'DELETE', headers: { [header]: half } }).catch(() => undefined);
  tellTabs('out');
  beginAnew();
}

async function openInCluster(ended: (foreign: boolean) => void): Promise<Opened> {
  try {
    const answer = await ask({ headers: { [header]: ofThePage } });
    user = answer.user ?? '';
    half = answer.secret ?? ofThePage;
    keepFor(user, sessionStorage);
    return begin(half, undefined, answer, ended);
  } catch (error) {
    const failure = asFailure(error);
    return failure.code === 401 ? { signIn: true } : { failure };
  }
}

async function keptOrShared(): Promise<{ secret: string; key: string } | undefined> {
  const secret = sessionStorage.getItem(place);
  const key = sessionStorage.getItem(keyPlace);
  if (secret !== null && key !== null) return { secret, key };
  const shared = await askTabs();
  if (shared) keep(shared.secret, shared.key);
  return shared;
}

function keep(secret: string, key: string): void {
  sessionStorage.setItem(place, secret);
  sessionStorage.setItem(keyPlace, key);
}

async function exchange(code: string): Promise<{ secret: string; key: string; answer: Answer }> {
  const answer = await ask({ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code }) });
  if (!answer.secret || !answer.proof) throw new Failure(500, '', 'the server sent no session');
  keep(answer.secret, answer.proof);
  return { secret: answer.secret, key: answer.proof, answer };
}

// openSession uses the code, or else the secret that this tab kept over a reload, or that another tab has.
export async function openSession(code: string | undefined, ended: (foreign: boolean) => void): Promise<Opened> {
  const over = (foreign: boolean): void => {
    // What is kept in the tab, a draft too, would be read by a page that somebody else serves at this address.
    sessionStorage.clear();
    ended(foreign);
  };
  try {
    if (code !== undefined) {
      const { secret, key, answer } = await exchange(code);
      return begin(secret, key, answer, over);
    }
    // Nobody else serves a cluster's address, so that a form's draft may stay for the next signing in.
    if (await signsIn()) {
      tellTabs = follow(sessionStorage, beginAnew);
      return await openInCluster(ended);
    }
    const found = await keptOrShared();
    if (!found) return { failure: undefined };
    return begin(found.secret, found.key, await ask({ headers: { [header]: found.secret } }), over);
  } catch (error) {
    return { failure: asFailure(error) };
  }
}
