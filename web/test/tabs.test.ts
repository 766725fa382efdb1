import assert from 'node:assert/strict';
import { test } from 'node:test';
import { askTabs, offer, openChannel } from '../src/shell/tabs';

const halves = { secret: 'a'.repeat(43), key: '0'.repeat(64) };
const soon = 300;

test('a new tab gets the session of another one', async () => {
  const stop = offer(halves, () => Promise.resolve(true));
  assert.deepEqual(await askTabs(), halves);
  stop();
});

test('a tab whose server is not proved tells nothing', async () => {
  for (const proven of [() => Promise.resolve(false), () => Promise.reject(new Error('unreachable'))]) {
    const stop = offer(halves, proven);
    assert.equal(await askTabs(undefined, soon), undefined);
    stop();
  }
});

test('without another tab there is no session', async () => {
  assert.equal(await askTabs(undefined, soon), undefined);
});

test('an answer that is no session is not taken', async () => {
  const other = openChannel();
  other.onmessage = () => {
    for (const answer of [null, 'x', { secret: halves.secret }, { ...halves, key: 'x' }, { ...halves, secret: '<' }]) other.postMessage(answer);
  };
  assert.equal(await askTabs(undefined, soon), undefined);
  other.close();
});
