import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Failure } from '../src/kube/failure';
import { keepRenewed, renewOver, waitOf, type Means } from '../src/shell/renewal';

// A server, and the time, which the test lets go by.
class World implements Means {
  left: number | undefined = 60;
  next: number | undefined = 60;
  fails: Failure | undefined;
  log: string[] = [];
  run: (() => void) | undefined;

  later = (run: () => void, milliseconds: number): void => {
    this.log.push(`wait ${String(milliseconds / 1000)}`);
    this.run = run;
  };
  alone = (run: () => Promise<number | undefined>): Promise<number | undefined> => run();
  look = (): Promise<number | undefined> => Promise.resolve(this.left);
  renew = (): Promise<number | undefined> => {
    this.log.push('renew');
    if (this.fails) return Promise.reject(this.fails);
    this.left = this.next;
    return Promise.resolve(this.left);
  };

  async goOn(left: number | undefined): Promise<string[]> {
    this.log = [];
    this.left = left;
    const run = this.run;
    this.run = undefined;
    run?.();
    await new Promise((done) => setImmediate(done));
    return this.log;
  }
}

test('a session is renewed before its token is over', async () => {
  const world = new World();
  keepRenewed(60, world);
  assert.deepEqual(world.log, ['wait 45']);
  world.next = 100;
  assert.deepEqual(await world.goOn(15), ['renew', 'wait 75']);
});

test('what another tab has renewed is not renewed again', async () => {
  const world = new World();
  keepRenewed(60, world);
  assert.deepEqual(await world.goOn(58), ['wait 43.5']);
});

test('a provider that is away is asked again, and one that refuses is not', async () => {
  const world = new World();
  keepRenewed(60, world);
  world.fails = new Failure(502, '', 'away');
  assert.deepEqual(await world.goOn(15), ['renew', 'wait 15']);
  world.fails = new Failure(401, '', 'no');
  assert.deepEqual(await world.goOn(1), ['renew']);
  assert.equal(world.run, undefined);
});

test('a session that can no longer be renewed is left alone', async () => {
  const world = new World();
  keepRenewed(60, world);
  assert.deepEqual(await world.goOn(undefined), []);
});

test('waits are bounded', () => {
  assert.deepEqual([waitOf(-5), waitOf(1), waitOf(1e9)], [5, 5, 12 * 3600]);
});

test('only a token that is over is renewed after a refusal, so that a refusal of another reason is no loop', async () => {
  const world = new World();
  for (const [left, want] of [[-1, true], [0, true], [10, false], [undefined, false]] as const) {
    world.left = left;
    assert.equal(await renewOver(world), want);
  }
  world.left = -1;
  world.next = 0;
  assert.equal(await renewOver(world), false);
  world.fails = new Failure(401, '', 'no');
  assert.equal(await renewOver(world), false);
});
