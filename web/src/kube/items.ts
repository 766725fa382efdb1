// The state of a list that is listed and then watched: pure, so that each order of events can be tested.
import type { Failure } from './failure';
import type { KubeObject, List, WatchEvent } from './types';

// refused: the server says that it can't be read; only the user asks again.
export type Phase = 'listing' | 'watching' | 'paused' | 'waiting' | 'refused';

export interface Items<T extends KubeObject> {
  phase: Phase;
  byKey: ReadonlyMap<string, T>;
  // The version to watch from; '' means that the list must be read.
  version: string;
  // Reports whether the whole list has been read at least once.
  complete: boolean;
  failure?: Failure;
  // Objects of a list that replaces a complete one, until its last page.
  pending?: Map<string, T>;
}

export function noItems<T extends KubeObject>(): Items<T> {
  return { phase: 'listing', byKey: new Map(), version: '', complete: false };
}

export function keyOf(object: KubeObject): string {
  return `${object.metadata.namespace ?? ''}/${object.metadata.name}`;
}

export function beginList<T extends KubeObject>(items: Items<T>): Items<T> {
  return { ...items, phase: 'listing', version: '', pending: new Map() };
}

// A first list is shown page by page; a later one replaces the old when it is complete.
export function addPage<T extends KubeObject>(items: Items<T>, page: List<T>): Items<T> {
  const pending = new Map(items.pending);
  for (const object of page.items ?? []) pending.set(keyOf(object), object);
  const last = !page.metadata?.continue;
  const version = last ? (page.metadata?.resourceVersion ?? '') : '';
  const byKey = last || !items.complete ? pending : items.byKey;
  return {
    ...items,
    byKey,
    version,
    complete: items.complete || last,
    pending: last ? undefined : pending,
    failure: undefined,
  };
}

export interface Applied<T extends KubeObject> {
  items: Items<T>;
  // The watch has ended: its version is too old (410), or the server reports an error.
  ended?: { relist: boolean; message: string };
}

function endOf(event: WatchEvent<unknown>): { relist: boolean; message: string } {
  const status = event.object as { code?: number; message?: string };
  return { relist: status.code === 410, message: status.message ?? '' };
}

export function applyEvents<T extends KubeObject>(items: Items<T>, events: readonly WatchEvent<T>[]): Applied<T> {
  let byKey: Map<string, T> | undefined;
  let version = items.version;
  let ended: Applied<T>['ended'];
  for (const event of events) {
    if (event.type === 'ERROR') {
      ended = endOf(event);
      break;
    }
    version = event.object.metadata.resourceVersion ?? version;
    if (event.type === 'BOOKMARK') continue;
    byKey ??= new Map(items.byKey);
    if (event.type === 'DELETED') byKey.delete(keyOf(event.object));
    else byKey.set(keyOf(event.object), event.object);
  }
  if (ended?.relist) version = '';
  return { items: { ...items, byKey: byKey ?? items.byKey, version }, ended };
}

// Milliseconds before try number n (from 0) after a loss; random is in [0, 1).
export function delay(attempt: number, random: number): number {
  const longest = Math.min(30_000, 1_000 * 2 ** Math.min(attempt, 5));
  return Math.round(longest * (0.5 + random / 2));
}
