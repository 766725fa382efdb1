import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cut, Failure, tooLarge } from '../src/kube/failure';
import { Follower, type Clock, type WatchHandlers } from '../src/kube/follower';
import type { KubeObject, List, WatchEvent } from '../src/kube/types';

const object = (name: string, version: string): KubeObject => ({ metadata: { name, resourceVersion: version } });

// A server that the test answers for, and a clock that the test moves.
class Server {
  pages: { token: string | undefined; limit: number; answer: (list: List<KubeObject>) => void; refuse: (e: unknown) => void; signal: AbortSignal }[] = [];
  watches: { version: string; handlers: WatchHandlers<KubeObject>; closed: boolean }[] = [];
  timers: { run: () => void; milliseconds: number; canceled: boolean }[] = [];
  batches: (() => void)[] = [];

  clock: Clock = {
    later: (run, milliseconds) => {
      const timer = { run, milliseconds, canceled: false };
      this.timers.push(timer);
      return () => {
        timer.canceled = true;
      };
    },
    random: () => 1,
    batch: (run) => {
      this.batches.push(run);
    },
  };

  follower = new Follower<KubeObject>(
    {
      page: (token, limit, signal) => new Promise((answer, refuse) => this.pages.push({ token, limit, answer, refuse, signal })),
      watch: (version, handlers) => {
        const watch = { version, handlers, closed: false };
        this.watches.push(watch);
        return () => {
          watch.closed = true;
        };
      },
    },
    this.clock,
  );

  send(...events: WatchEvent<KubeObject>[]): void {
    for (const event of events) this.watches.at(-1)?.handlers.event(event);
    for (const run of this.batches.splice(0)) run();
  }

  async answer(list: List<KubeObject>): Promise<void> {
    this.pages.at(-1)?.answer(list);
    await settle();
  }

  fire(): number {
    const timer = this.timers.at(-1);
    assert.ok(timer && !timer.canceled);
    timer.run();
    return timer.milliseconds;
  }
}

const settle = (): Promise<void> => new Promise((done) => setImmediate(done));

async function watching(): Promise<Server> {
  const server = new Server();
  server.follower.start();
  await server.answer({ metadata: { resourceVersion: '10' }, items: [object('a', '1')] });
  return server;
}

test('all pages are read, then the watch begins at the version of the last one', async () => {
  const server = new Server();
  server.follower.start();
  await server.answer({ metadata: { continue: 'more', resourceVersion: '9' }, items: [object('a', '1')] });
  assert.equal(server.pages[1]?.token, 'more');
  assert.equal(server.watches.length, 0);
  await server.answer({ metadata: { resourceVersion: '10' }, items: [object('b', '2')] });
  assert.equal(server.watches[0]?.version, '10');
  assert.equal(server.follower.get().byKey.size, 2);
});

test('events of one batch are published once', async () => {
  const server = await watching();
  let published = 0;
  server.follower.subscribe(() => published++);
  server.send({ type: 'ADDED', object: object('b', '11') }, { type: 'ADDED', object: object('c', '12') });
  assert.equal(published, 1);
  assert.equal(server.follower.get().byKey.size, 3);
});

test('a closed watch goes on from the last version after a wait', async () => {
  const server = await watching();
  server.send({ type: 'ADDED', object: object('b', '11') });
  server.watches[0]?.handlers.closed(true);
  assert.equal(server.follower.get().phase, 'waiting');
  assert.equal(server.fire(), 1000);
  assert.deepEqual([server.watches.length, server.watches[1]?.version, server.pages.length], [2, '11', 1]);
});

test('a watch that could not begin is followed by a list, which says why', async () => {
  const server = await watching();
  server.watches[0]?.handlers.closed(false);
  server.fire();
  assert.equal(server.pages.length, 2);
  server.pages[1]?.refuse(new Failure(503, '', 'no API server'));
  await settle();
  const items = server.follower.get();
  assert.deepEqual([items.phase, items.failure?.message, items.byKey.size, items.complete], ['waiting', 'no API server', 1, true]);
});

test('a list that may not be read is asked for again only by the user', async () => {
  const server = new Server();
  server.follower.start();
  server.pages[0]?.refuse(new Failure(403, 'Forbidden', 'no right'));
  await settle();
  assert.deepEqual([server.follower.get().phase, server.timers.length], ['refused', 0]);
  server.follower.retry();
  assert.equal(server.pages.length, 2);
});

test('410 is followed by a list at once', async () => {
  const server = await watching();
  server.send({ type: 'ERROR', object: { code: 410 } as unknown as KubeObject });
  assert.equal(server.pages.length, 2);
  assert.equal(server.watches[0]?.closed, true);
});

test('waits grow with each failure and begin anew after an event', async () => {
  const server = await watching();
  server.watches[0]?.handlers.closed(true);
  assert.equal(server.fire(), 1000);
  server.watches[1]?.handlers.closed(true);
  assert.equal(server.fire(), 2000);
  server.send({ type: 'ADDED', object: object('z', '30') });
  server.watches[2]?.handlers.closed(true);
  assert.equal(server.fire(), 1000);
});

test('stop closes the watch, keeps what came and goes on from there; late events change nothing', async () => {
  const server = await watching();
  const watch = server.watches[0];
  watch?.handlers.event({ type: 'ADDED', object: object('b', '11') });
  server.follower.stop();
  assert.deepEqual([watch?.closed, server.follower.get().phase, server.follower.get().byKey.size], [true, 'paused', 2]);
  server.send({ type: 'ADDED', object: object('late', '12') });
  assert.equal(server.follower.get().byKey.size, 2);
  server.follower.start();
  assert.equal(server.watches[1]?.version, '11');
});

test('stop during a list ends the request, and its late answer changes nothing', async () => {
  const server = new Server();
  server.follower.start();
  server.follower.stop();
  assert.equal(server.pages[0]?.signal.aborted, true);
  await server.answer({ metadata: { resourceVersion: '10' }, items: [object('a', '1')] });
  assert.deepEqual([server.follower.get().byKey.size, server.watches.length], [0, 0]);
});

test('a retry ends the wait', async () => {
  const server = await watching();
  server.watches[0]?.handlers.closed(true);
  server.follower.retry();
  assert.equal(server.timers[0]?.canceled, true);
  assert.equal(server.watches.length, 2);
});

test('a page whose objects are too large is asked for with fewer of them, and later ones, too', async () => {
  const server = new Server();
  server.follower.start();
  for (const [i, reason] of [cut, tooLarge, cut].entries()) {
    server.pages[i]?.refuse(new Failure(502, reason, 'it is too large'));
    await settle();
    server.fire();
  }
  await server.answer({ metadata: { continue: 'more' }, items: [] });
  assert.deepEqual(server.pages.map((p) => p.limit), [500, 100, 20, 20, 20]);
});

test('a server that can not be reached is no reason to ask for fewer objects', async () => {
  const server = new Server();
  server.follower.start();
  server.pages[0]?.refuse(new Failure(0, '', 'it is gone'));
  await settle();
  server.fire();
  assert.equal(server.pages[1]?.limit, 500);
});
