import assert from 'node:assert/strict';
import { test } from 'node:test';
import { follow, keepFor } from '../src/shell/account';

class Kept {
  values = new Map<string, string>();
  getItem = (key: string): string | null => this.values.get(key) ?? null;
  setItem = (key: string, value: string): void => void this.values.set(key, value);
  clear = (): void => { this.values.clear(); };
}

test('a draft stays for the one who wrote it, and for nobody else', () => {
  const kept = new Kept();
  keepFor('alice', kept);
  kept.setItem('draft', 'password: secret');
  keepFor('alice', kept);
  assert.equal(kept.getItem('draft'), 'password: secret');
  keepFor('bob', kept);
  assert.equal(kept.getItem('draft'), null);
  kept.setItem('draft', 'of bob');
  keepFor('', kept);
  assert.equal(kept.getItem('draft'), null);
});

test('a draft of nobody is removed', () => {
  const kept = new Kept();
  kept.setItem('draft', 'password: secret');
  keepFor('alice', kept);
  assert.equal(kept.getItem('draft'), null);
});

for (const [change, stays] of [['out', false], ['in', true]] as const) {
  test(`a tab begins anew when somebody signs ${change} in another one`, async () => {
    const channels = [new BroadcastChannel(`account-${change}`), new BroadcastChannel(`account-${change}`)] as const;
    const kept = new Kept();
    kept.setItem('draft', 'x');
    const reloaded = new Promise<void>((resolve) => { follow(kept, resolve, channels[0]); });
    const tell = follow(new Kept(), () => { throw new Error('the tab itself begins anew'); }, channels[1]);
    channels[1].postMessage('anything else');
    tell(change);
    await reloaded;
    assert.equal(kept.getItem('draft') !== null, stays);
    for (const channel of channels) channel.close();
  });
}
