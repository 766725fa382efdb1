import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addPage, applyEvents, beginList, delay, noItems, type Items } from '../src/kube/items';
import type { KubeObject, WatchEvent } from '../src/kube/types';

const object = (name: string, version = '1'): KubeObject => ({ metadata: { name, namespace: 'a', resourceVersion: version } });
const names = (items: Items<KubeObject>): string[] => [...items.byKey.keys()].sort();

test('a first list is shown page by page, and has a version only when it is complete', () => {
  let items = beginList(noItems<KubeObject>());
  items = addPage(items, { metadata: { resourceVersion: '5', continue: 'x' }, items: [object('one')] });
  assert.deepEqual([names(items), items.version, items.complete], [['a/one'], '', false]);
  items = addPage(items, { metadata: { resourceVersion: '6' }, items: [object('two')] });
  assert.deepEqual([names(items), items.version, items.complete], [['a/one', 'a/two'], '6', true]);
});

test('a later list replaces the old one only with its last page', () => {
  let items = addPage(beginList(noItems<KubeObject>()), { metadata: { resourceVersion: '5' }, items: [object('old')] });
  items = addPage(beginList(items), { metadata: { continue: 'x' }, items: [object('new')] });
  assert.deepEqual(names(items), ['a/old']);
  items = addPage(items, { metadata: { resourceVersion: '9' }, items: [] });
  assert.deepEqual([names(items), items.version], [['a/new'], '9']);
});

const listed = addPage(noItems<KubeObject>(), { metadata: { resourceVersion: '5' }, items: [object('one'), object('two')] });

test('events change the items and move the version, and a bookmark moves only the version', () => {
  const events: WatchEvent<KubeObject>[] = [
    { type: 'ADDED', object: object('three', '6') },
    { type: 'DELETED', object: object('one', '7') },
    { type: 'MODIFIED', object: object('two', '8') },
    { type: 'BOOKMARK', object: { metadata: { name: '', resourceVersion: '20' } } },
  ];
  const { items, ended } = applyEvents(listed, events);
  assert.deepEqual([names(items), items.version, ended], [['a/three', 'a/two'], '20', undefined]);
  assert.equal(items.byKey.get('a/two')?.metadata.resourceVersion, '8');
});

test('a bookmark alone keeps the map, so that nothing is drawn again', () => {
  const { items } = applyEvents(listed, [{ type: 'BOOKMARK', object: { metadata: { name: '', resourceVersion: '9' } } }]);
  assert.equal(items.byKey, listed.byKey);
});

test('410 empties the version and keeps the items', () => {
  const gone = { code: 410, message: 'too old resource version' } as unknown as KubeObject;
  const { items, ended } = applyEvents(listed, [{ type: 'ADDED', object: object('x', '6') }, { type: 'ERROR', object: gone }]);
  assert.deepEqual(ended, { relist: true, message: 'too old resource version' });
  assert.deepEqual([names(items), items.version], [['a/one', 'a/two', 'a/x'], '']);
});

test('another error ends the watch without a claim that the version is old', () => {
  const error = { code: 500, message: 'no' } as unknown as KubeObject;
  const { items, ended } = applyEvents(listed, [{ type: 'ERROR', object: error }]);
  assert.deepEqual([ended?.relist, items.version], [false, '5']);
});

test('waits double up to half a minute and are spread', () => {
  assert.equal(delay(0, 0), 500);
  assert.equal(delay(0, 1), 1000);
  assert.equal(delay(3, 1), 8000);
  assert.equal(delay(50, 1), 30_000);
});
