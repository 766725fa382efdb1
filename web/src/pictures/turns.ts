// When which picture of a guest's screen is taken. A node takes one at a time, and each costs its QEMU a drawing of the whole
// screen: so two are taken at a time, one of which may be slow, and each guest's not more often than needed.

export interface Clock {
  now: () => number;
  later: (run: () => void, milliseconds: number) => () => void;
}

// Milliseconds between the pictures of one guest, and between any two.
const interval = 15_000;
const pause = 400;
const longestWait = 300_000;
const atOnce = 2;

interface Turn {
  take: (signal: AbortSignal) => Promise<void>;
  due: number;
  failures: number;
}

export function waitAfter(failures: number): number {
  return Math.min(longestWait, interval * 2 ** Math.min(failures, 10));
}

export class Turns {
  private turns = new Set<Turn>();
  private asleep = false;
  private running = new Map<Turn, AbortController>();
  private free = 0;
  private cancel: () => void = () => undefined;

  constructor(private readonly clock: Clock) {}

  // add has take called now and again until the returned function is called.
  add(take: (signal: AbortSignal) => Promise<void>): () => void {
    const turn: Turn = { take, due: this.clock.now(), failures: 0 };
    this.turns.add(turn);
    this.plan();
    return () => {
      this.turns.delete(turn);
      this.running.get(turn)?.abort();
      this.plan();
    };
  }

  sleep(asleep: boolean): void {
    this.asleep = asleep;
    if (asleep) for (const abort of this.running.values()) abort.abort();
    this.plan();
  }

  // The one that waits longest is next, if another may be taken now.
  private next(): Turn | undefined {
    if (this.asleep || this.running.size >= atOnce) return undefined;
    let found: Turn | undefined;
    for (const turn of this.turns) {
      if (!this.running.has(turn) && (!found || turn.due < found.due)) found = turn;
    }
    return found;
  }

  private plan(): void {
    this.cancel();
    this.cancel = () => undefined;
    const turn = this.next();
    if (!turn) return;
    const wait = Math.max(turn.due, this.free) - this.clock.now();
    this.cancel = this.clock.later(() => {
      void this.run();
    }, Math.max(0, wait));
  }

  private async run(): Promise<void> {
    const turn = this.next();
    if (!turn) return;
    const abort = new AbortController();
    this.running.set(turn, abort);
    this.free = this.clock.now() + pause;
    this.plan();
    try {
      await turn.take(abort.signal);
      turn.failures = 0;
    } catch {
      if (!abort.signal.aborted) turn.failures++; // the picture's place says that there is none
    }
    turn.due = this.clock.now() + waitAfter(turn.failures);
    this.running.delete(turn);
    this.plan();
  }
}
