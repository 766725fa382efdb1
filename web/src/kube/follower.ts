// A follower keeps one list true: it lists in pages, watches from there, lists again when told that its version is too
// old, waits longer after each failure, and asks nothing while it is paused.
import { asFailure, cut, tooLarge, type Failure } from './failure';
import { addPage, applyEvents, beginList, delay, noItems, type Items } from './items';
import type { KubeObject, List, WatchEvent } from './types';

export interface WatchHandlers<T> {
  event: (event: WatchEvent<T>) => void;
  // opened is false if the watch never began, so that the reason is unknown.
  closed: (opened: boolean) => void;
}

export interface Source<T extends KubeObject> {
  page: (token: string | undefined, limit: number, signal: AbortSignal) => Promise<List<T>>;
  watch: (version: string, handlers: WatchHandlers<T>) => () => void;
}

export interface Clock {
  later: (run: () => void, milliseconds: number) => () => void;
  random: () => number;
  // Events of one batch cost one rendering.
  batch: (run: () => void) => void;
}

// Answers that asking again does not change: no session, no right, no such kind.
const final = new Set([401, 403, 404]);

// Objects of a page. Any user's objects may be so large that a page of them does not pass; the fewest always do.
const most = 500;
const fewest = 20;

export class Follower<T extends KubeObject> {
  private items: Items<T> = noItems<T>();
  private listeners = new Set<() => void>();
  private attempt = 0;
  private limit = most;
  private cancel: () => void = () => undefined;
  private queue: WatchEvent<T>[] = [];
  private running = false;
  // Grows with each start and stop; what belongs to an older one is ignored.
  private era = 0;

  constructor(
    private readonly source: Source<T>,
    private readonly clock: Clock,
  ) {}

  readonly get = (): Items<T> => this.items;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  start(): void {
    if (this.running) return;
    this.running = true;
    this.next();
  }

  // stop closes the watch and keeps the items and their version, so that start goes on from there.
  stop(): void {
    if (!this.running) return;
    this.flush();
    this.running = false;
    this.era++;
    this.cancel();
    this.publish({ ...this.items, phase: 'paused', pending: undefined });
  }

  // retry ends a wait, for example because the user asks for it.
  retry(): void {
    if (!this.running || (this.items.phase !== 'waiting' && this.items.phase !== 'refused')) return;
    this.cancel();
    this.next();
  }

  private publish(items: Items<T>): void {
    this.items = items;
    for (const listener of this.listeners) listener();
  }

  private next(): void {
    this.era++;
    if (this.items.version === '') void this.list(this.era);
    else this.watch(this.era);
  }

  private async list(era: number): Promise<void> {
    const abort = new AbortController();
    this.cancel = () => {
      abort.abort();
    };
    this.publish(beginList(this.items));
    try {
      let token: string | undefined;
      do {
        const page: List<T> = await this.source.page(token, this.limit, abort.signal);
        if (era !== this.era) return;
        this.publish(addPage(this.items, page));
        token = page.metadata?.continue;
      } while (token);
      this.next();
    } catch (error) {
      if (era === this.era) this.fail(asFailure(error));
    }
  }

  private fail(failure: Failure): void {
    const items: Items<T> = { ...this.items, failure, version: '', pending: undefined };
    if (failure.reason === cut || failure.reason === tooLarge) this.limit = Math.max(fewest, this.limit / 5);
    if (final.has(failure.code)) {
      this.era++;
      this.publish({ ...items, phase: 'refused' });
    } else {
      this.wait(items);
    }
  }

  private watch(era: number): void {
    const close = this.source.watch(this.items.version, {
      event: (event) => {
        if (era !== this.era) return;
        this.attempt = 0;
        this.queue.push(event);
        if (this.queue.length === 1) {
          this.clock.batch(() => {
            if (era === this.era) this.flush();
          });
        }
      },
      closed: (opened) => {
        if (era !== this.era) return;
        this.flush();
        if (era !== this.era) return;
        // A list says why a watch can't begin.
        this.wait(opened ? this.items : { ...this.items, version: '' });
      },
    });
    this.cancel = close;
    this.publish({ ...this.items, phase: 'watching', failure: undefined });
  }

  private flush(): void {
    const events = this.queue;
    this.queue = [];
    if (events.length === 0) return;
    const { items, ended } = applyEvents(this.items, events);
    if (!ended) {
      this.publish(items);
      return;
    }
    this.cancel();
    if (ended.relist) {
      this.publish(items);
      this.next();
    } else {
      this.wait({ ...items, version: '' });
    }
  }

  private wait(items: Items<T>): void {
    this.era++;
    const stop = this.clock.later(() => {
      this.next();
    }, delay(this.attempt++, this.clock.random()));
    this.cancel = stop;
    this.publish({ ...items, phase: 'waiting' });
  }
}
