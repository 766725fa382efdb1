// Whether pictures of guests' screens are shown: remembered by the browser.
import { useSyncExternalStore } from 'react';

const place = 'drydock-pictures';
const off = 'off';
const listeners = new Set<() => void>();

function shownNow(): boolean {
  return localStorage.getItem(place) !== off;
}

export function showPictures(on: boolean): void {
  if (on) localStorage.removeItem(place);
  else localStorage.setItem(place, off);
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function usePictures(): boolean {
  return useSyncExternalStore(subscribe, shownNow);
}
