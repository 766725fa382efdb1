// The session with the server. The address of virtctl web has a code in the fragment, which is good once; the server answers
// with a cookie and a secret, and wants both with each request. In a cluster people sign in, and the cookie is the session.
import { provenNow, setSession } from '../kube/client';
import { asFailure, Failure, fromBody } from '../kube/failure';
import { follow, keepFor, type Change } from './account';
import { keepRenewed, renewOver, type Means } from './renewal';
import { askTabs, offer } from './tabs';

export interface SessionFacts {
  namespace: string;
  context: string;
  server: string;
}

export type Opened = { facts: SessionFacts } | { failure: Failure | undefined } | { signIn: true; provider: boolean };

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
  // In how many seconds the session needs a new token, if it can get one.
  renew?: number;
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

interface Ways {
  provider: boolean;
}

let ways: Ways = { provider: false };

// waysToSignIn returns undefined where nobody signs in.
async function waysToSignIn(): Promise<Ways | undefined> {
  const response = await fetch('/signin', { cache: 'no-store', credentials: 'same-origin', redirect: 'error' });
  if (!response.ok) return undefined;
  return { provider: (JSON.parse(await response.text()) as Partial<Ways>).provider === true };
}

const leaving = 'drydock-leaving';

// leaveForProvider goes to the identity provider, which leads back to this page.
export function leaveForProvider(): void {
  sessionStorage.setItem(leaving, 'yes');
  location.assign('/signin/begin');
}

const renewal: Means = {
  later: (run, milliseconds) => {
    setTimeout(run, milliseconds);
  },
  alone: async (run) => {
    let left: number | undefined;
    await navigator.locks.request('drydock-renewal', async () => {
      left = await run();
    });
    return left;
  },
  look: async () => (await ask({ headers: { [header]: half } })).renew,
  renew: async () => (await ask({ method: 'PUT', headers: { [header]: half, 'Content-Type': 'application/json' }, body: '{}' })).renew,
};

// sessionOver returns the next step when the server refuses this page's session.
export async function sessionOver(): Promise<Opened | undefined> {
  if (await renewOver(renewal)) {
    beginAnew();
    return undefined;
  }
  return { signIn: true, provider: ways.provider };
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
    if (answer.renew !== undefined && answer.renew <= 0) return (await sessionOver()) ?? { failure: undefined };
    const came = sessionStorage.getItem(leaving) !== null;
    sessionStorage.removeItem(leaving);
    keepFor(user, sessionStorage);
    if (came) tellTabs('in');
    if (answer.renew !== undefined) keepRenewed(answer.renew, renewal);
    return begin(half, undefined, answer, ended);
  } catch (error) {
    const failure = asFailure(error);
    return failure.code === 401 ? { signIn: true, provider: ways.provider } : { failure };
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
    const found = await waysToSignIn();
    if (found) {
      ways = found;
      tellTabs = follow(sessionStorage, beginAnew);
      return await openInCluster(ended);
    }
    const shared = await keptOrShared();
    if (!shared) return { failure: undefined };
    return begin(shared.secret, shared.key, await ask({ headers: { [header]: shared.secret } }), over);
  } catch (error) {
    return { failure: asFailure(error) };
  }
}
