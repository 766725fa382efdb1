// Asks the API server what the user may do in a namespace: once by its rules, and singly where it can't list them all.
import { useCallback, useEffect, useState, useSyncExternalStore } from 'react';
import { post } from './client';
import { allows, wishText, type Rule, type Wish } from './rights';

interface Known {
  rules: Rule[];
  incomplete: boolean;
  // when it was asked
  at: number;
}

type Answer = 'yes' | 'no' | 'unknown';

const rules = new Map<string, Known>();
const asking = new Set<string>();
const singles = new Map<string, Answer | 'asked'>();
const listeners = new Set<() => void>();
let revision = 0;

const lifetime = 60_000;

function changed(): void {
  revision++;
  for (const listener of listeners) listener();
}

async function askRules(namespace: string): Promise<void> {
  if (asking.has(namespace)) return;
  asking.add(namespace);
  try {
    const review = await post<{ status?: { resourceRules?: Rule[]; incomplete?: boolean } }>(
      '/apis/authorization.k8s.io/v1/selfsubjectrulesreviews',
      { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectRulesReview', spec: { namespace } },
    );
    rules.set(namespace, { rules: review.status?.resourceRules ?? [], incomplete: review.status?.incomplete ?? false, at: Date.now() });
  } catch {
    rules.set(namespace, { rules: [], incomplete: true, at: Date.now() });
  }
  asking.delete(namespace);
  changed();
}

async function askSingle(id: string, namespace: string, wish: Wish): Promise<void> {
  singles.set(id, 'asked');
  const [resource, subresource] = wish.resource.split('/', 2);
  const resourceAttributes = { namespace, verb: wish.verb, group: wish.group, resource, subresource, name: wish.name };
  try {
    const review = await post<{ status?: { allowed?: boolean } }>(
      '/apis/authorization.k8s.io/v1/selfsubjectaccessreviews',
      { apiVersion: 'authorization.k8s.io/v1', kind: 'SelfSubjectAccessReview', spec: { resourceAttributes } },
    );
    singles.set(id, review.status?.allowed ? 'yes' : 'no');
  } catch {
    singles.set(id, 'unknown'); // the request itself will tell
  }
  changed();
}

export type May = (wish: Wish) => Answer;

// answerOf reads what is known, and notes a single question if the rules are incomplete.
function answerOf(namespace: string, wish: Wish, ask: (id: string, wish: Wish) => void): Answer {
  const known = rules.get(namespace);
  if (known === undefined) return 'unknown';
  if (allows(known.rules, wish)) return 'yes';
  if (!known.incomplete) return 'no';
  const id = `${namespace}|${wishText(wish)}|${wish.name ?? ''}`;
  const single = singles.get(id);
  if (single === undefined) ask(id, wish);
  return single === undefined || single === 'asked' ? 'unknown' : single;
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

// useRightsIn answers for several namespaces: a wish is granted if it is in all of them.
export function useRightsIn(namespaces: readonly string[]): May {
  const now = useSyncExternalStore(subscribe, () => revision);
  const key = namespaces.join(',');
  const [open] = useState(() => new Map<string, [string, Wish]>());
  // A page that opens asks again for what may have changed; until the answer the old one is good.
  useEffect(() => {
    for (const namespace of key.split(',')) {
      const known = rules.get(namespace);
      if (namespace !== '' && (known === undefined || Date.now() - known.at > lifetime)) void askRules(namespace);
    }
  }, [key]);
  useEffect(() => {
    for (const [id, [namespace, wish]] of open) if (!singles.has(id)) void askSingle(id, namespace, wish);
    open.clear();
  });
  return useCallback(
    (wish: Wish) => {
      const answers = key.split(',').map((ns) => answerOf(ns, wish, (id, w) => open.set(id, [ns, w])));
      if (answers.includes('no')) return 'no';
      return answers.every((a) => a === 'yes') ? 'yes' : 'unknown';
    },
    // eslint-disable-next-line react-hooks/exhaustive-deps -- a new revision may have other answers
    [key, open, now],
  );
}

export function useRights(namespace: string): May {
  return useRightsIn([namespace]);
}
