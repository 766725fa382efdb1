// The lists that the pages share: one follower for each kind, namespace and selection, kept as long as it is in use.
import { useEffect, useMemo, useSyncExternalStore } from 'react';
import { sourceOf, type Selection } from './client';
import { Follower, type Clock } from './follower';
import { noItems, type Items } from './items';
import type { Kind } from './paths';
import type { KubeObject } from './types';

const clock: Clock = {
  later: (run, milliseconds) => {
    const timer = setTimeout(run, milliseconds);
    return () => {
      clearTimeout(timer);
    };
  },
  random: Math.random,
  // Not by requestAnimationFrame: that waits while the tab is hidden, and events would be kept without bound.
  batch: (run) => {
    setTimeout(run, 50);
  },
};

// How long a list that no page shows is followed: for the way to another page and back.
const grace = 20_000;
// How long lists are followed while the tab is hidden.
const hiddenGrace = 30_000;

interface Entry {
  follower: Follower<KubeObject>;
  users: number;
  stop?: ReturnType<typeof setTimeout>;
}

const entries = new Map<string, Entry>();
let asleep = false;
let sleep: ReturnType<typeof setTimeout> | undefined;

function setAsleep(value: boolean): void {
  asleep = value;
  for (const { follower } of entries.values()) {
    if (asleep) follower.stop();
    else follower.start();
  }
}

export function followVisibility(page: Document): void {
  page.addEventListener('visibilitychange', () => {
    clearTimeout(sleep);
    if (page.visibilityState === 'visible') {
      if (asleep) setAsleep(false);
      return;
    }
    sleep = setTimeout(() => {
      setAsleep(true);
    }, hiddenGrace);
  });
}

function entryOf(kind: Kind, namespace: string, selection: Selection): { id: string; entry: Entry } {
  const id = [kind.group, kind.resource, namespace, selection.fields ?? '', selection.labels ?? ''].join('|');
  let entry = entries.get(id);
  if (!entry) {
    entry = { follower: new Follower<KubeObject>(sourceOf(kind, namespace, selection), clock), users: 0 };
    entries.set(id, entry);
  }
  return { id, entry };
}

function use(id: string, entry: Entry): () => void {
  entries.set(id, entry);
  entry.users++;
  clearTimeout(entry.stop);
  if (!asleep) entry.follower.start();
  return () => {
    entry.users--;
    if (entry.users > 0) return;
    entry.stop = setTimeout(() => {
      entry.follower.stop();
      if (entries.get(id) === entry) entries.delete(id);
    }, grace);
  };
}

const nothing: Items<KubeObject> = noItems<KubeObject>();

export interface Followed<T extends KubeObject> extends Items<T> {
  retry: () => void;
}

// useList follows a list while the component exists. Without a kind it follows nothing.
export function useList<T extends KubeObject>(kind: Kind | undefined, namespace = '', selection: Selection = {}): Followed<T> {
  const { fields, labels } = selection;
  const found = useMemo(() => kind && entryOf(kind, namespace, { fields, labels }), [kind, namespace, fields, labels]);
  useEffect(() => found && use(found.id, found.entry), [found]);
  const items = useSyncExternalStore(
    useMemo(() => found?.entry.follower.subscribe ?? (() => () => undefined), [found]),
    useMemo(() => found?.entry.follower.get ?? (() => nothing), [found]),
  ) as Items<T>;
  return useMemo(() => ({ ...items, retry: () => found?.entry.follower.retry() }), [items, found]);
}
