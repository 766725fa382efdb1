// Draws only the rows of a long table that can be seen.
import { useLayoutEffect, useState, type RefObject } from 'react';
import { windowOf, type Window } from './window';

function scrollParent(of: HTMLElement): HTMLElement | undefined {
  for (let at = of.parentElement; at; at = at.parentElement) {
    const { overflowY } = getComputedStyle(at);
    if ((overflowY === 'auto' || overflowY === 'scroll') && at !== document.body) return at;
  }
  return undefined;
}

// Rows need one height; it is measured, since it depends on the width and the font.
const guessedHeight = 64;

function same(a: Window, b: Window): boolean {
  return a.first === b.first && a.end === b.end && a.before === b.before && a.after === b.after;
}

// useWindow watches the place of the rows of body. A row that is drawn has the attribute data-row.
export function useWindow(body: RefObject<HTMLElement | null>, count: number): Window {
  const [window_, setWindow] = useState<Window>(() => windowOf(count, guessedHeight, 0, 1000));
  useLayoutEffect(() => {
    const element = body.current;
    if (!element) return undefined;
    const parent = scrollParent(element);
    const update = (): void => {
      const rowHeight = element.querySelector<HTMLElement>('[data-row]')?.offsetHeight ?? guessedHeight;
      const box = element.getBoundingClientRect();
      const top = parent ? parent.getBoundingClientRect().top : 0;
      const height = parent ? parent.clientHeight : window.innerHeight;
      const next = windowOf(count, Math.max(rowHeight, 16), top - box.top, height);
      setWindow((old) => (same(old, next) ? old : next));
    };
    update();
    const target: HTMLElement | globalThis.Window = parent ?? window;
    target.addEventListener('scroll', update, { passive: true });
    window.addEventListener('resize', update);
    return () => {
      target.removeEventListener('scroll', update);
      window.removeEventListener('resize', update);
    };
  }, [body, count]);
  return window_;
}
