import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Turns, waitAfter, type Clock } from '../src/pictures/turns';

// A clock that only the test moves.
class Hand implements Clock {
  private at = 0;
  private alarms = new Set<{ at: number; run: () => void }>();

  readonly now = (): number => this.at;
  readonly later = (run: () => void, milliseconds: number): (() => void) => {
    const alarm = { at: this.at + milliseconds, run };
    this.alarms.add(alarm);
    return () => this.alarms.delete(alarm);
  };

  async pass(milliseconds: number): Promise<void> {
    const end = this.at + milliseconds;
    for (;;) {
      const first = [...this.alarms].sort((a, b) => a.at - b.at)[0];
      if (!first || first.at > end) break;
      this.alarms.delete(first);
      this.at = first.at;
      first.run();
      await new Promise((done) => setImmediate(done));
    }
    this.at = end;
  }
}

test('pictures are taken two at a time, each guest’s in its turn', async () => {
  const clock = new Hand();
  const turns = new Turns(clock);
  const taken = new Map<number, number>();
  let now = 0;
  let most = 0;
  for (let i = 0; i < 20; i++) {
    turns.add(async () => {
      most = Math.max(most, ++now);
      await new Promise<void>((done) => {
        clock.later(done, 900);
      });
      now--;
      taken.set(i, (taken.get(i) ?? 0) + 1);
    });
  }
  await clock.pass(59_000);
  assert.equal(most, 2);
  assert.equal(taken.size, 20);
  assert.deepEqual([...new Set(taken.values())].sort(), [4]);
});

test('thousands of guests cost no more than a few pictures a second', async () => {
  const clock = new Hand();
  const turns = new Turns(clock);
  const taken = new Set<number>();
  let all = 0;
  for (let i = 0; i < 5000; i++) {
    turns.add(() => {
      all++;
      taken.add(i);
      return Promise.resolve();
    });
  }
  await clock.pass(60_000);
  assert.ok(all <= 151, `${String(all)} pictures in a minute`);
  assert.equal(taken.size, all, 'a guest got a second picture before others got their first');
});

test('a guest whose picture does not come keeps no other one waiting', async () => {
  const clock = new Hand();
  const turns = new Turns(clock);
  let taken = 0;
  turns.add(() => new Promise(() => undefined));
  turns.add(() => {
    taken++;
    return Promise.resolve();
  });
  await clock.pass(59_000);
  assert.equal(taken, 4);
});

test('a guest that can be seen no longer gets none, and its request ends', async () => {
  const clock = new Hand();
  const turns = new Turns(clock);
  let ended = false;
  let taken = 0;
  const remove = turns.add((signal) => new Promise((_resolve, reject) => {
    taken++;
    signal.addEventListener('abort', () => {
      ended = true;
      reject(new Error('aborted'));
    });
  }));
  await clock.pass(10);
  remove();
  await clock.pass(600_000);
  assert.deepEqual([taken, ended], [1, true]);
});

test('nothing is taken while the tab is hidden', async () => {
  const clock = new Hand();
  const turns = new Turns(clock);
  let taken = 0;
  turns.sleep(true);
  turns.add(() => {
    taken++;
    return Promise.resolve();
  });
  await clock.pass(600_000);
  assert.equal(taken, 0);
  turns.sleep(false);
  await clock.pass(1);
  assert.equal(taken, 1);
});

test('hiding the tab ends the request that runs, which is no failure of the guest', async () => {
  const clock = new Hand();
  const turns = new Turns(clock);
  let begun = 0;
  turns.add((signal) => new Promise((_resolve, reject) => {
    begun++;
    signal.addEventListener('abort', () => {
      reject(new Error('aborted'));
    });
  }));
  await clock.pass(1);
  turns.sleep(true);
  await clock.pass(1);
  turns.sleep(false);
  await clock.pass(waitAfter(0));
  assert.equal(begun, 2);
});

test('a guest without a picture is asked ever more rarely, and often again after its first', async () => {
  const clock = new Hand();
  const turns = new Turns(clock);
  const at: number[] = [];
  turns.add(() => {
    at.push(clock.now());
    return at.length < 4 ? Promise.reject(new Error('no screen')) : Promise.resolve();
  });
  await clock.pass(300_000);
  const waits = at.slice(1).map((time, i) => time - (at[i] ?? 0));
  assert.deepEqual(waits.slice(0, 4), [30_000, 60_000, 120_000, 15_000]);
  assert.equal(waitAfter(1000), 300_000);
});
