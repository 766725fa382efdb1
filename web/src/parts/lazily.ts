// Parts of the page that are loaded when they are needed: only from the server that served the page.
import { lazy, type ComponentType, type LazyExoticComponent } from 'react';
import { assured } from '../kube/client';
import { asFailure, unreachable } from '../kube/failure';

const pause = 2_000;

async function whenAssured(): Promise<void> {
  for (;;) {
    try {
      await assured();
      return;
    } catch (error) {
      if (asFailure(error).code !== unreachable) throw error;
      await new Promise((later) => setTimeout(later, pause));
    }
  }
}

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as React's own type has it
export function lazily<T extends ComponentType<any>>(load: () => Promise<{ default: T }>): LazyExoticComponent<T> {
  return lazy(async () => {
    await whenAssured();
    return load();
  });
}
