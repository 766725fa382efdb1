import { useSyncExternalStore } from 'react';
import { formatRoute, parseRoute, type Route } from './route';

let last = '';
let parsed: Route = parseRoute('');

function current(): Route {
  if (location.hash !== last) {
    last = location.hash;
    parsed = parseRoute(last);
  }
  return parsed;
}

const listeners = new Set<() => void>();

function changed(): void {
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  if (listeners.size === 0) window.addEventListener('hashchange', changed);
  listeners.add(listener);
  return () => {
    listeners.delete(listener);
    if (listeners.size === 0) window.removeEventListener('hashchange', changed);
  };
}

export function useRoute(): Route {
  return useSyncExternalStore(subscribe, current);
}

export function goTo(route: Route): void {
  location.hash = formatRoute(route);
}

// replaceRoute leaves no entry for the back button: for filters, which change with each key.
export function replaceRoute(route: Route): void {
  history.replaceState(null, '', formatRoute(route));
  changed();
}
