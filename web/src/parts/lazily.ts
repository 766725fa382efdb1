// Parts of the page that are loaded when they are needed: only from the server that served the page.
import { createElement, lazy, type ComponentProps, type ComponentType, type FunctionComponent } from 'react';
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

// React keeps a failure for ever; these load the part again.
const failed = new Set<() => void>();

// forgetFailures lets the parts that could not be loaded be loaded again.
export function forgetFailures(): void {
  for (const renew of failed) renew();
  failed.clear();
}

// lazily returns a component that loads another one when it is first shown, and ready has resolved.
// eslint-disable-next-line @typescript-eslint/no-explicit-any -- as React's own type has it
export function lazily<T extends ComponentType<any>>(
  load: () => Promise<{ default: T }>,
  ready: () => Promise<void> = whenAssured,
): FunctionComponent<ComponentProps<T>> {
  const begin = (): ComponentType<ComponentProps<T>> => lazy(async () => {
    try {
      await ready();
      return await load();
    } catch (error) {
      failed.add(() => {
        part = begin();
      });
      throw error;
    }
  }) as ComponentType<ComponentProps<T>>;
  let part = begin();
  return function Lazily(props: ComponentProps<T>) {
    return createElement(part, props);
  };
}
