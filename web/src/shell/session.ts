// The session with the server. Its address has a code in the fragment, which is good once; the server answers with a
// cookie and a secret, and wants both with each request.
import { setSession } from '../kube/client';
import { asFailure, Failure, fromBody } from '../kube/failure';

export interface SessionFacts {
  namespace: string;
  context: string;
  server: string;
}

export type Opened = { facts: SessionFacts } | { failure: Failure | undefined };

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

function begin(secret: string, key: string, answer: Answer, ended: (foreign: boolean) => void): Opened {
  setSession({ secret, key, ended });
  return { facts: { namespace: answer.namespace ?? '', context: answer.context ?? '', server: answer.server ?? '' } };
}

async function exchange(code: string): Promise<{ secret: string; key: string; answer: Answer }> {
  const answer = await ask({ method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify({ code }) });
  if (!answer.secret || !answer.proof) throw new Failure(500, '', 'the server sent no session');
  sessionStorage.setItem(place, answer.secret);
  sessionStorage.setItem(keyPlace, answer.proof);
  return { secret: answer.secret, key: answer.proof, answer };
}

// openSession uses the code, or else the secret that this tab kept over a reload.
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
    const secret = sessionStorage.getItem(place);
    const key = sessionStorage.getItem(keyPlace);
    if (secret === null || key === null) return { failure: undefined };
    return begin(secret, key, await ask({ headers: { 'X-Drydock-Session': secret } }), over);
  } catch (error) {
    return { failure: asFailure(error) };
  }
}
